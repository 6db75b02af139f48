"""The quantile box: the limits of its sides, its robustness, and the contexts that cannot hide an event from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from classifiers.absorbing import HIGH, LONG, draws, settled, shown
from twins.quantile import QuantileBox as Twin

from swerve import Learner, QuantileBox, SwerveError
from swerve.classifiers.quantile import DECAY, HEADSTART, LONG_STEP, SETTLED, STEP
from swerve.core.contract import absorb, merge


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"warmup_contexts": 1},
        {"outer_tail": 0.1, "inner_tail": 0.3, "tail_factor": 0.2, "warmup_contexts": 20},
        {"min_margin": 0.5, "warmup_contexts": 50},
        {"tail_factor": 0.0},
        {"code_share": 0.05},
        {"code_share": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_equals_the_twin(named, missing):
    dice = np.random.default_rng(3)
    contexts = np.stack([dice.random(4500), 1e4 * dice.normal(size=4500), np.round(dice.exponential(size=4500))], axis=1)
    contexts[dice.random(4500) < 0.01, 0] = 1.7  # a code
    contexts[3000::50, 0] = 1e3 * dice.random(30)  # and extreme values
    contexts[dice.random(contexts.shape) < missing] = math.nan
    learner, twin = Learner(QuantileBox(**named), d=3), Twin(3, **named)
    alarms = shown(learner, contexts)
    for i, x in enumerate(contexts.tolist()):
        assert alarms[i] == twin.predict(x), f"context {i}"
        twin.absorb(x)
    for j, feature in enumerate(twin.features):
        assert learner.pools[0].high[j] == pytest.approx(feature.bound(1), rel=1e-9)
        assert learner.pools[0].low[j] == pytest.approx(feature.bound(-1), rel=1e-9)
    assert alarms.any()


@pytest.mark.parametrize("kind", HIGH)
def test_the_sides_lie_where_the_tail_says(kind):
    contexts = draws(kind, 100_000)
    learner = settled(contexts)
    deviation = np.abs(contexts - contexts.mean()).mean()
    assert learner.pools[0].high[0] == pytest.approx(HIGH[kind], abs=0.5 * deviation)
    low = {"uniform": 1.0 - HIGH["uniform"], "normal": -HIGH["normal"], "exponential": 0.0202 - 1.5 * (0.1054 - 0.0202)}[kind]
    assert learner.pools[0].low[0] == pytest.approx(low, abs=0.5 * deviation)


@pytest.mark.parametrize(("kind", "expected"), [("uniform", 0.0), ("normal", 1.3e-3), ("exponential", 1.8e-3)])
def test_false_alarms_are_as_rare_as_the_tail_is_thin(kind, expected):
    """Five features without events: the share of false alarms is five times the share of one feature beyond its sides."""
    for seed in range(3):
        share = shown(Learner(QuantileBox(), d=5), draws(kind, 60_000, 5, seed))[20_000:].mean()
        assert 5 * expected / 2 <= share <= 5 * expected * 1.5


def test_right_after_the_warm_up_a_feature_that_keeps_its_range_raises_no_alarm():
    """Quantiles of two hundred values are uncertain: 1,280 features, each asked about the 800 values after its warm-up."""
    alarms = [shown(Learner(QuantileBox(), d=64), draws("uniform", 1000, 64, seed)).sum() for seed in range(20)]
    assert sum(alarms) == 0


def test_right_after_the_warm_up_a_normal_feature_has_fewer_false_alarms_than_its_quantiles_alone_would_give():
    """Its quantiles have not arrived yet: 1.9 % of the contexts with settled margins, at most 1.2 % with wider ones."""
    early = [shown(Learner(QuantileBox(), d=1), draws("normal", 400, seed=seed))[200:].mean() for seed in range(500)]
    assert sum(early) / len(early) < 0.012


def test_the_wider_sides_of_the_first_contexts_hide_no_clear_excess():
    """Four tenths of a range beyond are positive as soon as the warm-up is over."""
    for seed in range(20):
        learner = settled(draws("uniform", 200, 8, seed))
        for x in (1.4, -0.4):
            assert all(learner.predict([0.5] * j + [x] + [0.5] * (7 - j)) for j in range(8))


def test_scales_do_not_matter():
    """Scaling by powers of 2 changes no bit of the result; offsets and other scales change no alarm."""
    contexts = draws("normal", 20_000, 3, seed=5)
    contexts[::500, 1] *= 4.0
    base = Learner(QuantileBox(), d=3)
    expected = shown(base, contexts)
    assert expected[::500].mean() > 10 * expected.mean()
    binary = np.array([2.0**-20, 1.0, 2.0**20])
    other = Learner(QuantileBox(), d=3)
    assert (shown(other, contexts * binary) == expected).all()
    assert (other.pools[0].high[:3] == base.pools[0].high[:3] * binary).all()
    assert (shown(Learner(QuantileBox(), d=3), contexts * [1e-6, 1.0, 1e6] + [0.0, 10.0, 1e6]) == expected).all()


def test_constant_features_say_nothing_until_they_move():
    contexts = draws("uniform", 10_000, 3)
    contexts[:, 1], contexts[:, 2] = 7.3, 0.0
    learner = Learner(QuantileBox(), d=3)
    assert not shown(learner, contexts).any()
    assert learner.predict([0.5, 7.4, 0.0])
    assert learner.predict([0.5, 7.3, -1e-9])
    assert not learner.predict([0.5, 7.3, 0.0])
    contexts[:, 1] += draws("uniform", 10_000, seed=1)[:, 0]
    assert not shown(learner, contexts)[-5000:].any()  # a constant feature that begins to vary is followed
    assert learner.predict([0.5, 9.0, 0.0])


def test_correlated_features_raise_no_more_false_alarms_than_independent_ones():
    alone = shown(Learner(QuantileBox(), d=1), draws("normal", 30_000))
    copies = np.repeat(draws("normal", 30_000), 4, axis=1) * [1.0, -1.0, 2.0, -0.5]
    assert (shown(Learner(QuantileBox(), d=4), copies) == alone).all()
    shared, own = draws("normal", 30_000), draws("normal", 30_000, 4, seed=1)
    mixed = shown(Learner(QuantileBox(), d=4), math.sqrt(0.9) * shared + math.sqrt(0.1) * own)
    assert 0 < mixed.sum() <= 1.2 * shown(Learner(QuantileBox(), d=4), own).sum()


def test_one_of_forty_features_is_enough_and_is_named():
    contexts = draws("uniform", 20_000, 40)
    learner = Learner(QuantileBox(), d=40)
    assert not shown(learner, contexts)[5000:].any()
    for j in (0, 17, 39):
        for value in (1.6, -0.6):
            x = np.full(40, 0.5)
            x[j] = value
            assert learner.predict(x)
            assert learner.blame(x) == j


def test_blame_compares_features_by_their_own_spread():
    learner = settled(draws("uniform", 20_000, 2) * [1.0, 1000.0])
    assert learner.blame([3.0, 1500.0]) == 0  # three ranges beyond, against half a range
    assert learner.blame([1.5, 3000.0]) == 1


@pytest.mark.parametrize("speed", [1e-5, -1e-5])
def test_a_slow_drift_is_followed_and_a_sudden_excess_is_still_one(speed):
    """The drift is one range of the feature in 100,000 contexts; every 100th context is half a range beyond the current edge.

    The trailing side follows by at most outer_tail · 8 / 2048 mean deviations per context: for uniform values, 2e-5 of their range.
    """
    learner = settled(draws("uniform", LONG))
    moved = speed * np.arange(100_000)
    contexts = draws("uniform", 100_000, seed=1) + moved[:, None]
    contexts[::200, 0] = 1.5 + moved[::200]
    contexts[100::200, 0] = -0.5 + moved[100::200]
    alarms = shown(learner, contexts)
    events = np.arange(100_000) % 100 == 0
    assert alarms[events].all()
    assert alarms[~events].mean() < 1e-3


def test_a_new_level_becomes_the_usual_one():
    contexts = draws("uniform", 20_000)
    contexts[10_000:] += 3.0
    alarms = shown(Learner(QuantileBox(), d=1), contexts)
    assert alarms[10_000:10_050].all()
    assert not alarms[12_000:].any()


@pytest.mark.parametrize("where", ["one feature", "all features", "both sides"])
@pytest.mark.parametrize("far", [1.3, 3.0, 100.0])
def test_one_context_in_a_hundred_hides_no_event(where, far):
    """After the box has settled, a value a quarter of a range beyond is always positive, wherever 1 % of the contexts lie."""
    dice = np.random.default_rng(7)
    learner = settled(dice.random((LONG, 4)))
    contexts = dice.random((50_000, 4))
    bad = np.flatnonzero(dice.random(50_000) < 0.01)
    contexts[bad, dice.integers(0, 4, len(bad)) if where == "all features" else 0] = far
    if where == "both sides":
        contexts[bad[::2], 0] = 1.0 - far
    for start in range(0, 50_000, 500):
        shown(learner, contexts[start : start + 500])
        assert (learner.pools[0].high[:4] < 1.25).all()
        assert (learner.pools[0].low[:4] > -0.25).all()


def test_more_than_the_outer_share_is_usual():
    """Conversely, values of 5 % of the contexts are not events."""
    contexts = draws("uniform", LONG)
    contexts[10::20] += 3.0  # all different, so no codes
    learner = settled(contexts)
    assert not learner.predict([3.0])
    assert settled(contexts, outer_tail=0.06, inner_tail=0.2).predict([3.0])


def test_a_margin_by_hand_holds_where_the_learnt_one_is_smaller():
    contexts = draws("uniform", 50_000)
    learnt, by_hand, small = (settled(contexts, min_margin=margin).pools[0] for margin in (0.0, 0.5, 0.01))
    assert by_hand.high[0] == by_hand.high_outer[0] + 0.5
    assert by_hand.low[0] == by_hand.low_outer[0] - 0.5
    assert small.high[0] == learnt.high[0]
    assert by_hand.high_outer[0] == learnt.high_outer[0]


def test_the_warm_up_is_silent():
    contexts = draws("uniform", 400)
    contexts[::10] = 50.0
    assert not shown(Learner(QuantileBox(warmup_contexts=400), d=1), contexts).any()
    learner = settled(draws("uniform", 299), warmup_contexts=300)
    assert not learner.predict([50.0])
    learner.absorb([0.5])
    assert learner.predict([50.0])


def test_with_hardly_a_warm_up_the_first_context_is_the_whole_range():
    learner = settled(np.array([[0.4]]), warmup_contexts=1)
    assert not learner.predict([0.4])
    assert learner.predict([0.41])
    assert learner.predict([0.39])
    near = settled(np.array([[-0.4]]), warmup_contexts=1, min_margin=0.1)
    assert [near.predict([x]) for x in (-0.51, -0.49, -0.31, -0.29)] == [True, False, False, True]


def test_writers_who_start_together_measure_nothing_from_zero():
    """Both fill a delta before the pool has data: the distance of their features from 0 must not count as deviation."""
    learner = Learner(QuantileBox(), d=1)
    deltas = [Learner(QuantileBox(), d=1).pools[1:] for _ in range(2)]
    for seed, delta in enumerate(deltas):
        for x in draws("uniform", 20, seed=seed) + 1000.0:
            absorb(learner.classifier, learner.pools[0], delta[0], x)
    for delta in deltas:
        merge(learner.classifier, learner.pools[0], delta[0])
    assert learner.pools[0].seen == 40
    assert learner.pools[0].middle[0] == pytest.approx(1000.5, abs=0.2)
    shown(learner, draws("uniform", 5000, seed=5) + 1000.0)
    assert learner.pools[0].high[0] < 1003.0
    assert learner.pools[0].low[0] > 998.0


def test_a_million_contexts_need_no_more_room_and_leave_the_box_as_good():
    learner = Learner(QuantileBox(), d=1)
    size = learner.pools.nbytes
    for seed in range(10):
        shown(learner, draws("uniform", 100_000, seed=seed))
    assert learner.pools[0].seen == 1e6
    assert learner.pools.nbytes == size
    assert learner.pools[0].high[0] == pytest.approx(HIGH["uniform"], abs=0.1)


def test_thousands_of_contexts_in_one_delta_move_averages_no_further_than_their_own():
    learner = settled(draws("uniform", 5000))
    delta = learner.pools[1:]
    for x in draws("uniform", 4000, seed=1) + 2.0:
        absorb(learner.classifier, learner.pools[0], delta[0], x)
    merge(learner.classifier, learner.pools[0], delta[0])
    assert learner.pools[0].middle[0] == pytest.approx(2.5, abs=0.05)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, 1e101])
def test_what_would_spoil_the_box_for_good_is_refused(bad):
    learner = settled(draws("uniform", 1000, 2))
    before = learner.pools.tobytes()
    for verb in (learner.absorb, learner.predict, learner.blame):
        with pytest.raises(SwerveError, match="finite" if abs(bad) != 1e101 else "outside the domain"):
            verb([0.5, bad])
    assert learner.pools.tobytes() == before
    learner.absorb([0.5, 1e100])
    learner.absorb([0.5, -1e100])
    assert all(np.isfinite(learner.pools[0][name]).all() for name in learner.pools.dtype.names)


def test_a_settled_step_is_the_one_that_the_power_would_give():
    for seen in (SETTLED, 2.0 * SETTLED, 1e6, 1e12):
        assert STEP / (seen + HEADSTART) ** DECAY < 0.9 * LONG_STEP
