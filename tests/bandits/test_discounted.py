"""Discounting against twins and another library, and its numbers after very many plays."""

from __future__ import annotations

import numpy as np
import pytest
from twins import forgetting, splitmix
from twins.duel import check_duel
from twins.oracle import Plain

from swerve import DTS, DUCB, Fleet, Thompson
from swerve.bandits.discounted import LARGE

WAYS = pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.03}, {"delay": 5}])


def clothed(bandit):
    return type("Bandit", (Plain,), {"evict": lambda self, arm: self.bandit.evict(arm)})(bandit)


@WAYS
@pytest.mark.parametrize("gamma", [0.9, 0.99, 1.0])
def test_d_ucb_equals_the_twin_round_by_round(gamma, ways):
    check_duel(Fleet(DUCB(gamma, 0.3), queries=1, arms=4), clothed(forgetting.DUCB(4, gamma, 0.3)), 300, seed=3, **ways)


@WAYS
@pytest.mark.parametrize("gamma", [0.5, 0.97])
def test_d_ts_equals_the_twin_round_by_round(gamma, ways):
    twin = forgetting.DTS(4, gamma, splitmix.words(splitmix.named(9, "policy", 0)), 0.5, 2.0)
    check_duel(Fleet(DTS(gamma, 0.5, 2.0), queries=1, arms=4, seed=9), clothed(twin), 200, seed=3, **ways)


def test_without_discount_it_is_thompson_sampling():
    ours, plain = Fleet(DTS(1.0), queries=1, arms=3, seed=4), Fleet(Thompson(), queries=1, arms=3, seed=4)
    for t in range(400):
        one, two = ours.select(0), plain.select(0)
        assert one.arm == two.arm
        if (t * 7 + one.arm) % 3 == 0:
            ours.reward(0, one)
            plain.reward(0, two)


@pytest.mark.parametrize("policy", [DUCB(0.9), DTS(0.5), DTS(1e-3)], ids=repr)
def test_weights_stay_numbers_over_many_plays(policy):
    """At γ = 0.9 the weight doubles every seven plays: without rescaling it would overflow after 7,000."""
    rows, fleet = np.zeros(50_000, np.int64), Fleet(policy, queries=1, arms=3)
    offers = np.ones(50_000, np.int64)
    fleet.select_many(rows, available=offers)  # arms 1 and 2 are never shown
    row = fleet.table[0]
    assert 1.0 <= row.weight <= LARGE / policy.gamma
    assert row.mass[0] / row.weight == pytest.approx(1 / (1 - policy.gamma), rel=1e-6)
    decision = fleet.select(0, available=2)
    fleet.reward(0, decision)
    fleet.select_many(rows, available=offers)
    assert np.isfinite([row.mass, row.earned, row.stamp]).all()
    assert (row.earned <= row.mass).all()
    assert fleet.select(0).arm in (0, 1, 2)


def test_an_arm_that_was_never_played_or_is_long_forgotten_comes_first():
    fleet = Fleet(DUCB(0.5), queries=1, arms=3)
    assert [fleet.select(0).arm for _ in range(3)] == [0, 1, 2]
    for _ in range(5000):
        fleet.select(0, available=0b101)
    assert fleet.table[0].mass[1] == 0.0  # underflowed to 0
    assert fleet.select(0).arm == 1


def test_published_discounts():
    assert DUCB.tuned(30_000, 3).gamma == DTS.tuned(30_000, 3).gamma == 1 - 0.25 * np.sqrt(3 / 30_000)
    assert DUCB.tuned(30_000, 0) == DUCB.tuned(30_000, 1)
    assert DTS.tuned(1, 9).gamma == 0.75


def test_equals_pymab():
    """PyMAB's D-UCB has the same index with c = 4 ξ (its discounted total is 2 at least), and its D-TS the same posterior."""
    pymab = pytest.importorskip("pymab.policies", reason="the peer PyMAB is not installed")
    gamma, dice = 0.97, np.random.default_rng(5)
    peer = pymab.DiscountedUCBPolicy(n_arms=3, c=4 * 0.3, discount_factor=gamma)
    sampler = pymab.DiscountedBernoulliThompsonSamplingPolicy(n_arms=3, discount_factor=gamma)
    fleet = Fleet(DUCB(gamma, 0.3), queries=1, arms=3)
    for t in range(600):
        chances = (0.2, 0.5, 0.7) if t < 300 else (0.8, 0.5, 0.1)
        decision = fleet.select(0)
        if t > 3:
            index = peer.estimates + peer._confidence_bonus()
            assert index[decision.arm] == pytest.approx(index.max())
        value = float(dice.random() < chances[decision.arm])
        fleet.reward(0, decision, value)
        peer.update(action=decision.arm, reward=value)
        sampler.update(action=decision.arm, reward=value)
        row = fleet.table[0]
        assert row.earned[:3] / row.weight == pytest.approx(sampler.successes)
        assert (row.mass - row.earned)[:3] / row.weight == pytest.approx(sampler.failures)
