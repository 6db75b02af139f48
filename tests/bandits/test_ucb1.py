"""UCB1 against its twin, and at the ends of its range."""

from __future__ import annotations

import math

import numpy as np
import pytest
from twins.duel import check_duel
from twins.oracle import Plain
from twins.ucb1 import UCB1 as Twin

from swerve import UCB1, Fleet
from swerve.core import contract
from swerve.core.spec import pack
from swerve.core.tables import row_dtype


def twin(n, **constants):
    return type("Bandit", (Plain,), {"evict": lambda self, arm: self.bandit.evict(arm)})(Twin(n, **constants))


@pytest.mark.parametrize("constants", [{}, {"alpha": 2.0}, {"alpha": 6.0, "t0": 500.0, "plays_offset": 1.0}, {"plays_offset": 0.5}])
@pytest.mark.parametrize("ways", [{}, {"changing": True, "evictions": 0.02}, {"delay": 7}])
def test_equals_the_twin_round_by_round(constants, ways):
    check_duel(Fleet(UCB1(**constants), queries=1, arms=5), twin(5, **constants), 300, seed=1, **ways)


def test_proof_constants_are_the_papers_index():
    spec = UCB1.of_the_proof(1000)
    assert (spec.alpha, spec.t0, spec.plays_offset) == (6.0, 1000.0, 1.0)
    # Algorithm 2 prints 12·√(2·ln(t + T)/(1 + n)): the same number
    assert 6 * math.sqrt(8 * math.log(1003) / 5) == pytest.approx(12 * math.sqrt(2 * math.log(1003) / 5), rel=1e-15)


def test_an_arm_never_played_comes_first_whatever_the_others_earned():
    fleet = Fleet(UCB1(), queries=1, arms=5)
    for expected in range(5):
        decision = fleet.select(0)
        assert decision.arm == expected
        fleet.reward(0, decision)


def test_64_arms_reach_the_sign_bit():
    fleet = Fleet(UCB1(), queries=1, arms=64)
    assert [fleet.select(0).arm for _ in range(64)] == list(range(64))
    assert fleet.select(0, available=1 << 63).arm == 63
    assert fleet.select(0, available=-(2**63)).arm == 63
    fleet.evict(0, 63)
    assert fleet.select(0).arm == 63


def test_millions_of_plays():
    fleet = Fleet(UCB1(), queries=1, arms=5)
    row = fleet.table[0]
    plays = np.array([3_000_000_000, 2_000_000, 1_500_000, 1_000_001, 1_000_000])  # beyond 31 bits
    means = np.array([0.3, 0.3, 0.300001, 0.3002, 0.3001])
    row.t = plays.sum()
    row.plays[:5] = plays
    row.total[:5] = plays * means
    row.mu[:5] = means
    row.width[:5] = 1 / np.sqrt(plays)
    index = means + np.sqrt(2 * math.log(row.t + 1) / plays)
    expected = int(index.argmax())
    decision = fleet.select(0)
    assert decision.arm == expected
    fleet.reward(0, decision)
    assert row.plays[expected] == plays[expected] + 1
    assert row.mu[expected] == pytest.approx((plays[expected] * means[expected] + 1) / (plays[expected] + 1), rel=1e-12)
    fleet.select(0, available=1)
    assert row.plays[0] == 3_000_000_001


def test_kept_means_and_widths_are_those_of_the_counts():
    fleet = Fleet(UCB1(plays_offset=0.5), queries=1, arms=4)
    dice = np.random.default_rng(0)
    for _ in range(500):
        decision = fleet.select(0)
        if dice.random() < 0.3 + 0.1 * decision.arm:
            fleet.reward(0, decision)
    row = fleet.table[0]
    np.testing.assert_array_equal(row.mu[:4], row.total[:4] / row.plays[:4])
    np.testing.assert_array_equal(row.width[:4], 1 / np.sqrt(row.plays[:4] + 0.5))
    assert row.plays.sum() == row.t == 500


def test_questions_about_the_row():
    spec = UCB1()
    row = np.zeros(1, row_dtype(spec, 3, 0))[0]
    contract.begin(spec, row, 0)
    contract.show(spec, row, 1, 0.0)
    contract.show(spec, row, 1, 0.0)
    contract.reward(spec, row, 1, 1.0, 0.0, 0.0)
    packed = pack(spec)[0]
    for asked in (spec, packed):
        assert contract.room(asked, row) == 8
        assert contract.played(asked, row) == 2
        assert (contract.plays_of(asked, row, 1), contract.mean_of(asked, row, 1)) == (2, 0.5)
        assert (contract.plays_of(asked, row, 0), contract.mean_of(asked, row, 0)) == (0, 0.0)
