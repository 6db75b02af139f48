"""Backups: consistent while another process writes, and complete or absent."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from store.rows import key, row

from swerve.core.errors import SwerveError
from swerve.store import Batch, StoreError, backup as module, open_store
from swerve.store.backup import backup

WRITER = Path(__file__).with_name("writer.py")


@pytest.fixture
def source(tmp_path):
    """An open store of 200 rows."""
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    store.checkpoint(Batch([row(i, size=2200) for i in range(200)], [(5, 1)], {"classifier": b"abc"}))
    yield tmp_path / "swerve.db"
    store.close()


def test_the_copy_is_a_store_with_everything_in_it(source, tmp_path):
    target = tmp_path / "copy.db"
    done = backup(source, target)
    assert (done.rows, done.size, done.damaged) == (200, target.stat().st_size, 0)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert not [path.name for path in tmp_path.iterdir() if "copy" in path.name and path != target]
    copy = open_store(f"sqlite:///{target}")
    assert copy.load([key(i) for i in range(200)]) == [row(i, size=2200) for i in range(200)]
    assert copy.outcomes([5]) == {5: 1}
    assert copy.groups() == {("classifier", "0"): b"abc"}
    copy.close()


def test_it_works_while_another_process_writes_and_is_one_moment_of_it(tmp_path, monkeypatch):
    """Every commit sets all rows to one version; the copy must have a single version, and the writer must not stop."""
    monkeypatch.setattr(module, "PAGES_PER_STEP", 2)
    child = subprocess.Popen(
        [sys.executable, str(WRITER), f"sqlite:///{tmp_path}/swerve.db", "300"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        while int(child.stdout.readline()) < 3:
            pass
        steps: list[tuple[int, int]] = []

        def progress(what: str, done: int, total: int) -> None:
            if what != "copying":
                return
            steps.append((done, total))
            if len(steps) % 10 == 0:
                child.stdout.readline()  # the other process has committed again

        backup(tmp_path / "swerve.db", tmp_path / "copy.db", progress=progress)
    finally:
        child.kill()
        child.communicate()
    assert len(steps) > 50
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})  # the copy never restarted
    assert steps[-1][0] == steps[-1][1]
    copy = open_store(f"sqlite:///{tmp_path}/copy.db")
    rows = copy.load([key(i) for i in range(300)])
    version = rows[0].version
    assert rows == [row(i, version, level=version % 5, size=2200) for i in range(300)]
    assert copy.groups() == {("count", "0"): str(version).encode()}
    copy.close()
    live = open_store(f"sqlite:///{tmp_path}/swerve.db")
    assert live.load([key(0)])[0].version > version
    live.close()


def test_an_existing_file_is_never_overwritten(source, tmp_path):
    target = tmp_path / "precious"
    target.write_text("keep me")
    with pytest.raises(SwerveError, match="exists already"):
        backup(source, target)

    def appears(what: str, done: int, total: int) -> None:
        (tmp_path / "late.db").write_text("keep me too")

    with pytest.raises(SwerveError, match="exists already"):
        backup(source, tmp_path / "late.db", progress=appears)
    assert target.read_text() == "keep me"
    assert (tmp_path / "late.db").read_text() == "keep me too"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("source_name", "target_name", "said"),
    [
        ("none.db", "copy.db", "there is no store"),
        ("swerve.db", "nowhere/copy.db", "there is no folder"),
        ("text", "copy.db", "not a database"),
    ],
)
def test_what_cannot_be_is_refused(source, tmp_path, source_name, target_name, said):
    (tmp_path / "text").write_text("no database at all, whatever the name says " * 200)
    with pytest.raises(SwerveError, match=said):
        backup(tmp_path / source_name, tmp_path / target_name)
    assert not (tmp_path / "copy.db").exists()
    assert not list(tmp_path.glob(".*"))


def test_the_database_of_another_program_is_refused(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute("CREATE TABLE notes(text)")
    with pytest.raises(SwerveError, match="not a store of Swerve"):
        backup(tmp_path / "theirs.db", tmp_path / "copy.db")


def test_a_damaged_store_gives_no_backup_and_says_so(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    rows = [row(i, size=2200) for i in range(60)]
    store.checkpoint(Batch(rows))
    store.close()
    path = tmp_path / "swerve.db"
    data = bytearray(path.read_bytes())
    start = data.index(rows[30].record) // 8192 * 8192
    data[start : start + 100] = b"\xa5" * 100
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match="is damaged, and no backup was made of it") as caught:
        backup(path, tmp_path / "copy.db")
    assert caught.value.kind == "corrupt"
    assert not (tmp_path / "copy.db").exists()


def test_damaged_records_are_counted(source, tmp_path):
    with contextlib.closing(sqlite3.connect(source, isolation_level=None)) as other:
        other.execute("UPDATE rows SET names = x'00' WHERE id IN (3, 7)")
    assert backup(source, tmp_path / "copy.db").damaged == 2


def test_a_store_that_nobody_serves_with_a_damaged_log_gives_no_backup(source, tmp_path):
    """Opening the store would make SQLite cut the log at the damage, and remove it."""
    folder = tmp_path / "crash"
    folder.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{source}{suffix}", folder / f"swerve.db{suffix}")
    log = bytearray((folder / "swerve.db-wal").read_bytes())
    log[-(24 + 8192) * 30 + 100] ^= 1
    (folder / "swerve.db-wal").write_bytes(bytes(log))
    with pytest.raises(StoreError, match="behind the damage cannot be read"):
        backup(folder / "swerve.db", tmp_path / "copy.db")
    assert (folder / "swerve.db-wal").read_bytes() == bytes(log)
    assert not (tmp_path / "copy.db").exists()
