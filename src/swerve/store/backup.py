"""A copy of a store while another process writes to it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.lock import left_alone
from swerve.store.protocol import InUse, StoreError
from swerve.store.schema import APPLICATION, translated
from swerve.store.verify import Meaning, Progress, Report, verify
from swerve.store.wal import read_log

#: Pages copied between two reports: 8 MiB.
PAGES = 1024


def backup(source: Path, target: Path, meaning: Meaning | None = None, progress: Progress | None = None) -> Report:
    """Copy the store at `source` as it is at this moment to the new file `target`, and check the copy; what was found in it.

    The copy is one transaction's view, however much is written meanwhile. It appears under its name only when it is whole, checked
    and on the disk; an existing file is never overwritten. Records that were damaged in the store are so in the copy. `progress`
    gets what is done ("copying", and the steps of `verify`), how much of it, and of how much.
    """
    if not source.is_file():
        raise SwerveError(f"there is no store {source}; name the one that the service uses")
    if os.path.lexists(target):
        raise SwerveError(f"{target} exists already; a backup never overwrites: name a new file")
    if not target.parent.is_dir():
        raise SwerveError(f"there is no folder {target.parent}; make it, or name another place")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with contextlib.suppress(InUse), left_alone(source.resolve()):  # nobody serves it: to open it would end its log
            read_log(source.resolve()).refuse(source)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        rows = _copy(source, unfinished, progress)
        report = verify(unfinished, meaning, progress)
        if report.broken:
            raise StoreError("corrupt", f"{source} is damaged, and no backup was made of it: {report.broken[0]}")
        if report.rows != rows:
            raise StoreError("corrupt", f"the copy has {report.rows} rows where the store has {rows}; no backup was made")
        _name(unfinished, target)
    except sqlite3.Error as error:
        told = translated(error, source)
        if told.kind == "corrupt":
            raise StoreError("corrupt", f"{source} is damaged, and no backup was made of it: {error}") from error
        raise told from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{unfinished}{suffix}")
    report.path = target
    return report


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file that is there; it waits its turn, for a backup has time."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=5.0, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def _copy(source: Path, unfinished: Path, progress: Progress | None) -> int:
    """Copy page by page out of one read transaction; how many rows that transaction sees."""
    with _opened(source) as store, _opened(unfinished) as copy:
        if store.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise SwerveError(f"{source} is not a store of Swerve")
        # an open read transaction keeps its view of the log: without it, the copy would begin again after every commit
        store.execute("BEGIN")
        rows: int = store.execute("SELECT count(*) FROM rows").fetchone()[0]
        copy.execute("PRAGMA synchronous = FULL")
        report = None if progress is None else lambda _, left, total: progress("copying", total - left, total)
        store.backup(copy, pages=PAGES, progress=report)
        store.execute("ROLLBACK")
        copy.execute("UPDATE meta SET value = x'' WHERE key = 'opened'")  # put in place of the store, it is another one
        # one file without a log: whoever moves it away moves all of it
        copy.execute("PRAGMA journal_mode = DELETE")
    return rows


def _name(unfinished: Path, target: Path) -> None:
    """Put the finished file under its name, durably, and never in place of another."""
    file = os.open(unfinished, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)
    try:
        os.link(unfinished, target)  # unlike a rename, refuses where somebody else made that file meanwhile
    except FileExistsError:
        raise SwerveError(f"{target} exists already; a backup never overwrites: name a new file") from None
    except OSError:  # a file system without links
        os.rename(unfinished, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
