"""The contract of every classifier.

There are two kinds. Classifiers that learn from labels are join semilattices: merging the same data twice, or in any order, changes
nothing, and a stale copy never misses an event. Classifiers that absorb contexts without a label count them: their deltas add up,
so merging a delta twice would count it twice, and a stale copy may miss an event. For both, an empty delta is neutral, and the
deltas of several writers may come in any order.
"""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from conformance.examples import classifiers, contexts_for, label

from swerve import Learner, SwerveError
from swerve.classifiers.learner import absorb_one
from swerve.core import engine
from swerve.core.contract import absorb, clear, learn, merge, pool_layout, predict

EVERY = pytest.mark.parametrize("classifier", classifiers(), ids=label)
SAFE = pytest.mark.parametrize("classifier", [c for c in classifiers() if not absorb.knows(c)], ids=label)
ABSORBING = pytest.mark.parametrize("classifier", [c for c in classifiers() if absorb.knows(c)], ids=label)
READING = pytest.mark.parametrize("classifier", [c for c in classifiers() if pool_layout.knows(c)], ids=label)
LEARNING = pytest.mark.parametrize("classifier", [c for c in classifiers() if learn.knows(c)], ids=label)


def contexts(classifier, count, seed=0):
    dice = random.Random(seed)
    return [contexts_for(classifier)(dice) for _ in range(count)]


def taught(classifier, false):
    learner = Learner(classifier, d=2)
    for x in false:
        learner.learn(x)
    return learner


def after(classifier, contexts):
    learner = Learner(classifier, d=2)
    for x in contexts:
        learner.absorb(x)
    return learner


def test_something_is_registered():
    assert {type(c).__name__ for c in classifiers()} >= {"Never", "Always", "Told", "Rectangle", "Finite", "QuantileBox"}


@EVERY
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_compiled_equals_interpreted_to_the_byte(classifier, missing):
    fast, slow = Learner(classifier, d=2), Learner(classifier, d=2)
    engine.begin_pools.plain(slow.params, slow.pools, 2)
    dice = random.Random(5)
    for i, x in enumerate(contexts(classifier, 150)):
        x = holes(x, {j for j in (0, 1) if dice.random() < missing})
        spot = np.array(x)
        positive = engine.predict_one.plain(slow.params, slow.pools, 0, 1, spot)
        assert positive >= 0
        assert fast.predict(x) == bool(positive), f"context {i}"
        if positive and i % 2:
            fast.learn(x)
            assert engine.learn_one.plain(slow.params, slow.pools, 0, 1, spot) == 0
        fast.absorb(x)
        assert absorb_one.plain(slow.params, slow.pools, 0, 1, spot) == 0
        assert fast.pools.tobytes() == slow.pools.tobytes(), f"context {i}"


@EVERY
def test_asking_changes_nothing_that_is_known(classifier):
    learner = taught(classifier, contexts(classifier, 5))
    for x in contexts(classifier, 40, seed=7):
        learner.absorb(x)
    before = learner.pools[0].tobytes()
    asked = contexts(classifier, 20, seed=1)
    first = [learner.predict(x) for x in asked]
    assert learner.pools[0].tobytes() == before
    assert [learner.predict(x) for x in asked] == first


@LEARNING
def test_what_was_called_harmless_is_negative(classifier):
    learner = Learner(classifier, d=2)
    for x in contexts(classifier, 15):
        learner.learn(x)
        assert not learner.predict(x)


@LEARNING
def test_a_stale_copy_never_misses(classifier):
    false, asked = contexts(classifier, 12), contexts(classifier, 60, seed=2)
    for known in range(len(false)):
        stale, fresh = taught(classifier, false[:known]), taught(classifier, false)
        for x in asked:
            assert stale.predict(x) or not fresh.predict(x), x


@SAFE
def test_merges_commute_associate_and_repeat_harmlessly(classifier):
    parts = [taught(classifier, contexts(classifier, 4, seed=s)) for s in (3, 4, 5)]
    asked = contexts(classifier, 60, seed=6)
    answers = set()
    for order in itertools.permutations(parts):
        left = order[0].copy()
        left.merge(order[1])
        left.merge(order[2])
        left.merge(order[0])
        tail = order[1].copy()
        tail.merge(order[2])
        right = order[0].copy()
        right.merge(tail)
        right.merge(right.copy())
        answers.add(tuple(left.predict(x) for x in asked))
        answers.add(tuple(right.predict(x) for x in asked))
    assert len(answers) == 1
    together = taught(classifier, [x for s in (3, 4, 5) for x in contexts(classifier, 4, seed=s)])
    assert answers == {tuple(together.predict(x) for x in asked)}


@SAFE
def test_a_context_without_a_label_teaches_nothing(classifier):
    learner = taught(classifier, contexts(classifier, 5))
    before = learner.pools.tobytes()
    for x in contexts(classifier, 5, seed=8):
        learner.absorb(x)
    assert learner.pools.tobytes() == before


@ABSORBING
def test_contexts_without_a_label_teach(classifier):
    seen = after(classifier, contexts(classifier, 200))
    assert not seen.predict([0.35, 0.35])
    assert seen.predict([5.0, 0.35])
    assert seen.predict([0.35, -5.0])


