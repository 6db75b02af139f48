"""Measure what several workers lose that exchange what they learn once a second: the regret of eight workers over that of one.

python tools/measure_workers.py [RUNS] [WORKLOAD …]

The same simulated traffic is played three times: by one worker; by `WORKERS`, among which the queries are divided at random and
which exchange each simulated second what they contribute, at `RATE` requests a second in all; and by as many without any exchange.
Runs are paired by their seeds.
"""

from __future__ import annotations

import random
import sys
import time

import numpy as np

from swerve.environments import workload, world
from swerve.experiments.intervals import ratio_of
from swerve.policies import policy
from swerve.simulate.sessions import Session
from swerve.simulate.workers import Workers

WORKERS = 8
#: Requests a second, of all workers: a shop with some eight million searches a day.
RATE = 100
#: Runs, and the seed of the first one: those of `swerve compare`.
RUNS, SEED = 20, 100
#: The policy of the service, on the shifting half of the queries. Pages have sixty queries, as they take longer.
WORKLOADS = {
    "clear-noisy": {"queries": 100, "impressions": 300_000},
    "mixed": {"queries": 100, "impressions": 300_000},
    "mixed-noisy": {"queries": 100, "impressions": 300_000},
    "page-clear-noisy": {"queries": 60, "impressions": 120_000},
    "page-mixed": {"queries": 60, "impressions": 120_000},
}
SHIFTING = 0.5


def played(name: str, seed: int, queries: int, impressions: int) -> tuple[float, float, float]:
    """Return the regret of one worker, of several that exchange, and of several that do not."""
    instance = world(workload(name, SHIFTING, queries=queries, impressions=impressions), seed)
    spec = policy("swerve", arms=instance.arms, slots=getattr(instance.spec, "slots", 1))
    rounds = len(instance.schedule)
    alone = Session(spec, instance)
    alone.play(rounds)
    owners = [number % WORKERS for number in range(queries)]
    random.Random(seed).shuffle(owners)
    together, apart = Workers(spec, instance, owners), Workers(spec, instance, owners)
    while together.done < rounds:
        together.play(min(together.done + RATE, rounds))
        together.exchange()
    apart.play(rounds)
    return alone.regret, together.regret, apart.regret


def main(runs: int = RUNS, *names: str) -> None:
    """Print a line of the table for each workload."""
    print("| workload | 8 workers that exchange each second, regret ÷ that of one | 8 workers without exchange |")
    print("|---|---|---|")
    for name in names or WORKLOADS:
        began = time.process_time()
        found = np.array([played(name, SEED + run, **WORKLOADS[name]) for run in range(runs)])
        cells = []
        for column in (1, 2):
            ratio, low, high = ratio_of(found[:, column], found[:, 0])
            assert ratio is not None
            cells.append(f"{ratio:.3f}" if low is None or high is None else f"{ratio:.3f} ({low:.3f} to {high:.3f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        print(f"{name}: {time.process_time() - began:.0f} s of processor time", file=sys.stderr)


if __name__ == "__main__":
    main(*[int(word) if word.isdecimal() else word for word in sys.argv[1:]])  # type: ignore[arg-type]
