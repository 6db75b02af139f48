"""A classifier alone: copies are independent, different classifiers are not merged, invalid contexts are refused."""

from __future__ import annotations

import math

import pytest

from swerve import Finite, Learner, Matrix, Never, Rectangle, SwerveError


def test_a_copy_goes_its_own_way():
    box = Learner(Rectangle(margin=0.1), d=1)
    box.learn([0.2])
    other = box.copy()
    other.learn([0.8])
    assert box.predict([0.5])
    assert not other.predict([0.5])


def test_merge_joins_what_both_know_and_leaves_the_other_alone():
    left, right = Learner(Rectangle(margin=0.1), d=1), Learner(Rectangle(margin=0.1), d=1)
    left.learn([0.2])
    right.learn([0.8])
    before = right.pools.tobytes()
    left.merge(right)
    assert not left.predict([0.5])
    assert right.pools.tobytes() == before


@pytest.mark.parametrize(
    "other", [Learner(Rectangle(margin=0.2), d=2), Learner(Rectangle(margin=0.1), d=3), Learner(Finite(Matrix(((1, -1),))), d=2)]
)
def test_only_equals_are_joined(other):
    with pytest.raises(SwerveError, match="only equal classifiers"):
        Learner(Rectangle(margin=0.1), d=2).merge(other)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([math.nan, -math.inf], "finite"),
        ([math.nan, 1.1], "outside the domain"),
        ([0.0, math.inf], "finite"),
        ([0.0, -1.1], "outside the domain"),
        ([0.0], "2 features"),
        (0.0, "2 features"),
    ],
)
def test_bad_contexts_are_refused_by_every_verb(x, words):
    box = Learner(Rectangle(), d=2)
    before = box.pools.tobytes()
    for verb in (box.predict, box.learn, box.absorb, box.blame):
        with pytest.raises(SwerveError, match=words) as caught:
            verb(x)
        assert "\n" not in str(caught.value)
    assert box.pools.tobytes() == before


def test_a_classifier_that_cannot_tell_blames_the_largest_feature():
    assert Learner(Rectangle(), d=3).blame([0.1, 0.9, 0.2]) == 1
    assert Learner(Never(), d=3).blame([0.1, 0.2, 0.9]) == 2


def test_a_rectangle_blames_the_feature_farthest_outside():
    learner = Learner(Rectangle(), d=3)
    learner.learn([0.1, 0.2, 0.3])
    learner.learn([0.2, 0.9, 0.4])
    assert learner.blame([0.5, 1.0, 0.35]) == 0
    assert learner.blame([0.15, 0.5, -0.4]) == 2


@pytest.mark.parametrize("x", [-1.0, 3.0, 0.5])
def test_a_numbered_class_takes_its_numbers_only(x):
    with pytest.raises(SwerveError, match="outside"):
        Learner(Finite(Matrix(((1, -1, 1),))), d=1).predict([x])


@pytest.mark.parametrize("d", [0, -1])
def test_d_is_at_least_one(d):
    with pytest.raises(SwerveError, match=f"d = {d} is not allowed"):
        Learner(Rectangle(), d=d)
