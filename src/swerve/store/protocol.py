"""The protocol that every store implements: a log of entries, rows as checkpoints, methods and errors.

What is durable is the log. Rows, outcomes and shared records are checkpoints: they have what the log says up to the number of an
entry, `Batch.begin`, and maybe more of single rows; who plays the log from that number on has everything. Each append and each
checkpoint is carried out only for the present owner of the store, by the engine itself.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from swerve.core.errors import SwerveError

if TYPE_CHECKING:
    from swerve.store.blocks import Block

#: Why the store failed: "locked", another program holds it; "full", no room left; "corrupt", unreadable bytes; "gone", the file is
#: no longer at its path; "slow", no answer in time; "io", the system refused otherwise; "conflict", another process owns it.
Kind = Literal["locked", "full", "corrupt", "gone", "slow", "io", "conflict"]
Order = Literal["traffic", "shifted"]

DAY = 86_400.0  # seconds; a row stores the day on which its query was last asked
EXPIRED_AT_ONCE = 1000  # rows or ids that one call of `expire` removes at most, so that commits get their turn
MOST_SCANNED = 20_000  # rows that `scan` looks at where it must choose

#: The numbers of a row as its checksum covers them: version, layout, day, level, shifted.
ROW_NUMBERS = struct.Struct("<qqqqd")
#: The size of a packed record, likewise.
RECORD_SIZE = struct.Struct("<q")


@dataclass(slots=True)
class Row:
    """One query's record, with the fields that the store indexes.

    `version` is the epoch of the owner that wrote it; in stores of 0.1, how often it was written. `day` is the day on which the
    query was last asked (unix seconds // 86400), `level` is floor(log2(requests + 1)), `shifted` is the time of the last shift, or
    0.
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
        """Return the CRC-32 of all fields, which proves that the bytes are those written for this key and this version."""
        return self.checksum_of(self.record)

    def checksum_of(self, stored: bytes, size: int = 0) -> int:
        """Return the CRC-32 of all fields with the record as it is stored; `size` is that of the record, 0 if it is not packed."""
        head = ROW_NUMBERS.pack(self.version, self.layout, self.day, self.level, self.shifted)
        found = zlib.crc32(self.names, zlib.crc32(stored, zlib.crc32(head, zlib.crc32(self.key))))
        return zlib.crc32(RECORD_SIZE.pack(size), found) if size else found


class Life(NamedTuple):
    """One life of a store: one time that it is served, from opening to closing.

    `store` and `mark` are random numbers of 63 bits. Together they identify this life among all lives of all stores, even after
    restores, copies and deletions. `id` is the store's own short name for the mark; ids of used decisions begin with it.
    """

    store: int
    mark: int
    id: int


class Size(NamedTuple):
    """The bytes of a store's data and log, and the maintenance that is due.

    `surplus`: rows to remove. `scattered`: rows to move together. `over`: maintenance cannot wait. `held`: the log is too long,
    because another program keeps a read transaction open.
    """

    data: int = 0
    log: int = 0
    surplus: int = 0
    scattered: int = 0
    over: bool = False
    held: bool = False


class Entries(NamedTuple):
    """Entries for the log, and how many they are. With `anew` they begin a generation: the log can be played from the first of them
    on, and what is before can be dropped."""

    content: bytes
    number: int
    anew: bool = False


class Extent(NamedTuple):
    """What a log holds: numbers of its first entry and of the one after the last, files and their bytes."""

    first: int
    end: int
    segments: int
    bytes: int


@dataclass(slots=True)
class Batch:
    """A checkpoint: rows (one per key), outcomes of used decisions by id, this worker's pooled records, all in one transaction.

    An outcome is a number ≥ 0 of any size. It takes the place of an earlier one, also of one in the same batch. `begin`, if it is
    not None, is the number of the entry from which the log must be played from now on; `epoch`, if it is not 0, that of the owner
    for whom the batch was made.
    """

    rows: list[Row] = field(default_factory=list)
    used: list[tuple[int, int]] = field(default_factory=list)
    groups: dict[str, bytes] = field(default_factory=dict)
    begin: int | None = None
    epoch: int = 0


class StoreError(SwerveError):
    """The store could not carry out a call.

    `keys` names the rows at fault, if known: the other rows of a batch can be written without them. `uncertain` is True if it may
    or may not have happened: the same call can be tried again.
    """

    def __init__(self, kind: Kind, message: str, *, keys: Iterable[bytes] = (), uncertain: bool = False) -> None:
        super().__init__(message)
        self.kind, self.keys, self.uncertain = kind, tuple(keys), uncertain


class Fenced(StoreError):  # noqa: N818 - names what happened
    """Another process owns the store now: nothing that this one writes counts."""

    def __init__(self, what: Path | str, ours: int, theirs: int) -> None:
        super().__init__("conflict", f"{what} has an owner of epoch {theirs}, and this process has epoch {ours}: stop it")


class Damaged(StoreError):  # noqa: N818 - names what happened
    """One record cannot be read. `version` is its stored version, or 0 if that is lost too."""

    def __init__(self, key: bytes, version: int, message: str) -> None:
        super().__init__("corrupt", message, keys=[key])
        self.key, self.version = key, version


class InUse(SwerveError):  # noqa: N818 - names what happened
    """Another process owns the store."""


def missing(shown: str) -> SwerveError:
    """Return the error for a store that has vanished."""
    return SwerveError(
        f"the store {shown} is missing, but its secrets are there; put it back, restore a backup of it, or start a new one with "
        "--new-store"
    )


@runtime_checkable
class Store(Protocol):
    """A log of entries, rows by key, used decision ids, and pooled records, in storage that outlives the process.

    Any thread may call any method. `load`, `outcomes`, `scan`, `groups`, `layouts` and `count` never wait for another thread's
    checkpoint, and neither does `append`. `Fenced` is raised by whatever writes once another process owns the store.
    """

    @property
    def epoch(self) -> int:
        """The epoch of this owner: one more than that of the owner before."""

    @property
    def begin(self) -> int:
        """The number of the entry from which the log must be played: what is before is in rows, outcomes and pooled records."""

    @property
    def end(self) -> int:
        """The number after the last entry that is durable."""

    @property
    def last(self) -> float:
        """When the last entry of an earlier owner was written."""

    def append(self, entries: Sequence[Entries], now: float) -> int:
        """Add entries to the log, and write all that wait; durable on return. Return the number after the last.

        After an error all of them wait: another call, also without entries, writes them.
        """

    def tail(self, start: int | None = None) -> Iterator[Block]:
        """Yield the blocks of the log that have entries from number `start` on, without `start` from `begin` on."""

    def checkpoint(self, batch: Batch) -> None:
        """Write the whole batch or nothing; durable on return."""

    def load(self, keys: Sequence[bytes]) -> list[Row | Damaged | None]:
        """Return the rows in the order of the keys: None for a missing row, `Damaged` for an unreadable one."""

    def outcomes(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the outcomes of those of these decision ids that were used."""

    def groups(self) -> dict[tuple[str, str], bytes | Damaged]:
        """Return every pooled record by (name, worker); `Damaged` for an unreadable one."""

    def scan(self, order: Order, limit: int, wanted: Callable[[bytes], bool] | None = None) -> list[Row]:
        """Return the rows with the most traffic, or those that shifted last. Damaged rows are left out.

        `wanted` chooses rows by their names, among the first `MOST_SCANNED`.
        """

    def expire(self, before_day: int, ids_below: int, limit: int = EXPIRED_AT_ONCE) -> tuple[int, int]:
        """Remove rows last seen before that day and used ids below that one, at most `limit` of each; return both counts."""

    def size(self) -> Size:
        """Return the size of the store and the maintenance that is due."""

    def least(self, limit: int) -> list[bytes]:
        """Return the keys of at most `limit` rows that are worth least: rarely asked ones that were not asked for long."""

    def forget(self, keys: Sequence[bytes]) -> int:
        """Remove these rows; return how many were removed."""

    def page(self, after: int = 0) -> tuple[list[Row | Damaged], int | None]:
        """Return the next rows after a row id, damaged ones as such, and the last id; None at the end."""

    def naming(self, needle: bytes, after: int = 0) -> tuple[list[bytes], int | None]:
        """Return the keys of rows whose names contain these bytes, among the next rows after a row id, and the last id looked at;
        None at the end."""

    def erase(
        self, keys: Sequence[bytes], changed: Sequence[bytes], change: Callable[[Row], Row | None], groups: Mapping[str, bytes]
    ) -> tuple[int, dict[bytes, int]]:
        """Remove the rows of `keys`, replace those of `changed` by what `change` makes of them (None: it stays), and write pooled
        records, all in one transaction; on return nothing of the earlier content is left in the store's files. Return the count
        of removed rows, and the versions of the changed ones."""

    def shrink(self, before: float, begins: Callable[[Block], bool]) -> int:
        """Compress what is finished of the log, and drop generations that ended before a time and that `begin` does not need;
        `begins` says of a block whether a generation begins with it. Return how many files were dropped."""

    def scrub(self, change: Callable[[bytes], bytes], now: float) -> None:
        """Replace the content of the log so far by what `change` makes of it, with as many entries; on return nothing of the
        earlier
        content is left in its files."""

    def gather(self, limit: int) -> int:
        """Move at most `limit` rows into free row ids, so that pages become free; return how many were moved."""

    def begin_life(self) -> Life:
        """Begin a new life, without decisions yet; durable on return."""

    def life_id(self, mark: int) -> int:
        """Return the store's id for one of its lives; give it one if it has none, because a restored store does not know the lives
        after its backup. Durable on return."""

    def claim(self, owner: bytes) -> bool:
        """Record the fingerprint of the secrets that the rows are stored under; return False if they are stored under others."""

    def layouts(self) -> dict[int, str]:
        """Return the descriptions of all record layouts by id."""

    def add_layout(self, description: str) -> int:
        """Return the id of this layout; give it one if it has none."""

    def count(self) -> int:
        """Return the number of rows."""

    def probe(self) -> None:
        """Raise `StoreError` if the store or its log cannot be written now."""

    def reopen(self) -> bool:
        """Close the open files and open those at the path now; return whether it is the same store as before. Never creates a
        store: if the path is empty, raise "gone" and keep the open files open.

        If it is another store, the caller must drop every row that it remembers. After an error the store stays closed, and
        `reopen` can be called again.
        """

    def close(self) -> None:
        """Finish pending work and release the store."""
