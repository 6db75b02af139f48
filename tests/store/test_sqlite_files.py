"""The files of the SQLite engine: moved away, removed, replaced, behind a link, without their log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from store.embedded import folder, kind, plain, store  # noqa: F401 - fixtures
from store.rows import key, row

from swerve.core.errors import SwerveError
from swerve.store import Batch, InUse, StoreError, open_store
from swerve.store.sqlite import SQLiteStore


def test_a_file_that_is_no_database_is_refused(folder):
    (folder / "swerve.db").write_bytes(b"not a database, but a text of some length\n" * 300)
    with pytest.raises(StoreError, match="restore a backup") as caught:
        open_store(f"sqlite:///{folder}/swerve.db")
    assert caught.value.kind == "corrupt"
    (folder / "swerve.db").unlink()
    open_store(f"sqlite:///{folder}/swerve.db").close()  # the lock is released, and there never was a store


def test_a_folder_moved_away_and_back_is_the_same_store(folder, store):
    store.checkpoint(Batch([row(1)]))
    away = folder.with_name("away")
    folder.rename(away)
    assert kind(store.checkpoint, Batch([row(2)])) == "gone"
    assert kind(store.probe) == "gone"
    assert kind(store.reopen) == "gone"
    assert store.load([key(1)]) == [row(1)]  # open files stay readable
    away.rename(folder)
    assert store.reopen() is True
    assert store.load([key(1), key(2)]) == [row(1), None]
    store.checkpoint(Batch([row(2)]))
    store.probe()


def test_a_folder_that_vanishes_during_a_commit_is_not_acknowledged(folder, store):
    """The folder moves between the two checks of a commit: the commit goes into the moved folder, and the caller gets an error."""
    store.checkpoint(Batch([row(1)]))
    away = folder.with_name("away")
    store._writer.set_trace_callback(lambda statement: folder.rename(away) if statement == "COMMIT" else None)
    with pytest.raises(StoreError) as caught:
        store.checkpoint(Batch([row(1, 2)], [(5, 1)]))
    assert caught.value.kind == "gone"
    assert caught.value.uncertain
    away.rename(folder)
    assert store.reopen() is True
    assert store.load([key(1)]) == [row(1, 2)]  # it was written, and the caller can see that
    assert store.outcomes([5]) == {5: 1}


def test_a_database_moved_away_and_back_loses_nothing(folder, store):
    """Its log stays, with the last commits; meanwhile no new file may be created at the path."""
    store.checkpoint(Batch([row(1)]))
    (folder / "swerve.db").rename(folder / "elsewhere.db")
    for _ in range(3):
        assert kind(store.checkpoint, Batch([row(2)])) == "gone"
        assert kind(store.reopen) == "gone"
    assert not (folder / "swerve.db").exists()
    (folder / "elsewhere.db").rename(folder / "swerve.db")
    assert store.reopen() is True
    assert store.load([key(1), key(2)]) == [row(1), None]
    store.checkpoint(Batch([row(2)]))
    store.close()
    store = open_store(f"sqlite:///{folder}/swerve.db")
    assert store.load([key(1), key(2)]) == [row(1), row(2)]
    store.close()


def test_a_folder_deleted_and_made_anew_is_no_reason_to_begin_anew(folder, store):
    store.checkpoint(Batch([row(1)]))
    shutil.rmtree(folder)
    assert kind(store.checkpoint, Batch([row(2)])) == "gone"
    assert kind(store.reopen) == "gone"
    folder.mkdir()
    assert kind(store.reopen) == "gone"
    (folder / "swerve.db").touch()
    assert kind(store.reopen) == "gone"
    assert (folder / "swerve.db").stat().st_size == 0


def test_only_the_operator_begins_anew_where_a_store_has_been(folder, store):
    url = f"sqlite:///{folder}/swerve.db"
    life = store.begin_life()
    store.close()
    with pytest.raises(SwerveError, match="move it away first"):
        open_store(url, new=True)
    (folder / "swerve.db").unlink()
    for _ in range(2):
        with pytest.raises(SwerveError, match=r"there has been one; put it back, .* --new-store"):
            open_store(url)
    assert not (folder / "swerve.db").exists()
    store = open_store(url, new=True)
    assert store.begin_life().store != life.store
    store.close()
    open_store(url).close()


def test_a_new_store_keeps_the_log_of_the_one_that_was_here(folder):
    """A store is moved away after a crash, replaced by a new one, and put back: its last commits are in the log."""
    url = f"sqlite:///{folder}/swerve.db"
    code = "import os, sys; from store.rows import row; from swerve.store import Batch, open_store\n"
    code += "store = open_store(sys.argv[1]); store.checkpoint(Batch([row(1)])); os._exit(9)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))}
    assert subprocess.run([sys.executable, "-c", code, url], env=env, check=False).returncode == 9
    (folder / "swerve.db").rename(folder / "old.db")
    open_store(url, new=True).close()
    for name in ("swerve.db", "swerve.db-wal", "swerve.db-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "old.db").rename(folder / "swerve.db")
    for name in ("swerve.db-wal", "swerve.db-shm"):
        (folder / f"{name}.1").rename(folder / name)
    store = open_store(url)
    assert store.load([key(1)]) == [row(1)]
    store.close()


@pytest.mark.parametrize("empty", [True, False])
def test_a_log_that_is_missing_or_emptied_after_a_crash_is_refused(folder, empty):
    """The index of the log, which the crash left too, names commits that the database does not have."""
    url = f"sqlite:///{folder}/swerve.db"
    code = "import os, sys; from store.rows import row; from swerve.store import Batch, open_store\n"
    code += "store = open_store(sys.argv[1]); store.checkpoint(Batch([row(1)])); os._exit(9)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))}
    assert subprocess.run([sys.executable, "-c", code, url], env=env, check=False).returncode == 9
    (folder / "swerve.db-wal").write_bytes(b"") if empty else (folder / "swerve.db-wal").unlink()
    with pytest.raises(StoreError, match="its log is missing or empty") as caught:
        open_store(url)
    assert caught.value.kind == "corrupt"


def test_a_log_without_its_database_is_no_reason_to_begin_anew(folder):
    (folder / "swerve.db-wal").write_bytes(b"x" * 100)
    with pytest.raises(SwerveError, match="there has been one"):
        open_store(f"sqlite:///{folder}/swerve.db")
    assert (folder / "swerve.db-wal").exists()


def test_an_opening_that_fails_halfway_does_not_make_it_another_store(folder, store):
    """A mark written by an opening whose `fsync` failed belongs to this process, so it is still the same store."""
    store.checkpoint(Batch([row(1)]))
    older = next(iter(store._marks))
    assert store.reopen() is True
    store._close()
    with plain(folder) as other:  # the last write of a failed opening, as a failing disk may leave it
        other.execute("UPDATE meta SET value = ? WHERE key = 'opened'", (older,))
    assert store.reopen() is True


def test_a_database_behind_a_symbolic_link(folder, tmp_path):
    """The link's target is the store: it has one owner under any name, and its log and lock are beside it."""
    link = tmp_path / "link.db"
    link.symlink_to(folder / "swerve.db")
    store = open_store(f"sqlite:///{link}")
    store.checkpoint(Batch([row(1)]))
    with pytest.raises(InUse):
        open_store(f"sqlite:///{folder}/swerve.db")
    assert sorted(path.name for path in folder.iterdir()) == [
        "swerve.db", "swerve.db-shm", "swerve.db-wal", "swerve.db.journal", "swerve.db.journal.lock", "swerve.db.lock",
    ]  # fmt: skip
    link.unlink()
    assert kind(store.checkpoint, Batch([row(2)])) == "gone"
    link.symlink_to(folder / "swerve.db")
    assert store.reopen() is True
    store.close()
    store = open_store(f"sqlite:///{folder}/swerve.db")
    assert store.load([key(1)]) == [row(1)]
    store.close()


