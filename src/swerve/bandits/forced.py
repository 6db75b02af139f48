"""Forced exploration: play every arm at a minimum rate, whatever the bandit prefers."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from swerve.core.contract import begin, layout, restart, select, show
from swerve.core.rng import GOLDEN, draw, mix, wrap_add
from swerve.core.spec import Choice, Range, Spec
from swerve.core.tables import CAPACITIES, has
from swerve.core.verbs import kernel
from swerve.core.wrapping import inner_layout, wrapping

ORDERS = ("cycle", "random")
CYCLE = ORDERS.index("cycle")
MOST = CAPACITIES[-1]  # the bits of a mask: not every bandit says how many arms its row has room for


@wrapping
class Forced(Spec):
    """Play all arms at least at some rate, so that changes of arms that the bandit would not play can be detected.

    "cycle": in each block of ⌊K / rate⌋ rounds, counted from the last start, the first K rounds play the K arms on offer in turn;
    "random": with probability `rate`, play an arm on offer chosen uniformly. With `rate_grows`, the rate after the j-th start is
    rate · √j.

    The bandit also selects in forced rounds, so that the state it keeps about a round belongs to the current round.

    Source: "cycle" is Cao, Wen, Kveton and Xie (AISTATS 2019), with `rate_grows` Besson, Kaufmann, Maillard and Seznec (JMLR 23,
    2022); "random" is Liu, Lee and Shroff (AAAI 2018).

    >>> from swerve import Fleet, UCB1
    >>> fleet = Fleet(Forced(UCB1(), rate=0.5), queries=1, arms=2)
    >>> decisions = []
    >>> for t in range(12):  # only arm 0 is ever clicked: UCB1 would play it in most of the other rounds
    ...     decisions.append(fleet.select(0))
    ...     if decisions[-1].arm == 0: _ = fleet.reward(0, decisions[-1])
    >>> [decision.arm for decision in decisions]
    [0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    """

    bandit: Spec
    rate: Annotated[float, Range(0.0, 1.0, open_low=True)] = 0.01
    order: Annotated[str, Choice(ORDERS)] = "cycle"
    rate_grows: bool = False

    def check(self) -> None:
        if not select.knows(self.bandit):
            self.refuse("bandit", "a bandit, such as UCB1()")


@layout.register(Forced)
def _(spec, arms, features):
    return [*inner_layout(spec, arms, features), ("rng", "u8"), ("t", "i8"), ("starts", "i8")]


@begin.register(Forced)
def _(spec, row, word):
    row.rng = word
    row.starts = 1
    begin(spec.bandit, row.bandit, mix(wrap_add(word, GOLDEN)))


@restart.register(Forced)
def _(spec, row):
    row.t = 0
    row.starts += 1
    restart(spec.bandit, row.bandit)


@kernel
def nth_on_offer(available, n):
    """Return the n-th arm on offer, counted from 0, or −1."""
    for arm in range(MOST):
        if has(available, arm):
            if n == 0:
                return arm
            n -= 1
    return -1


@select.register(Forced)
def _(spec, row, pool, available, now):
    chosen = select(spec.bandit, row.bandit, pool.bandit, available, now)
    count = 0
    for arm in range(MOST):
        count += has(available, arm)
    rate = min(1.0, spec.rate * math.sqrt(row.starts)) if spec.rate_grows else spec.rate
    if spec.order == CYCLE:
        turn = row.t % max(count, np.int64(count / rate))
        return nth_on_offer(available, turn) if turn < count else chosen
    if draw(row) < rate:
        return nth_on_offer(available, np.int64(draw(row) * count))
    return chosen


@show.register(Forced)
def _(spec, row, arm, now):
    row.t += 1
    show(spec.bandit, row.bandit, arm, now)
