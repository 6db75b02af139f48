"""The embedded engine: one SQLite file in WAL mode, owned by one process."""

from __future__ import annotations

import os
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from swerve.core.errors import SwerveError, whole
from swerve.store.opened import MASK, Opened
from swerve.store.protocol import Batch, Conflict, Damaged, Life, Order, Row, Size, StoreError
from swerve.store.schema import PAGE_BYTES, WORTH, kind_of, translated
from swerve.store.statements import AT_ONCE, COLUMNS, insert, outcomes, update, use

ORDERS = {"traffic": "ORDER BY level DESC, id DESC", "shifted": "WHERE shifted > 0 ORDER BY shifted DESC, id DESC"}

#: What `probe` writes and removes again: some pages, so that a store with room for one page only is called full.
PROBE_BYTES = 65536
#: Places of expired rows that are kept in mind for new ones, so that pages stay full.
HOLES = 100_000
#: A store is full a little below its bound. Then so many of its rows, and at most so many, make room for new ones: to remove rows
#: here and there makes no page free, but their places are given to new rows, which then need no page.
RESERVE, MOST_RESERVE = 0.05, HOLES // 2
#: A log of so many bytes, or of half of all that the store may take, is longer than it should be.
LONG_LOG = 256 << 20


class _Mismatch(Exception):  # noqa: N818 - what was found, handled here
    """The batch does not fit what is stored."""