def test_a_copy_put_in_place_of_the_file_is_read_without_the_old_log(folder, store):
    """The log of the replaced file is still there; replayed into the new file, it would corrupt it."""
    store.checkpoint(Batch([row(i, size=2200) for i in range(50)]))
    store.close()
    shutil.copy(folder / "swerve.db", folder / "copy.db")
    store = open_store(f"sqlite:///{folder}/swerve.db")
    store.checkpoint(Batch([row(i, 2, size=2200) for i in range(50)] + [row(i, size=2200) for i in range(50, 90)]))
    os.replace(folder / "copy.db", folder / "swerve.db")
    assert kind(store.checkpoint, Batch([row(200)])) == "gone"
    assert store.reopen() is False
    assert store.load([key(0), key(60)]) == [row(0, size=2200), None]
    assert store.count() == 50
    assert store._reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
def test_any_of_its_files_removed_is_gone(folder, store, suffix):
    store.checkpoint(Batch([row(1)]))
    (folder / f"swerve.db{suffix}").unlink()
    assert kind(store.checkpoint, Batch([row(2)])) == "gone"
    if suffix:
        assert store.reopen() is True
        store.checkpoint(Batch([row(3)]))
    else:
        assert kind(store.reopen) == "gone"
    assert store.load([key(1)]) == [row(1)]


def test_reopen_meets_a_file_of_somebody_else(folder, store):
    store.checkpoint(Batch([row(1)]))
    shutil.rmtree(folder)
    folder.mkdir()
    with plain(folder) as other:
        other.execute("CREATE TABLE theirs(x)")
    with pytest.raises(StoreError, match="another program"):
        store.reopen()
    assert kind(store.load, [key(1)]) == "gone"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"there is no folder .*nowhere; make it"):
        SQLiteStore(tmp_path / "nowhere" / "swerve.db")
