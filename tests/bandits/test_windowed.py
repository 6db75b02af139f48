"""Sliding windows against twins and another library."""

from __future__ import annotations

import numpy as np
import pytest
from twins import forgetting, splitmix
from twins.duel import check_duel
from twins.oracle import Plain

from swerve import SWTS, SWUCB, Fleet, SpecError, Thompson
from swerve.core.contract import mean_of, plays_of
from swerve.core.spec import pack

pytestmark = pytest.mark.usefixtures("uncompiled")

WAYS = pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.03}, {"delay": 5}])


def clothed(bandit):
    return type("Bandit", (Plain,), {"evict": lambda self, arm: self.bandit.evict(arm)})(bandit)


@WAYS
@pytest.mark.parametrize("window", [1, pytest.param(30, marks=pytest.mark.compiled), 1000])
def test_sw_ucb_equals_the_twin_round_by_round(window, ways):
    if window == 1:
        ways = {**ways, "delay": 0}  # a click that comes after its window is not learnt, which a duel does not expect
    check_duel(Fleet(SWUCB(window, 0.8), queries=1, arms=4), clothed(forgetting.SWUCB(4, window, 0.8)), 300, seed=3, **ways)


@WAYS
@pytest.mark.parametrize("window", [pytest.param(25, marks=pytest.mark.compiled), 1000])
def test_sw_ts_equals_the_twin_round_by_round(window, ways):
    twin = forgetting.SWTS(4, window, splitmix.words(splitmix.named(9, "policy", 0)), 0.5, 2.0)
    check_duel(Fleet(SWTS(window, 0.5, 2.0), queries=1, arms=4, seed=9), clothed(twin), 200, seed=3, **ways)


def test_a_window_that_never_fills_is_thompson_sampling():
    ours, plain = Fleet(SWTS(500), queries=1, arms=3, seed=4), Fleet(Thompson(), queries=1, arms=3, seed=4)
    for t in range(400):
        one, two = ours.select(0), plain.select(0)
        assert one.arm == two.arm
        if (t * 7 + one.arm) % 3 == 0:
            ours.reward(0, one)
            plain.reward(0, two)


def test_only_the_window_counts():
    spec = SWUCB(window=6)
    fleet = Fleet(spec, queries=1, arms=2)
    for arm, value in [(0, 1.0)] * 5 + [(1, 0.0)] * 4 + [(0, 0.0)]:
        decision = fleet.select(0, available=1 << arm)
        fleet.reward(0, decision, value)
    row = fleet.table[0]
    assert [int(plays_of(spec, row, arm)) for arm in (0, 1)] == [2, 4]
    assert [float(mean_of(spec, row, arm)) for arm in (0, 1)] == [0.5, 0.0]  # one of five clicks is left, and the skip


def test_a_click_for_a_play_that_has_left_the_window_is_dropped():
    fleet = Fleet(SWTS(window=3), queries=1, arms=2)
    old = fleet.select(0, available=1)
    for _ in range(3):
        fleet.select(0, available=2)
    before = fleet.table.tobytes()
    assert fleet.reward(0, old) is False
    assert fleet.table.tobytes() == before


def test_fractions_are_kept_to_a_byte():
    spec = SWUCB(window=10)
    fleet = Fleet(spec, queries=1, arms=1)
    for value in (0.1, 0.25, 0.7):
        fleet.reward(0, fleet.select(0), value)
    assert mean_of(pack(spec)[0], fleet.table[0], 0) == pytest.approx(0.35, abs=1 / 510)


def test_published_windows():
    assert SWUCB.tuned(30_000, 5).window == SWTS.tuned(30_000, 5).window == round(2 * np.sqrt(30_000 * np.log(30_000) / 5))
    assert SWUCB.tuned(30_000, 0) == SWUCB.tuned(30_000, 1)
    assert SWUCB.tuned(1).window == 1
    with pytest.raises(SpecError, match="window"):
        SWTS(window=2**20 + 1)


def test_equals_pymab():
    """PyMAB's SW-UCB has the same index once the window is full (before, it counts one round less), and treats an arm that has left
    the window as played once; its SW-TS has the same posterior.
    """
    pymab = pytest.importorskip("pymab.policies", reason="the peer PyMAB is not installed")
    window, dice = 40, np.random.default_rng(5)
    peer = pymab.SlidingWindowUCBPolicy(n_arms=3, c=0.6, window_size=window)
    sampler = pymab.SlidingWindowBernoulliThompsonSamplingPolicy(n_arms=3, window_size=window)
    fleet = Fleet(SWUCB(window, 0.6), queries=1, arms=3)
    compared = 0
    for t in range(600):
        chances = (0.2, 0.5, 0.7) if t < 300 else (0.8, 0.5, 0.1)
        decision = fleet.select(0)
        if t > window and (peer.counts > 0).all():
            index = peer.estimates + peer._confidence_bonus()
            assert index[decision.arm] == pytest.approx(index.max())
            compared += 1
        value = float(dice.random() < chances[decision.arm])
        fleet.reward(0, decision, value)
        peer.update(action=decision.arm, reward=value)
        sampler.update(action=decision.arm, reward=value)
        assert fleet.table[0].plays[:3].tolist() == sampler.counts.tolist()
        assert (fleet.table[0].earned[:3] / 255).tolist() == sampler.successes.tolist()
    assert compared > 400


def test_it_forgets_what_a_plain_bandit_remembers():
    def late_regret(policy):
        fleet, lost, dice = Fleet(policy, queries=1, arms=2), 0, np.random.default_rng(6)
        for t in range(4000):
            decision = fleet.select(0)
            good = decision.arm == (0 if t < 2000 else 1)
            lost += t >= 2000 and not good
            if dice.random() < (0.9 if good else 0.1):
                fleet.reward(0, decision)
        return lost

    assert late_regret(SWTS(300)) < 0.3 * late_regret(Thompson())
