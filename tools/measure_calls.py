"""What a compiled call costs from Python by how it is given the hyper-parameters (docs/core.md quotes these figures).

Named tuple, named tuple inside another, and the packed record that Swerve uses: the same work (an index over 5 arms), interleaved,
median.
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
    table = np.zeros(4, row_dtype(UCB1(), 5, 0))
    ways = {
        "named tuple": (with_tuple, Flat(0.5, 0.0)),
        "nested named tuple": (with_nested, Nested(Flat(0.5, 0.0), 0.3, 200)),
        "packed record": (with_record, pack(UCB1())),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    calls = 20_000
    for turn in range(12):
        for name, (function, spec) in ways.items():
            start = time.perf_counter()
            for _ in range(calls):
                function(spec, table, 1, 31)
            if turn > 0:  # the first turn compiles
                seconds[name].append((time.perf_counter() - start) / calls)
    record = statistics.median(seconds["packed record"])
    for name, values in seconds.items():
        print(
            f"{name:20} {statistics.median(values) * 1e6:5.2f} µs a call   {statistics.median(values) / record:4.1f} × the record"
        )


if __name__ == "__main__":
    main()
