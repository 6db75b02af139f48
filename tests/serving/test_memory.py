"""The counted size of a row in memory is the memory that it takes, for all kinds of ids and texts."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc

import msgspec
import pytest
from service.running import ROOT, SRC

from swerve.policies import policy
from swerve.serving.messages import newest_of
from swerve.serving.rows import Rows
from swerve.signals import Senses

#: Kinds of ids: functions of a query and an arm.
IDS = {
    "short": lambda q, n: f"{q}-{n:03d}",
    "long": lambda q, n: f"{q}-{n:03d}".ljust(256, "x"),
    "accents": lambda q, n: f"{q}-{n:03d}".ljust(256, "é"),
    "Greek": lambda q, n: f"{q}-{n:03d}".ljust(256, "ω"),
    "pictures": lambda q, n: f"{q}-{n:03d}".ljust(256, "🌀"),
}


def filled(rows: Rows, shape: str, arms: int, count: int) -> None:
    """Return rows with this many queries, asked, with texts, and written."""
    for number in range(count):
        place = rows.add(os.urandom(16), arms)
        assert place is not None
        ids = [IDS[shape](number, arm) for arm in range(arms)]
        for arm, candidate in enumerate(ids):
            rows.name(place, arm, candidate)
        place.query = IDS[shape](number, 0) + " as a text"
        place.order = bytes(range(arms))
        place.last = [candidate for candidate in place.ids if candidate is not None]
        place.mask = number
        rows.recount(place)
        raw = msgspec.Raw(msgspec.json.encode(ids))
        rows.remember(place, raw, newest_of(ids))
        place.names()
        place.shelf.words[place.index] = 1  # the system allocates memory on the first write


def made(budget: int) -> Rows:
    return Rows(policy("ts", arms=64), Senses(), 64, 3, 0, budget, bytes(32))


@pytest.mark.parametrize("arms", [2, 8, 64])
@pytest.mark.parametrize("shape", IDS)
def test_what_hangs_on_a_row_is_counted_as_it_is(shape, arms):
    rows = made(1 << 30)
    filled(rows, shape, arms, 50)
    rows.clear()
    gc.collect()
    gc.freeze()  # what other tests have left is not searched again and again
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        filled(rows, shape, arms, 300 if arms < 64 else 80)  # so that it is megabytes, whatever the arms
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert 0.8 * rows.extras < taken < 1.05 * rows.extras, (taken, rows.extras)


PROGRAM = """
import gc, os, sys
from serving.test_memory import filled, made

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

rows = made(48 << 20)
filled(rows, sys.argv[1], 8, 20)
gc.collect()
before = resident()
for _ in range(60):
    filled(rows, sys.argv[1], 8, 200)
    filled(rows, sys.argv[1], 64, 20)
gc.collect()
print(rows.used, resident() - before, len(rows))
"""


@pytest.mark.parametrize(
    "shape", ["short", "pictures", *(pytest.param(shape, marks=pytest.mark.slow) for shape in ("long", "accents", "Greek"))]
)
def test_memory_stays_within_the_budget_while_rows_come_and_go(shape):
    """Memory of the process as the system counts it, including fragmentation."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([SRC, str(ROOT / "tests")])}
    done = subprocess.run([sys.executable, "-c", PROGRAM, shape], capture_output=True, text=True, check=True, env=env)
    used, grown, count = map(int, done.stdout.split())
    assert used <= 1.05 * (48 << 20) and count > 100
    assert used > 0.9 * (48 << 20) or count == 13_200 + 20  # the budget was used up
    assert grown < 1.25 * used + (4 << 20), (grown, used)
