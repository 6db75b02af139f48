"""Restarts on passive detection: a bandit that starts over when its own rewards indicate a change."""

from __future__ import annotations

from typing import Annotated

from swerve.core.contract import (
    RESTARTED,
    begin,
    evict,
    layout,
    restart,
    reward,
    select,
    settle,
    show,
    starts,
    watch,
)
from swerve.core.spec import Choice, Spec
from swerve.core.tables import nested
from swerve.core.verbs import kernel
from swerve.core.wrapping import inner_layout, wrapping

SCOPES = ("all", "arm")
ALL = SCOPES.index("all")


@wrapping
class Restarting(Spec):
    """Play any bandit, watch each arm's rewards with any detector, and start over when an arm seems to have changed.

    scope = "all": the bandit and the detector start over; clicks for earlier decisions are not learnt.
    scope = "arm": both forget only the changed arm. If the arm is shown again, a late click for a forgotten play counts for the new
    plays.

    A play is complete when the next round begins: its reward by then, at most 1, goes to the detector. A later click still counts
    for the bandit; the detector counts it for the arm's latest play if that is still incomplete, and otherwise ignores it. With
    slow clicks the detector therefore sees too few, but equally few before and after a change.

    The detector cannot notice a change of an arm that is not played; a `Forced` bandit plays all arms.

    Source: Liu, Lee and Shroff (AAAI 2018) restart the arm; Cao, Wen, Kveton and Xie (AISTATS 2019) restart all; Besson, Kaufmann,
    Maillard and Seznec (JMLR 23, 2022) study both.

    >>> from swerve import GLR, UCB1, Fleet
    >>> fleet = Fleet(Restarting(UCB1(), GLR()), queries=1, arms=2)
    >>> for t in range(600):  # every second decision is clicked, then none
    ...     decision = fleet.select(0, now=t)
    ...     if t < 300 and t % 2: _ = fleet.reward(0, decision, now=t)
    >>> decision
    Decision(arm=1, start=2, shown=599.0)
    """

    bandit: Spec
    detector: Spec
    scope: Annotated[str, Choice(SCOPES)] = "all"

    def check(self) -> None:
        if not select.knows(self.bandit):
            self.refuse("bandit", "a bandit, such as UCB1()")
        if not watch.knows(self.detector):
            self.refuse("detector", "a detector, such as GLR()")


@layout.register(Restarting)
def _(spec, arms, features):
    return [
        *inner_layout(spec, arms, features),
        ("detector", nested(layout(spec.detector, arms, features))),
        ("starts", "i8"),
        ("open", "i8"),  # the arm of the incomplete play, or −1
        ("earned", "f8"),  # its reward so far
    ]


@begin.register(Restarting)
def _(spec, row, word):
    begin(spec.bandit, row.bandit, word)
    restart(spec.detector, row.detector)
    row.starts = 1
    row.open = -1


@restart.register(Restarting)
def _(spec, row):
    restart(spec.bandit, row.bandit)
    restart(spec.detector, row.detector)
    row.starts += 1
    row.open = -1


@kernel
def settle_restarting(spec, row, pool, delta, now):
    """Finish the open play of one slot; return report bits."""
    report = settle(spec.bandit, row.bandit, pool.bandit, delta.bandit, now)
    arm = row.open
    if arm >= 0:
        row.open = -1
        if watch(spec.detector, row.detector, arm, row.earned):
            if spec.scope == ALL:
                restart(spec, row)
            else:
                evict(spec, row, arm)
            report |= RESTARTED
    return report


settle.register(Restarting)(settle_restarting)


@show.register(Restarting)
def _(spec, row, arm, now):
    show(spec.bandit, row.bandit, arm, now)
    row.open = arm
    row.earned = 0.0


@kernel
def earn(row, arm, value):
    """Add a reward to the incomplete play, if it is this arm's."""
    if arm == row.open:
        row.earned = min(row.earned + value, 1.0)


@reward.register(Restarting)
def _(spec, row, arm, value, shown, now):
    learnt = reward(spec.bandit, row.bandit, arm, value, shown, now)
    earn(row, arm, value)
    return learnt


@evict.register(Restarting)
def _(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)
    evict(spec.detector, row.detector, arm)
    if arm == row.open:
        row.open = -1


@starts.register(Restarting)
def _(spec, row):
    return row.starts + starts(spec.bandit, row.bandit)  # both terms only grow
