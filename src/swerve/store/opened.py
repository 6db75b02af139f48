"""The files of the embedded engine: opened, closed, opened anew, and looked at before and after every commit."""

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
from swerve.store.wal import Log, index_path, log_path, read_log

log = logging.getLogger("swerve.store")

#: How long a statement waits for another program's lock: less than what a request has, the caller tries again.
WRITER_BUSY_MS, READER_BUSY_MS = 50, 10
WRITER_CACHE_KIB, READER_CACHE_KIB = 16384, 8192
MASK = (1 << 63) - 1  # random numbers that SQLite keeps as integers
#: Bytes that no store reaches: the default bound.
UNBOUNDED = 1 << 62


class Opened:
    """One SQLite file in WAL mode, owned by this process. A reader and a writer; any thread may use either, one at a time.

    A new file is made where none lies and nothing says that there has been one, or where the operator wants a `new` one. `most` is
    the size in bytes that the file and its log are to stay below.
    """

    def __init__(self, path: Path, worker: str = "0", *, new: bool = False, most: int = UNBOUNDED) -> None:
        self.given, self.worker, self.most = path.absolute(), worker, most
        self._checkpoint = min(CHECKPOINT_PAGES, most // 16 // PAGE_BYTES)
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
        if new:
            self._set_log_aside()
        if empty and not new and (self._lock.guarded or self._log().exists()):
            raise SwerveError(
                f"there is no store {self.given}, and there has been one; put it back, restore a backup of it, "
                "or begin a new one with --new-store"
            )
        return empty

    def _set_log_aside(self) -> None:
        """Keep the log of the store that was here, for when that is put back: a new store would begin by removing it."""
        for path in (self._log(), index_path(self.path)):
            if path.exists():
                number = 1
                while (kept := path.with_name(f"{path.name}.{number}")).exists():
                    number += 1
                path.rename(kept)
                log.warning("%s belongs to the store that was here; it is kept as %s", path, kept.name)

    def _open(self, new: bool = False) -> bytes:
        """Open both connections on what lies at the path, and remember which files those are; the mark of the opening before."""
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._holes: list[int] = []
        self._damaged = False  # whether a damaged page was met
        try:
            if new:
                create(self.path)
            left = Log() if new else self._left()
            pages = self._checkpoint
            self._writer = connect(self.path, busy_ms=WRITER_BUSY_MS, cache_kib=WRITER_CACHE_KIB, checkpoint=pages, new=new)
            self._reader = connect(self.path, busy_ms=READER_BUSY_MS, cache_kib=READER_CACHE_KIB, checkpoint=pages)
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
            log.warning("%s: %s", self.path, left.doubt())
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
        for path, before in zip((self.given, self._log()), self._files, strict=True):
            try:
                same = self._identity(path) == before
            except OSError:
                same = False
            if not same:
                raise StoreError("gone", f"{path} was moved, removed or replaced while it was open; it is taken up when it is back")
        if not self._lock.in_place():
            raise StoreError("gone", f"the lock of {self.path} was moved, removed or replaced while it was held; it is taken anew")

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
