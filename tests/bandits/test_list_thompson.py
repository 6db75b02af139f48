"""Thompson sampling on result pages: the credit of a skip, and the estimates that follow from it."""

from __future__ import annotations

import numpy as np
import pytest
from bandits.paging import Desk
from scipy import stats
from twins import clicks as twin

from swerve import Pages, simulate
from swerve.bandits import ListThompson, Thompson
from swerve.core.examination import CLICKS, EXAMINATION

ATTRACTION = [0.6, 0.3, 0.2, 0.5, 0.1, 0.3]


@pytest.mark.parametrize("model", CLICKS)
def test_whole_counts_estimate_the_attractiveness_of_every_slot(model):
    """One page is shown repeatedly: clicks ÷ plays of each arm converge to its attractiveness, in any slot."""
    desk = Desk(ListThompson(clicks=model), 6, 6)
    for t in range(1, 4001):
        desk.show(range(6))
        desk.click(*twin.clicks(model, ATTRACTION, 3, 0, t))
    desk.settle()
    plays, total = desk.row.plays[:6].astype(float), desk.row.total[:6]
    assert (plays == plays.round()).all()
    error = np.sqrt(np.array(ATTRACTION) * (1 - np.array(ATTRACTION)) / plays)
    assert (np.abs(total / plays - ATTRACTION) < 4 * error + 0.01).all()
    if model == "cascade":
        assert plays[0] == 4000, "the top is always looked at"
        assert plays[5] == sum(not any(s < 5 for s in twin.clicks(model, ATTRACTION, 3, 0, t)) for t in range(1, 4001))


def test_a_skip_is_a_play_with_the_probability_that_people_looked():
    """With a fixed posterior, a share γ(1 − â)/(1 − γâ) of the skips counts."""
    counted = 0
    seen = float(EXAMINATION[0, 4, 0])
    for seed in range(600):
        desk = Desk(ListThompson(), 6, 5, seed=seed)
        for _ in range(2):  # arm 5: two plays, one click, in the top slot, where every play counts
            desk.show([5])
            desk.click(*([0] if desk.number == 1 else []))
        desk.show([0, 1, 2, 3, 5])
        desk.settle()
        counted += int(desk.row.plays[5]) - 2
    mean = 2 / 4  # Beta(1 + 1, 1 + 1)
    assert stats.binomtest(counted, 600, seen * (1 - mean) / (1 - seen * mean)).pvalue > 0.001


def test_one_slot_is_plain_thompson_sampling():
    from swerve import Traffic

    problem = Traffic(queries=2, impressions=1000, results=4)
    ours, plain = (simulate(policy, problem, runs=1, points=5) for policy in (ListThompson(), Thompson()))
    assert ours.curves.tolist() == plain.curves.tolist()


@pytest.mark.parametrize("model", CLICKS)
def test_with_the_true_table_regret_vanishes_without_events(model):
    quiet = Pages(queries=4, impressions=80_000, results=8, slots=4, clicks=model, events_low=0, events_high=0)
    curve = simulate(ListThompson(clicks=model), quiet, runs=2, points=4).curves.mean(axis=0)
    assert curve[3] - curve[2] < 0.25 * curve[0]
