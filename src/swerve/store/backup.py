"""A copy of a store while another process writes to it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.protocol import Row, StoreError
from swerve.store.schema import APPLICATION, translated
from swerve.store.statements import COLUMNS

#: Pages copied between two reports: 8 MiB.
PAGES = 1024

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """What a backup holds: queries, bytes of its file, and how many records were damaged in the store already."""

    rows: int
    bytes: int
    damaged: int


def backup(source: Path, target: Path, progress: Progress | None = None) -> Copied:
    """Copy the store at `source` as it is at this moment to the new file `target`, and check the copy.

    The copy is one transaction's view, however much is written meanwhile. It appears under its name only when it is whole, checked
    and on the disk; an existing file is never overwritten. `progress` gets (pages done, pages in all).
    """
    if not source.is_file():
        raise SwerveError(f"there is no store {source}; name the one that the service uses")
    if os.path.lexists(target):
        raise SwerveError(f"{target} exists already; a backup never overwrites: name a new file")
    if not target.parent.is_dir():
        raise SwerveError(f"there is no folder {target.parent}; make it, or name another place")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        rows = _copy(source, unfinished, progress)
        damaged = _verify(unfinished, rows)
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
    return Copied(rows, target.stat().st_size, damaged)


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
        report = None if progress is None else lambda _, left, total: progress(total - left, total)
        store.backup(copy, pages=PAGES, progress=report)
        store.execute("ROLLBACK")
        copy.execute("UPDATE meta SET value = x'' WHERE key = 'opened'")  # put in place of the store, it is another one
        # one file without a log: whoever moves it away moves all of it
        copy.execute("PRAGMA journal_mode = DELETE")
    return rows


def _verify(unfinished: Path, rows: int) -> int:
    """Check structure, number and checksums of the copy; how many records are damaged, as they were in the store."""
    with _opened(unfinished) as copy:
        found = [line for (line,) in copy.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise StoreError("corrupt", f"the store is damaged, and no backup was made of it: {'; '.join(found)}")
        counted = copy.execute("SELECT count(*) FROM rows NOT INDEXED").fetchone()[0]
        if counted != rows:
            raise StoreError("corrupt", f"the copy has {counted} rows where the store has {rows}; no backup was made")
        return sum(Row(*parts).checksum() != crc for *parts, crc in copy.execute(f"SELECT {COLUMNS} FROM rows"))


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
