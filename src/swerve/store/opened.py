"""The files of the SQLite engine: opening, closing, reopening, and the identity checks around every commit."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.lock import Lock, lock_path
from swerve.store.protocol import InUse, StoreError
from swerve.store.schema import CHECKPOINT_PAGES, PAGE_BYTES, connect, create, translated
from swerve.store.shares import Division, Share
from swerve.store.wal import Log, index_path, log_path, read_log

log = logging.getLogger("swerve.store")

#: Milliseconds that a statement waits for another program's lock: less than a request's deadline, because the caller retries.
WRITER_BUSY_MS, READER_BUSY_MS = 50, 10
#: Page caches: the writer's holds the pages of a large batch with its indexes; the reader loads few rows at a time.
WRITER_CACHE_KIB, READER_CACHE_KIB = 8192, 2048
#: Random numbers have 63 bits, because SQLite's integers are signed.
RANDOM_MASK = (1 << 63) - 1
#: Bytes that no store reaches: the default bound.
UNBOUNDED = 1 << 62
#: The log takes at most this fraction of a small bound before it is copied into the file, so that data has most of the bound.
LOG_FRACTION = 16
#: Random bytes that mark an opening: no two openings of any store share them.
OPENING_MARK_BYTES = 16


class Opened:
    """One SQLite file in WAL mode, owned by this process, with one reading and one writing connection.

    Any thread may use either connection, one thread at a time. A new file is created if none exists and no trace (log or lock)
    shows that a store was there before, or if the operator asks for a `new` one. `most` bounds file and log together, in bytes.
    """

    store: int  # the id of the store
    share: Share
    division: Division

    def __init__(self, path: Path, worker: str = "0", *, new: bool = False, most: int = UNBOUNDED) -> None:
        self.given, self.worker, self.most = path.absolute(), worker, most
        self._checkpoint = min(CHECKPOINT_PAGES, most // LOG_FRACTION // PAGE_BYTES)
        self.path = self.given.resolve()  # log and lock lie beside the file itself, not beside a symbolic link to it
        self._writing_now, self._reading_now = threading.RLock(), threading.RLock()
        self._marks: set[bytes] = set()  # marks that this process has written into the file, or tried to write
        self._lock = Lock(lock_path(self.path))
        try:
            self._open(self._may_begin(new))
        except BaseException:
            self._lock.release()
            raise

    def owned(self, connection: sqlite3.Connection) -> None:
        """Raise unless this process still owns the store."""

    def become(self, share: Share, division: Division, store: int | None = None) -> None:
        """Say durably that this file is a share of a store, and how far a change of the number of shares is; `store` is the id of
        that store, if it is not the one of this file."""
        with self._writing() as writer:
            told = {"share": share.number, "shares": share.of, "store": self.store if store is None else store}
            told |= division._asdict()
            writer.executemany("INSERT OR REPLACE INTO meta(key, value) VALUES (?, ?)", told.items())
        self.share, self.division = share, division
        if store is not None:
            self.store = store
            self._lock.guard(store)

    # --- open, close, check the file's identity ---

    def _may_begin(self, new: bool) -> bool:
        """Return whether to create a file; raise if an expected store is missing, or if `new` finds a store."""
        empty = not self.path.exists() or self.path.stat().st_size == 0
        if new and not empty:
            raise SwerveError(f"a new store was asked for, and {self.given} is one already; move it away first")
        if new:
            self._set_log_aside()
        if empty and not new and (self._lock.guarded or self._log().exists()):
            raise SwerveError(
                f"there is no store {self.given}, and there has been one; put it back, restore a backup of it, "
                "or begin a new one with --new-store"
            )
        return empty

    def _set_log_aside(self) -> None:
        """Rename the log of the store that was here before, so that the store can be put back: a new store removes the log."""
        for path in (self._log(), index_path(self.path)):
            if path.exists():
                number = 1
                while (kept := path.with_name(f"{path.name}.{number}")).exists():
                    number += 1
                path.rename(kept)
                log.warning("%s belongs to the store that was here; it is kept as %s", path, kept.name)

    def _open(self, new: bool = False) -> bytes:
        """Open both connections and remember the identity of the files; return the mark of the previous opening."""
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._holes: list[int] = []
        self._damaged = False  # whether a damaged page was found
        try:
            if new:
                create(self.path)
            left = Log() if new else self._left()
            pages = self._checkpoint
            self._writer = connect(self.path, busy_ms=WRITER_BUSY_MS, cache_kib=WRITER_CACHE_KIB, checkpoint=pages, new=new)
            self._reader = connect(self.path, busy_ms=READER_BUSY_MS, cache_kib=READER_CACHE_KIB, checkpoint=pages)
            if left.tail:  # remove the unreadable end of the log: after the next crash it could be mistaken for commits
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            # counts over the smallest index: milliseconds for a million rows
            self._count: int = self._reader.execute("SELECT count(*) FROM rows").fetchone()[0]
            meta = dict(self._reader.execute("SELECT key, value FROM meta").fetchall())
            mark = os.urandom(OPENING_MARK_BYTES)
            self._marks.add(mark)  # before the write: an error does not prove that nothing was written
            self._writer.execute("UPDATE meta SET value = ? WHERE key = 'opened'", (mark,))
            self.store = int(meta["store"]) & RANDOM_MASK
            self.share, self.division = Share(meta.get("share", 0), meta.get("shares", 1)), Division.of(meta)
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
        """Read the log that a crash has left, before SQLite does; raise if SQLite would lose commits of it."""
        left = read_log(self.path)
        left.refuse(self.path)
        if left.doubtful:
            log.warning("%s: %s", self.path, left.doubt())
        return left

    def _close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
        self._reader = self._writer = None

    def close(self) -> None:
        """Copy the log into the file and release the store; closing twice is no error."""
        with self._writing_now, self._reading_now:
            self._close()
            self._lock.release()

    def reopen(self) -> bool:
        """Open the file that is at the path now; return whether it is the same store. If there is no file, raise "gone" and create
        nothing: the open file may come back, and its log with it."""
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
            except SwerveError as error:  # another program's file, or a newer schema: readable, but not usable
                raise StoreError("corrupt", str(error)) from error
            # a new file can get the inode number of a removed one, so the mark in the file must agree too
            return self._files[0] == files[0] and found in self._marks

    def _empty_log(self) -> None:
        """Copy the log into the file. After a failed `fsync` the system may report pages of the log as written that are not: their
        contents must reach the file before further writes depend on them."""
        assert self._writer is not None
        try:
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._files = (self._files[0], self._identity(self._log()))
        except sqlite3.Error as error:
            self._close()
            raise translated(error, self.path) from error
        if busy:
            self._close()
            raise StoreError("locked", f"{self.path}: another program reads it, and its log cannot be emptied; stop that program")

    def _drop_old_log(self, before: tuple[tuple[int, int], tuple[int, int]]) -> None:
        """Remove the log of a file that was replaced: SQLite would replay it into the new file and corrupt it."""
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
        """Raise "gone" if the open files are no longer those at the path: SQLite would keep writing to a file without a name."""
        for path, before in zip((self.given, self._log()), self._files, strict=True):
            try:
                same = self._identity(path) == before
            except OSError:
                same = False
            if not same:
                raise StoreError("gone", f"{path} was moved, removed or replaced while it was open; put it back to use it again")
        if not self._lock.in_place():
            raise StoreError("gone", f"the lock of {self.path} was moved, removed or replaced while it was held; it is taken again")

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
        """Run one transaction: durable and in the right file when the block ends, rolled back on any error."""
        with self._writing_now:
            writer = self._writer
            if writer is None:
                raise StoreError("gone", f"{self.path} is closed")
            self._in_place()
            sent = False
            try:
                writer.execute("BEGIN IMMEDIATE")
                self.owned(writer)
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
