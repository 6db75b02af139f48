"""Measure the cost of a compiled call from Python by the form of its hyper-parameters (docs/core.md quotes the figures).

Compares a named tuple, a nested named tuple, and the packed record that Swerve uses, on the same work (an index over 5 arms),
interleaved; prints medians.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numba
import numpy as np

from swerve import UCB1
from swerve.core.spec import pack
from swerve.core.tables import row_dtype

ARMS = 5
AVAILABLE = (1 << ARMS) - 1
CALLS, TURNS = 20_000, 12  # per measurement; the first turn compiles and is not counted
MICRO = 1e6


class Flat(NamedTuple):
    alpha: float
    t0: float


class Nested(NamedTuple):
    bandit: Flat
    epsilon: float
    length: int


@numba.njit
def work(alpha, t0, row, available):
    scale = alpha * np.sqrt(8.0 * np.log(t0 + row.t + 2.0))
    best, chosen = -1.0, -1
    for arm in range(8):
        if (available >> arm) & 1:
            index = row.mu[arm] + scale * row.width[arm]
            if index > best:
                best, chosen = index, arm
    return chosen


@numba.njit
def with_tuple(spec, table, i, available):
    return work(spec.alpha, spec.t0, table[i], available)


@numba.njit
def with_nested(spec, table, i, available):
    return work(spec.bandit.alpha, spec.bandit.t0, table[i], available)


@numba.njit
def with_record(params, table, i, available):
    return work(params[0].alpha, params[0].t0, table[i], available)


def main() -> None:
    table = np.zeros(4, row_dtype(UCB1(), ARMS, 0))
    ways = {
        "named tuple": (with_tuple, Flat(0.5, 0.0)),
        "nested named tuple": (with_nested, Nested(Flat(0.5, 0.0), 0.3, 200)),
        "packed record": (with_record, pack(UCB1())),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS):
        for name, (function, spec) in ways.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                function(spec, table, 1, AVAILABLE)
            if turn > 0:
                seconds[name].append((time.perf_counter() - start) / CALLS)
    record = statistics.median(seconds["packed record"])
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{name:20} {median * MICRO:5.2f} µs a call   {median / record:4.1f} × the record")


if __name__ == "__main__":
    main()
