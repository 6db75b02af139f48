"""Synthetic traffic for measuring signals: Poisson requests at given rates, run through the senses and a policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from swerve.core.contract import ALARM, begin, begin_pool, reward
from swerve.core.engine import Entry, decide
from swerve.core.rng import split
from swerve.core.spec import Spec, pack
from swerve.core.tables import Table, full_mask, nested, pool_dtype, row_dtype
from swerve.signals import Senses, answered, reformulated, season_layout, sense, senses_layout, set_up

HOUR, WEEK = 3600.0, 168  # seconds of an hour, hours of a week
#: Unix time at which synthetic traffic begins: a Monday, midnight.
START = 1_767_571_200.0
CLICKED_BIT, REFORMULATED_BIT = 1, 2  # bits of an outcome

Times = NDArray[np.float64]
Indices = NDArray[np.int64]


class Heard(NamedTuple):
    """One loud signal: the query, the index of the signal in the plan, the time, and the level."""

    query: int
    signal: int
    time: float
    level: float


def arrivals(rng: np.random.Generator, rates: Times, begin: float, step: float = HOUR) -> tuple[Times, Indices]:
    """Return requests in the order of time, and their queries: Poisson at `rates[query, step]` per hour, from `begin` on."""
    counts = rng.poisson(rates * (step / HOUR))
    queries = np.repeat(np.arange(len(rates)), counts.sum(axis=1))
    starts = np.concatenate([np.repeat(np.arange(rates.shape[1]), row) for row in counts])
    times = begin + step * (starts + rng.random(len(starts)))
    order = np.argsort(times, kind="stable")
    return times[order], queries[order].astype(np.int64)


@Entry
def listen(
    params: Any, table: Any, seasons: Any, plan: Any, times: Any, queries: Any, outcomes: Any, numbers: Any, x: Any, heard: Any
) -> Any:
    """Run requests through the senses, answered at once; write (request, signal, level) to `heard`, return the lines written."""
    spec, written = params[0], 0
    for t in range(len(times)):
        row, now = table[queries[t]], times[t]
        sense(spec, row, seasons[0], plan, numbers[t], np.nan, np.nan, 1, now, x)
        if outcomes[t] & CLICKED_BIT:
            answered(spec, row, now, 1, now)
        if outcomes[t] & REFORMULATED_BIT:
            reformulated(spec, row, now, now)
        for j in range(len(plan)):
            if x[j] >= spec.crossing_level and written < len(heard):
                heard[written, 0] = t
                heard[written, 1] = j
                heard[written, 2] = x[j]
                written += 1
    return written


class Listener:
    """The senses of several queries under one season, over consecutive periods of traffic."""

    def __init__(self, spec: Senses, queries: int, plan: list[int], numbers: int = 0, now: float = START) -> None:
        self.spec, self.plan, self.numbers = spec, np.array(plan, np.int64), numbers
        self.table = np.zeros(queries, nested(senses_layout(numbers)))
        self.seasons = np.zeros(1, nested(season_layout()))
        set_up.fitting(queries, spec)(pack(spec), self.table, self.seasons, now)
        self.listen = listen.bind(spec)

    def hear(self, times: Times, queries: Indices, outcomes: Indices | None = None, numbers: Times | None = None) -> list[Heard]:
        """Return the loud signals in these requests."""
        if outcomes is None:
            outcomes = np.zeros(len(times), np.int64)
        if numbers is None:
            numbers = np.full((len(times), self.numbers), np.nan)
        lines = np.zeros((len(times), 3))  # request, signal, level
        x = np.zeros(len(self.plan))
        args = (pack(self.spec), self.table, self.seasons, self.plan, times, queries, outcomes, numbers, x, lines)
        count = self.listen(*args)
        return [Heard(int(queries[int(t)]), int(j), float(times[int(t)]), float(level)) for t, j, level in lines[:count]]


@Entry
def set_up_policy(params: Any, rows: Any, pools: Any, words: Any, d: Any) -> None:
    """Initialise the rows and pools of a policy."""
    for i in range(len(rows)):
        begin(params[0], rows[i], words[i])
    for g in range(len(pools)):
        begin_pool(params[0], pools[g], d)


@Entry
def play(
    params: Any, table: Any, seasons: Any, plan: Any, policy: Any, rows: Any, pools: Any, times: Any, queries: Any, luck: Any,
    chances: Any, turns: Any, available: Any, x: Any, alarms: Any,
) -> Any:  # fmt: skip
    """Run requests through the senses and a policy, clicked at once; write alarms to `alarms`, return their number and the regret.

    From `turns[query]` on, results have the click probabilities in reverse order.
    """
    written, regret, last = 0, 0.0, len(chances) - 1
    numbers = x[:0]
    for t in range(len(times)):
        i, now = queries[t], times[t]
        sense(params[0], table[i], seasons[0], plan, numbers, np.nan, np.nan, 0, now, x)
        arm, report = decide(policy[0], rows[i], pools, 0, 1, x, 0, available, now)  # type: ignore[no-untyped-call]
        chance = chances[arm] if now < turns[i] else chances[last - arm]
        regret += chances[0] - chance
        if luck[t] < chance:
            reward(policy[0], rows[i], arm, 1.0, now, now)
            answered(params[0], table[i], now, 1, now)
        if report & ALARM and written < len(alarms):
            alarms[written] = t
            written += 1
    return written, regret


def played(
    spec: Senses, policy: Spec, plan: list[int], times: Times, queries: Indices, chances: list[float], turns: Times, seed: int = 0
) -> tuple[Indices, float]:
    """Return the requests that raise an alarm with this policy, and its regret. `chances` begins with the highest."""
    count = len(turns)
    listener = Listener(spec, count, plan, now=float(times[0]))
    rows: Table = np.zeros(count, row_dtype(policy, len(chances), len(plan)))
    pools: Table = np.zeros(2, pool_dtype(policy, len(plan)))
    words = np.array([split(seed, "policy", i) for i in range(count)], np.uint64)
    set_up_policy.fitting(count, policy)(pack(policy), rows, pools, words, len(plan))
    luck = np.random.default_rng(seed).random(len(times))
    alarms = np.zeros(len(times), np.int64)
    written, regret = play.bind(spec, policy)(
        pack(spec), listener.table, listener.seasons, listener.plan, pack(policy), rows, pools, times, queries, luck,
        np.array(chances), turns, full_mask(len(chances)), np.zeros(len(plan)), alarms,
    )  # fmt: skip
    return alarms[:written], float(regret)
