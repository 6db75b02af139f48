"""The rectangle: never a miss, few false alarms, and a merge in any order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from numba import njit
from twins.rectangle import Rectangle as Twin

from swerve import Learner, Rectangle
from swerve.core.contract import learn, merge, predict

DIMENSIONS = st.integers(1, 6)
MARGINS = st.sampled_from([0.05, 0.1, 0.25, 0.5, 1 / 3])


@njit
def play(params, pools, contexts, truth):
    """Play the prediction game in a compiled loop that teaches false positives; return their number and the misses."""
    spec = params[0]
    false_positives = misses = 0
    for i in range(len(contexts)):
        positive = predict(spec, pools[0], pools[1], contexts[i], 0)
        if positive and not truth[i]:
            false_positives += 1
            learn(spec, pools[0], contexts[i])
        if truth[i] and not positive:
            misses += 1
    return false_positives, misses


def concept(dice, d, margin, count):
    """Draw contexts of a random box: inside is quiet, at least `margin` outside is an event, and none lie between.

    A third of the events lie exactly at the margin, as floats measure it: the smallest x with x − high ≥ margin.
    """
    low = dice.uniform(-1, 0.2, d)
    high = low + dice.uniform(0, 1 - margin - low.max() if low.max() < 1 - margin else 0, d)
    quiet = low + dice.random((count, d)) * (high - low)
    quiet = np.minimum(quiet, high)
    quiet[: 2 * d] = np.where(np.arange(2 * d)[:, None] % 2 == 0, low, high)  # the box's corners, so that it can be learnt exactly
    events = quiet[dice.permutation(count)].copy()
    side = dice.integers(0, d, count)
    rows = np.arange(count)
    at = high[side] + margin
    at = np.where(at - high[side] >= margin, at, np.nextafter(at, np.inf))
    away = np.where(rows % 3 == 0, at, at + dice.random(count) * np.maximum(1.0 - at, 0.0))
    events[rows, side] = away
    # so far events lie above the box: flip some axes, which is exact in floats
    contexts = np.concatenate([quiet, events]) * dice.choice([-1.0, 1.0], d)
    truth = np.arange(2 * count) >= count
    order = dice.permutation(2 * count)
    return contexts[order], truth[order]


@settings(max_examples=40)
@given(DIMENSIONS, MARGINS, st.integers(0, 2**32))
def test_with_correct_labels_no_event_is_ever_missed(d, margin, seed):
    """40 boxes with 10⁵ contexts each; false positives stay within the diameter 1 + d·⌊2/δ⌋."""
    learner = Learner(Rectangle(margin=margin, radius=2.0), d=d)
    contexts, truth = concept(np.random.default_rng(seed), d, margin, 50_000)
    false_positives, misses = play(learner.params, learner.pools, contexts, truth)
    assert misses == 0
    assert 1 <= false_positives <= 1 + d * math.floor(2 / margin)


def test_distance_exactly_at_the_margin_is_positive():
    box = Learner(Rectangle(margin=0.25), d=2)
    box.learn([0.5, 0.5])
    assert box.predict([0.75, 0.5])
    assert box.predict([0.25, 0.5])
    assert not box.predict([math.nextafter(0.75, 0), 0.5])
    assert not box.predict([0.5, math.nextafter(0.25, 1)])


@pytest.mark.parametrize(("d", "margin"), [(1, 0.5), (3, 0.25), (5, 0.125), (10, 0.0625)])
def test_the_worst_adversary_reaches_the_diameter_and_not_more(d, margin):
    """Contexts move outward from one corner, in steps of δ along each axis, with margins that are exact in floats."""
    learner = Learner(Rectangle(margin=margin), d=d)
    contexts = [np.full(d, -1.0)]
    for j in range(d):
        for step in range(1, math.floor(2 / margin) + 1):
            x = np.full(d, -1.0)
            x[j] = -1.0 + step * margin
            contexts.append(x)
    walk = np.array(contexts)
    assert play(learner.params, learner.pools, walk, np.zeros(len(walk), bool)) == (1 + d * math.floor(2 / margin), 0)
    again = np.random.default_rng(0).uniform(-1, 1, (10_000, d))
    assert play(learner.params, learner.pools, again, np.zeros(10_000, bool))[0] == 0


@settings(max_examples=100)
@given(st.integers(1, 4), st.sampled_from([0.1, 0.3]), st.integers(0, 2**32), st.floats(1e-6, 2.0))
def test_any_adversary_stays_within_the_diameter(d, margin, seed, spread):
    dice = np.random.default_rng(seed)
    contexts = np.clip(np.cumsum(dice.normal(0, spread * margin, (2000, d)), axis=0), -1, 1)
    learner = Learner(Rectangle(margin=margin), d=d)
    assert play(learner.params, learner.pools, contexts, np.zeros(2000, bool))[0] <= 1 + d * math.floor(2 / margin)


def state(points, d=2, margin=0.1):
    learner = Learner(Rectangle(margin=margin), d=d)
    for x in points:
        learner.learn(x)
    return learner


COORDINATE = st.one_of(st.floats(-1, 1), st.sampled_from([0.0, -0.0, 0.5]))
POINTS = st.lists(st.tuples(COORDINATE, COORDINATE), max_size=5)


def joined(*learners):
    out = learners[0].copy()
    for other in learners[1:]:
        out.merge(other)
    return out.pools[0].tobytes()


@given(POINTS, POINTS, POINTS)
@example([(0.0, 0.0)], [(-0.0, -0.0)], [])  # 0.0 and −0.0 are equal and have different bytes
def test_merge_laws_hold_to_the_byte(a, b, c):
    a, b, c = state(a), state(b), state(c)
    assert joined(a, b) == joined(b, a)
    left, right = a.copy(), b.copy()
    left.merge(b)
    right.merge(c)
    assert joined(left, c) == joined(a, right)
    assert joined(a, a) == a.pools[0].tobytes()
    assert joined(left, b) == left.pools[0].tobytes()


@given(POINTS, POINTS)
def test_a_merge_equals_learning_everything_in_one_place(a, b):
    left, right, all_of_it = state(a), state(b), state(a + b)
    left.merge(right)
    for x in np.random.default_rng(0).uniform(-1, 1, (30, 2)):
        assert left.predict(x) == all_of_it.predict(x)


@given(POINTS, POINTS, st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=20))
def test_a_stale_copy_never_misses(old, new, asked):
    stale = state(old)
    fresh = stale.copy()
    for x in new:
        fresh.learn(x)
    for x in [*asked, *old, *new]:
        assert stale.predict(x) or not fresh.predict(x)


@settings(max_examples=50)
@given(st.lists(st.tuples(COORDINATE, COORDINATE), max_size=12), st.sampled_from([0.1, 0.5]))
def test_equals_the_twin(points, margin):
    learner, twin = Learner(Rectangle(margin=margin), d=2), Twin(margin)
    for x in points:
        positive = learner.predict(x)
        assert positive == twin.predict(list(x))
        if positive:
            learner.learn(x)
            twin.learn(list(x))


def test_compiled_merge_equals_the_plain_one():
    a, b = state([(0.1, 0.2)]), state([(0.3, -0.4), (0.0, 0.0)])
    plain = a.pools[:1].copy()
    merge(Rectangle(margin=0.1), plain[0], b.pools[0])
    assert plain[0].tobytes() == joined(a, b)


# ---------------------------------------------------------------- missing features


def test_the_box_grows_only_in_the_features_that_are_there():
    box = Learner(Rectangle(margin=0.1), d=2)
    box.learn([0.2, math.nan])
    assert box.pools[0].low[:2].tolist() == [0.2, math.inf]
    assert box.pools[0].high[:2].tolist() == [0.2, -math.inf]
    assert not box.predict([0.25, math.nan])
    assert box.predict([0.25, 0.0])  # no value of the second feature is known to be quiet
    assert box.blame([0.25, 0.0]) == 1
    assert box.predict([0.4, math.nan])
    assert box.blame([0.4, math.nan]) == 0
    box.learn([math.nan, 0.5])
    assert not box.predict([0.2, 0.5])
    box.learn([math.nan, -0.0])
    assert box.pools[0].low[:2].tobytes() == np.array([0.2, 0.0]).tobytes()


@given(
    st.lists(st.tuples(*[st.one_of(st.just(math.nan), st.floats(-1.0, 1.0))] * 3), max_size=8), st.tuples(*[st.floats(-1, 1)] * 3)
)
def test_with_holes_each_feature_learns_as_if_it_were_alone(false, x):
    box = Learner(Rectangle(margin=0.1), d=3)
    alone = [Learner(Rectangle(margin=0.1), d=1) for _ in range(3)]
    for context in false:
        box.learn(context)
        for j, learner in enumerate(alone):
            learner.learn(context[j : j + 1])
    assert box.predict(x) == any(learner.predict([x[j]]) for j, learner in enumerate(alone))
    for hole in range(3):
        holed = [math.nan if j == hole else value for j, value in enumerate(x)]
        assert box.predict(holed) == any(learner.predict([x[j]]) for j, learner in enumerate(alone) if j != hole)
