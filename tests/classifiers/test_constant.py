"""The classifiers that learn nothing."""

from __future__ import annotations

import numpy as np
import pytest

from swerve import Always, Learner, Never, Told
from swerve.core.contract import predict
from swerve.core.spec import pack


@pytest.mark.parametrize(("classifier", "expected"), [(Never(), False), (Always(), True), (Told(), False)])
def test_what_is_learnt_changes_nothing(classifier, expected):
    learner = Learner(classifier, d=2)
    for _ in range(3):
        assert learner.predict([0.1, 0.9]) is expected
        learner.learn([0.1, 0.9])


@pytest.mark.parametrize("told", [0, 1])
def test_told_repeats_what_it_is_told(told):
    empty = np.zeros(1, [("unused", "i8")])[0]
    for spec in (Told(), pack(Told())[0]):
        assert bool(predict(spec, empty, empty, np.zeros(1), told)) is bool(told)
