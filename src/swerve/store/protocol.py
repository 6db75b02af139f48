"""The protocol that every store implements: rows, batches, methods and errors."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from swerve.core.errors import SwerveError

#: Why the store failed: "locked", another program holds it; "full", no room left; "corrupt", unreadable bytes; "gone", the file is
#: no longer at its path; "slow", no answer in time; "io", the system refused otherwise; "conflict", rows are not as expected.
Kind = Literal["locked", "full", "corrupt", "gone", "slow", "io", "conflict"]
Order = Literal["traffic", "shifted"]

DAY = 86_400.0  # seconds; a row stores the day on which its query was last asked
EXPIRED_AT_ONCE = 1000  # rows or ids that one call of `expire` removes at most, so that commits get their turn
MOST_SCANNED = 20_000  # rows that `scan` looks at where it must choose
#: Rows that the message of a `Conflict` names.
NAMED_IN_MESSAGE = 3

#: The numbers of a row as its checksum covers them: version, layout, day, level, shifted.
ROW_NUMBERS = struct.Struct("<qqqqd")
#: The size of a packed record, likewise.
RECORD_SIZE = struct.Struct("<q")


@dataclass(slots=True)
class Row:
    """One query's record, with the fields that the store indexes.

    `version` is the version that the row will have: the stored version must be `version - 1`, and 1 means that no such row is
    stored yet. `day` is the day on which the query was last asked (unix seconds // 86400), `level` is floor(log2(requests + 1)),
    `shifted` is the time of the last shift, or 0.
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


@dataclass(slots=True)
class Batch:
    """Changes that become durable together: rows (one per key), outcomes of used decisions by id, this worker's pooled records.

    An outcome is a number ≥ 0 of any size. It takes the place of an earlier one, also of one in the same batch.
    """

    rows: list[Row] = field(default_factory=list)
    used: list[tuple[int, int]] = field(default_factory=list)
    groups: dict[str, bytes] = field(default_factory=dict)


class StoreError(SwerveError):
    """The store could not carry out a call.

    `keys` names the rows at fault, if known: the other rows of a batch can be committed without them. `uncertain` is True if the
    commit may or may not have happened: the same batch, tried again, then raises a `Conflict` that shows the batch's own versions
    as stored.
    """

    def __init__(self, kind: Kind, message: str, *, keys: Iterable[bytes] = (), uncertain: bool = False) -> None:
        super().__init__(message)
        self.kind, self.keys, self.uncertain = kind, tuple(keys), uncertain


class Conflict(StoreError):  # noqa: N818 - names what happened
    """Stored rows have other versions than the batch expects; nothing of the batch was written.

    `versions` has the stored version of each such row (0: no such row).
    """

    def __init__(self, versions: Mapping[bytes, int]) -> None:
        said = [f"row {key.hex()} is stored at version {version}" for key, version in versions.items()]
        more = f" and {len(said) - NAMED_IN_MESSAGE} more" if len(said) > NAMED_IN_MESSAGE else ""
        super().__init__(
            "conflict", f"nothing was committed: {'; '.join(said[:NAMED_IN_MESSAGE])}{more}; load again and retry", keys=versions
        )
        self.versions = dict(versions)


class Damaged(StoreError):  # noqa: N818 - names what happened
    """One record cannot be read. `version` is its stored version, or 0 if that is lost too."""

    def __init__(self, key: bytes, version: int, message: str) -> None:
        super().__init__("corrupt", message, keys=[key])
        self.key, self.version = key, version


class InUse(SwerveError):  # noqa: N818 - names what happened
    """Another process owns the store."""


@runtime_checkable
class Store(Protocol):
    """Rows by key, used decision ids, and pooled records, in storage that outlives the process.

    Any thread may call any method. `load`, `outcomes`, `scan`, `groups`, `layouts` and `count` never wait for another thread's
    commit.
    """

    def load(self, keys: Sequence[bytes]) -> list[Row | Damaged | None]:
        """Return the rows in the order of the keys: None for a missing row, `Damaged` for an unreadable one."""

    def outcomes(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the outcomes of those of these decision ids that were used."""

    def commit(self, batch: Batch) -> None:
        """Write the whole batch or nothing; durable on return. Raises `Conflict`, or another `StoreError`."""

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
        """Raise `StoreError` if the store cannot be written now."""

    def reopen(self) -> bool:
        """Close the open files and open those at the path now; return whether it is the same store as before. Never creates a
        store: if the path is empty, raise "gone" and keep the open files open.

        If it is another store, the caller must drop every row that it remembers. After an error the store stays closed, and
        `reopen` can be called again.
        """

    def close(self) -> None:
        """Finish pending work and release the store."""
