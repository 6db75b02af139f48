"""Oracle restarts: a bandit that is told of every event."""

from __future__ import annotations

from swerve.core.contract import ALARM, CONSULTED, RESTARTED, begin, layout, needs_events, observe, restart, select, starts
from swerve.core.pages import order, present, respond
from swerve.core.spec import Spec
from swerve.core.wrapping import inner_layout, wrapping


@wrapping
class Oracle(Spec):
    """Restart any bandit at exactly the rounds that are events.

    The paper's ORA is `Oracle(UCB1())`. Where gaps are small or clicks are rare it is no lower bound: a bandit that keeps some of
    its earlier knowledge can beat it.

    Paper: Experiments, ORA.

    >>> from swerve import Fleet, UCB1
    >>> fleet = Fleet(Oracle(UCB1()), queries=1, arms=3)
    >>> [fleet.select(0, told=t == 2).arm for t in range(4)]
    [0, 1, 0, 1]
    """

    bandit: Spec

    def check(self) -> None:
        if not select.knows(self.bandit):
            self.refuse("bandit", "a bandit, such as UCB1()")


for _verb in (order, present, respond):  # a bandit for pages orders them here too; for others this is what the default does
    _verb.register(Oracle)(_verb.passing)


@layout.register(Oracle)
def _(spec, arms, features):
    return [*inner_layout(spec, arms, features), ("starts", "i8")]


@begin.register(Oracle)
def _(spec, row, word):
    begin(spec.bandit, row.bandit, word)
    row.starts = 1


@restart.register(Oracle)
def _(spec, row):
    restart(spec.bandit, row.bandit)
    row.starts += 1


@observe.register(Oracle)
def _(spec, row, pool, delta, x, told, now):
    report = CONSULTED
    if told != 0:
        restart(spec, row)
        report |= ALARM | RESTARTED
    return report | observe(spec.bandit, row.bandit, pool.bandit, delta.bandit, x, told, now)


@needs_events.register(Oracle)
def _(spec):
    return 1


@starts.register(Oracle)
def _(spec, row):
    return row.starts + starts(spec.bandit, row.bandit)  # both terms only grow
