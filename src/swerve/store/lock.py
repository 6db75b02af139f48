"""One process owns a store: an advisory lock on a file beside it, which says who."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from swerve.store.protocol import InUse, StoreError


class Lock:
    """The lock on `path`, held from here until `release`, or until the process ends in whatever way.

    The file is never removed: a process that waited on a removed file would own a lock that nobody else sees. Its first line is
    the owner's process id, and it changes when an owner takes it. Its second line names the store that it belongs to, and stays
    when that store is gone: `guarded` then says that there has been one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _taken(path)
        self._identity = _identity(os.fstat(self._file))

    @property
    def guarded(self) -> str:
        """The store that the lock was made for, in hexadecimal; empty before `guard`."""
        return _lines(self._file)[1]

    def guard(self, store: int) -> None:
        """Note which store the lock belongs to."""
        if self.guarded != f"{store:016x}":
            with contextlib.suppress(OSError):  # a full disk: the next start notes it
                os.pwrite(self._file, f"{os.getpid()}\n{store:016x}\n".encode(), 0)

    def in_place(self) -> bool:
        """Whether the file that is locked is the one that another process would find."""
        try:
            return self._identity == _identity(os.stat(self.path))
        except OSError:
            return False

    def retake(self) -> None:
        """Own the file that lies there now; when this fails, the lock that was held is still held."""
        if self.in_place():
            return
        file = _taken(self.path)
        os.close(self._file)
        self._file, self._identity = file, _identity(os.fstat(file))

    def release(self) -> None:
        """Let the next owner in."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def lock_path(database: Path) -> Path:
    """Where the lock of a database lies."""
    return database.with_name(f"{database.name}.lock")


@contextlib.contextmanager
def left_alone(database: Path) -> Iterator[None]:
    """Nobody owns the store while this lasts; raises `InUse`. Where there is no lock nobody has owned it, and none is made."""
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
    """The two lines of a lock file: the owner's process id, and the store."""
    owner, store, *_ = [*os.pread(file, 256, 0).decode("ascii", "replace").split("\n"), "", ""]
    return owner.strip(), store.strip()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def no_folder(folder: Path) -> str:
    """Why nothing could be made in a folder, in words."""
    if folder.is_dir():  # of a kind that takes no files
        return f"no file can be made in {folder}; name a store elsewhere"
    return f"there is no folder {folder}; make it, or name a store elsewhere"


def _taken(path: Path) -> int:
    """An open and locked file at `path`; `InUse` when another process has it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
            f"{path.with_suffix('')} is in use by process {owner} since {since}; stop that one, or give this one a store of its own"
        ) from None
    except OSError as error:
        os.close(file)
        full = error.errno in {28, 122}  # ENOSPC, EDQUOT
        raise StoreError("full" if full else "io", f"{path} cannot be locked: {error.strerror}") from error
    return file
