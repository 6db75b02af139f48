"""One process owns a store: an advisory lock on a file beside it, which says who."""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path

from swerve.store.protocol import InUse, StoreError


class Lock:
    """The lock on `path`, held from here until `release`, or until the process ends in whatever way.

    The file is never removed: a process that waited on a removed file would own a lock that nobody else sees. Its text is the
    owner's process id, the time of its last change is when the owner took it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _taken(path)
        self._identity = _identity(os.fstat(self._file))

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
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        owner = os.pread(file, 64, 0).decode("ascii", "replace").strip() or "?"
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
