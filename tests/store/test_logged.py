"""The journal of a store and its file: which belong together, what is set aside, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swerve.store import Batch, Entries, Fenced, StoreError, open_store
from swerve.store.backup import backup
from swerve.store.logged import said_in
from swerve.store.shares import journal_path
from swerve.store.sqlite import SQLiteStore
from swerve.store.verify import verify


def opened(folder: Path, **more: bool) -> SQLiteStore:
    store = open_store(f"sqlite:///{folder}/swerve.db", **more)
    assert isinstance(store, SQLiteStore)
    return store


def filled(folder: Path, number: int = 3) -> None:
    """Make a store whose log has so many entries."""
    store = opened(folder)
    for entry in range(number):
        store.append([Entries(b"an entry", 1)], 1.0 + entry)
    store.close()


def test_a_file_and_its_journal_find_each_other(tmp_path):
    filled(tmp_path)
    store = opened(tmp_path)
    assert (store.epoch, store.end, store.last) == (2, 3, 3.0)
    store.close()
    report = verify(tmp_path / "swerve.db")
    assert report.ok and not report.warnings
    assert report.journal is not None and (report.journal.end, report.said["end"], report.said["epoch"]) == (3, 3, 2)


def test_a_journal_that_is_missing_is_refused(tmp_path):
    filled(tmp_path)
    folder, away = journal_path(tmp_path / "swerve.db"), tmp_path / "away"
    folder.rename(away)
    with pytest.raises(StoreError, match="is missing; put it back") as caught:
        opened(tmp_path)
    assert caught.value.kind == "gone" and not folder.exists()
    report = verify(tmp_path / "swerve.db")
    assert [one.name for one in report.broken] == ["log"]
    shutil.copytree(away, folder)
    opened(tmp_path).close()
    shutil.rmtree(folder)
    store = opened(tmp_path, new_log=True)
    assert (store.begin, store.end, list(store.tail())) == (0, 0, [])
    store.close()


def test_a_journal_that_ends_too_early_is_refused(tmp_path):
    filled(tmp_path)
    folder = journal_path(tmp_path / "swerve.db")
    shutil.copytree(folder, tmp_path / "earlier")
    store = opened(tmp_path)
    store.append([Entries(b"an entry", 1)], 9.0)
    store.checkpoint(Batch())
    store.close()
    shutil.rmtree(folder)
    (tmp_path / "earlier").rename(folder)
    assert not verify(tmp_path / "swerve.db").ok
    with pytest.raises(StoreError, match="ends with entry 3, but had reached 4"):
        opened(tmp_path)


def test_an_older_copy_of_the_file_begins_a_log_of_its_own(tmp_path):
    """The journal knows what came after it, which whoever puts a copy back does not want."""
    filled(tmp_path)
    database, folder = tmp_path / "swerve.db", journal_path(tmp_path / "swerve.db")
    shutil.copy(database, tmp_path / "copy.db")
    filled(tmp_path)
    shutil.copy(tmp_path / "copy.db", database)
    report = verify(database)
    assert report.ok and ["sets it aside" in one.message for one in report.warnings] == [True]
    store = opened(tmp_path)
    assert (store.end, list(store.tail())) == (0, [])
    store.close()
    assert folder.with_name("swerve.db.journal.1").is_dir()


def test_another_stores_journal_is_set_aside(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    filled(tmp_path / "one")
    filled(tmp_path / "two")
    shutil.rmtree(tmp_path / "two" / "swerve.db.journal")
    shutil.copytree(tmp_path / "one" / "swerve.db.journal", tmp_path / "two" / "swerve.db.journal")
    store = opened(tmp_path / "two")
    assert store.end == 0
    store.close()


def test_a_copy_needs_no_log_and_says_so(tmp_path):
    filled(tmp_path)
    played = []
    backup(tmp_path / "swerve.db", tmp_path / "copy.db", settle=lambda store, blocks: played.extend(blocks))
    assert [block.content for block in played] == [b"an entry"] * 3
    store = SQLiteStore(tmp_path / "copy.db", logged=False)
    assert store._reader is not None and said_in(store._reader) == {"epoch": 0, "log": b"", "begin": 0, "end": 0}
    store.close()


def test_an_owner_that_comes_back_can_write_neither_entries_nor_rows(tmp_path):
    first = opened(tmp_path)
    first.append([Entries(b"an entry", 1)], 1.0)
    first._lock.release()  # as for a process that was paused, and declared dead
    first.log._lock.release()
    second = opened(tmp_path)
    with pytest.raises(Fenced):
        first.append([Entries(b"too late", 1)], 2.0)
    with pytest.raises(StoreError):
        first.checkpoint(Batch(used=[(1, 1)]))
    assert second.append([Entries(b"in time.", 1)], 3.0) == 2
    assert [block.content for block in second.tail()] == [b"an entry", b"in time."]
    assert second.outcomes([1]) == {}
    second.close()
    first.close()
