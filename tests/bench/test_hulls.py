"""The hull beside SciPy: questions with known answers, and the benchmark without SciPy."""

import math
import sys

import numpy as np
from scipy.optimize import minimize

from swerve.bench import hulls, kernels

TINY = kernels.Effort(repeats=2, rounds=2_000, pairs=40, batches=2, batch=6, starts=1, colds=1, queries=1)


def test_questions_lie_where_they_should():
    """Checks distances by another method: smooth minimisation over the simplex, with weights as normalised squares."""
    asked = hulls.questions(9)
    for x, positive in zip(asked.contexts, asked.positive, strict=True):

        def apart(v, x=x):
            w = v * v / (v @ v)
            gap = asked.points.T @ w - x
            slope = 2.0 * asked.points @ gap
            return gap @ gap, 2.0 * v * (slope - w @ slope) / (v @ v)

        found = math.sqrt(minimize(apart, np.ones(len(asked.points)), jac=True, method="L-BFGS-B", options={"maxiter": 5_000}).fun)
        assert (found > 2.0 * hulls.MARGIN) == positive
    assert asked.positive.sum() == 3


def test_the_hull_answers_right():
    ticks = []
    pairs, agree = hulls.measure(3, 20, 2, ticks.append)
    assert agree == [True] * 60
    assert len(pairs.own) == len(pairs.reference) == 6
    assert ticks == [1, 2, 3]


def test_no_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    got = kernels.hull_rows(TINY, lambda text: None)
    assert [line.value for line in got] == [None, None]
    assert all("SciPy is not installed" in line.note for line in got)
