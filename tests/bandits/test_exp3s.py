"""EXP3.S against the published update."""

from __future__ import annotations

import math

import numpy as np
import pytest
from twins import splitmix
from twins.duel import mask_of
from twins.exp3s import EXP3S as Twin

from swerve import EXP3S, Fleet, SwerveError


@pytest.mark.parametrize(("gamma", "alpha"), [(0.1, 1e-4), (0.5, 0.01), (1.0, 0.0)])
@pytest.mark.parametrize("changing", [False, True])
def test_equals_the_published_update(gamma, alpha, changing):
    fleet = Fleet(EXP3S(gamma, alpha), queries=1, arms=4, seed=5)
    twin = Twin(4, gamma, alpha, splitmix.uniforms(splitmix.named(5, "policy", 0)))
    dice = np.random.default_rng(1)
    for t in range(400):
        offer = sorted(dice.choice(4, dice.integers(1, 5), replace=False).tolist()) if changing else [0, 1, 2, 3]
        decision = fleet.select(0, available=mask_of(offer))
        assert decision.arm == twin.select(offer), f"round {t}"
        value = float(dice.random() < 0.2 * (decision.arm + 1))
        if value:
            fleet.reward(0, decision)
        twin.update(offer, decision.arm, value)
        np.testing.assert_allclose(fleet.table[0].weight[:4], twin.weights, rtol=1e-9, err_msg=f"round {t}")


def test_tunings_are_the_published_ones():
    n, horizon = 5, 30_000
    blind = EXP3S.tuned(n, horizon)
    assert blind.gamma == pytest.approx(math.sqrt(n * math.log(n * horizon) / horizon))
    assert blind.alpha == 1 / horizon
    knowing = EXP3S.tuned(n, horizon, shifts=3)
    # Corollary 8.3: S = shifts + 1 segments
    assert knowing.gamma == pytest.approx(math.sqrt(n * (4 * math.log(n * horizon) + math.e) / ((math.e - 1) * horizon)))
    assert EXP3S.tuned(5, 2).gamma == 1.0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((0, 100), "n = 0 is not allowed; n must be ≥ 1"),
        ((5, 0), "horizon = 0 is not allowed; horizon must be ≥ 1"),
        ((5, 2.5), "horizon = 2.5 is not allowed; horizon must be a whole number ≥ 1"),
        ((5, 100, -1), "shifts = -1 is not allowed; shifts must be ≥ 0"),
    ],
)
def test_a_tuning_for_no_problem_is_refused(args, words):
    with pytest.raises(SwerveError, match=f"^EXP3S.tuned: {words}$"):
        EXP3S.tuned(*args)


def test_weights_that_grow_without_end_are_scaled():
    fleet = Fleet(EXP3S(gamma=1.0, alpha=0.0), queries=1, arms=2)
    for _ in range(2000):
        fleet.reward(0, fleet.select(0, available=0b11))
    weight = fleet.table[0].weight[:2]
    assert np.isfinite(weight).all()
    assert weight.max() > 0


def test_a_new_arm_is_no_outlier_whatever_the_scale_of_the_weights():
    """Only ratios matter: an arm that replaces another must not start 10⁹⁰ times above or below the others."""
    for scale in (1e-90, 1.0, 1e90):
        fleet = Fleet(EXP3S(), queries=1, arms=3)
        fleet.select(0)  # a new arm starts at the average over the last offer
        fleet.table[0].weight[:3] = scale * np.array([1.0, 2.0, 3.0])
        fleet.evict(0, 1)
        weight = fleet.table[0].weight[:3] / scale
        assert 1.0 <= weight[1] <= 3.0, f"scale {scale}: {weight}"


def test_a_late_click_counts_for_the_arms_latest_showing():
    fleet = Fleet(EXP3S(gamma=0.2, alpha=0.0), queries=1, arms=2)
    first = fleet.select(0, available=0b01)
    fleet.select(0, available=0b10)
    fleet.reward(0, first)
    # offered alone, its probability was 1 and n was 1: w grows by e^γ
    assert fleet.table[0].weight[0] == pytest.approx(math.exp(0.2))
