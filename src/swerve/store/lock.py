"""Ownership of a store by one process: an advisory lock on a file beside the store, which names the owner."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from swerve.store.protocol import InUse, StoreError

#: Bytes read of a lock file: a process id and 16 hexadecimal digits, with room to spare.
LOCK_BYTES = 256
#: Permissions of the files: records and keys of users are for their owner only.
OWNER_ONLY = 0o600


class Lock:
    """The lock on `path`, held from construction until `release`, or until the process ends for any reason.

    The file is never removed: a process that waits on a removed file would own a lock that no other process sees. The first line is
    the owner's process id and is rewritten by each owner. The second line names the store and remains when the store is gone, so
    `guarded` tells that a store existed here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _taken(path)
        self._identity = _identity(os.fstat(self._file))

    @property
    def guarded(self) -> str:
        """The id of the store that the lock was made for, in hexadecimal; empty before `guard`."""
        return _lines(self._file)[1]

    def guard(self, store: int) -> None:
        """Write the id of the store into the lock file."""
        if self.guarded != f"{store:016x}":
            with contextlib.suppress(OSError):  # a full disk; the next start writes it
                os.pwrite(self._file, f"{os.getpid()}\n{store:016x}\n".encode(), 0)

    def in_place(self) -> bool:
        """Return whether the locked file is still the one at `path`, which another process would open."""
        try:
            return self._identity == _identity(os.stat(self.path))
        except OSError:
            return False

    def retake(self) -> None:
        """Lock the file that is at `path` now; if that fails, the present lock is kept."""
        if self.in_place():
            return
        file = _taken(self.path)
        os.close(self._file)
        self._file, self._identity = file, _identity(os.fstat(file))

    def release(self) -> None:
        """Release the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def lock_path(database: Path) -> Path:
    """Return the path of a database's lock file."""
    return database.with_name(f"{database.name}.lock")


@contextlib.contextmanager
def left_alone(database: Path) -> Iterator[None]:
    """Hold the store's lock inside the block; raise `InUse` if a process owns it. Without a lock file no process has owned the
    store, and none is created."""
    path = lock_path(database)
    if not path.exists() or not os.access(path, os.W_OK):
        yield
        return
    lock = Lock(path)
    try:
        yield
    finally:
        lock.release()


def _lines(file: int) -> tuple[str, str]:
    """Return the two lines of a lock file: the owner's process id, and the id of the store."""
    owner, store, *_ = [*os.pread(file, LOCK_BYTES, 0).decode("ascii", "replace").split("\n"), "", ""]
    return owner.strip(), store.strip()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def no_folder(folder: Path) -> str:
    """Say why no file could be created in a folder."""
    if folder.is_dir():  # a file system that takes no files, such as /proc
        return f"no file can be made in {folder}; name a store elsewhere"
    return f"there is no folder {folder}; make it, or name a store elsewhere"


def _taken(path: Path) -> int:
    """Open and lock the file at `path`; raise `InUse` if another process holds it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    except FileNotFoundError:
        raise StoreError("gone", no_folder(path.parent)) from None
    except OSError as error:
        raise StoreError("io", f"{path} cannot be locked: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        guarded = _lines(file)[1]
        text = f"{os.getpid()}\n{guarded}\n".encode()
        os.pwrite(file, text, 0)
        os.ftruncate(file, len(text))
    except BlockingIOError:
        owner = _lines(file)[0] or "?"
        since = datetime.fromtimestamp(os.fstat(file).st_mtime, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.close(file)
        raise InUse(
            f"{path.with_suffix('')} is in use by process {owner} since {since}; stop that process, or use another store"
        ) from None
    except OSError as error:
        os.close(file)
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise StoreError("full" if full else "io", f"{path} cannot be locked: {error.strerror}") from error
    return file
