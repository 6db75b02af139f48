"""Restoring: replaces a store by a backup, entirely or not at all, and keeps the replaced store under another name."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.lock import OWNER_ONLY, Lock, lock_path
from swerve.store.protocol import InUse, StoreError
from swerve.store.shares import journal_path
from swerve.store.verify import Meaning, Progress, Report, verify
from swerve.store.wal import index_path, log_path

#: Bytes of the backup that are copied at a time.
COPIED_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore: the report on the copy, and the path of the replaced store if it was kept."""

    report: Report
    kept: Path | None
    live: bool  # whether a service was running on the store


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
    whole: bool = True,
) -> Restored:
    """Check the backup `copy` and put it in place of the store in the file `store`; the copy itself is not moved.

    The replaced store is kept, with its log, as `store` plus `stamp`, unless `discard` is set. While a service runs on the store
    the call is refused unless `live`: then the service notices the new file and continues with it. `approve` receives the report on
    the copy before anything is changed, and may raise. Without `whole`, `store` is one of several shares, for which `live` is not
    possible.
    """
    target = store.absolute().resolve()
    if not target.parent.is_dir():
        raise SwerveError(f"there is no folder {target.parent}; make it, or name another folder")
    if target.exists() and copy.exists() and os.path.samefile(copy, target):
        raise SwerveError(f"{copy} is the store itself; name a backup of it")
    if log_path(copy).exists() and log_path(copy).stat().st_size:
        raise SwerveError(f"{copy} is no backup: a log lies beside it; make one of it with `swerve backup`")
    report = verify(copy, meaning, progress)
    if report.broken:
        raise StoreError("corrupt", f"{copy} is damaged, and nothing was restored: {report.broken[0]}")
    approve(report)
    lock = _owned(
        target, live, "; stop it, or restore under the running service with --live" if whole else "; stop the service first"
    )
    try:
        kept = None if discard or not target.exists() else target.with_name(f"{target.name}.{stamp}")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY), "wb") as out, copy.open("rb") as file:
                shutil.copyfileobj(file, out, COPIED_AT_ONCE)
                out.flush()
                os.fsync(out.fileno())
            _put(part, target, kept, running=lock is None)
        finally:
            part.unlink(missing_ok=True)
    finally:
        if lock is not None:
            lock.release()
    return Restored(report, kept, lock is None)


def _owned(target: Path, live: bool, remedy: str) -> Lock | None:
    """Return the store's lock; None if a service holds it and `live` allows that."""
    try:
        return Lock(lock_path(target))
    except InUse as error:
        if live:
            return None
        owner = str(error).partition(";")[0]
        raise InUse(f"{owner}{remedy}") from None


def _put(part: Path, target: Path, kept: Path | None, *, running: bool) -> None:
    """Rename the file to `target`. The old log must never lie beside the new file: SQLite would replay it."""
    before = {path: _identity(path) for path in (log_path(target), index_path(target))}
    if kept is not None:
        os.link(target, kept)
        with contextlib.suppress(FileNotFoundError):
            os.link(log_path(target), log_path(kept))
        _keep_journal(target, kept)
    if running:
        os.replace(part, target)  # from here on the service finds its file gone and acknowledges nothing
        if kept is not None:
            _keep_journal(target, kept)  # with segments that were begun meanwhile
        for path, was in before.items():
            if was is not None and _identity(path) == was:  # otherwise the service has already replaced it
                path.unlink(missing_ok=True)
    else:
        for path in before:
            path.unlink(missing_ok=True)
        shutil.rmtree(journal_path(target), ignore_errors=True)  # what is kept of it has other names
        os.replace(part, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_journal(target: Path, kept: Path) -> None:
    """Let the journal of the store that is replaced have another name too, beside that of the store."""
    folder, other = journal_path(target), journal_path(kept)
    if not folder.is_dir():
        return
    other.mkdir(mode=0o700, exist_ok=True)
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            os.link(path, other / path.name)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
