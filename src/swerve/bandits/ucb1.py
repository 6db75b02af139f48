"""UCB1(α, t0): play the arm with the highest upper confidence bound."""

from __future__ import annotations

import math

from swerve.core.contract import begin, evict, layout, mean_of, played, plays_of, restart, reward, room, select, show
from swerve.core.elementary import log
from swerve.core.spec import NonNegative, Positive, Spec
from swerve.core.tables import has

TINY = 1e-150  # the smallest width scale: above zero, because an unplayed arm has an infinite width and 0 · inf is not a number


class UCB1(Spec):
    """Play the arm whose upper confidence bound is highest.

    I_t(u) = μ_t(u) + α · √(8 ln(t0 + t) / (n_t(u) + plays_offset)), where t is the current round. Unplayed arms come first.

    The defaults are UCB1 of Auer, Cesa-Bianchi and Fischer (2002), μ + √(2 ln t / n), which the paper's figures require.
    `UCB1.of_the_proof(T)` has the constants of the proof: α = 6, t0 = T, and 1 + n in the denominator.

    Paper: Algorithm 2, UCB1(α, t0).

    >>> from swerve import Fleet
    >>> fleet = Fleet(UCB1(), queries=1, arms=3)
    >>> [fleet.select(0).arm for _ in range(4)]
    [0, 1, 2, 0]
    """

    alpha: Positive = 0.5
    t0: NonNegative = 0.0
    plays_offset: NonNegative = 0.0

    @classmethod
    def of_the_proof(cls, horizon: int) -> UCB1:
        """Return UCB1 with the constants under which Theorems 2 and 3 are proved. They are far too cautious for practice."""
        return cls(alpha=6.0, t0=float(horizon), plays_offset=1.0)


@layout.register(UCB1)
def _(spec, arms, features):
    # mu and width are stored because computing them costs a division and a square root per arm and round
    return [("t", "i8"), ("plays", "u4", arms), ("total", "f8", arms), ("mu", "f8", arms), ("width", "f8", arms)]


@begin.register(UCB1)
def _(spec, row, word):
    restart(spec, row)


@restart.register(UCB1)
def _(spec, row):
    row.t = 0
    for arm in range(row.plays.shape[0]):
        evict(spec, row, arm)


@select.register(UCB1)
def _(spec, row, pool, available, now):
    # TINY: never zero
    scale = max(spec.alpha * math.sqrt(8.0 * log(spec.t0 + (row.t + 1))), TINY)
    best, chosen = -math.inf, -1
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            index = row.mu[arm] + scale * row.width[arm]
            if index > best:
                best, chosen = index, arm
    return chosen


@show.register(UCB1)
def _(spec, row, arm, now):
    row.t += 1
    row.plays[arm] += 1
    row.mu[arm] = row.total[arm] / row.plays[arm]
    row.width[arm] = 1.0 / math.sqrt(row.plays[arm] + spec.plays_offset)


@reward.register(UCB1)
def _(spec, row, arm, value, shown, now):
    row.total[arm] = min(row.total[arm] + value, float(row.plays[arm]))  # a play earns at most 1, even if it is rewarded twice
    row.mu[arm] = row.total[arm] / row.plays[arm]
    return True


@evict.register(UCB1)
def _(spec, row, arm):
    row.plays[arm] = 0
    row.total[arm] = 0.0
    row.mu[arm] = 0.0
    row.width[arm] = math.inf if spec.plays_offset == 0.0 else 1.0 / math.sqrt(spec.plays_offset)


@room.register(UCB1)
def _(spec, row):
    return row.plays.shape[0]


@played.register(UCB1)
def _(spec, row):
    return row.t


@plays_of.register(UCB1)
def _(spec, row, arm):
    return row.plays[arm]


@mean_of.register(UCB1)
def _(spec, row, arm):
    return row.mu[arm]
