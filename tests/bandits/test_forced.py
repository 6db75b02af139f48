"""Forced exploration against the twin, and its rate."""

from __future__ import annotations

import numpy as np
import pytest
from twins import splitmix
from twins.duel import check_duel
from twins.oracle import Plain
from twins.restarting import Forced as Twin
from twins.ucb1 import UCB1 as UCB1Twin

from swerve import EXP3S, UCB1, Fleet, Forced, SpecError


@pytest.mark.parametrize("order", ["cycle", "random"])
@pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.02}, {"delay": 5}])
def test_equals_the_twin_round_by_round(order, ways):
    bandit = Twin(UCB1Twin(4), 0.3, order, uniform=splitmix.uniforms(splitmix.named(9, "policy", 0)))
    twin = type("Bandit", (Plain,), {"evict": lambda self, arm: self.bandit.evict(arm)})(bandit)
    check_duel(Fleet(Forced(UCB1(), 0.3, order), queries=1, arms=4, seed=9), twin, 300, seed=3, **ways)


@pytest.mark.parametrize(("order", "slack"), [("cycle", 0.002), ("random", 0.02)])
@pytest.mark.parametrize("rate", [0.05, 0.4, 1.0])
def test_every_arm_gets_its_share(order, slack, rate):
    """The bandit would always play arm 0, the only one that is ever clicked: the others get rate / K each."""
    rounds = 4000
    fleet = Fleet(Forced(UCB1(alpha=1e-9), rate, order), queries=1, arms=4)
    count = np.zeros(4)
    for _ in range(rounds):
        decision = fleet.select(0)
        count[decision.arm] += 1
        if decision.arm == 0:
            fleet.reward(0, decision)
    assert count[1:] / rounds == pytest.approx(rate / 4, abs=slack)


def test_the_rate_grows_with_the_root_of_the_number_of_starts():
    fleet = Fleet(Forced(UCB1(alpha=1e-9), 0.02, rate_grows=True), queries=1, arms=2)
    shares = []
    for starts in range(1, 10):
        arms = []
        for _ in range(1000):
            decision = fleet.select(0)
            arms.append(decision.arm)
            if decision.arm == 0:
                fleet.reward(0, decision)
        shares.append(np.mean(arms))
        assert fleet.table[0].starts == starts
        fleet.restart(0)
    assert shares[8] / shares[0] == pytest.approx(3.0, rel=0.15)


def test_a_bandit_that_keeps_the_odds_of_the_round_stays_sound():
    """EXP3.S divides by the probability of the arm that was played, so a forced arm needs one too."""
    fleet = Fleet(Forced(EXP3S(), 0.5), queries=1, arms=3)
    for _ in range(300):
        decision = fleet.select(0)
        fleet.reward(0, decision)
    assert np.isfinite(fleet.table[0].bandit.weight).all()


def test_a_rate_outside_its_range_is_refused():
    with pytest.raises(SpecError, match="rate"):
        Forced(UCB1(), 0.0)
    with pytest.raises(SpecError, match="order must be one of cycle, random"):
        Forced(UCB1(), 0.1, "often")
