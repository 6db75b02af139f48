"""Putting a backup in the place of a store, whole or not at all; what was there stays, under another name."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.lock import Lock, lock_path
from swerve.store.protocol import InUse, StoreError
from swerve.store.verify import Meaning, Progress, Report, verify
from swerve.store.wal import index_path, log_path


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done: what was found in the copy, and where what was replaced lies now, if it was kept."""

    report: Report
    kept: Path | None
    live: bool  # whether a service was running on it


def restore(
    copy: Path,
    store: Path,
    stamp: str,
    *,
    live: bool = False,
    discard: bool = False,
    meaning: Meaning | None = None,
    progress: Progress | None = None,
    approve: Callable[[Report], None] = lambda report: None,
) -> Restored:
    """Put the backup `copy`, checked, in the place of the store in the file `store`; the copy itself stays where it is.

    What was there is kept, with its log, as `store` and `stamp`, unless it is to be discarded. While a service runs on the store
    this is refused unless `live`: then the service notices that another file lies there, and goes on with that. `approve` gets what
    was found in the copy before anything is done, and may raise.
    """
    target = store.absolute().resolve()
    if not target.parent.is_dir():
        raise SwerveError(f"there is no folder {target.parent}; make it, or name another place")
    if target.exists() and copy.exists() and os.path.samefile(copy, target):
        raise SwerveError(f"{copy} is the store itself; name a backup of it")
    if log_path(copy).exists() and log_path(copy).stat().st_size:
        raise SwerveError(f"{copy} is no backup: a log lies beside it; make one of it with `swerve backup`")
    report = verify(copy, meaning, progress)
    if report.broken:
        raise StoreError("corrupt", f"{copy} is damaged, and nothing was restored: {report.broken[0]}")
    approve(report)
    lock = _owned(target, live)
    try:
        kept = None if discard or not target.exists() else target.with_name(f"{target.name}.{stamp}")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out, copy.open("rb") as file:
                shutil.copyfileobj(file, out, 1 << 20)
                out.flush()
                os.fsync(out.fileno())
            _put(part, target, kept, running=lock is None)
        finally:
            part.unlink(missing_ok=True)
    finally:
        if lock is not None:
            lock.release()
    return Restored(report, kept, lock is None)


def _owned(target: Path, live: bool) -> Lock | None:
    """The lock of the store; None where a service has it, and that is all right."""
    try:
        return Lock(lock_path(target))
    except InUse as error:
        if live:
            return None
        who = str(error).partition(";")[0]
        raise InUse(f"{who}; stop it, or restore under the running service with --live") from None


def _put(part: Path, target: Path, kept: Path | None, *, running: bool) -> None:
    """Rename the file into its place. The log of the file before must never lie beside the new one: SQLite would play it in."""
    before = {path: _identity(path) for path in (log_path(target), index_path(target))}
    if kept is not None:
        os.link(target, kept)
        with contextlib.suppress(FileNotFoundError):
            os.link(log_path(target), log_path(kept))
    if running:
        os.replace(part, target)  # from here on the service finds that its file is not there any more, and acknowledges nothing
        for path, was in before.items():
            if was is not None and _identity(path) == was:  # else the service was quicker
                path.unlink(missing_ok=True)
    else:
        for path in before:
            path.unlink(missing_ok=True)
        os.replace(part, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
