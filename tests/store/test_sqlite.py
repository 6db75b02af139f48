"""The SQLite engine: how it writes, and how it behaves when it is full, locked or damaged."""

from __future__ import annotations

import os
import random
import stat
import time

import pytest
from store.embedded import folder, kind, plain, store  # noqa: F401 - fixtures
from store.rows import key, newer, row

from swerve.store import Batch, Damaged, Row, StoreError, open_store
from swerve.store.schema import PAGE_BYTES


def test_the_file_is_for_its_owner_only_and_one_file_when_closed(folder, store):
    store.checkpoint(Batch([row(1)]))
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    store.close()
    assert sorted(path.name for path in folder.iterdir()) == [
        "swerve.db", "swerve.db.journal", "swerve.db.journal.lock", "swerve.db.lock",
    ]  # fmt: skip


def test_commits_are_synchronous_and_pages_as_measured(store):
    writer = store._writer
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)


def test_a_commit_of_old_rows_writes_no_index(store):
    """While indexed columns do not change, a commit writes only the pages of the records."""
    store.checkpoint(Batch([row(i) for i in range(100)]))
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.checkpoint(Batch([row(1, 2)]))
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
    store.checkpoint(Batch([row(0)]))
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages + 4}")
    done = 1
    while True:
        try:
            store.checkpoint(Batch([row(done, size=2200)], [(done, 1)]))
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
    store.checkpoint(Batch([newer(row(0))]))  # a stored row needs no further room
    store._writer.execute("PRAGMA max_page_count = 100000")
    store.probe()
    store.checkpoint(Batch([row(done, size=2200)], [(done, 1)]))
    assert store.load([key(done)]) == [row(done, size=2200)]


def test_locked_says_so_soon_and_works_again_when_let_go(folder, store):
    store.checkpoint(Batch([row(1)]))
    with plain(folder) as other:
        other.execute("BEGIN EXCLUSIVE")
        started = time.perf_counter()
        assert kind(store.checkpoint, Batch([row(2)])) == "locked"
        assert kind(store.probe) == "locked"
        assert time.perf_counter() - started < 1.0
        assert store.load([key(1)]) == [row(1)]  # reading still works
        other.execute("ROLLBACK")
    store.checkpoint(Batch([row(2)]))
    assert store.load([key(2)]) == [row(2)]


def test_a_record_that_changed_on_the_disk_is_damaged_and_the_others_are_not(folder, store):
    rows = [row(i) for i in range(4)]
    store.checkpoint(Batch(rows))
    with plain(folder) as other:
        other.execute("UPDATE rows SET record = x'00' WHERE key = ?", (key(2),))
    found = store.load([key(i) for i in range(4)])
    assert [found[i] for i in (0, 1, 3)] == [rows[i] for i in (0, 1, 3)]
    assert isinstance(found[2], Damaged)
    assert (found[2].key, found[2].version) == (key(2), 1)
    assert repr(key(2)) in str(found[2])
    assert [left.key for left in store.scan("traffic", 10)] == [key(3), key(1), key(0)]
    store.checkpoint(Batch([newer(rows[2])]))  # its version is readable, so a new record can replace it
    assert store.load([key(2)]) == [newer(rows[2])]


def test_a_damaged_pooled_record_is_named(folder, store):
    store.checkpoint(Batch(groups={"classifier": b"abc", "season": b"def"}))
    with plain(folder) as other:
        other.execute("UPDATE groups SET record = x'61' WHERE name = 'classifier'")
    found = store.groups()
    damaged = found.pop(("classifier", "0"))
    assert isinstance(damaged, Damaged) and "'classifier' of worker '0'" in str(damaged)
    assert found == {("season", "0"): b"def"}


