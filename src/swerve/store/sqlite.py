"""The embedded engine: one SQLite file in WAL mode, owned by one process."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swerve.core.errors import SwerveError, whole
from swerve.store.lock import Lock, lock_path
from swerve.store.protocol import Batch, Conflict, Damaged, InUse, Life, Order, Row, StoreError
from swerve.store.schema import connect, create, kind_of, translated
from swerve.store.statements import AT_ONCE, COLUMNS, insert, outcomes, update, use
from swerve.store.wal import DOUBT, Log, index_path, log_path, read_log

log = logging.getLogger("swerve.store")

ORDERS = {"traffic": "ORDER BY level DESC, id DESC", "shifted": "WHERE shifted > 0 ORDER BY shifted DESC, id DESC"}

#: How long a statement waits for another program's lock: less than what a request has, the caller tries again.
WRITER_BUSY_MS, READER_BUSY_MS = 50, 10
WRITER_CACHE_KIB, READER_CACHE_KIB = 16384, 8192
#: What `probe` writes and removes again: some pages, so that a store with room for one page only is called full.
PROBE_BYTES = 65536
#: Places of expired rows that are kept in mind for new ones, so that pages stay full.
HOLES = 100_000
MASK = (1 << 63) - 1  # random numbers that SQLite keeps as integers


class _Mismatch(Exception):  # noqa: N818 - what was found, handled here
    """The batch does not fit what is stored."""


class SQLiteStore:
    """A `Store` in one file. A reader and a writer connection; any thread may use either, one at a time.

    A new file is made where none lies and nothing says that there has been one, or where the operator wants a `new` one.
    """

    def __init__(self, path: Path, worker: str = "0", *, new: bool = False) -> None:
        self.given, self.worker = path.absolute(), worker
        self.path = self.given.resolve()  # of a symbolic link the file itself: its log and its lock lie beside that
        self._writing_now, self._reading_now = threading.RLock(), threading.RLock()
        self._marks: set[bytes] = set()  # that this process has put into the file, or tried to
        self._lock = Lock(lock_path(self.path))
        try:
            self._open(self._may_begin(new))
        except BaseException:
            self._lock.release()
            raise

    # --- open, close, and being sure of the file ---

    def _may_begin(self, new: bool) -> bool:
        """Whether a file is to be made; raises where one is missing that should be there, and where one is that should not."""
        empty = not self.path.exists() or self.path.stat().st_size == 0
        if new and not empty:
            raise SwerveError(f"a new store was asked for, and {self.given} is one already; move it away first")
        if empty and not new and (self._lock.guarded or self._log().exists()):
            raise SwerveError(
                f"there is no store {self.given}, and there has been one; put it back, restore a backup of it, "
                "or begin a new one with --new-store"
            )
        return empty

    def _open(self, new: bool = False) -> bytes:
        """Open both connections on what lies at the path, and remember which files those are; the mark of the opening before."""
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._holes: list[int] = []
        try:
            if new:
                create(self.path)
            left = Log() if new else self._left()
            self._writer = connect(self.path, busy_ms=WRITER_BUSY_MS, cache_kib=WRITER_CACHE_KIB, new=new)
            self._reader = connect(self.path, busy_ms=READER_BUSY_MS, cache_kib=READER_CACHE_KIB)
            if left.tail:  # whoever looks at the log after the next crash must not take it for commits
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            # counted over the smallest index: milliseconds for a million rows
            self._count: int = self._reader.execute("SELECT count(*) FROM rows").fetchone()[0]
            meta = dict(self._reader.execute("SELECT key, value FROM meta WHERE key IN ('opened', 'store')").fetchall())
            mark = os.urandom(16)
            self._marks.add(mark)  # before it is written: an error does not say that it is not
            self._writer.execute("UPDATE meta SET value = ? WHERE key = 'opened'", (mark,))
            self.store = int(meta["store"]) & MASK
            self._files = (self._identity(self.given), self._identity(self._log()))
            self._lock.guard(self.store)
        except sqlite3.Error as error:
            self._close()
            raise translated(error, self.path) from error
        except OSError as error:
            self._close()
            raise StoreError("gone", f"{self.given} cannot be opened: {error.strerror or error}") from error
        except BaseException:
            self._close()
            raise
        before: bytes = meta["opened"]
        return before

    def _left(self) -> Log:
        """The log that a crash has left, before SQLite makes of it what it can; raises where that would lose commits."""
        left = read_log(self.path)
        left.refuse(self.path)
        if left.doubtful:
            log.warning("%s: %s", self.path, DOUBT)
        return left

    def _close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
        self._reader = self._writer = None

    def close(self) -> None:
        """Copy the log into the file and let go of the store; closing twice is no error."""
        with self._writing_now, self._reading_now:
            self._close()
            self._lock.release()

    def reopen(self) -> bool:
        """Open what lies at the path now; whether it is the same store. Where nothing lies the store is gone, and nothing is made:
        the open file may come back, and its log with it."""
        with self._writing_now, self._reading_now:
            files = self._files
            if not self.given.exists():
                raise StoreError("gone", f"{self.given} is not there; put it back, or restore a backup of it")
            self._close()
            try:
                self._lock.retake()
                self._drop_old_log(files)
                found = self._open()
                self._empty_log()
            except InUse as error:
                raise StoreError("locked", str(error)) from error
            except StoreError:
                raise
            except SwerveError as error:  # a file that is not ours, or too new: readable, and not to be used
                raise StoreError("corrupt", str(error)) from error
            # the number of a removed file may be given to the next one, so a mark in the file must agree too
            return self._files[0] == files[0] and found in self._marks

    def _empty_log(self) -> None:
        """Copy the log into the file. After a failed `fsync` the system may hold pages of the log for written that are not:
        whatever is read from them must reach the file before anything is built on it."""
        assert self._writer is not None
        try:
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._files = (self._files[0], self._identity(self._log()))
        except sqlite3.Error as error:
            self._close()
            raise translated(error, self.path) from error
        if busy:
            self._close()
            raise StoreError("locked", f"{self.path}: another program reads it, and its log cannot be emptied; end that program")

    def _drop_old_log(self, before: tuple[tuple[int, int], tuple[int, int]]) -> None:
        """Remove the log of a file that was replaced: SQLite would play it into the new one and ruin it."""
        with contextlib.suppress(OSError):
            if self._identity(self._log()) == before[1] and self._identity(self.given) != before[0]:
                self._log().unlink()
                index_path(self.path).unlink(missing_ok=True)

    def _log(self) -> Path:
        return log_path(self.path)

    @staticmethod
    def _identity(path: Path) -> tuple[int, int]:
        found = os.stat(path)
        return found.st_dev, found.st_ino

    def _in_place(self) -> None:
        """Raise "gone" when the open files are no longer those at the path: SQLite would go on writing into nowhere."""
        try:
            same = (self._identity(self.given), self._identity(self._log())) == self._files and self._lock.in_place()
        except OSError:
            same = False
        if not same:
            raise StoreError("gone", f"{self.path} was moved, removed or replaced while it was open; put it back, then reopen")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._reading_now:
            if self._reader is None:
                raise StoreError("gone", f"{self.path} is closed")
            try:
                yield self._reader
            except sqlite3.Error as error:
                raise translated(error, self.path) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, durable and in the right file when this ends; rolled back when anything is wrong."""
        with self._writing_now:
            writer = self._writer
            if writer is None:
                raise StoreError("gone", f"{self.path} is closed")
            self._in_place()
            sent = False
            try:
                writer.execute("BEGIN IMMEDIATE")
                yield writer
                sent = True
                writer.execute("COMMIT")
                self._in_place()
            except BaseException as error:
                if writer.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise translated(error, self.path, uncertain=sent) from error
                if isinstance(error, StoreError):
                    error.uncertain = sent
                raise

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
                    self._holes = []  # perhaps it was one of these, beside a damaged page
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
            gone = self._remove(old)
            if len(gone) == len(old):
                self._holes += [place for (place,) in gone[: HOLES - len(self._holes)]]
            else:  # a damaged page keeps its rows, and those beside it that would be merged with it; new rows go elsewhere
                gone = [place for one in old for place in self._remove([one])]
                self._holes = []
            self._count -= len(gone)
        return len(gone), ids

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
        with self._writing() as writer:
            writer.execute("INSERT INTO meta VALUES ('room', zeroblob(?))", (PROBE_BYTES,))
            writer.execute("DELETE FROM meta WHERE key = 'room'")
            writer.execute("UPDATE meta SET value = value + 1 WHERE key = 'probe'")
