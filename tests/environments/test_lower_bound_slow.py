"""Theorem 5 at full length: a policy without contexts loses more and more to a single event; a policy with contexts does not."""

import math

import numpy as np
import pytest

from swerve import BWC, UCB1, Rectangle, SingleEvent, Testable, simulate
from swerve.theory import test_length, theorem5

pytestmark = pytest.mark.slow

EPSILON = 0.4
HORIZONS = (10**4, 10**5, 10**6)


def bwc(horizon):
    """Return BWC with L by theory, c = 4: 461, 576 and 691 rounds."""
    return BWC(Testable(UCB1(), length=test_length(2, EPSILON, horizon), epsilon=EPSILON), Rectangle(margin=0.1))


def worst(policy, horizon):
    """Return the mean regret of 20 runs on the worst of instance 0 and eight others, spread from phase 2 to the last."""
    spaced = np.linspace(2, math.isqrt(horizon), 8).round().astype(int).tolist()
    specs = [SingleEvent(horizon=horizon, epsilon=EPSILON, instance=i) for i in (0, *spaced)]
    return max(simulate(policy, spec, runs=20, points=1).regret.mean() for spec in specs)


def exponent(regret):
    """Return the slope of ln regret over ln T."""
    return float(np.polyfit(np.log(HORIZONS), np.log(regret), 1)[0])


def test_ucb1_grows_with_the_horizon():
    """Measured: 214, 2219, 22133; exponent 1.01."""
    regret = [worst(UCB1(), horizon) for horizon in HORIZONS]
    assert all(r >= theorem5(horizon, EPSILON) for r, horizon in zip(regret, HORIZONS, strict=True))
    assert exponent(regret) >= 0.45


def test_bwc_grows_like_the_logarithm():
    """Measured: 155, 206, 239; exponent 0.094 (a pure logarithm has 0.088 here)."""
    assert exponent([worst(bwc(horizon), horizon) for horizon in HORIZONS]) <= 0.15
