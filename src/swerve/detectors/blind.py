"""A detector that never raises an alarm."""

from __future__ import annotations

from swerve.core.contract import evict, evidence, intake, layout, onset, restart, watch
from swerve.core.spec import Spec


class Blind(Spec):
    """Never raise an alarm: `Swerve(net=Blind())` is Swerve without its net.

    Source: the trivial detector.
    """


@layout.register(Blind)
def _(spec, arms, features):
    return []


@restart.register(Blind)
def _(spec, row):
    pass


@evict.register(Blind)
def _(spec, row, arm):
    pass


@watch.register(Blind)
def _(spec, row, arm, value):
    return False


@intake.register(Blind)
def _(spec, row, arm, value):
    pass


@evidence.register(Blind)
def _(spec, row, arm, bonus):
    return 0.0, 0, 0.0


@onset.register(Blind)
def _(spec, row, arm):
    return 0, 0.0
