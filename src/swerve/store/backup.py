"""Copying a store while another process writes to it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from swerve.core.errors import SwerveError
from swerve.store.blocks import Block
from swerve.store.lock import OWNER_ONLY, left_alone
from swerve.store.logged import belongs, said_in
from swerve.store.protocol import InUse, Store, StoreError
from swerve.store.schema import APPLICATION, translated
from swerve.store.shares import journal_path
from swerve.store.sqlite import SQLiteStore
from swerve.store.tail import owner_in, tail
from swerve.store.verify import Meaning, Progress, Report, verify
from swerve.store.wal import read_log

#: Pages copied between two progress reports: 8 MiB, often enough for a progress bar.
PAGES_PER_STEP = 1024
#: Seconds that a statement waits for another program's lock: a backup has no deadline, unlike a request.
BUSY_SECONDS = 5.0
#: Copies that are made, should a running service drop what of its log the copy needs.
ATTEMPTS = 3

#: Plays blocks into a store.
Settle = Callable[[Store, Iterator[Block]], object]


def backup(
    source: Path,
    target: Path,
    meaning: Meaning | None = None,
    progress: Progress | None = None,
    settle: Settle | None = None,
) -> Report:
    """Copy the store at `source`, as it is at this moment, to the new file `target`; check the copy and return the report.

    The copy is one transaction's view, independent of concurrent writes. `target` appears only when the copy is complete, checked
    and synchronised to disk; an existing file is never overwritten. Records that are damaged in the store stay damaged in the copy.
    What the log has beyond the rows is played into the copy by `settle`, so that the copy needs no log; without `settle` there may
    be nothing.
    `progress` receives the step ("copying", and the steps of `verify`), the amount done and the total.
    """
    if not source.is_file():
        raise SwerveError(f"there is no store {source}; name the one that the service uses")
    if os.path.lexists(target):
        raise SwerveError(f"{target} exists already; a backup never overwrites: name a new file")
    if not target.parent.is_dir():
        raise SwerveError(f"there is no folder {target.parent}; make it, or name another folder")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        # without an owner: check the log before SQLite opens it, because opening discards unreadable commits
        with contextlib.suppress(InUse), left_alone(source.resolve()):
            read_log(source.resolve()).refuse(source)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, OWNER_ONLY))
        copied(source, unfinished, progress, settle)
        report = verify(unfinished, meaning, progress)
        if report.broken:
            raise StoreError("corrupt", f"{source} is damaged, and no backup was made of it: {report.broken[0]}")
        _name(unfinished, target)
    except sqlite3.Error as error:
        failure = translated(error, source)
        if failure.kind == "corrupt":
            raise StoreError("corrupt", f"{source} is damaged, and no backup was made of it: {error}") from error
        raise failure from error
    finally:
        remove(unfinished)
    report.path = target
    return report


@contextlib.contextmanager
def whole(source: Path, settle: Settle) -> Iterator[Path]:
    """Yield the path of a file that has everything that a store has: the store itself, or, where its log has more than its rows, a
    copy in the folder for temporary files."""
    if not source.is_file():
        raise SwerveError(f"there is no store {source}; name the one that the service uses")
    with contextlib.suppress(InUse), left_alone(source.resolve()):
        read_log(source.resolve()).refuse(source)
    folder = journal_path(source.resolve())
    with _opened(source) as store:
        said = said_in(store)
    if not said["log"] or next(tail(folder, said["begin"]), None) is None:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="swerve-export-") as made:
        copy = Path(made) / source.name
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, OWNER_ONLY))
        copied(source, copy, None, settle)
        yield copy


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to an existing file; it waits up to `BUSY_SECONDS` for locks."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def remove(unfinished: Path) -> None:
    """Remove a copy with everything beside it."""
    for suffix in ("", "-wal", "-shm", "-journal", ".lock"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{unfinished}{suffix}")


def copied(source: Path, unfinished: Path, progress: Progress | None, settle: Settle | None) -> None:
    """Copy a store into the empty file `unfinished`, with everything that its log has, as a single file that needs no log."""
    for attempt in range(ATTEMPTS):
        said = _copy(source, unfinished, progress)
        if said["log"] == b"":
            break
        folder = journal_path(source.resolve())
        try:
            if not belongs(said, owner_in(folder)):
                raise StoreError(
                    "gone", f"{folder} is not the log of {source}: put it back, or start the service to see what is wrong"
                )
            blocks = tail(folder, said["begin"])
            if settle is not None:
                _settle(unfinished, blocks, settle)
            elif next(blocks, None) is not None:
                raise SwerveError(f"the log of {source} has more than its rows, and nobody here can play it")
            break
        except StoreError as error:  # the service went on meanwhile, and no longer needs what the copy needs
            if error.kind != "gone" or attempt == ATTEMPTS - 1:
                raise
    with _opened(unfinished) as copy:
        # the copy is another store: a service must notice when it replaces the running one
        copy.execute("UPDATE meta SET value = x'' WHERE key IN ('opened', 'log')")
        copy.execute("UPDATE meta SET value = 0 WHERE key IN ('epoch', 'begin', 'end')")
        # a single file without a log can be moved without losing anything
        copy.execute("PRAGMA journal_mode = DELETE")


def _settle(unfinished: Path, blocks: Iterator[Block], settle: Settle) -> None:
    """Play blocks into a copy."""
    store = SQLiteStore(unfinished, logged=False)
    try:
        settle(store, blocks)
    finally:
        store.close()


def _copy(source: Path, unfinished: Path, progress: Progress | None) -> dict[str, Any]:
    """Copy page by page inside one read transaction; return what the store says of its log."""
    with _opened(source) as store, _opened(unfinished) as copy:
        if store.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise SwerveError(f"{source} is not a store of Swerve")
        # the read transaction pins a snapshot; without it, SQLite restarts the copy after every commit
        store.execute("BEGIN")
        rows: int = store.execute("SELECT count(*) FROM rows").fetchone()[0]
        said = said_in(store)
        copy.execute("PRAGMA synchronous = FULL")
        report = None if progress is None else lambda _, left, total: progress("copying", total - left, total)
        store.backup(copy, pages=PAGES_PER_STEP, progress=report)
        store.execute("ROLLBACK")
        found: int = copy.execute("SELECT count(*) FROM rows").fetchone()[0]
        if found != rows:
            raise StoreError("corrupt", f"the copy has {found} rows where the store has {rows}; no backup was made")
    return said


def _name(unfinished: Path, target: Path) -> None:
    """Rename the finished file to `target`, durably; never replace an existing file."""
    file = os.open(unfinished, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)
    try:
        os.link(unfinished, target)  # unlike a rename, fails if another process has created the file meanwhile
    except FileExistsError:
        raise SwerveError(f"{target} exists already; a backup never overwrites: name a new file") from None
    except OSError:  # a file system without links
        os.rename(unfinished, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
