"""The embedded engine in trouble: full, locked, damaged, moved away, removed, replaced."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from store.rows import key, newer, row

from swerve.core.errors import SwerveError
from swerve.store import Batch, Damaged, InUse, Row, StoreError, open_store
from swerve.store.schema import PAGE_BYTES
from swerve.store.sqlite import SQLiteStore


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "state"
    made.mkdir()
    return made


@pytest.fixture
def store(folder):
    opened = open_store(f"sqlite:///{folder}/swerve.db")
    yield opened
    opened.close()


def kind(call, *args) -> str:
    with pytest.raises(StoreError) as caught:
        call(*args)
    return caught.value.kind


@contextlib.contextmanager
def plain(folder):
    """A connection of somebody else."""
    with contextlib.closing(sqlite3.connect(folder / "swerve.db", isolation_level=None, timeout=0.0)) as connection:
        yield connection


def test_the_file_is_for_its_owner_only_and_one_file_when_closed(folder, store):
    store.commit(Batch([row(1)]))
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    store.close()
    assert sorted(path.name for path in folder.iterdir()) == ["swerve.db", "swerve.db.lock"]


def test_commits_are_synchronous_and_pages_as_measured(store):
    writer = store._writer
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)


def test_a_commit_of_old_rows_writes_no_index(store):
    """What is indexed changes seldom: then only the pages of the records are written."""
    store.commit(Batch([row(i) for i in range(100)]))
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.commit(Batch([row(1, 2)]))
    assert store._log().stat().st_size == 32 + 1 * (24 + PAGE_BYTES)


def test_reads_use_the_indexes(store):
    for statement in (
        "SELECT * FROM rows WHERE key IN (x'00', x'01')",
        "SELECT id FROM rows WHERE day < 5 ORDER BY day LIMIT 10",
        "SELECT id FROM rows ORDER BY level DESC, id DESC LIMIT 10",
        "SELECT id FROM rows WHERE shifted > 0 ORDER BY shifted DESC, id DESC LIMIT 10",
        "SELECT count(*) FROM rows",
    ):
        plan = " ".join(line[3] for line in store._reader.execute(f"EXPLAIN QUERY PLAN {statement}"))
        assert "INDEX" in plan and "TEMP B-TREE" not in plan, (statement, plan)


def test_full_says_so_and_works_again_when_there_is_room(store):
    store.commit(Batch([row(0)]))
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages + 4}")
    done = 1
    while True:
        try:
            store.commit(Batch([row(done, size=2200)], [(done, 1)]))
        except StoreError as error:
            caught = error
            break
        done += 1
    assert caught.kind == "full"
    assert "make room" in str(caught)
    assert 2 <= done < 50
    assert kind(store.probe) == "full"
    assert store.count() == done
    assert store.load([key(done)]) == [None]
    assert store.outcomes([done]) == {}
    store.commit(Batch([newer(row(0))]))  # a row that has its place needs no room
    store._writer.execute("PRAGMA max_page_count = 100000")
    store.probe()
    store.commit(Batch([row(done, size=2200)], [(done, 1)]))
    assert store.load([key(done)]) == [row(done, size=2200)]


def test_locked_says_so_soon_and_works_again_when_let_go(folder, store):
    store.commit(Batch([row(1)]))
    with plain(folder) as other:
        other.execute("BEGIN EXCLUSIVE")
        started = time.perf_counter()
        assert kind(store.commit, Batch([row(2)])) == "locked"
        assert kind(store.probe) == "locked"
        assert time.perf_counter() - started < 1.0
        assert store.load([key(1)]) == [row(1)]  # readers go on
        other.execute("ROLLBACK")
    store.commit(Batch([row(2)]))
    assert store.load([key(2)]) == [row(2)]


def test_a_record_that_changed_on_the_disk_is_damaged_and_the_others_are_not(folder, store):
    rows = [row(i) for i in range(4)]
    store.commit(Batch(rows))
    with plain(folder) as other:
        other.execute("UPDATE rows SET record = x'00' WHERE key = ?", (key(2),))
    found = store.load([key(i) for i in range(4)])
    assert [found[i] for i in (0, 1, 3)] == [rows[i] for i in (0, 1, 3)]
    assert isinstance(found[2], Damaged)
    assert (found[2].key, found[2].version) == (key(2), 1)
    assert repr(key(2)) in str(found[2])
    assert [left.key for left in store.scan("traffic", 10)] == [key(3), key(1), key(0)]
    store.commit(Batch([newer(rows[2])]))  # its version can be read: a new record may take its place
    assert store.load([key(2)]) == [newer(rows[2])]


def test_a_damaged_pooled_record_is_named(folder, store):
    store.commit(Batch(groups={"classifier": b"abc", "season": b"def"}))
    with plain(folder) as other:
        other.execute("UPDATE groups SET record = x'61' WHERE name = 'classifier'")
    with pytest.raises(Damaged, match="'classifier' of worker '0'"):
        store.groups()


def spoil(folder, offset_of) -> None:
    """Overwrite a page of the closed file."""
    path = folder / "swerve.db"
    data = bytearray(path.read_bytes())
    start = offset_of(data)
    data[start : start + PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(bytes(data))


def test_no_flipped_byte_gives_a_wrong_row(folder):
    """Any byte of the pages of records: a row comes back as it was written, or as damaged, and nothing else is raised."""
    path = folder / "swerve.db"
    store = open_store(f"sqlite:///{path}")
    rows = [row(i, size=2200) for i in range(12)]
    store.commit(Batch(rows))
    store.close()
    clean = path.read_bytes()
    pages = sorted({clean.index(old.record) // PAGE_BYTES for old in rows})
    heads = {i: clean.index(old.key, pages[0] * PAGE_BYTES) for i, old in enumerate(rows)}
    draw, caught = random.Random(5), 0
    for trial in range(60):
        # half of them where pages and rows keep their lengths and types, the rest anywhere
        near = draw.choice([draw.choice(pages) * PAGE_BYTES, heads[draw.randrange(12)] - 20])
        start = near + draw.randrange(40) if trial % 2 else draw.choice(pages) * PAGE_BYTES + draw.randrange(PAGE_BYTES)
        data = bytearray(clean)
        data[start] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(data))
        store = open_store(f"sqlite:///{path}")
        found = store.load([old.key for old in rows])
        assert all(one == old or isinstance(one, Damaged) for one, old in zip(found, rows, strict=True)), (trial, start)
        caught += sum(isinstance(one, Damaged) for one in found)
        assert all(one in rows for one in store.scan("traffic", 12))
        store.close()
    assert caught > 20


@pytest.fixture
def damaged(folder):
    """A store of 300 rows where the page of row 150 is damaged: the store, its rows, and the numbers that are lost."""
    store = open_store(f"sqlite:///{folder}/swerve.db")
    rows = [row(i, day=i, size=2200) for i in range(300)]
    store.commit(Batch(rows))
    store.close()
    spoil(folder, lambda data: data.index(rows[150].record) // PAGE_BYTES * PAGE_BYTES)
    store = open_store(f"sqlite:///{folder}/swerve.db")
    lost = [i for i, found in enumerate(store.load([old.key for old in rows])) if found != rows[i]]
    assert 150 in lost and len(lost) <= 3
    yield store, rows, lost
    store.close()


def test_a_damaged_page_takes_its_rows_only(damaged):
    store, rows, lost = damaged
    found = store.load([old.key for old in rows])
    assert all(isinstance(found[i], Damaged) and found[i].key == key(i) for i in lost)
    assert {one.key for one in store.scan("traffic", 300)} == {key(i) for i in range(300) if i not in lost}


def test_a_commit_that_meets_a_damaged_page_names_its_rows_and_goes_through_without_them(damaged):
    store, rows, lost = damaged
    with pytest.raises(StoreError) as caught:
        store.commit(Batch([newer(old) for old in rows], [(1, 1)]))
    assert caught.value.kind == "corrupt"
    assert set(caught.value.keys) == {key(i) for i in lost}
    assert store.outcomes([1]) == {}
    store.commit(Batch([newer(old) for old in rows if old.key not in caught.value.keys] + [row(1000)], [(1, 1)]))
    assert store.load([key(0), key(299)]) == [newer(rows[0]), newer(rows[299])]


def test_expiry_passes_a_damaged_page_and_new_rows_still_find_a_place(damaged):
    store, _, lost = damaged
    removed = [store.expire(200, 0)[0] for _ in range(6)]
    assert 185 <= sum(removed) <= 200 - len(lost)  # SQLite cannot merge the pages beside it either
    assert removed[-1] == 0
    assert store.count() == 300 - sum(removed)
    store.commit(Batch([row(1000 + i, size=2200) for i in range(100)]))
    assert store.load([key(1099)]) == [row(1099, size=2200)]


def test_a_damaged_last_page_blames_the_new_rows(folder):
    store = open_store(f"sqlite:///{folder}/swerve.db")
    rows = [row(i, size=2200) for i in range(60)]
    store.commit(Batch(rows))
    store.close()
    spoil(folder, lambda data: data.index(rows[59].record) // PAGE_BYTES * PAGE_BYTES)
    store = open_store(f"sqlite:///{folder}/swerve.db")
    with pytest.raises(StoreError) as caught:
        store.commit(Batch([newer(rows[0]), row(100)]))
    assert (caught.value.kind, caught.value.keys) == ("corrupt", (key(100),))
    store.commit(Batch([newer(rows[0])]))
    store.close()


def test_a_file_that_is_no_database_is_refused(folder):
    (folder / "swerve.db").write_bytes(b"not a database, but a text of some length\n" * 300)
    with pytest.raises(StoreError, match="restore a backup") as caught:
        open_store(f"sqlite:///{folder}/swerve.db")
    assert caught.value.kind == "corrupt"
    (folder / "swerve.db").unlink()
    open_store(f"sqlite:///{folder}/swerve.db").close()  # the lock was let go, and there never was a store


def test_a_folder_moved_away_and_back_is_the_same_store(folder, store):
    store.commit(Batch([row(1)]))
    away = folder.with_name("away")
    folder.rename(away)
    assert kind(store.commit, Batch([row(2)])) == "gone"
    assert kind(store.probe) == "gone"
    assert kind(store.reopen) == "gone"
    assert store.load([key(1)]) == [row(1)]  # what is open stays open
    away.rename(folder)
    assert store.reopen() is True
    assert store.load([key(1), key(2)]) == [row(1), None]
    store.commit(Batch([row(2)]))
    store.probe()


def test_a_folder_that_vanishes_during_a_commit_is_not_acknowledged(folder, store):
    """Between the first look and the last: the commit goes into the folder that was moved, and the caller is told."""
    store.commit(Batch([row(1)]))
    away = folder.with_name("away")
    store._writer.set_trace_callback(lambda statement: folder.rename(away) if statement == "COMMIT" else None)
    with pytest.raises(StoreError) as caught:
        store.commit(Batch([row(1, 2)], [(5, 1)]))
    assert caught.value.kind == "gone"
    assert caught.value.uncertain
    away.rename(folder)
    assert store.reopen() is True
    assert store.load([key(1)]) == [row(1, 2)]  # it had landed, and the caller can see that
    assert store.outcomes([5]) == {5: 1}


def test_a_database_moved_away_and_back_loses_nothing(folder, store):
    """Its log stays behind, and holds what was committed last; nothing may be made in the place of the file meanwhile."""
    store.commit(Batch([row(1)]))
    (folder / "swerve.db").rename(folder / "elsewhere.db")
    for _ in range(3):
        assert kind(store.commit, Batch([row(2)])) == "gone"
        assert kind(store.reopen) == "gone"
    assert not (folder / "swerve.db").exists()
    (folder / "elsewhere.db").rename(folder / "swerve.db")
    assert store.reopen() is True
    assert store.load([key(1), key(2)]) == [row(1), None]
    store.commit(Batch([row(2)]))
    store.close()
    store = open_store(f"sqlite:///{folder}/swerve.db")
    assert store.load([key(1), key(2)]) == [row(1), row(2)]
    store.close()


def test_a_folder_deleted_and_made_anew_is_no_reason_to_begin_anew(folder, store):
    store.commit(Batch([row(1)]))
    shutil.rmtree(folder)
    assert kind(store.commit, Batch([row(2)])) == "gone"
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
    """Moved away after a crash, begun anew, put back: what was committed last lies in the log."""
    url = f"sqlite:///{folder}/swerve.db"
    code = "import os, sys; from store.rows import row; from swerve.store import Batch, open_store\n"
    code += "store = open_store(sys.argv[1]); store.commit(Batch([row(1)])); os._exit(9)"
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
    """Its index, which the crash left too, names commits that the database does not have."""
    url = f"sqlite:///{folder}/swerve.db"
    code = "import os, sys; from store.rows import row; from swerve.store import Batch, open_store\n"
    code += "store = open_store(sys.argv[1]); store.commit(Batch([row(1)])); os._exit(9)"
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
    """A mark that was written although its `fsync` failed is still ours: what memory holds is about this store."""
    store.commit(Batch([row(1)]))
    older = next(iter(store._marks))
    assert store.reopen() is True
    store._close()
    with plain(folder) as other:  # the last thing that a failed opening wrote, as a crash of the disk may leave it
        other.execute("UPDATE meta SET value = ? WHERE key = 'opened'", (older,))
    assert store.reopen() is True


def test_a_database_behind_a_symbolic_link(folder, tmp_path):
    """The file that it names is the store: one owner, whatever name is used, and its log and lock beside it."""
    link = tmp_path / "link.db"
    link.symlink_to(folder / "swerve.db")
    store = open_store(f"sqlite:///{link}")
    store.commit(Batch([row(1)]))
    with pytest.raises(InUse):
        open_store(f"sqlite:///{folder}/swerve.db")
    assert sorted(path.name for path in folder.iterdir()) == ["swerve.db", "swerve.db-shm", "swerve.db-wal", "swerve.db.lock"]
    link.unlink()
    assert kind(store.commit, Batch([row(2)])) == "gone"
    link.symlink_to(folder / "swerve.db")
    assert store.reopen() is True
    store.close()
    store = open_store(f"sqlite:///{folder}/swerve.db")
    assert store.load([key(1)]) == [row(1)]
    store.close()


def test_a_copy_put_in_place_of_the_file_is_read_without_the_old_log(folder, store):
    """The log of the replaced file lies there still; played into the other one, it would ruin it."""
    store.commit(Batch([row(i, size=2200) for i in range(50)]))
    store.close()
    shutil.copy(folder / "swerve.db", folder / "copy.db")
    store = open_store(f"sqlite:///{folder}/swerve.db")
    store.commit(Batch([row(i, 2, size=2200) for i in range(50)] + [row(i, size=2200) for i in range(50, 90)]))
    os.replace(folder / "copy.db", folder / "swerve.db")
    assert kind(store.commit, Batch([row(200)])) == "gone"
    assert store.reopen() is False
    assert store.load([key(0), key(60)]) == [row(0, size=2200), None]
    assert store.count() == 50
    assert store._reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
def test_any_of_its_files_removed_is_gone(folder, store, suffix):
    store.commit(Batch([row(1)]))
    (folder / f"swerve.db{suffix}").unlink()
    assert kind(store.commit, Batch([row(2)])) == "gone"
    if suffix:
        assert store.reopen() is True
        store.commit(Batch([row(3)]))
    else:
        assert kind(store.reopen) == "gone"
    assert store.load([key(1)]) == [row(1)]


def test_reopen_meets_a_file_of_somebody_else(folder, store):
    store.commit(Batch([row(1)]))
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


def test_places_of_expired_rows_are_used_again(store):
    """Pages stay full where some rows go and as many come, day after day: appended at the end they would take a fifth more."""
    store.commit(Batch([row(i, day=i * 7919 % 20, size=2200) for i in range(600)]))
    pages = store._reader.execute("PRAGMA page_count").fetchone()[0]
    for day in range(1, 20):
        gone, _ = store.expire(day, 0)
        store.commit(Batch([row(1000 * day + i, day=99, size=2200) for i in range(gone)]))
    assert store.count() == 600
    assert store._reader.execute("PRAGMA page_count").fetchone()[0] <= 1.05 * pages


@pytest.mark.slow
def test_a_hundred_thousand_rows_take_little_more_than_their_bytes(folder, store):
    """Records of 2.2 kB as they come from queries of 8 arms: the file is at most 1.3 times as large, after updates too."""
    total, size = 100_000, 2200
    data = os.urandom(size)
    for start in range(0, total, 500):
        store.commit(Batch([Row(key(i), 1, 1, 20_000 + i % 90, i % 12, 0.0, data, b"") for i in range(start, start + 500)]))
    for start in range(0, total, 10 * 500):
        store.commit(Batch([Row(key(i), 2, 1, 20_100, i % 12 + 1, 1e9 + i, data, b"") for i in range(start, start + 500)]))
    store.close()
    assert (folder / "swerve.db").stat().st_size <= 1.3 * total * size
    started = time.perf_counter()
    store = open_store(f"sqlite:///{folder}/swerve.db")
    assert time.perf_counter() - started < 0.5
    assert store.count() == total
    store.close()
