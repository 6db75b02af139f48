"""Classifiers that learn nothing: two limit cases and the oracle."""

from __future__ import annotations

from swerve.core.contract import needs_events, predict
from swerve.core.spec import Spec


class Never(Spec):
    """Negative on every context: BWC with it is the bandit, restarted once after its first test."""


class Always(Spec):
    """Positive on every context: BWC with it runs one test after the other."""


class Told(Spec):
    """Positive exactly in the rounds that an oracle calls events: the environment's event oracle, or an operator.

    Paper: the event oracle f.
    """


@predict.register(Never)
def _(spec, pool, delta, x, told):
    return False


@predict.register(Always)
def _(spec, pool, delta, x, told):
    return True


@predict.register(Told)
def _(spec, pool, delta, x, told):
    return told != 0


@needs_events.register(Told)
def _(spec):
    return 1
