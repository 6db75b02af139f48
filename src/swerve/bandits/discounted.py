"""Discounting: UCB and Thompson sampling in which every play reduces the weight of the earlier ones.

Each play multiplies the weight of all earlier plays by γ. Instead of updating every arm in every round, a new play gets 1/γ times
the weight of the one before, and only ratios of weights are used. When the weight has grown large, all weights are divided by a
power of two.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from swerve.core.contract import begin, evict, layout, mean_of, played, plays_of, restart, reward, room, select, show
from swerve.core.elementary import log
from swerve.core.rng import beta, gamma_scale
from swerve.core.spec import Count, Natural, Positive, Range, Spec, coerced
from swerve.core.tables import has
from swerve.core.verbs import kernel

LARGE = 2.0**300  # weights are divided by this before they overflow
FORGOTTEN = 1e-100  # an arm whose plays weigh less than this is treated as unplayed
Discount = Annotated[float, Range(0.0, 1.0, open_low=True)]


def discount_for(owner: str, horizon: int, shifts: int) -> float:
    """Return γ = 1 − √(Υ / T) / 4: Garivier and Moulines's discount for T rounds with Υ changes."""
    horizon, shifts = coerced(owner, "horizon", Natural, horizon), max(1, coerced(owner, "shifts", Count, shifts))
    return 1.0 - 0.25 * math.sqrt(min(1.0, shifts / horizon))


class DUCB(Spec):
    """D-UCB: upper confidence bounds from discounted plays.

    I_t(u) = μ_t(γ, u) + 2 √(ξ ln n_t(γ) / N_t(γ, u));  N_t(γ, u) = Σ_s γ^{t−s} 1{arm u in round s},  n_t(γ) = Σ_u N_t(γ, u), and
    μ_t(γ, u) is the average with the same weights. Unplayed arms come first.

    A late click is credited with the weight of the latest play of its arm.

    Source: Kocsis and Szepesvári (2006); Garivier and Moulines (ALT 2011), whose theorem needs ξ > 1/2.

    >>> DUCB.tuned(horizon=30_000, shifts=3)
    DUCB(gamma=0.9975)
    """

    gamma: Discount = 0.999
    xi: Positive = 0.6

    @classmethod
    def tuned(cls, horizon: int, shifts: int = 1) -> DUCB:
        """The published discount for `horizon` rounds with `shifts` changes expected."""
        return cls(gamma=discount_for("DUCB.tuned", horizon, shifts))


class DTS(Spec):
    """D-TS: Thompson sampling from discounted plays.

    θ_u ~ Beta(a + S_u, b + F_u);  after each round S ← γ S, F ← γ F for all arms, then S_u += reward, F_u += 1 − reward for the
    arm played.

    Late clicks are as in `DUCB`. The authors give no tuning; `tuned` uses the discount of D-UCB.

    Source: Raj and Kalyani, "Taming non-stationary bandits: a Bayesian approach" (2017).

    >>> DTS.tuned(horizon=30_000, shifts=3)
    DTS(gamma=0.9975)
    """

    gamma: Discount = 0.999
    a: Positive = 1.0
    b: Positive = 1.0

    @classmethod
    def tuned(cls, horizon: int, shifts: int = 1) -> DTS:
        """D-UCB's discount for `horizon` rounds with `shifts` changes expected."""
        return cls(gamma=discount_for("DTS.tuned", horizon, shifts))


def discount_layout(spec: Any, arms: int, features: int) -> list[tuple[Any, ...]]:
    """Return the fields: the weight of a play now; per arm its plays, their weight, their weighted reward, its latest weight."""
    return [
        ("t", "i8"),
        ("rng", "u8"),
        ("weight", "f8"),
        ("plays", "u4", arms),
        ("mass", "f8", arms),
        ("earned", "f8", arms),
        ("stamp", "f8", arms),
    ]


@kernel
def discount_begin(spec, row, word):
    row.rng = word
    restart(spec, row)


@kernel
def discount_restart(spec, row):
    row.t = 0
    row.weight = 1.0
    for arm in range(row.plays.shape[0]):
        evict(spec, row, arm)


@kernel
def discount_evict(spec, row, arm):
    row.plays[arm] = 0
    row.mass[arm] = 0.0
    row.earned[arm] = 0.0
    row.stamp[arm] = 0.0


@kernel
def discount_show(spec, row, arm, now):
    row.weight /= spec.gamma
    if row.weight > LARGE:  # dividing by a power of two rounds nothing; weights that underflow were negligible
        row.weight /= LARGE
        for other in range(row.plays.shape[0]):
            row.mass[other] /= LARGE
            row.earned[other] /= LARGE
            row.stamp[other] /= LARGE
    row.t += 1
    row.plays[arm] += 1
    row.mass[arm] += row.weight
    row.stamp[arm] = row.weight


@kernel
def discount_reward(spec, row, arm, value, shown, now):
    row.earned[arm] = min(row.earned[arm] + value * row.stamp[arm], row.mass[arm])  # a play earns 1 at most
    return True


@kernel
def discount_room(spec, row):
    return row.plays.shape[0]


@kernel
def discount_played(spec, row):
    return row.t


@kernel
def discount_plays_of(spec, row, arm):
    return row.plays[arm]


@kernel
def discount_mean_of(spec, row, arm):
    return row.earned[arm] / row.mass[arm] if row.mass[arm] > 0.0 else 0.0


for _cls in (DUCB, DTS):
    layout.register(_cls)(discount_layout)
    begin.register(_cls)(discount_begin)
    restart.register(_cls)(discount_restart)
    evict.register(_cls)(discount_evict)
    show.register(_cls)(discount_show)
    reward.register(_cls)(discount_reward)
    room.register(_cls)(discount_room)
    played.register(_cls)(discount_played)
    plays_of.register(_cls)(discount_plays_of)
    mean_of.register(_cls)(discount_mean_of)


@select.register(DUCB)
def _(spec, row, pool, available, now):
    total = 0.0
    for arm in range(row.plays.shape[0]):
        total += row.mass[arm]
    scale = 4.0 * spec.xi * max(0.0, log(total / row.weight)) if total > 0.0 else 0.0
    best, chosen = -1.0, -1
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            n = row.mass[arm] / row.weight
            if n < FORGOTTEN:
                return arm
            index = mean_of(spec, row, arm) + math.sqrt(scale / n)
            if index > best:
                best, chosen = index, arm
    return chosen


@select.register(DTS)
def _(spec, row, pool, available, now):
    best, chosen = -1.0, -1
    word = row.rng
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            clicks = spec.a + row.earned[arm] / row.weight
            skips = spec.b + (row.mass[arm] - row.earned[arm]) / row.weight
            theta, word = beta(word, clicks, skips, gamma_scale(clicks), gamma_scale(skips))
            if theta > best:
                best, chosen = theta, arm
    row.rng = word
    return chosen
