"""The log that a crash leaves: damage is distinguished from an unfinished write, before SQLite drops the rest."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import sqlite3
import time

import pytest
from store.rows import key, row

from swerve.store import Batch, StoreError, open_store
from swerve.store.schema import PAGE_BYTES
from swerve.store.wal import read_log

FRAME = 24 + PAGE_BYTES
COMMITS = 30


@pytest.fixture(scope="module")
def crash(tmp_path_factory):
    """The files of a killed store: commit v wrote version v of row 0, and commit 1 also rows of several pages."""
    folder = tmp_path_factory.mktemp("crash")
    store = open_store(f"sqlite:///{folder}/swerve.db")
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.checkpoint(Batch([row(i, size=2200) for i in range(20)]))
    for version in range(2, COMMITS + 1):
        store.checkpoint(Batch([row(0, version, size=2200)] + ([row(15, version // 3 + 1, size=2200)] if version % 3 == 0 else [])))
    files = [folder / name for name in ("swerve.db", "swerve.db-wal", "swerve.db-shm")] + list(
        (folder / "swerve.db.journal").iterdir()
    )
    kept = {str(file.relative_to(folder)): file.read_bytes() for file in files}
    store.close()
    return kept


def left(folder, crash, *, index: bool = True, log: bytes | None = None):
    """Make a folder as the crash left it, with this log, and with its index if `index`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in crash.items():
        if index or not name.endswith("-shm"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data if log is None or not name.endswith("-wal") else log)
    return folder / "swerve.db"


def taken(path) -> int:
    """Return the version of row 0 that SQLite reads: earlier commits are present, later ones are not."""
    other = path.with_name("looked at")
    other.mkdir()
    for name in ("swerve.db", "swerve.db-wal"):
        shutil.copy(path.with_name(name), other / name)
    with contextlib.closing(sqlite3.connect(other / "swerve.db")) as connection:
        found = connection.execute("SELECT version FROM rows WHERE key = ?", (key(0),)).fetchone()
    return found[0] if found else 0


def opened(path) -> int | None:
    """Return the version of row 0 in the opened store; None if opening is refused."""
    try:
        store = open_store(f"sqlite:///{path}")
    except StoreError as error:
        if error.kind == "corrupt" and "restore a backup" in str(error) and "swerve.db-wal" in str(error):
            return None
        raise
    found = store.load([key(0)])[0]
    store.close()
    return 0 if found is None else found.version


def test_a_whole_log_is_read_and_nothing_is_said(tmp_path, crash, caplog):
    path = left(tmp_path / "state", crash)
    found = read_log(path)
    assert (found.commits, found.lost, found.doubtful, found.tail) == (COMMITS, 0, False, False)
    assert found.frames == (len(crash["swerve.db-wal"]) - 32) // FRAME
    assert opened(path) == COMMITS
    assert caplog.records == []


