"""What every classifier must do, whoever wrote it."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from conformance.examples import classifiers, contexts_for, label

from swerve import Learner, SwerveError
from swerve.core import engine
from swerve.core.contract import learn, predict

EVERY = pytest.mark.parametrize("classifier", classifiers(), ids=label)
LEARNING = pytest.mark.parametrize("classifier", [c for c in classifiers() if learn.knows(c)], ids=label)


def contexts(classifier, count, seed=0):
    dice = random.Random(seed)
    return [contexts_for(classifier)(dice) for _ in range(count)]


def taught(classifier, false):
    learner = Learner(classifier, d=2)
    for x in false:
        learner.learn(x)
    return learner


def test_something_is_registered():
    assert {type(c).__name__ for c in classifiers()} >= {"Never", "Always", "Told", "Rectangle", "Finite"}


@EVERY
def test_compiled_equals_interpreted_to_the_byte(classifier):
    fast, slow = Learner(classifier, d=2), Learner(classifier, d=2)
    engine.begin_pools.plain(slow.params, slow.pools, 2)
    for i, x in enumerate(contexts(classifier, 120)):
        spot = np.array(x)
        positive = engine.predict_one.plain(slow.params, slow.pools, 0, 1, spot)
        assert fast.predict(x) == bool(positive), f"context {i}"
        if positive and i % 2:
            fast.learn(x)
            assert engine.learn_one.plain(slow.params, slow.pools, 0, 1, spot) == 0
        assert fast.pools.tobytes() == slow.pools.tobytes(), f"context {i}"


@EVERY
def test_asking_changes_nothing_that_is_known(classifier):
    learner = taught(classifier, contexts(classifier, 5))
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


@EVERY
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


@EVERY
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_context_that_is_no_number_is_refused(classifier, bad):
    with pytest.raises(SwerveError, match="finite"):
        Learner(classifier, d=2).predict([0.0, bad])


def test_predict_is_what_makes_a_classifier():
    assert all(predict.knows(classifier) for classifier in classifiers())