def spoil(folder, offset_of) -> None:
    """Overwrite a page of the closed file."""
    path = folder / "swerve.db"
    data = bytearray(path.read_bytes())
    start = offset_of(data)
    data[start : start + PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(bytes(data))


def test_no_flipped_byte_gives_a_wrong_row(folder):
    """After a change of any byte of the records' pages, a row is returned as written or as damaged; no other error occurs."""
    path = folder / "swerve.db"
    store = open_store(f"sqlite:///{path}")
    rows = [row(i, size=2200) for i in range(12)]
    store.checkpoint(Batch(rows))
    store.close()
    clean = path.read_bytes()
    pages = sorted({clean.index(old.record) // PAGE_BYTES for old in rows})
    heads = {i: clean.index(old.key, pages[0] * PAGE_BYTES) for i, old in enumerate(rows)}
    draw, caught = random.Random(5), 0
    for trial in range(60):
        # half of the trials change lengths and types of pages and rows, the others any byte
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
    """Return a store of 300 rows in which the page of row 150 is damaged, its rows, and the numbers of the lost rows."""
    store = open_store(f"sqlite:///{folder}/swerve.db")
    rows = [row(i, day=i, size=2200) for i in range(300)]
    store.checkpoint(Batch(rows))
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
        store.checkpoint(Batch([newer(old) for old in rows], [(1, 1)]))
    assert caught.value.kind == "corrupt"
    assert set(caught.value.keys) == {key(i) for i in lost}
    assert store.outcomes([1]) == {}
    store.checkpoint(Batch([newer(old) for old in rows if old.key not in caught.value.keys] + [row(1000)], [(1, 1)]))
    assert store.load([key(0), key(299)]) == [newer(rows[0]), newer(rows[299])]


def test_expiry_passes_a_damaged_page_and_new_rows_still_find_a_place(damaged):
    store, _, lost = damaged
    removed = [store.expire(200, 0)[0] for _ in range(6)]
    assert 185 <= sum(removed) <= 200 - len(lost)  # SQLite cannot merge the neighbouring pages either
    assert removed[-1] == 0
    assert store.count() == 300 - sum(removed)
    store.checkpoint(Batch([row(1000 + i, size=2200) for i in range(100)]))
    assert store.load([key(1099)]) == [row(1099, size=2200)]


def test_a_damaged_last_page_blames_the_new_rows(folder):
    store = open_store(f"sqlite:///{folder}/swerve.db")
    rows = [row(i, size=2200) for i in range(60)]
    store.checkpoint(Batch(rows))
    store.close()
    spoil(folder, lambda data: data.index(rows[59].record) // PAGE_BYTES * PAGE_BYTES)
    store = open_store(f"sqlite:///{folder}/swerve.db")
    with pytest.raises(StoreError) as caught:
        store.checkpoint(Batch([newer(rows[0]), row(100)]))
    assert (caught.value.kind, caught.value.keys) == ("corrupt", (key(100),))
    store.checkpoint(Batch([newer(rows[0])]))
    store.close()


def test_places_of_expired_rows_are_used_again(store):
    """Pages stay full while rows expire and as many arrive; appended at the end, they would need a fifth more."""
    store.checkpoint(Batch([row(i, day=i * 7919 % 20, size=2200) for i in range(600)]))
    pages = store._reader.execute("PRAGMA page_count").fetchone()[0]
    for day in range(1, 20):
        gone, _ = store.expire(day, 0)
        store.checkpoint(Batch([row(1000 * day + i, day=99, size=2200) for i in range(gone)]))
    assert store.count() == 600
    assert store._reader.execute("PRAGMA page_count").fetchone()[0] <= 1.05 * pages


@pytest.mark.slow
def test_a_hundred_thousand_rows_take_little_more_than_their_bytes(folder, store):
    """Records of 2.2 kB, as of queries with 8 arms: the file is at most 1.3 times as large, also after updates."""
    total, size = 100_000, 2200
    data = os.urandom(size)
    for start in range(0, total, 500):
        store.checkpoint(Batch([Row(key(i), 1, 1, 20_000 + i % 90, i % 12, 0.0, data, b"") for i in range(start, start + 500)]))
    for start in range(0, total, 10 * 500):
        store.checkpoint(Batch([Row(key(i), 2, 1, 20_100, i % 12 + 1, 1e9 + i, data, b"") for i in range(start, start + 500)]))
    store.close()
    assert (folder / "swerve.db").stat().st_size <= 1.3 * total * size
    started = time.perf_counter()
    store = open_store(f"sqlite:///{folder}/swerve.db")
    assert time.perf_counter() - started < 0.5
    assert store.count() == total
    store.close()