@ABSORBING
def test_an_empty_delta_is_neutral_and_a_cleared_one_is_empty(classifier):
    seen, fresh = after(classifier, contexts(classifier, 50)), Learner(classifier, d=2)
    known, delta = seen.pools[:1].copy(), fresh.pools[1:].copy()
    merge(classifier, known[0], delta[0])
    assert known.tobytes() == seen.pools[:1].tobytes()
    for x in contexts(classifier, 5, seed=1):
        assert absorb(classifier, known[0], delta[0], np.array(x))
    assert delta.tobytes() != fresh.pools[1:].tobytes()
    assert known.tobytes() == seen.pools[:1].tobytes()  # nothing is learnt before the fold
    clear(classifier, delta[0])
    assert delta.tobytes() == fresh.pools[1:].tobytes()


@ABSORBING
def test_the_deltas_of_several_writers_may_come_in_any_order(classifier):
    """All writers have read the same copy; the predictions are the same for any order of folding."""
    known = after(classifier, contexts(classifier, 500))
    deltas = []
    for writer in range(3):
        delta = Learner(classifier, d=2).pools[1:]
        for x in contexts(classifier, 10, seed=10 + writer):
            absorb(classifier, known.pools[0], delta[0], np.array(x))
        deltas.append(delta)
    asked = [[1.6 * a - 0.3, 1.6 * b - 0.3] for a, b in contexts(classifier, 100, seed=20)]
    answers = set()
    for order in itertools.permutations(deltas):
        joined = known.copy()
        for delta in order:
            merge(classifier, joined.pools[0], delta[0])
        for x in contexts(classifier, 100, seed=30):
            joined.absorb(x)
        answers.add(tuple(joined.predict(x) for x in asked))
    assert len(answers) == 1
    assert len(set(answers.pop())) == 2


@ABSORBING
def test_what_counts_contexts_is_not_joined_whole(classifier):
    with pytest.raises(SwerveError, match="cannot be merged"):
        Learner(classifier, d=2).merge(Learner(classifier, d=2))


@EVERY
@pytest.mark.parametrize("bad", [float("inf"), -float("inf")])
def test_a_context_that_is_infinite_is_refused(classifier, bad):
    learner = Learner(classifier, d=2)
    for verb in (learner.predict, learner.learn, learner.absorb, learner.blame):
        for x in ([0.0, bad], [math.nan, bad]):
            with pytest.raises(SwerveError, match="finite"):
                verb(x)


# ---------------------------------------------------------------- missing features are silent

NOTHING = [math.nan, math.nan]


def holes(x, where):
    """Return the context with these features missing."""
    return [math.nan if j in where else value for j, value in enumerate(x)]


def several(classifier):
    """Yield an empty classifier, a taught one, and one after many contexts."""
    yield Learner(classifier, d=2)
    learner = taught(classifier, contexts(classifier, 5))
    yield learner.copy()
    for x in contexts(classifier, 100, seed=3):
        learner.absorb(x)
    yield learner


@READING
def test_a_context_without_features_is_negative_and_teaches_nothing(classifier):
    for learner in several(classifier):
        before = learner.pools[0].tobytes()
        assert not learner.predict(NOTHING)
        learner.learn(NOTHING)
        learner.absorb(NOTHING)
        assert learner.pools[0].tobytes() == before
        assert learner.blame(NOTHING) == 0


@READING
def test_a_missing_feature_raises_no_alarm(classifier):
    """If a context with missing features is positive, a known feature is the reason, and it is blamed."""
    positive = 0
    for learner in several(classifier):
        for x in contexts(classifier, 60, seed=11):
            for hole in (0, 1):
                x_ = holes([1.4 * value for value in x] if absorb.knows(classifier) else x, {hole})
                if learner.predict(x_):
                    positive += 1
                    assert learner.blame(x_) != hole
    assert positive > 0


@SAFE
def test_filling_a_hole_in_a_harmless_context_is_the_only_way_to_an_alarm(classifier):
    """A positive context with a missing feature stays positive for every value of that feature."""
    for learner in several(classifier):
        for x in contexts(classifier, 40, seed=12):
            for hole in (0, 1):
                if learner.predict(holes(x, {hole})):
                    for other in contexts(classifier, 10, seed=13):
                        filled = [other[j] if j == hole else value for j, value in enumerate(x)]
                        assert learner.predict(filled)


@LEARNING
def test_a_label_of_a_context_with_holes_hides_no_value_of_what_was_missing(classifier):
    """After teaching only contexts without a feature, values of that feature that raised an alarm still do."""
    for hole in (0, 1):
        learner, fresh = Learner(classifier, d=2), Learner(classifier, d=2)
        for x in contexts(classifier, 10):
            learner.learn(holes(x, {hole}))
        for x in contexts(classifier, 40, seed=14):
            alone = holes(x, {1 - hole})
            assert learner.predict(alone) == fresh.predict(alone)


@SAFE
def test_with_holes_merges_commute_and_a_stale_copy_never_misses(classifier):
    dice = random.Random(6)
    false = [holes(x, {j for j in (0, 1) if dice.random() < 0.3}) for x in contexts(classifier, 12)]
    asked = contexts(classifier, 60, seed=15)
    asked += [holes(x, {k % 2}) for k, x in enumerate(asked)]
    one, two = taught(classifier, false[:6]), taught(classifier, false[6:])
    left, right = one.copy(), two.copy()
    left.merge(two)
    right.merge(one)
    right.merge(two)
    together = taught(classifier, false)
    for x in asked:
        assert left.predict(x) == right.predict(x) == together.predict(x)
        assert one.predict(x) or not together.predict(x)


def test_predict_is_what_makes_a_classifier():
    assert all(predict.knows(classifier) for classifier in classifiers())