class SQLiteStore(Opened):
    """A `Store` in one file."""

    # --- reading ---

    def load(self, keys: Sequence[bytes]) -> list[Row | Damaged | None]:
        """The rows in the order of the keys; see `Store`."""
        found: dict[bytes, Row | Damaged] = {}
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            try:
                rows = {row.key: row for row in self._load(some)}
                if not rows.keys() <= set(some):  # found by the index, under another key in the record
                    raise StoreError("corrupt", f"{self.path}: a row does not fit its key")
                found |= rows
            except StoreError as error:
                if error.kind != "corrupt":
                    raise
                for key in some:  # say whose it is, and give the others
                    found |= self._load_one(key)
        return [found.get(key) for key in keys]

    def _load(self, keys: Sequence[bytes]) -> list[Row | Damaged]:
        with self._reading() as reader:
            marks = ", ".join("?" * len(keys))
            rows = reader.execute(f"SELECT {COLUMNS} FROM rows WHERE key IN ({marks})", keys).fetchall()
        return [self._checked(values) for values in rows]

    def _load_one(self, key: bytes) -> dict[bytes, Row | Damaged]:
        try:
            rows = self._load([key])
        except StoreError as error:
            if error.kind != "corrupt":
                raise
            return {key: Damaged(key, 0, str(error))}
        if rows and rows[0].key != key:
            return {key: Damaged(key, 0, f"{self.path}: row {key.hex()} has another key")}
        return {row.key: row for row in rows}

    def _checked(self, values: tuple[Any, ...]) -> Row | Damaged:
        *parts, crc = values
        row = Row(*parts)
        try:
            if row.checksum() == crc:
                return row
        except (TypeError, struct.error):  # a damaged page can turn bytes into text, and a number into nothing
            pass
        version = row.version if isinstance(row.version, int) else 0
        return Damaged(row.key, version, f"{self.path}: the record of a row is not what was written: {row.key!r}")

    def outcomes(self, ids: Sequence[int]) -> dict[int, int]:
        """Which of these decision ids were used, with what outcome."""
        found: dict[int, int] = {}
        with self._reading() as reader:
            for start in range(0, len(ids), AT_ONCE):
                found |= outcomes(reader, ids[start : start + AT_ONCE])
        return found

    def groups(self) -> dict[tuple[str, str], bytes]:
        """Every pooled record by (name, worker)."""
        with self._reading() as reader:
            rows = reader.execute("SELECT name, worker, record, crc FROM groups").fetchall()
        for name, worker, record, crc in rows:
            if zlib.crc32(record) != crc:
                raise Damaged(name.encode(), 0, f"{self.path}: the pooled record {name!r} of worker {worker!r} is damaged")
        return {(name, worker): record for name, worker, record, _ in rows}

    def scan(self, order: Order, limit: int) -> list[Row]:
        """The first `limit` rows by traffic or by the time of their last shift; damaged ones are left out."""
        if order not in ORDERS:
            raise SwerveError(f"order = {order!r} is not allowed; order must be one of {', '.join(ORDERS)}")
        rows: list[tuple[Any, ...]] = []
        with self._reading() as reader:
            # the index alone first: it can be read where a page of records cannot
            ids = reader.execute(f"SELECT id FROM rows {ORDERS[order]} LIMIT ?", (whole("limit", limit, 0),)).fetchall()
            for place in ids:
                try:
                    rows += reader.execute(f"SELECT {COLUMNS} FROM rows WHERE id = ?", place)
                except sqlite3.DatabaseError as error:
                    if kind_of(error) != "corrupt":
                        raise
        return [row for row in map(self._checked, rows) if isinstance(row, Row)]

    def layouts(self) -> dict[int, str]:
        """The descriptions of all record layouts by their ids."""
        with self._reading() as reader:
            return dict(reader.execute("SELECT id, description FROM layouts").fetchall())

    def count(self) -> int:
        """How many rows there are."""
        return self._count

    # --- writing ---

    def commit(self, batch: Batch) -> None:
        """Write all of the batch or nothing of it; durable when this returns."""
        self._within()
        new = [row for row in batch.rows if row.version == 1]
        old = [row for row in batch.rows if row.version != 1]
        with self._writing_now:
            try:
                with self._writing() as writer:
                    if update(writer, old) + insert(writer, new, self._holes) != len(batch.rows):
                        raise _Mismatch
                    if use(writer, batch.used) != len(batch.used):
                        raise _Mismatch
                    writer.executemany(
                        "INSERT OR REPLACE INTO groups(name, worker, crc, record) VALUES (?, ?, ?, ?)",
                        [(name, self.worker, zlib.crc32(record), record) for name, record in batch.groups.items()],
                    )
            except _Mismatch:
                raise self._conflict(batch) from None
            except StoreError as error:
                if error.kind == "corrupt":
                    self._holes, self._damaged = [], True  # perhaps it was one of these, beside a damaged page
                    error.keys = self._to_blame(batch.rows)
                raise
            self._count += len(new)

    def _conflict(self, batch: Batch) -> SwerveError:
        """Which rows and ids are in the way, now that nothing of the batch is there any more."""
        stored: dict[bytes, int] = {}
        used: dict[int, int] = {}
        writer = self._writer
        assert writer is not None
        try:
            for row in batch.rows:
                found = writer.execute("SELECT version FROM rows WHERE key = ?", (row.key,)).fetchone()
                if (found[0] if found else 0) != row.version - 1:
                    stored[row.key] = found[0] if found else 0
            for start in range(0, len(batch.used), AT_ONCE):
                used |= outcomes(writer, [number for number, _ in batch.used[start : start + AT_ONCE]])
        except sqlite3.Error as error:
            return translated(error, self.path)
        if not stored and not used:
            return SwerveError("a batch names the same row or decision twice; it must hold each key and each id once")
        return Conflict(stored, used)

    def _to_blame(self, rows: Sequence[Row]) -> tuple[bytes, ...]:
        """The rows of a failed batch that cannot be read either; if all can, the new ones, which have no place to go to."""
        assert self._writer is not None
        bad = []
        for row in rows:
            try:
                self._writer.execute(f"SELECT {COLUMNS} FROM rows WHERE key = ?", (row.key,)).fetchone()
            except sqlite3.Error:
                bad.append(row.key)
        return tuple(bad or [row.key for row in rows if row.version == 1])

    def expire(self, before_day: int, ids_below: int, limit: int = 1000) -> tuple[int, int]:
        """Remove at most `limit` rows last seen before that day, and at most `limit` used ids below that one."""
        with self._writing_now:
            with self._writing() as writer:
                chosen = "SELECT id FROM used WHERE id < ? ORDER BY id LIMIT ?"
                ids = writer.execute(f"DELETE FROM used WHERE id IN ({chosen})", (ids_below, limit)).rowcount
                old = writer.execute("SELECT id FROM rows WHERE day < ? ORDER BY day LIMIT ?", (before_day, limit)).fetchall()
            return self._remove_all(old), ids

    def _remove_all(self, places: list[tuple[int]]) -> int:
        """Remove the rows in these places as far as that can be done; how many went."""
        gone = self._remove(places)
        if len(gone) == len(places):
            self._holes += [place for (place,) in gone[: HOLES - len(self._holes)]]
        else:  # a damaged page keeps its rows, and those beside it that would be merged with it; new rows go elsewhere
            gone = [place for one in places for place in self._remove([one])]
            self._holes, self._damaged = [], True
        self._count -= len(gone)
        return len(gone)

    def _remove(self, places: list[tuple[int]]) -> list[tuple[int]]:
        """Remove the rows in these places, in one transaction; none of them where a page of theirs is damaged."""
        try:
            with self._writing() as writer:
                writer.executemany("DELETE FROM rows WHERE id = ?", places)
        except StoreError as error:
            if error.kind != "corrupt":
                raise
            return []
        return places

    # --- staying within bounds ---

    def size(self) -> Size:
        """How large the store is, and what is to be done about it; see `Size`.

        With a damaged page nothing is: the places of rows beside it cannot be used again, and removing more would help nobody.
        """
        log, pages = self._log_bytes(), self._pages()
        # a log is twice as long as it should be at times, and a batch needs its place before another makes room
        room = self.most // PAGE_BYTES - 4 * self._checkpoint
        surplus = scattered = 0
        if pages > room * (1.0 - RESERVE) and not self._damaged:
            with self._writing_now:
                if not self._holes:
                    self._find_holes()
                wanted = min(round(self._count * RESERVE) + 1, MOST_RESERVE)
                surplus = max(wanted - len(self._holes), 0)
                if pages > room and 2 * len(self._holes) > wanted:
                    surplus, scattered = 0, len(self._holes)
        at_once = min(self._checkpoint, AT_ONCE)  # each may be a page of the log
        over, surplus, scattered = pages > room, min(surplus, at_once), min(scattered, at_once)
        return Size(pages * PAGE_BYTES, log, surplus, scattered, over, log > min(LONG_LOG, self.most // 2))

    def _log_bytes(self) -> int:
        try:
            return self._log().stat().st_size
        except OSError:  # whoever writes will notice
            return 0

    def _pages(self) -> int:
        """Pages of the file that are in use."""
        with self._writing_now:
            if self._writer is None:
                raise StoreError("gone", f"{self.path} is closed")
            try:
                (pages,), (free,) = (self._writer.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "freelist_count"))
            except sqlite3.Error as error:
                raise translated(error, self.path) from error
        return int(pages - free)

    def _find_holes(self) -> None:
        """Places without a row, of those that were not noted as they became free: of a start before, or too many."""
        assert self._writer is not None
        try:
            last = self._writer.execute("SELECT coalesce(max(id), 0) FROM rows").fetchone()[0]
            if last > 1.001 * self._count:
                taken = np.zeros(last + 1, np.bool_)
                taken[np.fromiter((place for (place,) in self._writer.execute("SELECT id FROM rows")), np.int64)] = True
                taken[0] = True
                self._holes = np.flatnonzero(~taken)[:HOLES].tolist()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _within(self) -> None:
        """Raise "full" where a log that cannot be copied into the file has taken all the room that there is."""
        log = self._log_bytes()
        if log <= 2 * self._checkpoint * PAGE_BYTES or log + self._pages() * PAGE_BYTES <= self.most:
            return
        with self._writing_now:
            assert self._writer is not None
            try:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # nobody reads it: the log gives its room back
            except sqlite3.Error as error:
                raise translated(error, self.path) from error
        if self._log_bytes() >= log:
            raise StoreError(
                "full",
                f"{self.path}: its log has {log / 1e6:,.0f} MB, and with it the store has reached store.max_mb; another "
                "program reads it and does not end: end that program",
            )

    def least(self, limit: int) -> list[bytes]:
        """The keys of the rows that are worth least."""
        keys: list[bytes] = []
        with self._reading() as reader:
            # the index alone first: it can be read where a page of records cannot
            for place in reader.execute(f"SELECT id FROM rows ORDER BY {WORTH} LIMIT ?", (limit,)).fetchall():
                try:
                    keys += reader.execute("SELECT key FROM rows WHERE id = ?", place).fetchone()
                except sqlite3.DatabaseError as error:
                    if kind_of(error) != "corrupt":
                        raise
                    self._damaged = True
        return keys

    def forget(self, keys: Sequence[bytes]) -> int:
        """Remove these rows; how many went."""
        with self._writing_now:
            places: list[tuple[int]] = []
            with self._reading() as reader:
                for start in range(0, len(keys), AT_ONCE):
                    some = keys[start : start + AT_ONCE]
                    places += reader.execute(f"SELECT id FROM rows WHERE key IN ({', '.join('?' * len(some))})", some).fetchall()
            return self._remove_all(places)

    def gather(self, limit: int) -> int:
        """Move rows from the end of the file into holes; how many were moved."""
        with self._writing_now:
            with self._writing() as writer:
                last = [place for (place,) in writer.execute("SELECT id FROM rows ORDER BY id DESC LIMIT ?", (limit,))]
                holes = sorted(self._holes)[: len(last)]
                moves = [(hole, place) for hole, place in zip(holes, last, strict=False) if hole < place]
                writer.executemany("UPDATE rows SET id = ? WHERE id = ?", moves)
            moved, end = {hole for hole, _ in moves}, last[len(moves) - 1] if moves else 0
            self._holes = [hole for hole in self._holes if hole not in moved and hole < end]
        return len(moves)

    def begin_life(self) -> Life:
        """A life that nothing was decided in before; durable."""
        mark = int.from_bytes(os.urandom(8), "little") & MASK
        return Life(self.store, mark, self.life_id(mark))

    def life_id(self, mark: int) -> int:
        """The store's number for a life, given now if it has none; durable."""
        with self._reading() as reader:
            found = reader.execute("SELECT id FROM lives WHERE mark = ?", (mark,)).fetchone()
        if found is None:
            with self._writing() as writer:
                writer.execute("INSERT INTO lives(mark) VALUES (?) ON CONFLICT DO NOTHING", (mark,))
                found = writer.execute("SELECT id FROM lives WHERE mark = ?", (mark,)).fetchone()
        return int(found[0])

    def claim(self, owner: bytes) -> bool:
        """Note whose secrets the rows are kept under; False when they are kept under others."""
        with self._reading() as reader:
            (known,) = reader.execute("SELECT value FROM meta WHERE key = 'owner'").fetchone()
        if known == owner:
            return True
        if known and self._count:
            return False
        with self._writing() as writer:
            writer.execute("UPDATE meta SET value = ? WHERE key = 'owner'", (owner,))
        return True

    def add_layout(self, description: str) -> int:
        """The id of this layout, given now if it has none."""
        with self._writing() as writer:
            writer.execute("INSERT INTO layouts(description) VALUES (?) ON CONFLICT DO NOTHING", (description,))
            return int(writer.execute("SELECT id FROM layouts WHERE description = ?", (description,)).fetchone()[0])

    def probe(self) -> None:
        """Raise `StoreError` when the store cannot be written now: take some room, give it back, and commit."""
        self._within()
        with self._writing() as writer:
            writer.execute("INSERT INTO meta VALUES ('room', zeroblob(?))", (PROBE_BYTES,))
            writer.execute("DELETE FROM meta WHERE key = 'room'")
            writer.execute("UPDATE meta SET value = value + 1 WHERE key = 'probe'")
