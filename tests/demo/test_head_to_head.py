"""The head-to-head: the same figures as `simulate`, and standings that are seen on the way."""

from __future__ import annotations

import time

import numpy as np
import pytest

from swerve import UCB1, Oracle, Traffic, simulate
from swerve.demo.head_to_head import Standing, head_to_head
from swerve.simulate import Tick

SMALL = Traffic(queries=4, impressions=20_000, shifting=1.0)


def test_the_results_are_those_of_simulate():
    policies = {"ucb1": UCB1(), "ora": Oracle(UCB1())}
    seen: list[list[int]] = []
    ended = head_to_head(
        policies, SMALL, rounds=SMALL.impressions, runs=2, seed=3, look=lambda now: seen.append([standing.done for standing in now])
    )
    assert [standing.name for standing in ended] == list(policies)
    for standing in ended:
        alone = simulate(policies[standing.name], SMALL, runs=2, seed=3)
        assert np.array_equal(standing.results.curves, alone.curves)
        assert standing.done == standing.total == 40_000
        assert standing.mean == alone.regret.mean()
        assert standing.seconds > 0.0
    assert seen[-1] == [40_000, 40_000]  # the last look sees the end


def test_a_standing_is_the_mean_over_the_runs_that_have_begun():
    standing = Standing("x", 100)
    assert standing.mean == 0.0
    standing.hear(Tick(seed=0, rounds=10, done=10, regret=4.0))
    standing.hear(Tick(seed=1, rounds=5, done=5, regret=2.0))
    standing.hear(Tick(seed=0, rounds=10, done=20, regret=6.0))
    assert standing.mean == 4.0
    assert standing.done == 25


def test_an_interruption_ends_all_of_them_soon():
    long = Traffic(queries=4, impressions=2_000_000)
    looks = []

    def look(now):
        looks.append(sum(standing.done for standing in now))
        if looks[-1] > 0:
            raise KeyboardInterrupt

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        head_to_head({"ucb1": UCB1(), "ora": Oracle(UCB1())}, long, rounds=long.impressions, runs=500, seed=0, look=look)
    assert time.perf_counter() - start < 10.0  # 500 runs would take a minute
