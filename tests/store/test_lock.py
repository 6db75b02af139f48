"""One process owns a store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest

from swerve.store import InUse, StoreError, open_store
from swerve.store.lock import Lock

OPEN = "import sys; from swerve.store import open_store; open_store(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


def owner(url: str) -> subprocess.Popen[str]:
    """Another process that owns the store until its input ends."""
    child = subprocess.Popen([sys.executable, "-c", OPEN, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def test_a_second_owner_is_told_who_has_it_since_when_and_what_to_do(tmp_path):
    url = f"sqlite:///{tmp_path}/swerve.db"
    child = owner(url)
    try:
        with pytest.raises(InUse) as caught:
            open_store(url)
    finally:
        end(child)
    said = (
        rf"{re.escape(str(tmp_path))}/swerve\.db is in use by process {child.pid} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC; stop"
    )
    assert re.match(said, str(caught.value))
    open_store(url).close()  # kill -9 has released the lock


def test_a_second_owner_can_wait_for_the_first_one_to_end(tmp_path):
    url = f"sqlite:///{tmp_path}/swerve.db"
    child, told = owner(url), list[str]()
    threading.Timer(1.2, end, [child]).start()
    open_store(url, waiting=told.append).close()
    assert len(told) == 1 and f"is in use by process {child.pid} since" in told[0]


def test_the_second_process_says_it_in_one_line(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/swerve.db")
    done = subprocess.run(
        [sys.executable, "-c", OPEN, f"sqlite:///{tmp_path}/swerve.db"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert f"in use by process {os.getpid()}" in done.stderr.splitlines()[-1]
    store.close()


def test_the_same_process_cannot_own_it_twice(tmp_path):
    path = tmp_path / "a.lock"
    lock = Lock(path)
    with pytest.raises(InUse):
        Lock(path)
    lock.release()
    lock.release()
    Lock(path).release()


def test_the_lock_goes_with_a_folder_that_is_renamed(tmp_path):
    here, away = tmp_path / "here", tmp_path / "away"
    here.mkdir()
    lock = Lock(here / "a.lock")
    here.rename(away)
    assert not lock.in_place()
    with pytest.raises(InUse):
        Lock(away / "a.lock")
    with pytest.raises(StoreError, match="there is no folder"):
        lock.retake()
    with pytest.raises(InUse):  # the old lock is still held
        Lock(away / "a.lock")
    here.mkdir()
    lock.retake()
    assert lock.in_place()
    with pytest.raises(InUse):
        Lock(here / "a.lock")
    Lock(away / "a.lock").release()
    lock.release()


def test_reopen_does_not_take_a_store_that_has_another_owner(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    url = f"sqlite:///{folder}/swerve.db"
    store = open_store(url)
    folder.rename(tmp_path / "away")
    folder.mkdir()
    child = owner(url)
    try:
        with pytest.raises(StoreError, match=f"in use by process {child.pid}") as caught:
            store.reopen()
        assert caught.value.kind == "locked"
    finally:
        end(child)
    assert store.reopen() is False  # the other process's store
    store.close()


def test_a_folder_without_the_right_to_write_is_named(tmp_path):
    (tmp_path / "a.lock").mkdir()
    with pytest.raises(StoreError, match="cannot be locked: Is a directory") as caught:
        Lock(tmp_path / "a.lock")
    assert caught.value.kind == "io"
