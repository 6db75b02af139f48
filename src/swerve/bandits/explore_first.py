"""The paper's simple testable bandit: random arms for L rounds, then a bandit."""

from __future__ import annotations

import numpy as np

from swerve.bandits.testable import sort_out
from swerve.core.contract import (
    begin,
    guess,
    layout,
    mean_of,
    played,
    plays_of,
    room,
    select,
    test_length,
)
from swerve.core.rng import GOLDEN, draw, mix, wrap_add
from swerve.core.spec import Gap, Natural, Spec
from swerve.core.tables import has
from swerve.core.wrapping import inner_layout, wrapping


@wrapping
class ExploreFirst(Spec):
    """Play random arms for L rounds, guess from them, then let the bandit continue with those plays.

    v* = the arm with the highest average;  G⁺ = {v : Δ̂(v) ≤ ε/4},  G⁻ = {v : Δ̂(v) > ε/2}.

    Every phase costs Ω(L) regret, which is why the paper makes UCB1 testable instead.

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
    return [*inner_layout(spec, arms, features), ("rng", "u8")]


@begin.register(ExploreFirst)
def _(spec, row, word):
    row.rng = word
    begin(spec.bandit, row.bandit, mix(wrap_add(word, GOLDEN)))


@select.register(ExploreFirst)
def _(spec, row, pool, available, now):
    if played(spec.bandit, row.bandit) >= spec.length:
        return select(spec.bandit, row.bandit, pool.bandit, available, now)
    n = 0
    for arm in range(room(spec.bandit, row.bandit)):
        n += has(available, arm)
    left = np.int64(draw(row) * n)
    for arm in range(room(spec.bandit, row.bandit)):
        if has(available, arm):
            if left == 0:
                return arm
            left -= 1
    return -1


@test_length.register(ExploreFirst)
def _(spec):
    return spec.length


@guess.register(ExploreFirst)
def _(spec, row):
    best, leader = -1.0, 0
    for arm in range(room(spec.bandit, row.bandit)):
        mu = mean_of(spec.bandit, row.bandit, arm)
        if plays_of(spec.bandit, row.bandit, arm) > 0 and mu > best:
            best, leader = mu, arm
    return sort_out(spec.bandit, row.bandit, leader, spec.epsilon)
