"""The simple testable bandit: random arms first, then a bandit."""

from __future__ import annotations

import numpy as np

from swerve.bandits.testable import sort_out
from swerve.core.contract import (
    begin,
    evict,
    guess,
    layout,
    mean_of,
    played,
    plays_of,
    pool_layout,
    restart,
    reward,
    select,
    show,
    slots,
    test_length,
)
from swerve.core.rng import GOLDEN, draw, mix, wrap_add
from swerve.core.spec import Gap, Natural, Spec
from swerve.core.tables import has, nested


class ExploreFirst(Spec):
    """Play random arms for L rounds, form the guess from them, then let the bandit play on with what it has seen.

    v* = the arm with the highest average;  G⁺ = {v : Δ̂(v) ≤ ε/4},  G⁻ = {v : Δ̂(v) > ε/2}.

    It costs Ω(L) regret in every phase, which is why the paper makes UCB1 testable instead.

    Paper: Testable Bandit Algorithms, the "simple fix".
    """

    bandit: Spec
    length: Natural = 200
    epsilon: Gap = 0.3

    def check(self) -> None:
        if not mean_of.knows(self.bandit):
            self.refuse("bandit", "a bandit that keeps a sample average per arm")


@layout.register(ExploreFirst)
def _(spec, arms, features):
    return [("bandit", nested(layout(spec.bandit, arms, features))), ("rng", "u8")]


@pool_layout.register(ExploreFirst)
def _(spec, features):
    return [("bandit", nested(pool_layout(spec.bandit, features)))]


@begin.register(ExploreFirst)
def _(spec, row, word):
    row.rng = word
    begin(spec.bandit, row.bandit, mix(wrap_add(word, GOLDEN)))


@restart.register(ExploreFirst)
def _(spec, row):
    restart(spec.bandit, row.bandit)


@select.register(ExploreFirst)
def _(spec, row, pool, available, now):
    if played(spec.bandit, row.bandit) >= spec.length:
        return select(spec.bandit, row.bandit, pool.bandit, available, now)
    n = 0
    for arm in range(slots(spec.bandit, row.bandit)):
        n += has(available, arm)
    left = np.int64(draw(row) * n)
    for arm in range(slots(spec.bandit, row.bandit)):
        if has(available, arm):
            if left == 0:
                return arm
            left -= 1
    return -1


@show.register(ExploreFirst)
def _(spec, row, arm, now):
    show(spec.bandit, row.bandit, arm, now)


@reward.register(ExploreFirst)
def _(spec, row, arm, value, now):
    reward(spec.bandit, row.bandit, arm, value, now)


@evict.register(ExploreFirst)
def _(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)


@test_length.register(ExploreFirst)
def _(spec):
    return spec.length


@guess.register(ExploreFirst)
def _(spec, row):
    best, leader = -1.0, 0
    for arm in range(slots(spec.bandit, row.bandit)):
        mu = mean_of(spec.bandit, row.bandit, arm)
        if plays_of(spec.bandit, row.bandit, arm) > 0 and mu > best:
            best, leader = mu, arm
    return sort_out(spec.bandit, row.bandit, leader, spec.epsilon)


@slots.register(ExploreFirst)
def _(spec, row):
    return slots(spec.bandit, row.bandit)


@played.register(ExploreFirst)
def _(spec, row):
    return played(spec.bandit, row.bandit)


@plays_of.register(ExploreFirst)
def _(spec, row, arm):
    return plays_of(spec.bandit, row.bandit, arm)


@mean_of.register(ExploreFirst)
def _(spec, row, arm):
    return mean_of(spec.bandit, row.bandit, arm)
