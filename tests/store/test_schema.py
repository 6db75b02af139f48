"""The file's schema: creation, migration, refusal; and the kinds of SQLite's errors."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from store.rows import key, row

from swerve.core.errors import SwerveError
from swerve.store import Batch, open_store, schema


def change(path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(statement)


def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "swerve.db"
    open_store(f"sqlite:///{path}").close()
    change(path, "PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(SwerveError, match="has schema 7, and this version of Swerve knows schemas up to 4: use a newer Swerve"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "theirs.db"
    change(path, "CREATE TABLE notes(text)")
    before = path.read_bytes()
    with pytest.raises(SwerveError, match="a database of another program"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_an_older_file_takes_the_steps_that_it_lacks(tmp_path, monkeypatch):
    path = tmp_path / "swerve.db"
    store = open_store(f"sqlite:///{path}")
    store.checkpoint(Batch([row(1)]))
    store.close()
    steps = (*schema.MIGRATIONS, "CREATE TABLE second(x)", "INSERT INTO second VALUES (5); ALTER TABLE second ADD COLUMN y")
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    store = open_store(f"sqlite:///{path}")
    assert store.load([key(1)]) == [row(1)]
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(steps),)
        assert connection.execute("SELECT x, y FROM second").fetchall() == [(5, None)]


def test_a_store_of_the_first_version_keeps_its_used_decisions(tmp_path, monkeypatch):
    """Its decision ids began with the number of a start; ids of a life must not collide with them."""
    path = tmp_path / "swerve.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"{schema.MIGRATIONS[0]}; PRAGMA application_id = {schema.APPLICATION}; PRAGMA user_version = 1")
        connection.execute("UPDATE meta SET value = 3 WHERE key = 'epoch'")
        connection.executemany("INSERT INTO used VALUES (?, 1)", [(epoch << 40 | 1,) for epoch in (1, 2, 3)])
    store = open_store(f"sqlite:///{path}")
    life = store.begin_life()
    assert life.id == 4
    assert store.outcomes([epoch << 40 | 1 for epoch in (1, 2, 3, life.id)]) == {epoch << 40 | 1: 1 for epoch in (1, 2, 3)}
    store.close()


def test_a_step_that_fails_leaves_the_file_at_the_step_before(tmp_path, monkeypatch):
    path = tmp_path / "swerve.db"
    open_store(f"sqlite:///{path}").close()
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE second(x); INSERT INTO nowhere VALUES (1)"))
        with pytest.raises(SwerveError, match="no such table: nowhere"):
            open_store(f"sqlite:///{path}")
    open_store(f"sqlite:///{path}").close()  # the older version can still open it
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'second'").fetchone() == (0,)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, "locked"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked"),
        (sqlite3.SQLITE_LOCKED, "locked"),
        (sqlite3.SQLITE_FULL, "full"),
        (sqlite3.SQLITE_CORRUPT_INDEX, "corrupt"),
        (sqlite3.SQLITE_NOTADB, "corrupt"),
        (sqlite3.SQLITE_IOERR_FSYNC, "io"),
        (sqlite3.SQLITE_CANTOPEN, "io"),
        (sqlite3.SQLITE_READONLY, "io"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "gone"),
        (sqlite3.SQLITE_INTERRUPT, "slow"),
        (None, "io"),
    ],
)
def test_kinds_of_errors(code, kind, tmp_path):
    error = sqlite3.OperationalError("trouble")
    if code is not None:
        error.sqlite_errorcode = code
    told = schema.translated(error, tmp_path, uncertain=True)
    assert (told.kind, told.uncertain) == (kind, True)
    assert str(tmp_path) in str(told) and "trouble" in str(told)
