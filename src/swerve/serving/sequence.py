"""Confidence sequences: intervals for a mean that hold at all times together, however often one looks.

A martingale with steps Z, each at least −1, is tested by *wealth*: for a stake λ in (0, 1), exp(λ ΣZ − ψ(λ) ΣZ²) with
ψ(λ) = −ln(1 − λ) − λ is a supermartingale while the mean of each step, given the past, is at most 0, because
exp(λz − ψ(λ)z²) ≤ 1 + λz for z ≥ −1 (Fan, Grama and Liu, 2015). The wealth here is the average over a grid of stakes, so it is one
too, and by Ville's inequality it ever reaches 1/error with probability `error` at most. There is no approximation in it and no
assumption on the distribution of the steps. With steps less their means the same holds for a mean that is not 0, which gives the
interval (Howard, Ramdas, McAuliffe and Sekhon, 2021, theorem 4, with the prediction 0).

Tests: tests/serving/test_sequence.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.float64]]

#: The stakes: small ones win on small effects in long runs, large ones on large effects in short runs. Below the last one, effects
#: are decided after some ten million steps.
STAKES: Numbers = 0.95 * 2.0 ** (-np.arange(24) / 2)
COSTS: Numbers = -np.log1p(-STAKES) - STAKES
LOG_WEIGHT = -math.log(len(STAKES))
#: Steps of Newton's method for the bound: it converges from above, because the logarithm of the wealth is convex.
NEWTON = 30
#: The most that `more_until` looks ahead, as a multiple of what was seen, and its relative error at most.
AHEAD, PRECISION = 10_000.0, 0.01


def log_wealth(total: Numbers | float, squares: Numbers | float) -> Numbers:
    """Return the logarithm of the wealth after steps with this sum and this sum of squares; both may be arrays.

    >>> float(log_wealth(0.0, 0.0)), bool(log_wealth(30.0, 30.0) > 3.0), bool(log_wealth(-30.0, 30.0) < 0.0)
    (0.0, True, True)
    """
    each = np.multiply.outer(np.asarray(total), STAKES) - np.multiply.outer(np.asarray(squares), COSTS)
    most = each.max(axis=-1)
    return np.asarray(most + np.log(np.exp(each - most[..., None]).sum(axis=-1)) + LOG_WEIGHT)


def bound(squares: Numbers | float, error: float) -> Numbers:
    """Return the sum that steps whose mean is 0 ever exceed with probability `error` at most, for a sum of squares.

    >>> [round(float(bound(squares, 0.025)), 1) for squares in (1.0, 100.0, 10_000.0)]
    [8.9, 39.1, 351.1]
    """
    squares, target = np.asarray(squares, float), -math.log(error)
    # one stake alone would need this much: the average needs no more
    at = ((target - LOG_WEIGHT + np.multiply.outer(squares, COSTS)) / STAKES).min(axis=-1)
    for _ in range(NEWTON):
        each = np.multiply.outer(at, STAKES) - np.multiply.outer(squares, COSTS)
        most = each.max(axis=-1)
        grown = np.exp(each - most[..., None])
        height = most + np.log(grown.sum(axis=-1)) + LOG_WEIGHT - target
        step = height * grown.sum(axis=-1) / (grown * STAKES).sum(axis=-1)
        if np.all(step < 1e-9 * at):
            break
        at = at - np.maximum(step, 0.0)
    return np.asarray(at)


def more_until(total: float, squares: float, error: float) -> float | None:
    """Return how many times as many further steps like those so far decide; 0 if they have, None if none would soon.

    >>> more_until(60.0, 100.0, 0.025), more_until(0.0, 100.0, 0.025)
    (0.0, None)
    >>> round(more_until(20.0, 100.0, 0.025), 1)
    2.4
    """
    total, target = abs(total), -math.log(error)

    def decided(factor: float) -> bool:
        return bool(log_wealth(factor * total, factor * squares) >= target)

    if decided(1.0):
        return 0.0
    low, high = 1.0, 2.0
    while not decided(high):
        low, high = high, 2.0 * high
        if high > AHEAD:
            return None
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high - 1.0
