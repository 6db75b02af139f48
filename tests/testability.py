"""Measures how often the guess of Testable(UCB1()) is wrong: event-free runs with random click probabilities, in one fleet."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from swerve import UCB1, Fleet, Testable
from swerve.core.contract import guess, reward
from swerve.core.engine import decide
from swerve.core.rng import at, split, unit

N, EPSILON, HORIZON = 5, 0.3, 30_000


@njit(nogil=True)
def play(params, table, pools, x, chances, word, rounds, available):
    """Play `rounds` rounds of every row, row i with the click probabilities chances[i]."""
    spec = params[0]
    for i in range(len(table)):
        for t in range(rounds):
            arm, _ = decide(spec, table[i], pools, 0, 1, x, 0, available, 0.0)
            if unit(at(word, i * rounds + t)) < chances[i, arm]:
                reward(spec, table[i], arm, 1.0, 0.0, 0.0)


@njit(nogil=True)
def guesses(params, table, plus, minus):
    for i in range(len(table)):
        plus[i], minus[i] = guess(params[0], table[i])


def edge(dice: np.random.Generator, runs: int) -> np.ndarray:
    """Draw one best arm and all others exactly ε below it: the hardest instances with a single best arm."""
    best = dice.uniform(EPSILON, 1.0, (runs, 1))
    chances = np.repeat(best - EPSILON, N, axis=1)
    chances[np.arange(runs), dice.integers(0, N, runs)] = best[:, 0]
    return chances


def uniform(dice: np.random.Generator, runs: int) -> np.ndarray:
    """Draw every click probability from U[0, 1]: near ties, and gaps on either side of ε."""
    return dice.random((runs, N))


def tied(dice: np.random.Generator, runs: int) -> np.ndarray:
    """Draw three equally good arms and two ε below: each optimal arm has fewer plays, and all must be in G⁺."""
    return np.tile([0.2, 0.2, 0.5, 0.5, 0.5], (runs, 1))


FAMILIES = {family.__name__: family for family in (edge, uniform, tied)}


def wrong_guesses(c: float, runs: int, family: str = "edge", seed: int = 0) -> int:
    """Return which guesses are wrong: an optimal arm outside G⁺ or in G⁻, or an arm with gap ≥ ε outside G⁻ or in G⁺."""
    length = math.ceil(c * N / EPSILON**2 * math.log(HORIZON))
    policy = Testable(UCB1(), length=length, epsilon=EPSILON)
    fleet = Fleet(policy, queries=runs, arms=N, seed=seed)
    chances = FAMILIES[family](np.random.default_rng(seed), runs)
    word = np.uint64(split(seed, "testability", family))
    play(fleet.params, fleet.table, fleet.pools, np.zeros(0), chances, word, length, fleet.available)
    plus, minus = np.zeros(runs, np.int64), np.zeros(runs, np.int64)
    guesses(fleet.params, fleet.table, plus, minus)
    gaps = chances.max(axis=1, keepdims=True) - chances
    bits = np.arange(N)
    in_plus, in_minus = plus[:, None] >> bits & 1 == 1, minus[:, None] >> bits & 1 == 1
    optimal, bad = gaps == 0, gaps >= EPSILON - 1e-12  # the subtraction above rounds
    wrong = (optimal & (~in_plus | in_minus)) | (bad & (~in_minus | in_plus))
    return int(wrong.any(axis=1).sum())
