"""The tables of the SQLite store, how a connection to them is made, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.lock import no_folder
from swerve.store.protocol import Kind, StoreError

#: In the file's header, so that another program's database is not taken for ours: "SWRV".
APPLICATION = 0x53575256

#: How much a row is worth keeping: a doubling of its requests is worth eight days since it was last asked.
WORTH = "day + 8 * level"

#: What leads from schema i to schema i + 1. The schema of a file is its `user_version`; never edit one of these, add one.
MIGRATIONS = (
    """
    CREATE TABLE rows(
        id INTEGER PRIMARY KEY, key BLOB NOT NULL, version INTEGER NOT NULL, layout INTEGER NOT NULL, day INTEGER NOT NULL,
        level INTEGER NOT NULL, shifted REAL NOT NULL, crc INTEGER NOT NULL, record BLOB NOT NULL, names BLOB NOT NULL
    );
    CREATE UNIQUE INDEX rows_key ON rows(key);
    CREATE INDEX rows_day ON rows(day);
    CREATE INDEX rows_level ON rows(level);
    CREATE INDEX rows_shifted ON rows(shifted) WHERE shifted > 0;
    CREATE TABLE used(id INTEGER PRIMARY KEY, outcome INTEGER NOT NULL);
    CREATE TABLE groups(
        name TEXT NOT NULL, worker TEXT NOT NULL, crc INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY(name, worker)
    );
    CREATE TABLE layouts(id INTEGER PRIMARY KEY, description TEXT NOT NULL UNIQUE);
    CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
    INSERT INTO meta VALUES ('epoch', 0), ('opened', x''), ('probe', 0);
    """,
    # Decision ids begin with the id of a life, see `Life`; the starts that a store of schema 1 has seen keep theirs.
    f"""
    CREATE TABLE lives(id INTEGER PRIMARY KEY, mark INTEGER NOT NULL UNIQUE);
    INSERT INTO lives(id, mark) SELECT value, 0 FROM meta WHERE key = 'epoch' AND value > 0;
    DELETE FROM meta WHERE key = 'epoch';
    INSERT INTO meta VALUES ('store', random()), ('owner', x'');
    CREATE INDEX rows_worth ON rows({WORTH});
    """,
)

#: 8192 bytes hold three records of 8 arms with little left over (file ÷ records 1.2), and a commit writes whole pages.
PAGE_BYTES = 8192
#: The log is copied into the file when it has this many pages (32 MiB); the file is cut back to this after a burst.
CHECKPOINT_PAGES = 4000


def connect(
    path: Path, *, busy_ms: int, cache_kib: int, checkpoint: int = CHECKPOINT_PAGES, new: bool = False
) -> sqlite3.Connection:
    """A connection to the file at `path`, made ready: an old one is brought up to date, and an empty one gets tables if it is
    `new`. An empty file where a store has been is trouble, and is left as it is. `checkpoint` pages make a full log."""
    if sqlite3.sqlite_version_info < (3, 35):
        raise SwerveError(f"SQLite {sqlite3.sqlite_version} is too old; the store needs 3.35 or newer")
    # a recovery after a crash may take the lock for a moment: at the start there is time to wait for it
    address = f"{path.as_uri()}?mode=rw"  # a file that is not there is not made
    connection = sqlite3.connect(
        address, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=512
    )
    try:
        _refuse_foreign(connection, path, new)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError("io", f"{path} cannot be opened with a write-ahead log: this file system keeps it in mode {mode!r}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cell_size_check = ON")  # a damaged page is noticed before it is used
        connection.execute("PRAGMA secure_delete = ON")  # what has expired is gone from the file too
        connection.execute("PRAGMA temp_store = MEMORY")  # a commit must not need another disk
        connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint}")
        connection.execute(f"PRAGMA journal_size_limit = {checkpoint * PAGE_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        _migrate(connection)
        connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
    except BaseException:
        connection.close()
        raise
    return connection


def create(path: Path) -> None:
    """Make the file if there is none, readable by its owner only; SQLite gives its log the same rights."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except FileNotFoundError:
        raise StoreError("gone", no_folder(path.parent)) from None
    except OSError as error:
        raise StoreError("io", f"{path} cannot be opened: {error.strerror}") from error


def _refuse_foreign(connection: sqlite3.Connection, path: Path, new: bool) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if not tables and not new:
        raise StoreError("gone", f"{path} is empty, and a store was there before; put it back, or restore a backup of it")
    if tables and application != APPLICATION:
        raise SwerveError(f"{path} is a database of another program; name a file that Swerve made, or one that is not there yet")
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > len(MIGRATIONS):
        raise SwerveError(
            f"{path} has schema {found}, and this version of Swerve knows schemas up to {len(MIGRATIONS)}: use a newer Swerve"
        )


def _migrate(connection: sqlite3.Connection) -> None:
    """Take the steps that are missing, each whole or not at all."""
    for step in range(connection.execute("PRAGMA user_version").fetchone()[0], len(MIGRATIONS)):
        number = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {step + 1}"
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[step]}; {number}; COMMIT")


KINDS: dict[int, Kind] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_ERROR: "corrupt",  # our statements are right: a table or a column is missing in the file
    sqlite3.SQLITE_INTERRUPT: "slow",
}


def kind_of(error: sqlite3.Error) -> Kind:
    """What an error of SQLite means for the caller."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the interpreter's own: a damaged page can turn bytes into what is no text
        return "corrupt" if "decode" in str(error) else "io"
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return "gone"
    return KINDS.get(code & 0xFF, "io")


WAY_OUT: dict[Kind, str] = {
    "locked": "another program holds it",
    "full": "make room on its disk",
    "corrupt": "restore a backup of it (docs/store.md)",
}


def translated(error: sqlite3.Error, path: Path, *, uncertain: bool = False) -> StoreError:
    """An error of SQLite as one of ours, with the file and what would help."""
    kind = kind_of(error)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    hint = f"; {WAY_OUT[kind]}" if kind in WAY_OUT else ""
    return StoreError(kind, f"{path}: {error} ({name}){hint}", uncertain=uncertain)
