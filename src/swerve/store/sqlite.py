"""The SQLite engine: a `Store` in one SQLite file in WAL mode, owned by one process."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from swerve.core.errors import SwerveError, whole
from swerve.store.erasing import Erasing
from swerve.store.opened import RANDOM_MASK
from swerve.store.protocol import EXPIRED_AT_ONCE, MOST_SCANNED, Batch, Damaged, Fenced, Life, Order, Row, Size, StoreError
from swerve.store.schema import PAGE_BYTES, WORTH, kind_of, translated
from swerve.store.statements import COLUMNS, PER_STATEMENT, checked, insert, outcomes, update, use

ORDERS = {"traffic": "ORDER BY level DESC, id DESC", "shifted": "WHERE shifted > 0 ORDER BY shifted DESC, id DESC"}

#: Bytes that `probe` writes and removes again: several pages, so that a store with room for a single page counts as full.
PROBE_BYTES = 65536
#: Free row ids, of removed rows, that are remembered for new rows, so that pages stay full.
MOST_HOLES = 100_000
#: A store counts as full a little below its bound. Then this share of its rows, `MOST_RESERVE` at most, is removed for new ones.
#: Removing scattered rows frees no page, but new rows reuse their row ids and then need no new page.
RESERVE, MOST_RESERVE = 0.05, MOST_HOLES // 2
#: A log of this many bytes, or of half the store's bound, counts as too long.
LONG_LOG = 256 << 20
#: Checkpoints' worth of pages that the bound reserves for the log and a batch: at times a log is twice as long as one checkpoint,
#: and a batch needs room before an older one makes room.
LOG_CHECKPOINTS = 4
#: Row ids are searched for gaps only if the largest id exceeds the count of rows by this factor: the search reads every id.
SPARSE = 1.001
#: Bytes of a life's random mark, before `RANDOM_MASK` cuts the sign bit.
LIFE_MARK_BYTES = 8
MB = 1e6


class SQLiteStore(Erasing):
    """A `Store` in one file."""

    # --- reading ---

    def load(self, keys: Sequence[bytes]) -> list[Row | Damaged | None]:
        """Return the rows in the order of the keys; see `Store`."""
        found: dict[bytes, Row | Damaged] = {}
        for start in range(0, len(keys), PER_STATEMENT):
            some = keys[start : start + PER_STATEMENT]
            try:
                rows = {row.key: row for row in self._load(some)}
                if not rows.keys() <= set(some):  # the index found a record that holds another key
                    raise StoreError("corrupt", f"{self.path}: a row does not fit its key")
                found |= rows
            except StoreError as error:
                if error.kind != "corrupt":
                    raise
                for key in some:  # one by one, to name the damaged rows and return the others
                    found |= self._load_one(key)
        return [found.get(key) for key in keys]

    def _load(self, keys: Sequence[bytes]) -> list[Row | Damaged]:
        with self._reading() as reader:
            marks = ", ".join("?" * len(keys))
            rows = reader.execute(f"SELECT {COLUMNS} FROM rows WHERE key IN ({marks})", keys).fetchall()
        return [checked(self.path, values) for values in rows]

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

    def outcomes(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the outcomes of those of these decision ids that were used."""
        found: dict[int, int] = {}
        with self._reading() as reader:
            for start in range(0, len(ids), PER_STATEMENT):
                found |= outcomes(reader, ids[start : start + PER_STATEMENT])
        return found

    def groups(self) -> dict[tuple[str, str], bytes | Damaged]:
        """Return every pooled record by (name, worker)."""
        with self._reading() as reader:
            rows = reader.execute("SELECT name, worker, record, crc FROM groups").fetchall()
        found: dict[tuple[str, str], bytes | Damaged] = {}
        for name, worker, record, crc in rows:
            good = isinstance(record, bytes) and zlib.crc32(record) == crc
            words = f"{self.path}: the pooled record {name!r} of worker {worker!r} is damaged"
            found[name, worker] = record if good else Damaged(str(name).encode(), 0, words)
        return found

    def scan(self, order: Order, limit: int, wanted: Callable[[bytes], bool] | None = None) -> list[Row]:
        """Return the first `limit` rows by traffic or by the time of their last shift; see `Store`."""
        if order not in ORDERS:
            raise SwerveError(f"order = {order!r} is not allowed; order must be one of {', '.join(ORDERS)}")
        rows: list[Row] = []
        with self._reading() as reader:
            # read the index first: it can be intact when a page of records is not
            most = whole("limit", limit, 0) if wanted is None else MOST_SCANNED
            for row_id in reader.execute(f"SELECT id FROM rows {ORDERS[order]} LIMIT ?", (most,)).fetchall():
                if len(rows) == limit:
                    break
                try:
                    found = reader.execute(f"SELECT {COLUMNS} FROM rows WHERE id = ?", row_id)
                    looked_at = (checked(self.path, values) for values in found)
                    rows += [row for row in looked_at if isinstance(row, Row) and (wanted is None or wanted(row.names))]
                except sqlite3.DatabaseError as error:
                    if kind_of(error) != "corrupt":
                        raise
        return rows

    def layouts(self) -> dict[int, str]:
        """Return the descriptions of all record layouts by id."""
        with self._reading() as reader:
            return dict(reader.execute("SELECT id, description FROM layouts").fetchall())

    def count(self) -> int:
        """Return the number of rows."""
        return self._count

    # --- writing ---

    def checkpoint(self, batch: Batch) -> None:
        """Write the whole batch or nothing; durable on return."""
        self._within()
        if len({row.key for row in batch.rows}) != len(batch.rows):
            raise SwerveError("a batch names the same row twice; it must hold each key once")
        with self._writing_now:
            new: list[Row] = []
            try:
                with self._writing() as writer:
                    if batch.epoch and batch.epoch != self.epoch:
                        raise Fenced(self.path, batch.epoch, self.epoch)
                    stored = update(writer, batch.rows)
                    new = [row for row in batch.rows if row.key not in stored]
                    insert(writer, new, self._holes)
                    use(writer, batch.used)
                    writer.executemany(
                        "INSERT OR REPLACE INTO groups(name, worker, crc, record) VALUES (?, ?, ?, ?)",
                        [(name, self.worker, zlib.crc32(record), record) for name, record in batch.groups.items()],
                    )
                    if self.journal is not None:
                        told = [(self.journal.end, "end")] + ([] if batch.begin is None else [(batch.begin, "begin")])
                        writer.executemany("UPDATE meta SET value = ? WHERE key = ?", told)
            except StoreError as error:
                if error.kind == "corrupt":
                    self._holes, self._damaged = [], True  # a free row id beside a damaged page may have caused it
                    error.keys = self._to_blame(batch.rows)
                raise
            self._count += len(new)
            self.begin = self.begin if batch.begin is None else batch.begin

    def _to_blame(self, rows: Sequence[Row]) -> tuple[bytes, ...]:
        """Return the rows of a failed batch that cannot be read; if all can, the new rows, which have no page to go to."""
        assert self._writer is not None
        bad, new = [], []
        for row in rows:
            try:
                if self._writer.execute(f"SELECT {COLUMNS} FROM rows WHERE key = ?", (row.key,)).fetchone() is None:
                    new.append(row.key)
            except sqlite3.Error:
                bad.append(row.key)
        return tuple(bad or new)

    def expire(self, before_day: int, ids_below: int, limit: int = EXPIRED_AT_ONCE) -> tuple[int, int]:
        """Remove at most `limit` rows last seen before that day and `limit` used ids below that one; return both counts."""
        with self._writing_now:
            with self._writing() as writer:
                chosen = "SELECT id FROM used WHERE id < ? ORDER BY id LIMIT ?"
                ids = writer.execute(f"DELETE FROM used WHERE id IN ({chosen})", (ids_below, limit)).rowcount
                old = writer.execute("SELECT id FROM rows WHERE day < ? ORDER BY day LIMIT ?", (before_day, limit)).fetchall()
            return self._remove_all(old), ids

    def _remove_all(self, row_ids: list[tuple[int]]) -> int:
        """Remove as many of these rows as possible; return how many were removed."""
        gone = self._remove(row_ids)
        if len(gone) == len(row_ids):
            self._holes += [row_id for (row_id,) in gone[: MOST_HOLES - len(self._holes)]]
        else:  # a damaged page blocks the removal of its rows and of neighbours that would merge with it; reuse no row id then
            gone = [row_id for one in row_ids for row_id in self._remove([one])]
            self._holes, self._damaged = [], True
        self._count -= len(gone)
        return len(gone)

    def _remove(self, row_ids: list[tuple[int]]) -> list[tuple[int]]:
        """Remove these rows in one transaction; remove none if one of their pages is damaged. Return the removed ids."""
        try:
            with self._writing() as writer:
                writer.executemany("DELETE FROM rows WHERE id = ?", row_ids)
        except StoreError as error:
            if error.kind != "corrupt":
                raise
            return []
        return row_ids

    # --- staying within bounds ---

    def size(self) -> Size:
        """Return the size of the store and the maintenance that is due; see `Size`.

        With a damaged page no maintenance is due: row ids beside the page cannot be reused, so removing more rows gains nothing.
        """
        log, pages = self._log_bytes(), self._pages()
        room = self.most // PAGE_BYTES - LOG_CHECKPOINTS * self._checkpoint
        surplus = scattered = 0
        if pages > room * (1.0 - RESERVE) and not self._damaged:
            with self._writing_now:
                if not self._holes:
                    self._find_holes()
                wanted = min(round(self._count * RESERVE) + 1, MOST_RESERVE)
                surplus = max(wanted - len(self._holes), 0)
                if pages > room and 2 * len(self._holes) > wanted:
                    surplus, scattered = 0, len(self._holes)
        at_once = min(self._checkpoint, PER_STATEMENT)  # each row may write a page of the log
        over, surplus, scattered = pages > room, min(surplus, at_once), min(scattered, at_once)
        return Size(pages * PAGE_BYTES, log, surplus, scattered, over, log > min(LONG_LOG, self.most // 2))

    def _log_bytes(self) -> int:
        try:
            return self._log().stat().st_size
        except OSError:  # the next write reports the missing log
            return 0

    def _pages(self) -> int:
        """Return the number of pages of the file that are in use."""
        with self._writing_now:
            if self._writer is None:
                raise StoreError("gone", f"{self.path} is closed")
            try:
                (pages,), (free,) = (self._writer.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "freelist_count"))
            except sqlite3.Error as error:
                raise translated(error, self.path) from error
        return int(pages - free)

    def _find_holes(self) -> None:
        """Collect free row ids that were not remembered: those of an earlier start, and those beyond `MOST_HOLES`."""
        assert self._writer is not None
        try:
            last = self._writer.execute("SELECT coalesce(max(id), 0) FROM rows").fetchone()[0]
            if last > SPARSE * self._count:
                taken = np.zeros(last + 1, np.bool_)
                taken[np.fromiter((row_id for (row_id,) in self._writer.execute("SELECT id FROM rows")), np.int64)] = True
                taken[0] = True  # row ids begin at 1
                self._holes = np.flatnonzero(~taken)[:MOST_HOLES].tolist()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _within(self) -> None:
        """Raise "full" if a log that cannot be copied into the file has used up the bound."""
        log = self._log_bytes()
        if log <= 2 * self._checkpoint * PAGE_BYTES or log + self._pages() * PAGE_BYTES <= self.most:
            return
        with self._writing_now:
            assert self._writer is not None
            try:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # succeeds if no other program reads: the log is then empty
            except sqlite3.Error as error:
                raise translated(error, self.path) from error
        if self._log_bytes() >= log:
            raise StoreError(
                "full",
                f"{self.path}: its log has {log / MB:,.0f} MB, and with it the store has reached store.max_mb; another "
                "program reads it and does not end: stop that program",
            )

    def least(self, limit: int) -> list[bytes]:
        """Return the keys of the rows that are worth least."""
        keys: list[bytes] = []
        with self._reading() as reader:
            # read the index first: it can be intact when a page of records is not
            for row_id in reader.execute(f"SELECT id FROM rows ORDER BY {WORTH} LIMIT ?", (limit,)).fetchall():
                try:
                    keys += reader.execute("SELECT key FROM rows WHERE id = ?", row_id).fetchone()
                except sqlite3.DatabaseError as error:
                    if kind_of(error) != "corrupt":
                        raise
                    self._damaged = True
        return keys

    def forget(self, keys: Sequence[bytes]) -> int:
        """Remove these rows; return how many were removed."""
        with self._writing_now:
            row_ids: list[tuple[int]] = []
            with self._reading() as reader:
                for start in range(0, len(keys), PER_STATEMENT):
                    some = keys[start : start + PER_STATEMENT]
                    row_ids += reader.execute(f"SELECT id FROM rows WHERE key IN ({', '.join('?' * len(some))})", some).fetchall()
            return self._remove_all(row_ids)

    def gather(self, limit: int) -> int:
        """Move rows from the end of the file into free row ids; return how many were moved."""
        with self._writing_now:
            with self._writing() as writer:
                last = [row_id for (row_id,) in writer.execute("SELECT id FROM rows ORDER BY id DESC LIMIT ?", (limit,))]
                holes = sorted(self._holes)[: len(last)]
                moves = [(hole, row_id) for hole, row_id in zip(holes, last, strict=False) if hole < row_id]
                writer.executemany("UPDATE rows SET id = ? WHERE id = ?", moves)
            moved, end = {hole for hole, _ in moves}, last[len(moves) - 1] if moves else 0
            self._holes = [hole for hole in self._holes if hole not in moved and hole < end]
        return len(moves)

    def begin_life(self) -> Life:
        """Begin a new life, without decisions yet; durable on return."""
        mark = int.from_bytes(os.urandom(LIFE_MARK_BYTES), "little") & RANDOM_MASK
        return Life(self.store, mark, self.life_id(mark))

    def life_id(self, mark: int) -> int:
        """Return the store's id for a life; give it one if it has none. Durable on return."""
        with self._reading() as reader:
            found = reader.execute("SELECT id FROM lives WHERE mark = ?", (mark,)).fetchone()
        if found is None:
            with self._writing() as writer:
                writer.execute("INSERT INTO lives(mark) VALUES (?) ON CONFLICT DO NOTHING", (mark,))
                found = writer.execute("SELECT id FROM lives WHERE mark = ?", (mark,)).fetchone()
        return int(found[0])

    def lives(self) -> dict[int, int]:
        """Return the marks of all lives by their ids."""
        with self._reading() as reader:
            return dict(reader.execute("SELECT id, mark FROM lives").fetchall())

    def used(self, after: int = -1) -> dict[int, int]:
        """Return the next outcomes of used decisions after an id; none at the end."""
        with self._reading() as reader:
            found = reader.execute("SELECT id FROM used WHERE id > ? ORDER BY id LIMIT ?", (after, PER_STATEMENT)).fetchall()
            return outcomes(reader, [number for (number,) in found]) if found else {}

    def claim(self, owner: bytes) -> bool:
        """Record the fingerprint of the rows' secrets; return False if the rows are stored under other secrets."""
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
        """Return the id of this layout; give it one if it has none."""
        with self._writing() as writer:
            writer.execute("INSERT INTO layouts(description) VALUES (?) ON CONFLICT DO NOTHING", (description,))
            return int(writer.execute("SELECT id FROM layouts WHERE description = ?", (description,)).fetchone()[0])

    def probe(self) -> None:
        """Raise `StoreError` if the store cannot be written now: write some bytes, remove them, and commit."""
        self._within()
        with self._writing() as writer:
            writer.execute("INSERT INTO meta VALUES ('room', zeroblob(?))", (PROBE_BYTES,))
            writer.execute("DELETE FROM meta WHERE key = 'room'")
            writer.execute("UPDATE meta SET value = value + 1 WHERE key = 'probe'")
        if self.journal is not None:
            self.journal.check(self.journal.time)
