"""Thompson sampling against a twin that draws from the same stream of words."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from twins import splitmix
from twins.duel import check_duel
from twins.oracle import Plain
from twins.thompson import Thompson as Twin

from swerve import Fleet, Thompson


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.5, 2.0)])
@pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.02}, {"delay": 5}])
def test_equals_the_twin_round_by_round(a, b, ways):
    bandit = Twin(4, splitmix.words(splitmix.named(9, "policy", 0)), a, b)
    twin = type("Bandit", (Plain,), {"evict": lambda self, arm: self.bandit.evict(arm)})(bandit)
    check_duel(Fleet(Thompson(a, b), queries=1, arms=4, seed=9), twin, 200, seed=3, **ways)


def test_plays_each_arm_with_the_probability_that_it_is_the_best():
    queries = 4000
    fleet = Fleet(Thompson(), queries=queries, arms=2)
    rows = np.arange(queries)
    for arm, clicks in ((0, 3), (1, 5)):
        for k in range(10):
            shown = fleet.select_many(rows, available=np.full(queries, 1 << arm))
            fleet.update_many(rows, shown, np.full(queries, float(k < clicks)))
    grid = np.linspace(0, 1, 20_001)
    expected = np.trapezoid(stats.beta(6, 6).pdf(grid) * stats.beta(4, 8).cdf(grid), grid)
    chosen = fleet.select_many(rows).arms
    assert stats.binomtest(int(chosen.sum()), queries, expected).pvalue > 0.001


def test_a_weak_prior_is_no_trap():
    """A gamma draw of a tiny shape underflows to zero, and 0/0 is not a probability."""
    fleet = Fleet(Thompson(a=1e-4, b=1e-4), queries=1, arms=3)
    for _ in range(200):
        decision = fleet.select(0)
        if decision.arm == 1:
            fleet.reward(0, decision)
    assert decision.arm == 1  # the only arm that was ever clicked
    assert np.isfinite(fleet.table[0].click_scale[:3]).all()
