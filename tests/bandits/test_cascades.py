"""CascadeKL-UCB, CascadeTS and dcmKL-UCB: their counts, and the published regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bandits.paging import Desk

from swerve import Pages, simulate
from swerve.bandits import DCMKLUCB, CascadeKLUCB, CascadeThompson
from swerve.environments import world


@pytest.mark.parametrize(("policy", "read"), [(CascadeKLUCB(), 2), (CascadeThompson(), 2), (DCMKLUCB(), 4)])
def test_slots_below_the_last_click_that_counts_are_not_evidence(policy, read):
    desk = Desk(policy, 6, 5)
    page = desk.page()
    desk.click(1, 3)
    desk.settle()
    plays, total = ([int(values[arm]) for arm in page] for values in (desk.row.plays, desk.row.total))
    assert plays == [1] * read + [0] * (5 - read)
    assert total == [0, 1, 0, 1, 0][:read] + [0] * (5 - read)
    page = desk.page()
    before = desk.row.plays.copy()
    desk.settle()  # no click: the whole page was read
    assert [int(desk.row.plays[arm] - before[arm]) for arm in page] == [1] * 5


def test_bounds_are_those_of_kl_ucb():
    """Bounds equal those found by bisection of the definition: n kl(mean, q) ≤ ln t + 3 ln ln t."""
    desk = Desk(CascadeKLUCB(), 4, 4)
    for t in range(40):
        page = desk.page()
        desk.click(*[slot for slot, arm in enumerate(page) if (t * (arm + 1)) % 7 < arm])
    desk.settle()
    desk.page()
    t = int(desk.row.t)
    level = math.log(t + 1) + 3 * math.log(math.log(t + 1))
    for arm in range(4):
        n, mean = int(desk.row.plays[arm]), float(desk.row.total[arm] / desk.row.plays[arm])
        low, high = mean, 1.0
        for _ in range(60):
            q = (low + high) / 2
            kl = sum(p * math.log(p / r) for p, r in ((mean, q), (1 - mean, 1 - q)) if p > 0)
            low, high = (q, high) if n * kl <= level else (low, q)
        assert float(desk.row.scores[arm]) == pytest.approx(low, abs=1e-6)


def kl(p, q):
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


@pytest.mark.parametrize("policy", [CascadeKLUCB(), CascadeThompson()], ids=["kl-ucb", "ts"])
def test_regret_on_a_stationary_cascade_is_below_the_published_bound_and_logarithmic(policy):
    """Kveton et al., Theorem 3: Σ over the arms outside the best page of Δ (1 + ln(1/Δ)) / kl(w, w_K), times ln n + 3 ln ln n."""
    rounds = 100_000
    problem = Pages(queries=1, impressions=rounds, results=8, slots=3, clicks="cascade", value="click", events_low=0, events_high=0)
    found = simulate(policy, problem, runs=6, points=10)
    bounds = []
    for seed in range(6):
        chances = np.sort(world(problem, seed).segments["chance"][0][:8])[::-1]
        gaps = [(chances[2] - w, kl(w, chances[2])) for w in chances[3:]]
        growth = math.log(rounds) + 3 * math.log(math.log(rounds))
        bounds.append(sum(gap * (1 + math.log(1 / gap)) / distance for gap, distance in gaps) * growth)
    assert found.regret.mean() < np.mean(bounds)
    curve = found.curves.mean(axis=0)
    assert curve[9] < 1.25 * curve[4], "the second half costs little: a square root would cost 1.41, a constant rate 2"


def test_several_clicks_teach_dcm_faster():
    """With several clicks per page, a cascade model ignores everything below the first click."""
    problem = Pages(queries=4, impressions=16_000, clicks="dcm", results=8, slots=5, events_low=0, events_high=0)
    ours, cascade = (simulate(policy, problem, runs=4, points=1).regret.mean() for policy in (DCMKLUCB(), CascadeKLUCB()))
    assert ours < 0.9 * cascade
