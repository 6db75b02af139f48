"""The tables of the SQLite store, the settings of a connection, and the translation of SQLite's errors."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.lock import OWNER_ONLY, no_folder
from swerve.store.protocol import Kind, StoreError

#: Application id in the file's header, "SWRV", which tells a store from another program's database.
APPLICATION = 0x53575256

#: How much a row is worth keeping: each doubling of its requests outweighs eight days without a request.
WORTH = "day + 8 * level"

#: Statements that lead from schema i to schema i + 1. A file's schema is its `user_version`. Never edit an entry; add one.
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
    # Decision ids begin with the id of a life, see `Life`; the starts that a store of schema 1 has recorded keep their ids.
    f"""
    CREATE TABLE lives(id INTEGER PRIMARY KEY, mark INTEGER NOT NULL UNIQUE);
    INSERT INTO lives(id, mark) SELECT value, 0 FROM meta WHERE key = 'epoch' AND value > 0;
    DELETE FROM meta WHERE key = 'epoch';
    INSERT INTO meta VALUES ('store', random()), ('owner', x'');
    CREATE INDEX rows_worth ON rows({WORTH});
    """,
    # Records are packed, see `swerve.store.packed`: the size of the record, 0 for the rows of schema 2, which are not packed.
    "ALTER TABLE rows ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
    # The log, see `swerve.store.logged`: none yet. `version` is the epoch of the owner that wrote a row; it was a count.
    "INSERT INTO meta VALUES ('epoch', 0), ('log', x''), ('begin', 0), ('end', 0)",
)

#: 8192 bytes hold four packed records of 8 arms: more would share the fate of a damaged page. A commit writes whole pages.
PAGE_BYTES = 8192
#: The log is copied into the file when it has this many pages (32 MiB), and is truncated to this size after a burst.
CHECKPOINT_PAGES = 4000
#: Oldest SQLite that the store is used with; its commits need `UPDATE ... FROM (VALUES ...)`.
OLDEST_SQLITE = (3, 35)
#: Seconds to wait for locks while opening: recovery after a crash may hold the lock for a moment, and opening has no deadline.
OPEN_SECONDS = 5.0
#: Prepared statements per connection: batches of each size up to `statements.AT_ONCE` have statements of their own.
STATEMENTS = 512


def connect(
    path: Path, *, busy_ms: int, cache_kib: int, checkpoint: int = CHECKPOINT_PAGES, new: bool = False
) -> sqlite3.Connection:
    """Return a connection to the file at `path`, configured and migrated to the current schema.

    An empty file gets tables only if `new`; otherwise it is refused: a store was there before. `checkpoint` is the number of
    pages at which the log is copied into the file.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise SwerveError(f"SQLite {sqlite3.sqlite_version} is too old; the store needs {oldest} or newer")
    address = f"{path.as_uri()}?mode=rw"  # never creates a file
    connection = sqlite3.connect(
        address, uri=True, timeout=OPEN_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
    )
    try:
        _refuse_foreign(connection, path, new)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError("io", f"{path} cannot be opened with a write-ahead log: this file system keeps it in mode {mode!r}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cell_size_check = ON")  # detect a damaged page before using it
        connection.execute("PRAGMA secure_delete = ON")  # expired records must not remain readable in the file
        connection.execute("PRAGMA temp_store = MEMORY")  # a commit must not depend on another disk
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
    """Create the file if it does not exist, readable by its owner only; SQLite gives the log the same permissions."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))
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
    """Run the missing migrations, each in one transaction."""
    for step in range(connection.execute("PRAGMA user_version").fetchone()[0], len(MIGRATIONS)):
        number = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {step + 1}"
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[step]}; {number}; COMMIT")


#: SQLite keeps the primary code of an error in its lowest byte; the rest of an extended code is detail.
PRIMARY = 0xFF

KINDS: dict[int, Kind] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_ERROR: "corrupt",  # our statements are valid, so the file lacks a table or a column
    sqlite3.SQLITE_INTERRUPT: "slow",
}


def kind_of(error: sqlite3.Error) -> Kind:
    """Return the kind of an SQLite error, as the caller sees it."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by Python: a damaged page can yield invalid text
        return "corrupt" if "decode" in str(error) else "io"
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return "gone"
    return KINDS.get(code & PRIMARY, "io")


WAY_OUT: dict[Kind, str] = {
    "locked": "another program holds it",
    "full": "make room on its disk",
    "corrupt": "restore a backup of it (docs/store.md)",
}


def translated(error: sqlite3.Error, path: Path, *, uncertain: bool = False) -> StoreError:
    """Return an SQLite error as a `StoreError` that names the file and a remedy."""
    kind = kind_of(error)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    hint = f"; {WAY_OUT[kind]}" if kind in WAY_OUT else ""
    return StoreError(kind, f"{path}: {error} ({name}){hint}", uncertain=uncertain)
