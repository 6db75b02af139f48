"""EXP3.S: exponential weights with sharing, for click probabilities that may change every round."""

from __future__ import annotations

import math
from typing import Annotated

from swerve.core.contract import begin, evict, layout, restart, reward, select, show
from swerve.core.elementary import exp, log
from swerve.core.rng import draw
from swerve.core.spec import Count, Natural, NonNegative, Range, Spec, coerced
from swerve.core.tables import bit, has
from swerve.core.verbs import kernel

LARGE = 1e100  # weights are divided by this before they overflow; only their ratios matter


class EXP3S(Spec):
    """Play by exponential weights mixed with uniform play, and give every arm a share of the total weight in every round.

    p_u = (1 − γ) w_u / W + γ / n;  x̂_u = x / p_u for the arm played, else 0;
    w_u ← w_u · exp(γ x̂_u / n) + (e · α / n) · W.

    Source: Auer, Cesa-Bianchi, Freund and Schapire (2002), section 8. `tuned(n, T)` is the tuning of Corollary 8.2, which does not
    need the number of shifts; the paper quotes its bound. `tuned(n, T, shifts)` is the tuning of Corollary 8.3, which does.

    A late click is credited with the probability and weight of the arm's latest show.

    >>> EXP3S.tuned(n=5, horizon=30_000)
    EXP3S(gamma=0.04456..., alpha=3.33...e-05)
    """

    gamma: Annotated[float, Range(0.0, 1.0, open_low=True)] = 0.1
    alpha: NonNegative = 1e-4

    @classmethod
    def tuned(cls, n: int, horizon: int, shifts: int | None = None) -> EXP3S:
        """Return the published tuning: Corollary 8.2 without `shifts`, Corollary 8.3 with `shifts`."""
        n, horizon = coerced("EXP3S.tuned", "n", Natural, n), coerced("EXP3S.tuned", "horizon", Natural, horizon)
        if shifts is None:
            gamma = math.sqrt(n * log(n * horizon) / horizon)
        else:
            hardness = coerced("EXP3S.tuned", "shifts", Count, shifts) + 1
            gamma = math.sqrt(n * (hardness * log(n * horizon) + math.e) / ((math.e - 1.0) * horizon))
        return cls(gamma=min(1.0, gamma), alpha=1.0 / horizon)


@layout.register(EXP3S)
def _(spec, arms, features):
    return [("rng", "u8"), ("weight", "f8", arms), ("before", "f8", arms), ("chance", "f8", arms), ("offered", "i8")]


@begin.register(EXP3S)
def _(spec, row, word):
    row.rng = word
    restart(spec, row)


@restart.register(EXP3S)
def _(spec, row):
    row.offered = 0
    for arm in range(row.weight.shape[0]):
        row.weight[arm] = 1.0
        row.before[arm] = 1.0
        row.chance[arm] = 1.0


@evict.register(EXP3S)
def _(spec, row, arm):
    # a new arm starts at the average weight of the others on offer: only ratios matter, and 1 may be far from all of them
    total, n = weigh(row, row.offered & ~bit(arm))
    row.weight[arm] = total / n if n > 0 else 1.0
    row.before[arm] = row.weight[arm]
    row.chance[arm] = 1.0


@kernel
def weigh(row, available):
    """Return the total weight and the number of the arms on offer."""
    total, n = 0.0, 0
    for arm in range(row.weight.shape[0]):
        if has(available, arm):
            total += row.weight[arm]
            n += 1
    return total, n


@select.register(EXP3S)
def _(spec, row, pool, available, now):
    total, n = weigh(row, available)
    left = draw(row)
    chosen = -1
    for arm in range(row.weight.shape[0]):
        if has(available, arm):
            share = (1.0 - spec.gamma) * row.weight[arm] / total + spec.gamma / n
            chosen = arm
            row.chance[arm] = share
            left -= share
            if left < 0.0:
                break
    row.offered = available  # `show` shares the weight among these arms
    return chosen


@show.register(EXP3S)
def _(spec, row, arm, now):
    total, n = weigh(row, row.offered)
    row.before[arm] = row.weight[arm]
    for other in range(row.weight.shape[0]):
        if has(row.offered, other):
            row.weight[other] += math.e * spec.alpha / n * total


@reward.register(EXP3S)
def _(spec, row, arm, value, shown, now):
    n = weigh(row, row.offered)[1]
    # show has added the share already: the published update multiplies the weight from before it
    row.weight[arm] += row.before[arm] * (exp(spec.gamma * value / (row.chance[arm] * n)) - 1.0)
    if row.weight[arm] > LARGE:  # only ratios matter
        for other in range(row.weight.shape[0]):
            row.weight[other] /= LARGE
            row.before[other] /= LARGE
    return True
