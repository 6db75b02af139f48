"""Random faults of one setup under random load, each click and each look kept by the test.

    python tests/faults/run.py workers --kills 600 --seed 1

Two runs with one seed do the same faults in the same order. The exit status is 0 if no acknowledged click was lost, counted twice
or put into another record, if every query's history is linearisable, and if every ranking was answered in its deadline by a process
that was neither killed nor stopped. docs/operations.md says more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.far import FarPostgreSQL, FarValkey
from faults.on_postgresql import PostgreSQL, PostgreSQLClocks
from faults.on_valkey import Valkey, ValkeyClocks
from faults.setup import Line, Setup, schedule
from faults.workers import SmallDisk, Workers

SETUPS: dict[str, type[Setup]] = {
    "workers": Workers, "small-disk": SmallDisk, "postgresql": PostgreSQL, "valkey": Valkey, "far-postgresql": FarPostgreSQL,
    "far-valkey": FarValkey, "postgresql-clocks": PostgreSQLClocks, "valkey-clocks": ValkeyClocks,
}  # fmt: skip


def enough(setup: Setup, lines: Iterator[Line], kills: int, seconds: float) -> Iterator[Line]:
    """Yield faults until there were so many kills, or the time is up."""
    for line in lines:
        if setup.kills.total() >= kills or time.monotonic() - setup.began > seconds:
            return
        yield line


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Random faults of a setup under random load.")
    parser.add_argument("setup", choices=SETUPS)
    parser.add_argument("--seed", type=int, default=1, help="of the faults and the load")
    parser.add_argument("--kills", type=int, default=100, help="processes to kill (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most (default: %(default)s)")
    parser.add_argument("--faults", default="", help="which, separated by commas (default: all)")
    parser.add_argument("--schedule", type=int, metavar="N", help="print the first N faults of the seed as JSON lines, and stop")
    parser.add_argument("--folder", type=Path, help="to run in (default: a temporary one, which is kept if something is wrong)")
    given = parser.parse_args()
    kind, names = SETUPS[given.setup], tuple(filter(None, given.faults.split(",")))
    if not set(names) <= set(kind.FAULTS):
        parser.error(f"unknown fault; {given.setup} has {', '.join(kind.FAULTS)}")
    if given.schedule is not None:
        for line in schedule(kind, given.seed, names, given.schedule):
            print(json.dumps(line))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="swerve-faults-")) if given.folder is None else given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        setup = kind(folder, given.seed)
        lines = enough(setup, schedule(kind, given.seed, names), given.kills, 60.0 * given.minutes)
        wrong = setup.run(lines, lambda line: print(json.dumps(line), file=sys.stderr, flush=True))
    except pytest.skip.Exception as why:
        print(why)
        return 2
    print(setup.text())
    if wrong:
        print(f"the logs are kept in {folder}")
    elif given.folder is None:
        shutil.rmtree(folder)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
