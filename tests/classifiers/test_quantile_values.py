"""The quantile box and unusual values: codes that repeat beyond its sides, extreme values, missing values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from classifiers.absorbing import HIGH, LONG, draws, settled, shown

from swerve import Learner, QuantileBox, SwerveError
from swerve.core.contract import clear, heed, merge, predict

# ---------------------------------------------------------------- codes


def coded(count, code, share, seed=0):
    """Return uniform values, of which a share is replaced by one number."""
    contexts, dice = draws("uniform", count, seed=seed), np.random.default_rng(seed + 1)
    contexts[dice.random(count) < share] = code
    return contexts


@pytest.mark.parametrize("code", [1.2, 1.5, -1.0, 40.0])
def test_a_value_that_repeats_beyond_the_sides_is_soon_no_alarm(code):
    learner = Learner(QuantileBox(), d=1)
    alarms = shown(learner, coded(60_000, code, 0.01))
    assert alarms.sum() <= 6
    assert not alarms[2000:].any()
    assert not learner.predict([code])
    assert learner.predict([code + 0.01])
    assert learner.predict([1.3])
    assert learner.predict([-0.3])


@pytest.mark.parametrize(("share", "silent"), [(0.001, False), (0.003, False), (0.008, True), (0.015, True)])
def test_a_code_is_as_common_as_its_share_says(share, silent):
    learner = settled(coded(LONG, 1.5, share))
    assert learner.predict([1.5]) == (not silent)
    assert settled(coded(LONG, 1.5, share), code_share=1.0).predict([1.5])


def test_a_code_that_is_no_longer_sent_becomes_a_surprise_again():
    learner = settled(coded(20_000, 1.5, 0.01))
    assert not learner.predict([1.5])
    shown(learner, draws("uniform", 20_000, seed=9))
    assert learner.predict([1.5])


def test_codes_are_found_among_other_values_beyond_the_sides():
    contexts, dice = draws("uniform", LONG), np.random.default_rng(4)
    odds = dice.random(LONG)
    contexts[odds < 0.01] = 1.5
    contexts[(odds > 0.01) & (odds < 0.016), 0] = 2.0 + dice.random(((odds > 0.01) & (odds < 0.016)).sum())
    learner = settled(contexts)
    assert not learner.predict([1.5])
    assert learner.predict([2.5])


def test_a_flag_that_is_rarely_set_is_an_alarm_every_time():
    """Zeros, with a 1 in every thousandth context: there is no variation to learn, and every 1 is an alarm."""
    contexts = np.zeros((50_000, 1))
    contexts[500::1000] = 1.0
    alarms = shown(Learner(QuantileBox(), d=1), contexts)
    assert alarms[500::1000].all()
    assert alarms.sum() == 50


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_a_value_on_which_a_quantile_comes_to_lie_is_no_alarm(share):
    """For example 0 for a missing measurement: the quantile oscillates around it by one step."""
    assert not shown(Learner(QuantileBox(), d=1), coded(60_000, 0.0, share))[5000:].any()


@pytest.mark.parametrize("share", [0.01, 0.025, 0.06])
def test_a_feature_that_rarely_differs_from_zero(share):
    """Rarer than `outer_tail`, it is always an alarm; more frequent, it becomes usual, so its deviation must not shrink to 0."""
    contexts, dice = np.zeros((LONG, 1)), np.random.default_rng(6)
    rare = dice.random(LONG) < share
    contexts[rare, 0] = 1.0 + dice.random(rare.sum())
    learner = Learner(QuantileBox(), d=1)
    alarms = shown(learner, contexts)
    if share < 0.02:
        assert (alarms == rare)[1000:].all()
    else:
        assert learner.pools[0].spread[0] == pytest.approx(2.0 * share * (1.0 - share) * 1.5, rel=0.4)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
def test_values_any_distance_away_do_not_move_the_sides(far):
    dice = np.random.default_rng(7)
    learner = settled(dice.random((LONG, 1)))
    contexts = dice.random((50_000, 1))
    bad = np.flatnonzero(dice.random(50_000) < 0.01)
    contexts[bad, 0] = far * (1.0 + dice.random(len(bad)))  # all different, so no codes
    for start in range(0, 50_000, 500):
        shown(learner, contexts[start : start + 500])
        assert learner.pools[0].high[0] < 1.5
        assert learner.pools[0].low[0] > -0.5


def test_a_positive_context_is_heeded_without_being_absorbed():
    learner = settled(draws("uniform", 2000))
    spec, (pool, delta) = learner.classifier, learner.pools
    before = pool.seen, pool.high[0]
    for sighting in range(12):
        assert predict(spec, pool, delta, np.array([1.5]), 0) == (sighting < 10)  # 0.5 % of 2,000
        if heed(spec, pool, delta, np.array([1.5])):
            merge(spec, pool, delta)
            clear(spec, delta)
    assert (pool.seen, pool.high[0]) == before
    assert predict(spec, pool, delta, np.array([1.6]), 0)


# ---------------------------------------------------------------- missing values


def test_quantiles_come_to_lie_where_the_values_that_are_there_say():
    contexts = draws("uniform", 100_000, 2)
    contexts[np.random.default_rng(1).random(100_000) < 0.7, 1] = math.nan
    pool = settled(contexts).pools[0]
    assert pool.high[1] == pytest.approx(HIGH["uniform"], abs=0.1)
    only = settled(np.ascontiguousarray(contexts[~np.isnan(contexts[:, 1]), 1:])).pools[0]
    for name in ("middle", "spread", "low_outer", "low_inner", "high_inner", "high_outer", "low", "high"):
        assert pool[name][1] == only[name][0]


def test_every_feature_has_its_own_warm_up():
    contexts = draws("uniform", 1000, 2)
    contexts[:900, 1] = math.nan
    learner = settled(contexts)
    assert learner.predict([9.0, math.nan])
    assert not learner.predict([0.5, 9.0])
    assert learner.blame([1.3, 9.0]) == 0
    shown(learner, draws("uniform", 100, 2, seed=1))
    assert learner.predict([0.5, 9.0])


def test_the_inner_quantiles_lie_inside():
    with pytest.raises(SwerveError, match=r"inner_tail = 0\.02 is not allowed; inner_tail must be > outer_tail"):
        QuantileBox(inner_tail=0.02)
