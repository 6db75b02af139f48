"""Compiled code on disk and several processes: compiled once, never mixed up."""

from __future__ import annotations

import fcntl
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from core.caching import DECIDE, run

from swerve.core import cache


def test_two_processes_that_need_the_same_code_compile_it_once(tmp_path):
    """The second one waits for the first and loads what it has compiled."""
    code = DECIDE.format(module="swerve", cls="UCB1")
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda _: run(code, tmp_path)[0], range(2)))
    assert sorted(said) == [["0", "0"], ["0", "1"]]


def test_a_process_that_holds_the_lock_for_ever_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "PATIENCE", 0.2)
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        started = time.monotonic()
        with cache.alone(tmp_path):
            assert time.monotonic() - started >= cache.PATIENCE
    with cache.alone(tmp_path), (tmp_path / "lock").open() as another, pytest.raises(BlockingIOError):
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_failure_to_compile_leaves_no_lock(tmp_path):
    def refused() -> None:
        raise ValueError("no such types")

    with pytest.raises(ValueError, match="no such types"), cache.alone(tmp_path):
        refused()
    with (tmp_path / "lock").open() as another:
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_where_no_lock_can_be_made_code_is_compiled_all_the_same(tmp_path):
    (tmp_path / "file").touch()
    with cache.alone(tmp_path / "file" / "folder"):
        assert not (tmp_path / "file" / "folder").exists()


RECURSIVE = """
import numba
import numpy as np
from swerve.core.cache import compiled

@numba.njit
def mark(row, n):  # calls itself: it is never inlined, and keeps its name
    if n <= 0:
        return 0
    row.last += 1.0
    return 1 + mark(row, n - 1)

def entry(table, n):
    return mark(table[0], n)

def last(width):
    table = np.zeros(1, [("first", "f8", width), ("last", "f8")])
    compiled(entry, f"layout-{width}")(table, 5)
    return float(table[0]["last"])
"""


def test_code_compiled_by_different_processes_does_not_get_mixed_up(tmp_path):
    """Numba numbers compiled functions per process: two layouts could share a name, and one layout's code would run for both."""
    (tmp_path / "mine.py").write_text(RECURSIVE)
    for width in (3, 12):
        assert run(f"import mine; print(mine.last({width}))", tmp_path)[0] == ["5.0"]
    assert run("import mine; print(mine.last(3), mine.last(12))", tmp_path)[0] == ["5.0", "5.0"]


def test_processes_give_names_of_their_own(tmp_path):
    numbers = """
import os
from numba.core.bytecode import FunctionIdentity
import swerve.core.cache
if os.fork() == 0:
    print(next(FunctionIdentity._unique_ids), flush=True)
    os._exit(0)
os.wait()
print(next(FunctionIdentity._unique_ids))
"""
    given = [int(number) for _ in range(2) for number in run(numbers, tmp_path)[0]]
    assert len(given) == 4
    assert min(abs(one - other) for at, one in enumerate(given) for other in given[:at]) > 10_000
