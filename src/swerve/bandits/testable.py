"""(L, ε)-testable bandits: after L plays they can guess which arms are best and which are clearly worse."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.core.contract import (
    begin,
    evict,
    guess,
    layout,
    mean_of,
    played,
    plays_of,
    restart,
    room,
    show,
    test_length,
)
from swerve.core.errors import SwerveError, shown
from swerve.core.spec import Gap, Natural, Spec, coerced
from swerve.core.tables import bit
from swerve.core.verbs import kernel
from swerve.core.wrapping import inner_layout, wrapping


@wrapping
class Testable(Spec):
    """Make a bandit that keeps averages (L, ε)-testable: it plays as before and can be asked for its L-th round guess.

    v* = the arm played most often in the last L/2 rounds;  Δ̂(v) = μ(v*) − μ(v);
    G⁺ = {v : Δ̂(v) ≤ ε/4},  G⁻ = {v : Δ̂(v) > ε/2}.

    It stores only a copy of the play counts at round ⌊L/2⌋. `guesses` computes the guess at any other round.

    Paper: Algorithm 2, Theorem 3, with UCB1(6, T) as the bandit; `Testable(UCB1(), …)` is the practical form.
    """

    __test__ = False  # pytest: the class is named after the paper's term and is not a test case

    bandit: Spec
    length: Natural = 200
    epsilon: Gap = 0.3

    def check(self) -> None:
        if not mean_of.knows(self.bandit):
            self.refuse("bandit", "a bandit that keeps a sample average per arm")


@kernel
def sort_out(bandit, row, leader, epsilon):
    """Return (G⁺, G⁻) by distance from the leader's average. Unplayed arms are in neither."""
    plus, minus = np.int64(0), np.int64(0)
    top = mean_of(bandit, row, leader)
    for arm in range(room(bandit, row)):
        if plays_of(bandit, row, arm) > 0:
            gap = top - mean_of(bandit, row, arm)
            if gap <= 0.25 * epsilon:
                plus |= bit(arm)
            elif gap > 0.5 * epsilon:
                minus |= bit(arm)
    return plus, minus


@layout.register(Testable)
def _(spec, arms, features):
    return [*inner_layout(spec, arms, features), ("half", "u4", arms)]


@begin.register(Testable)
def _(spec, row, word):
    begin(spec.bandit, row.bandit, word)
    restart(spec, row)


@restart.register(Testable)
def _(spec, row):
    restart(spec.bandit, row.bandit)
    for arm in range(row.half.shape[0]):
        row.half[arm] = 0


@show.register(Testable)
def _(spec, row, arm, now):
    show(spec.bandit, row.bandit, arm, now)
    if played(spec.bandit, row.bandit) == spec.length // 2:
        for other in range(row.half.shape[0]):
            row.half[other] = plays_of(spec.bandit, row.bandit, other)


@evict.register(Testable)
def _(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)
    row.half[arm] = 0


@test_length.register(Testable)
def _(spec):
    return spec.length


@guess.register(Testable)
def _(spec, row):
    most, leader = np.int64(-1), 0
    for arm in range(row.half.shape[0]):
        recent = np.int64(plays_of(spec.bandit, row.bandit, arm)) - np.int64(row.half[arm])
        if recent > most:
            most, leader = recent, arm
    return sort_out(spec.bandit, row.bandit, leader, spec.epsilon)


class Guess(NamedTuple):
    """The guess of one round: the arms held to be optimal, and the arms held to be at least ε-suboptimal."""

    plus: frozenset[int]
    minus: frozenset[int]


def guesses(arms: ArrayLike, rewards: ArrayLike, n: int, epsilon: float) -> list[Guess]:
    """Return the guess after every round of a recorded event-free run; the t-th uses the last t/2 rounds.

    `arms[s]` was played in round s + 1 and earned `rewards[s]`. One pass suffices: the window (⌊t/2⌋, t] only moves forward.

    Paper: Algorithm 2, lines 7–10.

    >>> guesses([0, 1, 0, 0], [1, 0, 1, 1], n=2, epsilon=0.4)[-1]
    Guess(plus=frozenset({0}), minus=frozenset({1}))
    """
    n, epsilon = coerced("guesses", "n", Natural, n), coerced("guesses", "epsilon", Gap, epsilon)
    given = np.asarray(arms)
    if given.size and given.dtype.kind not in "iu":
        raise SwerveError(f"arms = {shown(arms)} is not allowed; arms must be whole numbers")
    played_arms: NDArray[np.int64] = given.astype(np.int64)
    earned: NDArray[np.float64] = np.asarray(rewards, dtype=np.float64)
    if played_arms.shape != earned.shape or played_arms.ndim != 1:
        raise SwerveError(f"arms and rewards must be two lists of one length, not {played_arms.shape} and {earned.shape}")
    if played_arms.size and (played_arms.min() < 0 or played_arms.max() >= n):
        raise SwerveError(f"arms must lie in 0 … {n - 1}")
    plays = np.zeros(n, np.int64)
    total = np.zeros(n)
    recent = np.zeros(n, np.int64)
    out = []
    for t, (arm, value) in enumerate(zip(played_arms, earned, strict=True), start=1):
        plays[arm] += 1
        total[arm] += value
        recent[arm] += 1
        if t % 2 == 0:  # the window starts after round ⌊t/2⌋, so round t/2 has just left it
            recent[played_arms[t // 2 - 1]] -= 1
        mu = total / np.maximum(plays, 1)
        gap = mu[int(np.argmax(recent))] - mu
        seen = plays > 0
        out.append(
            Guess(
                frozenset(np.flatnonzero(seen & (gap <= 0.25 * epsilon)).tolist()),
                frozenset(np.flatnonzero(seen & (gap > 0.5 * epsilon)).tolist()),
            )
        )
    return out
