"""The Valkey engine: a `Store` in a Valkey server, owned by one process at a time.

Imported only for an address of its schemes: it needs the extra `valkey`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from swerve.core.errors import SwerveError, whole
from swerve.store.opened import RANDOM_MASK
from swerve.store.protocol import EXPIRED_AT_ONCE, MOST_SCANNED, Batch, Damaged, Fenced, Life, Order, Row, Size, StoreError
from swerve.store.valkey_link import Link
from swerve.store.valkey_log import Logged
from swerve.store.valkey_owned import WRITE_SECONDS
from swerve.store.valkey_rows import AROUND_ROW, BEFORE_NAMES, BUCKET_BITS, HEAD, pooled, read, read_pooled, written
from swerve.store.valkey_scripts import (
    CHECKPOINT,
    CLAIM,
    ERASE,
    FORGET_USED,
    LEVELS,
    NAMING,
    NUMBERED,
    OLDEST,
    PAGE,
    PROBE,
    RANKED,
    REMOVE,
)  # fmt: skip
from swerve.store.valkey_server import rewrite_files
from swerve.store.valkey_urls import address_of

ORDERS = ("traffic", "shifted")
#: Rows that one call reads, removes or looks at: few, so that the server answers other clients in between.
ROWS_AT_ONCE, LOOKED_AT = 100, 500
KEYS_AT_ONCE = 1000
LOW_BITS = (1 << BUCKET_BITS) - 1
#: Ids of decisions have at most so many bits: bucket numbers are then exact as scores of a sorted set, which are doubles.
ID_BITS = 60
#: Rows are removed from this part of the bound on, at most so many at once.
FULL, REMOVED_AT_ONCE = 0.95, 1000
PROBE_BYTES = 65536
LIFE_MARK_BYTES = 8


class ValkeyStore(Logged):
    """A `Store` in a Valkey server."""

    # --- reading ---

    def load(self, keys: Sequence[bytes]) -> list[Row | Damaged | None]:
        """Return the rows in the order of the keys; see `Store`."""
        found: list[Row | Damaged | None] = []
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            values = self._reader.call("HMGET", self._key("rows"), *some)
            found += [None if value is None else read(self.name, key, value) for key, value in zip(some, values, strict=True)]
        return found

    def outcomes(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the outcomes of those of these decision ids that were used."""
        found: dict[int, int] = {}
        buckets = list(_bucketed(ids).items())
        for start in range(0, len(buckets), KEYS_AT_ONCE):
            some = buckets[start : start + KEYS_AT_ONCE]
            commands: list[list[bytes | str | float]]
            commands = [["HMGET", self._key(f"used:{bucket}"), *(number & LOW_BITS for number in of)] for bucket, of in some]
            for (_, of), values in zip(some, self._reader.calls(commands), strict=True):
                found |= {number: int(value) for number, value in zip(of, values, strict=True) if value is not None}
        return found

    def groups(self) -> dict[tuple[str, str], bytes | Damaged]:
        """Return every pooled record by (name, worker)."""
        found = iter(self._reader.call("HGETALL", self._key("groups")))
        out: dict[tuple[str, str], bytes | Damaged] = {}
        for field, value in zip(found, found, strict=True):
            name, _, worker = field.decode("utf-8", "replace").partition("\0")
            out[name, worker] = read_pooled(self.name, name, worker, value)
        return out

    def scan(self, order: Order, limit: int, wanted: Callable[[bytes], bool] | None = None) -> list[Row]:
        """Return the first `limit` rows by traffic or by the time of their last shift; see `Store`."""
        if order not in ORDERS:
            raise SwerveError(f"order = {order!r} is not allowed; order must be one of {', '.join(ORDERS)}")
        left = whole("limit", limit, 0) if wanted is None else MOST_SCANNED
        rows: list[Row] = []
        for level in range(LEVELS - 1, -1, -1) if order == "traffic" else ("",):
            at = 0
            while left > 0 and len(rows) < limit:
                most = min(ROWS_AT_ONCE, left)
                found = iter(self._reader.run(RANKED, level, at, most))
                some = list(zip(found, found, strict=True))
                looked_at = (read(self.name, key, value) for key, value in some if value is not None)
                rows += [row for row in looked_at if isinstance(row, Row) and (wanted is None or wanted(row.names))]
                at, left = at + len(some), left - len(some)
                if len(some) < most:
                    break
        return rows[:limit]

    def page(self, after: int = 0) -> tuple[list[Row | Damaged], int | None]:
        """Return the next rows after a row id, damaged ones as such, and the last id; None at the end."""
        found = self._reader.run(PAGE, after, ROWS_AT_ONCE)
        some = zip(found[1::3], found[2::3], strict=True)
        return [read(self.name, key, value or b"") for key, value in some], int(found[-3]) if found else None

    def naming(self, needle: bytes, after: int = 0) -> tuple[list[bytes], int | None]:
        """Return the keys of rows whose names contain these bytes, among the next rows after a row id; see `Store`."""
        last, *keys = self._reader.run(NAMING, after, LOOKED_AT, needle, HEAD.size, BEFORE_NAMES)
        return keys, int(last) if last else None

    def layouts(self) -> dict[int, str]:
        """Return the descriptions of all record layouts by id."""
        found = iter(self._reader.call("HGETALL", self._key("layouts")))
        return {int(number): text.decode() for text, number in sorted(zip(found, found, strict=True), key=itemgetter(1))}

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._reader.call("HLEN", self._key("rows")))

    # --- writing ---

    def checkpoint(self, batch: Batch) -> None:
        """Write the whole batch or nothing; durable on return."""
        with self._writing_now:
            if batch.epoch and batch.epoch != self.epoch:
                raise Fenced(self.name, batch.epoch, self.epoch)
            words = ["" if batch.begin is None else batch.begin, *written(batch.rows), *self._groups(batch.groups)]
            outcomes = dict(batch.used)
            for bucket, ids in _bucketed(outcomes).items():
                words += [bucket, len(ids)]
                for number in ids:
                    words += [number & LOW_BITS, str(outcomes[number])]
            self._written(CHECKPOINT, *words)
            self.begin = self.begin if batch.begin is None else batch.begin

    def _groups(self, groups: Mapping[str, bytes]) -> list[bytes | int | str]:
        """Return pooled records as the scripts take them."""
        out: list[bytes | int | str] = [len(groups)]
        for name, record in groups.items():
            out += [f"{name}\0{self.worker}", pooled(record)]
        return out

    def erase(
        self, keys: Sequence[bytes], changed: Sequence[bytes], change: Callable[[Row], Row | None], groups: Mapping[str, bytes]
    ) -> tuple[int, dict[bytes, int]]:
        """Remove and replace rows and write pooled records, in one step; on return the server's files no longer contain what was
        removed or replaced. See `Store`."""
        with self._writing_now:
            new: list[Row] = []
            for row in self.load(changed):
                if isinstance(row, Damaged):
                    raise row
                if row is not None and (made := change(row)) is not None:
                    made.version = self.epoch
                    new.append(made)
            gone = self._written(ERASE, len(keys), *keys, *written(new), *self._groups(groups))
            rewrite_files(self._writer)
        return gone, {row.key: row.version for row in new}

    def expire(self, before_day: int, ids_below: int, limit: int = EXPIRED_AT_ONCE) -> tuple[int, int]:
        """Remove at most `limit` rows last seen before that day and `limit` used ids below that one; return both counts."""
        with self._writing_now:
            ids = self._written(FORGET_USED, ids_below >> BUCKET_BITS, ids_below & LOW_BITS, limit) if ids_below > 0 else 0
            old = self._reader.run(OLDEST, "day", before_day, limit) if before_day > 0 else []
            return self.forget(old), ids

    def forget(self, keys: Sequence[bytes]) -> int:
        """Remove these rows; return how many were removed."""
        at_once = (keys[start : start + KEYS_AT_ONCE] for start in range(0, len(keys), KEYS_AT_ONCE))
        return sum(self._written(REMOVE, *some) for some in at_once)

    # --- staying within bounds ---

    def size(self) -> Size:
        """Return the bytes of rows and log in the server's memory, and the rows to remove; see `Size`."""
        count, told = self._reader.calls(
            [("HLEN", self._key("rows")), ("HMGET", self._key("meta"), "bytes", "logged")],
        )
        data, logged = int(told[0] or 0) + AROUND_ROW * count, int(told[1] or 0)
        surplus = 0
        if data > FULL * self.most and count:
            surplus = min(int((data - FULL * self.most) * count / data) + 1, REMOVED_AT_ONCE)
        return Size(data, logged, surplus, 0, data > self.most, False)

    def least(self, limit: int) -> list[bytes]:
        """Return the keys of the rows that are worth least."""
        found: list[bytes] = self._reader.run(OLDEST, "worth", "", limit)
        return found

    def gather(self, limit: int) -> int:
        """Move no rows: the server uses free memory again by itself."""
        return 0

    # --- lives, layouts, secrets ---

    def begin_life(self) -> Life:
        """Begin a new life, without decisions yet; durable on return."""
        mark = int.from_bytes(os.urandom(LIFE_MARK_BYTES), "little") & RANDOM_MASK
        return Life(self.store, mark, self.life_id(mark))

    def life_id(self, mark: int) -> int:
        """Return the store's id for a life; give it one if it has none. Durable on return."""
        return self._written(NUMBERED, "lives", mark, "last_life")

    def add_layout(self, description: str) -> int:
        """Return the id of this layout; give it one if it has none."""
        return self._written(NUMBERED, "layouts", description, "last_layout")

    def claim(self, owner: bytes) -> bool:
        """Record the fingerprint of the rows' secrets; return False if the rows are stored under other secrets."""
        return bool(self._written(CLAIM, owner))

    def probe(self) -> None:
        """Raise `StoreError` if the store cannot be written now: write some bytes, and remove them."""
        self._written(PROBE, PROBE_BYTES)


def _bucketed(ids: Iterable[int]) -> dict[int, list[int]]:
    """Return ids of decisions by their buckets."""
    found: dict[int, list[int]] = {}
    for number in ids:
        if number >> ID_BITS:
            raise StoreError("io", f"the id {number} of a decision has more than {ID_BITS} bits")
        found.setdefault(number >> BUCKET_BITS, []).append(number)
    return found


def exists(url: str) -> bool:
    """Return whether there is a store at an address, without opening it."""
    address = address_of(url)
    link = Link(address, str(address), WRITE_SECONDS)
    try:
        return bool(link.call("EXISTS", f"{address.keys}meta"))
    finally:
        link.close()


#: Opens a store; the module of each engine has this name.
opened = ValkeyStore
