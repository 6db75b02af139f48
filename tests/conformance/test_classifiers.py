"""The contract of every classifier: the checks of `swerve.conformance`, and what we ask of our own."""

from __future__ import annotations

import pytest
from conformance.examples import classifiers, label, of_kind, subject_of

from swerve import Learner, SwerveError
from swerve.conformance.classifiers import after, holes, reads, several
from swerve.core.contract import absorb, predict

ABSORBING = pytest.mark.parametrize("classifier", [c for c in classifiers() if absorb.knows(c)], ids=label)


def cases():
    """Yield every check with every classifier that it concerns."""
    for check in of_kind("classifier"):
        for classifier in classifiers():
            if check.concerns(subject_of(classifier)):
                yield pytest.param(check, classifier, id=f"{check.name}-{label(classifier)}")


@pytest.mark.parametrize(("check", "classifier"), list(cases()))
def test_what_holds_for_every_classifier(check, classifier):
    check.run(subject_of(classifier))


def test_something_is_registered():
    assert {type(c).__name__ for c in classifiers()} >= {"Never", "Always", "Told", "Rectangle", "Finite", "QuantileBox"}
    assert all(predict.knows(classifier) for classifier in classifiers())


def test_every_check_concerns_one_of_ours():
    assert all(any(check.concerns(subject_of(c)) for c in classifiers()) for check in of_kind("classifier"))


@ABSORBING
def test_contexts_without_a_label_teach(classifier):
    seen = after(subject_of(classifier), subject_of(classifier).contexts(200))
    assert not seen.predict([0.35, 0.35])
    assert seen.predict([5.0, 0.35])
    assert seen.predict([0.35, -5.0])


@ABSORBING
def test_what_counts_contexts_is_not_joined_whole(classifier):
    with pytest.raises(SwerveError, match="cannot be merged"):
        Learner(classifier, d=2).merge(Learner(classifier, d=2))


@pytest.mark.parametrize("classifier", [c for c in classifiers() if reads(subject_of(c))], ids=label)
def test_some_contexts_with_a_hole_are_positive(classifier):
    """Otherwise the check of missing features would prove nothing."""
    subject = subject_of(classifier)
    asked = [[1.4 * value for value in x] if absorb.knows(classifier) else x for x in subject.contexts(60, seed=11)]
    assert any(learner.predict(holes(x, {hole})) for learner in several(subject) for x in asked for hole in (0, 1))
