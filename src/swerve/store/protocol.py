"""What every store keeps and promises: rows, batches, the protocol, and what can go wrong."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from swerve.core.errors import SwerveError

#: Who could not do its work: somebody else holds the store; no room left; bytes that cannot be read; the place is no longer
#: there; no answer in time; anything else that the system refused; and, of the store's own, rows that are not as expected.
Kind = Literal["locked", "full", "corrupt", "gone", "slow", "io", "conflict"]
Order = Literal["traffic", "shifted"]

DAY = 86_400.0  # seconds: rows know the day on which they were last seen

HEADER = struct.Struct("<qqqqd")


@dataclass(slots=True)
class Row:
    """One query's record, and what the store must know of it.

    `version` is the version that the row will have: the stored one must be `version - 1`, and 1 means that there is no such
    row yet. `day` is the day it was last seen on (unix seconds // 86400), `level` is floor(log2(requests + 1)), `shifted` the
    time of the last shift, or 0.
    """

    key: bytes
    version: int
    layout: int
    day: int
    level: int
    shifted: float
    record: bytes
    names: bytes

    def checksum(self) -> int:
        """CRC-32 over everything in the row: what is read is what was written, for this key and this version."""
        head = HEADER.pack(self.version, self.layout, self.day, self.level, self.shifted)
        return zlib.crc32(self.names, zlib.crc32(self.record, zlib.crc32(head, zlib.crc32(self.key))))


class Life(NamedTuple):
    """One time that a store is served, from its opening to its end.

    `store` and `mark` are random numbers of 63 bits: together they name this life among all lives of all stores, whatever was
    restored, copied or deleted in between. `id` is the store's own short number for the mark: its used decisions begin with it.
    """

    store: int
    mark: int
    id: int


class Size(NamedTuple):
    """How large a store is, in bytes of its data and of its log, and what is to be done about that next: so many rows are to go, so
    many are to be moved together. `over`: that cannot wait. `held`: the log is longer than it should be, because another program
    reads and does not end."""

    data: int = 0
    log: int = 0
    surplus: int = 0
    scattered: int = 0
    over: bool = False
    held: bool = False


@dataclass(slots=True)
class Batch:
    """What becomes durable together: rows (one for a key), used decision ids with their outcomes, this worker's groups."""

    rows: list[Row] = field(default_factory=list)
    used: list[tuple[int, int]] = field(default_factory=list)
    groups: dict[str, bytes] = field(default_factory=dict)


class StoreError(SwerveError):
    """The store could not do what it was asked.

    `keys` are the rows that are to blame, where that is known: the other rows of a batch can be committed without them.
    `uncertain` is True when the commit may or may not have happened: the same batch, tried again, then ends in a `Conflict` that
    shows its own versions and outcomes as stored.
    """

    def __init__(self, kind: Kind, message: str, *, keys: Iterable[bytes] = (), uncertain: bool = False) -> None:
        super().__init__(message)
        self.kind, self.keys, self.uncertain = kind, tuple(keys), uncertain


class Conflict(StoreError):  # noqa: N818 - what happened to the caller
    """Rows or decision ids are not in the store as the batch expects; nothing of the batch was written.

    `versions` has the stored version of every such row (0: there is none), `used` the outcome of every id used before.
    """

    def __init__(self, versions: Mapping[bytes, int], used: Mapping[int, int]) -> None:
        said = [f"row {key.hex()} is stored at version {version}" for key, version in versions.items()]
        said += [f"decision {number} was used before, with outcome {outcome}" for number, outcome in used.items()]
        more = f" and {len(said) - 3} more" if len(said) > 3 else ""
        super().__init__("conflict", f"nothing was committed: {'; '.join(said[:3])}{more}; load again and retry", keys=versions)
        self.versions, self.used = dict(versions), dict(used)


class Damaged(StoreError):  # noqa: N818 - what happened to the caller
    """One record cannot be read. `version` is its stored version, or 0 where even that is lost."""

    def __init__(self, key: bytes, version: int, message: str) -> None:
        super().__init__("corrupt", message, keys=[key])
        self.key, self.version = key, version


class InUse(SwerveError):  # noqa: N818 - what happened to the caller
    """Another process owns the store."""


@runtime_checkable
class Store(Protocol):
    """Rows by key, used decision ids, and pooled records, in a place that outlives the process.

    Any thread may call any method. `load`, `outcomes`, `scan`, `groups`, `layouts` and `count` never wait for a
    commit that another thread is in.
    """

    def load(self, keys: Sequence[bytes]) -> list[Row | Damaged | None]:
        """The rows in the order of the keys; None where there is none, `Damaged` in place of one that cannot be read."""

    def outcomes(self, ids: Sequence[int]) -> dict[int, int]:
        """Which of these decision ids were used, with what outcome."""

    def commit(self, batch: Batch) -> None:
        """Write all of the batch or nothing of it; durable when this returns. Raises `Conflict`, or another `StoreError`."""

    def groups(self) -> dict[tuple[str, str], bytes]:
        """Every pooled record by (name, worker). Raises `Damaged` when one cannot be read."""

    def scan(self, order: Order, limit: int) -> list[Row]:
        """The rows with most traffic, or those that shifted last. Damaged ones are left out."""

    def expire(self, before_day: int, ids_below: int, limit: int = 1000) -> tuple[int, int]:
        """Remove rows last seen before that day and used ids below that one, at most `limit` of each; how many went."""

    def size(self) -> Size:
        """How large the store is, and what is to be done about it."""

    def least(self, limit: int) -> list[bytes]:
        """The keys of the rows that are worth least, at most `limit`: those asked seldom, and not for long, first."""

    def forget(self, keys: Sequence[bytes]) -> int:
        """Remove these rows; how many went."""

    def gather(self, limit: int) -> int:
        """Move at most so many rows into places that have become free, so that pages become free; how many were moved."""

    def begin_life(self) -> Life:
        """A life that nothing was decided in before; durable."""

    def life_id(self, mark: int) -> int:
        """The store's number for a life of its own, given now if it has none: a restored store does not know those that came after
        its backup; durable."""

    def claim(self, owner: bytes) -> bool:
        """Note whose secrets the rows are kept under, by a fingerprint; False when they are kept under others."""

    def layouts(self) -> dict[int, str]:
        """The descriptions of all record layouts by their ids."""

    def add_layout(self, description: str) -> int:
        """The id of this layout, given now if it has none."""

    def count(self) -> int:
        """How many rows there are."""

    def probe(self) -> None:
        """Raise `StoreError` when the store cannot be written now."""

    def reopen(self) -> bool:
        """Let go of what is open and open what lies there now; whether it is the same store as before. Never makes a new one:
        where nothing lies, the store is "gone", and what is open stays open.

        When it is not the same, whatever the caller remembers of rows is about another store and must be dropped. On an error the
        store stays closed, and `reopen` can be called again.
        """

    def close(self) -> None:
        """Finish and let go of the store."""
