"""The PostgreSQL engine: a `Store` in a schema of a database, owned by one process at a time, which may be on another machine.

Imported only for an address of its scheme: it needs the extra `postgresql`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from swerve.core.errors import SwerveError
from swerve.store.packed import pack
from swerve.store.postgresql_address import address_of
from swerve.store.postgresql_link import Bounded, Link, one
from swerve.store.postgresql_opened import WRITE_SECONDS
from swerve.store.postgresql_rows import Rows
from swerve.store.postgresql_schema import RANDOM_BYTES, RANDOM_MASK, is_made
from swerve.store.protocol import EXPIRED_AT_ONCE, Batch, Fenced, Life, Row, Size

#: Bytes that `probe` writes and removes again, as it does for a file.
PROBE_BYTES = 65_536
#: Rows are removed from this part of the bound on, until the store is smaller by this further part of it.
FULL, RESERVE = 0.95, 0.05
#: Bytes of a page; the part of it that is filled at first (the fill factor of `postgresql_schema`); bytes of a row besides record
#: and names: its header and numbers in the page, and its entries in six indexes.
PAGE, FILLED, HEAD, INDEXES = 8192, 0.7, 100, 180
#: The mean size of rows is measured again when their number has changed by this part; above so many rows, on a sample of pages.
MEASURED_AGAIN, SAMPLED = 0.02, 2_000

UPSERT = """
    INSERT INTO rows(key, version, layout, day, level, shifted, record, names, size, crc)
    SELECT key, version, layout, day, level, shifted, record, names, size, crc FROM unnest(
        %b::bytea[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::float8[], %b::bytea[], %b::bytea[], %b::bigint[],
        %b::bigint[]
    ) WITH ORDINALITY AS new(key, version, layout, day, level, shifted, record, names, size, crc, at) ORDER BY at
    ON CONFLICT (key) DO UPDATE SET version = excluded.version, layout = excluded.layout, day = excluded.day,
        level = excluded.level, shifted = excluded.shifted, record = excluded.record, names = excluded.names,
        size = excluded.size, crc = excluded.crc
    RETURNING xmax = 0
"""
USE = """
    INSERT INTO used SELECT * FROM unnest(%b::bigint[], %b::bytea[])
    ON CONFLICT (id) DO UPDATE SET outcome = excluded.outcome
"""
GROUP = """
    INSERT INTO groups(name, worker, crc, record) VALUES (%s, %s, %s, %b)
    ON CONFLICT (name, worker) DO UPDATE SET crc = excluded.crc, record = excluded.record
"""


class PostgreSQLStore(Rows):
    """A `Store` in PostgreSQL."""

    def __init__(self, url: str, worker: str = "0", **more: Any) -> None:
        self._measured, self._mean = 0, 0.0  # the number of rows when their mean size was measured last, and that mean
        super().__init__(url, worker, **more)

    # --- writing ---

    def checkpoint(self, batch: Batch) -> None:
        """Write the whole batch or nothing; durable on return."""
        if len({row.key for row in batch.rows}) != len(batch.rows):
            raise SwerveError("a batch names the same row twice; it must hold each key once")
        with self._writer.busy:
            self._writer.check()
            if batch.epoch and batch.epoch != self.epoch:
                raise Fenced(self.address.shown, batch.epoch, self.epoch)
            with self._writing(batch.begin) as connection:
                new = self._write(connection, batch.rows, batch.used, batch.groups)
            self._count += new
            self.begin = self.begin if batch.begin is None else batch.begin

    def _write(self, connection: Bounded, rows: Sequence[Row], used: Sequence[tuple[int, int]], groups: Mapping[str, bytes]) -> int:
        """Write rows, outcomes and pooled records, inside a transaction; return how many rows are new."""
        new = 0
        if rows:
            stored = pack([row.record for row in rows])
            columns = (
                [row.key for row in rows], [row.version for row in rows], [row.layout for row in rows], [row.day for row in rows],
                [row.level for row in rows], [row.shifted for row in rows], [form for form, _ in stored],
                [row.names for row in rows], [size for _, size in stored],
                [row.checksum_of(form, size) for row, (form, size) in zip(rows, stored, strict=True)],
            )  # fmt: skip
            new = sum(inserted for (inserted,) in connection.execute(UPSERT, columns).fetchall())
        if used:
            last = dict(used)
            outcomes = [outcome.to_bytes(-(-outcome.bit_length() // 8), "little") for outcome in last.values()]
            connection.execute(USE, (list(last), outcomes))
        for name, record in groups.items():
            connection.execute(GROUP, (name, self.worker, zlib.crc32(record), record))
        return new

    def expire(self, before_day: int, ids_below: int, limit: int = EXPIRED_AT_ONCE) -> tuple[int, int]:
        """Remove at most `limit` rows last seen before that day and `limit` used ids below that one; return both counts."""
        with self._writer.busy:
            with self._writing() as connection:
                ids = connection.execute(
                    "DELETE FROM used WHERE id IN (SELECT id FROM used WHERE id < %s ORDER BY id LIMIT %s)", (ids_below, limit)
                ).rowcount
                rows = connection.execute(
                    "DELETE FROM rows WHERE id IN (SELECT id FROM rows WHERE day < %s ORDER BY day LIMIT %s)", (before_day, limit)
                ).rowcount
            self._count -= rows
        return rows, ids

    # --- the bound ---

    def size(self) -> Size:
        """Return the size of the rows and the maintenance that is due.

        A table does not shrink when rows are deleted, and new rows use the space again. So this is what the rows need, not what the
        files take.
        """
        count = self._count
        if abs(count - self._measured) > MEASURED_AGAIN * self._measured:
            self._measured, self._mean = count, self._mean_size(count)
        each = bytes_of(self._mean)
        data = round(count * each)
        if data <= FULL * self.most or not count:
            return Size(data)
        keep = int((FULL - RESERVE) * self.most / each)
        return Size(data, surplus=count - keep, over=data > self.most)

    def _mean_size(self, count: int) -> float:
        """Return the mean bytes of records and names."""
        some = f"TABLESAMPLE SYSTEM ({100 * SAMPLED / count:.6f})" if count > SAMPLED else ""
        with self._reader.using() as connection:
            statement = f"SELECT avg(octet_length(record) + octet_length(names))::float8 FROM rows {some}"
            return float(one(connection.execute(statement))[0] or self._mean)

    def gather(self, limit: int) -> int:
        """Move no rows: the server uses free space again by itself."""
        return 0

    # --- lives, secrets, layouts ---

    def begin_life(self) -> Life:
        """Begin a new life, without decisions yet; durable on return."""
        mark = int.from_bytes(os.urandom(RANDOM_BYTES), "little") & RANDOM_MASK
        return Life(self.store, mark, self.life_id(mark))

    def life_id(self, mark: int) -> int:
        """Return the store's id for a life; give it one if it has none. Durable on return."""
        with self._reader.using() as connection:
            found = connection.execute("SELECT id FROM lives WHERE mark = %s", (mark,)).fetchone()
        if found is None:
            with self._writing() as connection:
                connection.execute("INSERT INTO lives(mark) VALUES (%s) ON CONFLICT DO NOTHING", (mark,))
                found = one(connection.execute("SELECT id FROM lives WHERE mark = %s", (mark,)))
        return int(found[0])

    def claim(self, owner: bytes) -> bool:
        """Record the fingerprint of the rows' secrets; return False if the rows are stored under other secrets."""
        with self._reader.using() as connection:
            (known,) = one(connection.execute("SELECT owner FROM store"))
        if known == owner:
            return True
        if known and self._count:
            return False
        with self._writing() as connection:
            connection.execute("UPDATE store SET owner = %b", (owner,))
        return True

    def add_layout(self, description: str) -> int:
        """Return the id of this layout; give it one if it has none."""
        statement = "SELECT id FROM layouts WHERE md5(description) = md5(%s::text)"
        with self._writing() as connection:
            found = connection.execute(statement, (description,)).fetchone()
            if found is None:
                found = one(connection.execute("INSERT INTO layouts(description) VALUES (%s) RETURNING id", (description,)))
        return int(found[0])

    def probe(self) -> None:
        """Raise `StoreError` if the store or its log cannot be written now: write some bytes, and remove them."""
        with self._writing() as connection:
            connection.execute("UPDATE store SET room = %b", (os.urandom(PROBE_BYTES),))
        with self._writing() as connection:
            connection.execute("UPDATE store SET room = NULL")
        with self._log.durably() as connection:
            done = connection.execute("UPDATE logs SET last = last WHERE epoch = %s", (self.epoch,))
            if done.rowcount != 1:
                raise Fenced(self.address.shown, self.epoch, self._epoch(connection))


def bytes_of(mean: float) -> float:
    """Return the bytes that a row takes on disk when record and names have `mean` bytes on average.

    >>> round(bytes_of(1500)), round(bytes_of(2560)), round(bytes_of(20_000))
    (2911, 4276, 20280)
    """
    size = mean + HEAD
    in_page = int(FILLED * PAGE / size)
    return INDEXES + (PAGE / in_page if in_page else max(size, PAGE))


def exists(url: str) -> bool:
    """Return whether there is a store at an address, without opening it."""
    link = Link(address_of(url), "look", WRITE_SECONDS)
    link.open()
    try:
        with link.using() as connection:
            return is_made(connection, link.address)
    finally:
        link.close()


#: Opens a store; the module of each engine has this name.
opened = PostgreSQLStore
