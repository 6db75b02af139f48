"""The simple testable bandit against its twin."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from twins import splitmix
from twins.duel import check_duel, mask_of
from twins.explore_first import ExploreFirst as Twin
from twins.oracle import Plain
from twins.ucb1 import UCB1 as UCB1Twin

from swerve import UCB1, ExploreFirst, Fleet
from swerve.core.contract import guess


def same_guess(fleet, twin, now):
    plus, minus = guess(fleet.policy, fleet.table[0])
    assert (int(plus), int(minus)) == tuple(map(mask_of, twin.bandit.guess())), f"round {now}"


@pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.03}])
def test_equals_the_twin_round_by_round_with_its_guess(ways):
    spec = ExploreFirst(UCB1(), length=60, epsilon=0.3)
    bandit = Twin(UCB1Twin(5), 60, 0.3, splitmix.uniforms(splitmix.named(2, "policy", 0)))
    twin = type("Bandit", (Plain,), {"evict": lambda self, arm: self.bandit.evict(arm)})(bandit)
    check_duel(Fleet(spec, queries=1, arms=5, seed=2), twin, 150, seed=4, check=same_guess, **ways)


def test_the_first_plays_are_uniform_over_what_is_on_offer():
    fleet = Fleet(ExploreFirst(UCB1(), length=5000), queries=1, arms=5)
    arms = [fleet.select(0, available=0b10110).arm for _ in range(3000)]
    counts = np.bincount(arms, minlength=5)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert stats.chisquare(counts[[1, 2, 4]]).pvalue > 0.001
