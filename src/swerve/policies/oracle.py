"""Oracle restarts: what a bandit would do if somebody told it when things change."""

from __future__ import annotations

from swerve.core.contract import (
    ALARM,
    CONSULTED,
    RESTARTED,
    begin,
    begin_pool,
    clear,
    domain,
    evict,
    layout,
    merge,
    observe,
    phase,
    plays_of,
    pool_layout,
    reads_context,
    restart,
    reward,
    select,
    settle,
    show,
)
from swerve.core.spec import Spec
from swerve.core.tables import nested


class Oracle(Spec):
    """Start any bandit over at exactly the rounds that are events.

    ORA of the paper is `Oracle(UCB1())`. Where gaps are small or clicks rare it is no lower bound: a bandit that keeps a little of
    what it knew can beat it.

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


@layout.register(Oracle)
def _(spec, arms, features):
    return [("bandit", nested(layout(spec.bandit, arms, features))), ("phase", "i8")]


@pool_layout.register(Oracle)
def _(spec, features):
    return [("bandit", nested(pool_layout(spec.bandit, features)))]


@begin_pool.register(Oracle)
def _(spec, pool, d):
    begin_pool(spec.bandit, pool.bandit, d)
    return 0


@begin.register(Oracle)
def _(spec, row, word):
    begin(spec.bandit, row.bandit, word)
    row.phase = 1


@restart.register(Oracle)
def _(spec, row):
    restart(spec.bandit, row.bandit)
    row.phase += 1


@settle.register(Oracle)
def _(spec, row, pool, delta, now):
    return settle(spec.bandit, row.bandit, pool.bandit, delta.bandit, now)


@observe.register(Oracle)
def _(spec, row, pool, delta, x, told, now):
    report = CONSULTED
    if told != 0:
        restart(spec, row)
        report |= ALARM | RESTARTED
    return report | observe(spec.bandit, row.bandit, pool.bandit, delta.bandit, x, told, now)


@select.register(Oracle)
def _(spec, row, pool, available, now):
    return select(spec.bandit, row.bandit, pool.bandit, available, now)


@show.register(Oracle)
def _(spec, row, arm, now):
    show(spec.bandit, row.bandit, arm, now)


@reward.register(Oracle)
def _(spec, row, arm, value, now):
    reward(spec.bandit, row.bandit, arm, value, now)


@evict.register(Oracle)
def _(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)


@phase.register(Oracle)
def _(spec, row):
    return row.phase


@merge.register(Oracle)
def _(spec, pool, delta):
    merge(spec.bandit, pool.bandit, delta.bandit)
    return 0


@clear.register(Oracle)
def _(spec, delta):
    clear(spec.bandit, delta.bandit)
    return 0


@reads_context.register(Oracle)
def _(spec):
    return reads_context(spec.bandit)


@domain.register(Oracle)
def _(spec, pool, x):
    return domain(spec.bandit, pool.bandit, x)


@plays_of.register(Oracle)
def _(spec, row, arm):
    return plays_of(spec.bandit, row.bandit, arm)