def test_no_flipped_byte_loses_a_commit_without_a_word(tmp_path, crash):
    """For a change anywhere in the log: if SQLite would drop acknowledged commits, the store is refused. Without the log's index
    the last transaction is an exception, and frames that may belong to it or to the one before."""
    draw, refused = random.Random(3), 0
    size = len(crash["swerve.db-wal"])
    for trial in range(80):
        index = trial % 2 == 0
        frame = 32 + draw.randrange(size // FRAME) * FRAME
        place = [draw.randrange(32), frame + draw.randrange(24), frame + 24 + draw.randrange(PAGE_BYTES)][trial % 3]
        log = bytearray(crash["swerve.db-wal"])
        log[place] ^= 1 << draw.randrange(8)
        path = left(tmp_path / "state", crash, index=index, log=bytes(log))
        truth, found = taken(path), opened(path)
        if truth == COMMITS:
            assert found == COMMITS, place
        elif index or truth < COMMITS - 2:
            assert found is None, place
            refused += 1
        else:
            assert found in (None, truth), place
    assert refused > 60


def test_it_says_how_many_commits_and_leaves_everything_as_it_is(tmp_path, crash):
    log = bytearray(crash["swerve.db-wal"])
    log[-10 * FRAME + 5000] ^= 1
    path = left(tmp_path / "state", crash, log=bytes(log))
    with pytest.raises(StoreError, match=r"its log is damaged, and at least \d+ commits behind the damage cannot be read"):
        open_store(f"sqlite:///{path}")
    for name, data in crash.items():
        assert (path.parent / name).read_bytes() == (bytes(log) if name.endswith("-wal") else data)
    for suffix in ("-wal", "-shm"):
        path.with_name(f"swerve.db{suffix}").unlink()
    assert opened(path) == 0  # without the log: the state of the file itself


def test_a_damaged_header_is_told_where_its_frames_are_whole(tmp_path, crash):
    for start, end in ((0, 4), (8, 12), (16, 24), (24, 32), (0, 32), (0, 4096)):
        log = bytearray(crash["swerve.db-wal"])
        log[start:end] = bytes(end - start)
        for index in (True, False):
            path = left(tmp_path / "state", crash, index=index, log=bytes(log))
            assert taken(path) == 0
            assert opened(path) is None, (start, end, index)


def test_a_write_that_was_cut_short_is_no_damage(tmp_path, crash):
    """The log ends anywhere in the last transaction, or has pages of a transaction without its commit."""
    whole = crash["swerve.db-wal"]
    last = COMMITS - 1  # the last transaction has two pages: 30 is a multiple of three
    for cut in (1, 24, 5000, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME - 1, 2 * FRAME):
        path = left(tmp_path / "state", crash, index=False, log=whole[:-cut])
        assert opened(path) == last == COMMITS - 1, cut
    zeroed = whole[:-FRAME] + bytes(FRAME)
    assert opened(left(tmp_path / "state", crash, index=False, log=zeroed)) == last


def test_a_hole_in_the_last_transaction_is_said_and_the_log_is_emptied(tmp_path, crash, caplog):
    """After a power cut the last page of a transaction may be on disk while an earlier one is not."""
    log = crash["swerve.db-wal"][: -2 * FRAME] + bytes(FRAME) + crash["swerve.db-wal"][-FRAME:]
    path = left(tmp_path / "state", crash, index=False, log=log)
    assert read_log(path).doubtful
    store = open_store(f"sqlite:///{path}")
    assert store.load([key(0)])[0].version == COMMITS - 1
    assert [(record.levelno, record.name) for record in caplog.records] == [(logging.WARNING, "swerve.store")]
    assert "cut short, or damage in the last transaction" in caplog.text
    assert read_log(path).bytes < 3 * FRAME  # the rest is gone: a later check must not read it as commits
    store.close()


def test_the_index_of_the_log_tells_damage_in_the_last_transaction(tmp_path, crash):
    """The index is written after a commit is on disk, so every commit that it names was there."""
    log = bytearray(crash["swerve.db-wal"])
    log[-100] ^= 1
    assert opened(left(tmp_path / "state", crash, log=bytes(log))) is None
    assert opened(left(tmp_path / "state", crash, index=False, log=bytes(log))) == COMMITS - 1
    assert opened(left(tmp_path / "state", crash, log=bytes(log[: -3 * FRAME]))) is None


def test_a_log_that_has_gone_while_its_index_is_there_is_said(tmp_path, crash, caplog):
    """The store is refused, unless the index is older than the machine's start: it may then describe a log emptied since."""
    path = left(tmp_path / "state", crash)
    path.with_name("swerve.db-wal").unlink()
    with pytest.raises(StoreError, match="its log is missing or empty"):
        open_store(f"sqlite:///{path}")
    os.utime(path.with_name("swerve.db-shm"), (1.0, 1.0))
    opened(path)
    assert "its log is missing or empty" in caplog.text


def copied(store, target):
    """Copy the files of an open store, as a crash would leave them."""
    target.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{store.path}{suffix}", target / f"swerve.db{suffix}")
    shutil.copytree(f"{store.path}.journal", target / "swerve.db.journal")
    return target / "swerve.db"


def test_frames_of_a_log_before_are_no_damage(tmp_path, caplog):
    """A log that restarts leaves frames of the previous log behind its end."""
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    for version in range(1, 20):
        store.checkpoint(Batch([row(0, version, size=2200)]))
    store._writer.execute("PRAGMA wal_checkpoint(RESTART)")
    store.checkpoint(Batch([row(0, 20, size=2200)]))
    path = copied(store, tmp_path / "crash")
    store.close()
    found = read_log(path)
    assert (found.commits, found.lost, found.doubtful) == (1, 0, False)
    assert found.bytes > 10 * FRAME
    assert opened(path) == 20
    path.with_name("swerve.db-shm").unlink(missing_ok=True)
    assert caplog.records == []


def test_pages_of_a_transaction_that_was_rolled_back_are_no_damage(tmp_path, caplog):
    """A transaction larger than the cache writes pages before its commit; after a rollback they remain behind the end."""
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    store.checkpoint(Batch([row(0, size=2200)]))
    writer = store._writer
    writer.execute("PRAGMA cache_size = 5")
    writer.execute("BEGIN IMMEDIATE")
    for number in range(100, 200):
        writer.execute("INSERT INTO meta VALUES (?, zeroblob(8000))", (str(number),))
    writer.execute("ROLLBACK")
    for version in (2, 3):
        store.checkpoint(Batch([row(0, version, size=2200)]))
    path = copied(store, tmp_path / "crash")
    store.close()
    found = read_log(path)
    assert found.bytes > 50 * FRAME > 40 * FRAME > found.frames * FRAME
    assert (found.lost, found.doubtful, found.tail) == (0, False, True)
    assert opened(path) == 3
    assert caplog.records == []


def test_a_log_of_64_megabytes_is_read_in_a_moment(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    writer = store._writer
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("PRAGMA synchronous = OFF")
    for number in range(70):
        writer.execute("INSERT INTO meta VALUES (?, randomblob(1000000))", (str(number),))
    times = []
    for _ in range(5):
        started = time.perf_counter()
        found = read_log(store.path)
        times.append(time.perf_counter() - started)
    assert found.bytes > 64 << 20 and found.lost == 0 and found.commits > 64
    store.close()
    assert min(times) < 0.3, times
