"""A store within a bound: the least valuable rows make room, pages are reused, and a log that another program holds is refused."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from store.rows import key, newer, row

from swerve.store import Batch, Damaged, StoreError, open_store
from swerve.store.schema import PAGE_BYTES

MEGABYTE = 1 << 20
MOST = 4 * MEGABYTE


@pytest.fixture
def store(tmp_path):
    opened = open_store(f"sqlite:///{tmp_path}/swerve.db", most=MOST)
    yield opened
    opened.close()


def tidied(store, at_once: int = 256) -> int:
    """Do the maintenance that is due, as the service does; return the number of removed rows."""
    removed = 0
    for _ in range(10_000):
        size = store.size()
        if size.surplus:
            removed += store.forget(store.least(min(size.surplus, at_once)))
        elif size.scattered:
            assert store.gather(min(size.scattered, at_once)) > 0
        else:
            return removed
    raise AssertionError("the maintenance never ends")


def pages(store) -> int:
    return store._writer.execute("PRAGMA page_count").fetchone()[0] - store._writer.execute("PRAGMA freelist_count").fetchone()[0]


def test_what_is_worth_least_goes_first(store):
    """Twice as many requests are worth eight days."""
    rows = [row(0, day=100, level=0), row(1, day=100, level=2), row(2, day=110, level=1), row(3, day=90, level=5)]
    store.checkpoint(Batch(rows))
    assert store.least(10) == [key(0), key(1), key(2), key(3)]
    assert store.least(2) == [key(0), key(1)]
    plan = store._reader.execute("EXPLAIN QUERY PLAN SELECT key FROM rows ORDER BY day + 8 * level LIMIT 5").fetchall()
    assert "rows_worth" in plan[0][3] and len(plan) == 1
    assert store.forget([key(0), key(2), key(77)]) == 2
    assert store.load([key(i) for i in range(4)]) == [None, rows[1], None, rows[3]]
    assert store.count() == 2


def test_a_flood_stays_below_the_bound_and_keeps_what_is_asked_often(store):
    often = [row(i, level=6, size=2200) for i in range(100)]
    store.checkpoint(Batch(often))
    largest = 0
    for start in range(1000, 11_000, 100):
        store.checkpoint(Batch([row(i, level=1, size=2200) for i in range(start, start + 100)]))
        tidied(store)
        size = store.size()
        largest = max(largest, size.data + size.log, store.path.stat().st_size)
    assert largest < MOST
    assert store.load([old.key for old in often]) == often
    assert 0.7 * MOST < store.count() * 2200 * 1.3 < MOST  # and the room is used
    assert store._reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_below_the_bound_nothing_goes(store):
    for start in range(0, 700, 100):
        store.checkpoint(Batch([row(i, size=2200) for i in range(start, start + 100)]))
    assert store.size()[2:] == (0, 0, False, False)
    assert tidied(store) == 0


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_a_bound_that_is_lowered_is_reached_by_moving_rows_together(tmp_path, share):
    """Removing scattered rows frees no page, so rows at the end move into the free row ids."""
    url = f"sqlite:///{tmp_path}/swerve.db"
    store = open_store(url, most=2 * MOST)
    rows = [row(i, day=20_000 + i * 7919 % 50, size=2200) for i in range(2000)]
    store.checkpoint(Batch(rows))
    before = pages(store)
    store.close()
    store = open_store(url, most=round(share * 2 * MOST))
    removed = tidied(store)
    bound = share * 2 * MOST / PAGE_BYTES
    assert pages(store) <= bound < before
    assert 0.65 * bound / before < store.count() / 2000 < bound / before  # a quarter of the bound is for the log and a batch
    assert store.count() == 2000 - removed
    kept = [old for old in rows if store.load([old.key])[0] is not None]
    assert len(kept) == store.count()
    assert store.load([old.key for old in kept]) == kept
    gone = sorted(old.day for old in rows if old not in kept)
    assert gone[-1] <= min(old.day for old in kept)
    assert store._reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()


def test_places_of_a_start_before_are_found_again(tmp_path):
    """A restart forgets the free row ids; at the bound the store searches for them, and removes no further rows."""
    url = f"sqlite:///{tmp_path}/swerve.db"
    store = open_store(url, most=MOST)
    for start in range(0, 4000, 100):
        store.checkpoint(Batch([row(i, size=2200) for i in range(start, start + 100)]))
        tidied(store)
    tidied(store)
    count = store.count()
    for _ in range(3):
        store.close()
        store = open_store(url, most=MOST)
        tidied(store)
    assert store.count() >= 0.97 * count
    store.close()


def test_a_damaged_page_ends_the_tidying_and_loses_nothing_more(tmp_path):
    """Row ids beside a damaged page cannot be reused, so removing rows would gain nothing."""
    url = f"sqlite:///{tmp_path}/swerve.db"
    store = open_store(url, most=MOST)
    rows = [row(i, size=2200) for i in range(1210)]
    store.checkpoint(Batch(rows))
    store.close()
    data = bytearray((tmp_path / "swerve.db").read_bytes())
    start = data.index(rows[5].record) // PAGE_BYTES * PAGE_BYTES
    data[start : start + PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    (tmp_path / "swerve.db").write_bytes(bytes(data))
    store = open_store(url, most=MOST)
    assert store.size().surplus > 0
    assert tidied(store) < 40
    found = store.load([old.key for old in rows])
    assert sum(one is None for one in found) < 40 and 1 <= sum(isinstance(one, Damaged) for one in found) < 10
    store.checkpoint(Batch([row(5000, size=2200)]))
    assert tidied(store) == 0
    store.close()


def test_a_log_that_another_program_holds_is_refused_at_the_bound_and_goes_when_that_ends(store, tmp_path):
    store.checkpoint(Batch([row(i, size=2200) for i in range(100)]))
    with contextlib.closing(sqlite3.connect(tmp_path / "swerve.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM rows").fetchall()
        held, caught = 0, None
        for version in range(2, 200):
            try:
                store.checkpoint(Batch([row(i, version, size=2200) for i in range(100)]))
            except StoreError as error:
                caught = error
                break
            held += store.size().held
        assert caught is not None and caught.kind == "full"
        assert "store.max_mb" in str(caught) and "stop that program" in str(caught)
        assert held > 3
        assert store._log().stat().st_size + pages(store) * PAGE_BYTES < MOST + MEGABYTE
        with pytest.raises(StoreError, match="stop that program"):
            store.probe()
        assert store.load([key(1)])[0].version == version - 1
    store.probe()
    assert store._log().stat().st_size < MEGABYTE
    store.checkpoint(Batch([row(i, version, size=2200) for i in range(100)]))
    assert not store.size().held


def test_a_log_gives_its_room_back_by_itself_below_the_bound(store, tmp_path):
    rows = [row(i, size=2200) for i in range(20)]
    store.checkpoint(Batch(rows))
    with contextlib.closing(sqlite3.connect(tmp_path / "swerve.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM rows").fetchall()
        for _ in range(20):
            rows = [newer(old) for old in rows]
            store.checkpoint(Batch(rows))
        assert store.size().log > MEGABYTE
    for _ in range(3):
        rows = [newer(old) for old in rows]
        store.checkpoint(Batch(rows))
    assert store.size().log <= MOST // 8
