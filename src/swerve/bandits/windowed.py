"""Sliding windows: UCB and Thompson sampling that use only their last plays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from swerve.core.contract import begin, evict, layout, mean_of, played, plays_of, restart, reward, room, select, show
from swerve.core.elementary import log
from swerve.core.rng import beta, gamma_scale
from swerve.core.spec import Count, Natural, Positive, Spec, coerced
from swerve.core.tables import has
from swerve.core.verbs import kernel

STEPS = 255  # a reward is stored in one byte: clicks are exact, other rewards are rounded to 1/255
EMPTY = 255  # the arm of an empty entry of the ring; arms are below 64
MOST = 65535  # the largest value of a 16-bit entry of the ring
LONGEST = 1 << 20  # a ring of 3 MiB per query


def window_for(owner: str, horizon: int, shifts: int) -> int:
    """Return τ = 2 √(T ln T / Υ), at most T: Garivier and Moulines's window for T rounds with Υ changes."""
    horizon, shifts = coerced(owner, "horizon", Natural, horizon), max(1, coerced(owner, "shifts", Count, shifts))
    return max(1, min(horizon, LONGEST, round(2.0 * math.sqrt(horizon * log(horizon) / shifts))))


class SWUCB(Spec):
    """SW-UCB: upper confidence bounds from the last τ plays only.

    I_t(u) = μ_t(τ, u) + √(ξ ln(min(t, τ)) / N_t(τ, u)), with averages and counts over the last τ plays of all arms. An arm without
    a play among them comes first.

    The row keeps the last τ plays (`window`), three bytes each, so that each τ is compiled separately. A late click is credited to
    the latest play of its arm, and dropped when that play has left the window.

    Source: Garivier and Moulines (ALT 2011); their theorem needs ξ > 1/2.

    >>> SWUCB.tuned(horizon=30_000, shifts=5)
    SWUCB(window=497)
    """

    window: Natural = 1000
    xi: Positive = 0.6

    def check(self) -> None:
        if self.window > LONGEST:
            self.refuse("window", f"in [1, {LONGEST}]")

    @classmethod
    def tuned(cls, horizon: int, shifts: int = 1) -> SWUCB:
        """The published window for `horizon` rounds with `shifts` changes expected."""
        return cls(window=window_for("SWUCB.tuned", horizon, shifts))


class SWTS(Spec):
    """SW-TS: Thompson sampling from the last τ plays only.

    θ_u ~ Beta(a + clicks_u, b + plays_u − clicks_u), counted over the last τ plays of all arms.

    Rows and late clicks are as in `SWUCB`. `tuned` uses the window of SW-UCB, which has the order that the paper's bound requires.

    Source: Trovò, Paladino, Restelli and Gatti (JAIR 68, 2020).

    >>> SWTS.tuned(horizon=30_000, shifts=5)
    SWTS(window=497)
    """

    window: Natural = 1000
    a: Positive = 1.0
    b: Positive = 1.0

    def check(self) -> None:
        if self.window > LONGEST:
            self.refuse("window", f"in [1, {LONGEST}]")

    @classmethod
    def tuned(cls, horizon: int, shifts: int = 1) -> SWTS:
        """SW-UCB's window for `horizon` rounds with `shifts` changes expected."""
        return cls(window=window_for("SWTS.tuned", horizon, shifts))


def window_layout(spec: Any, arms: int, features: int) -> list[tuple[Any, ...]]:
    """Return the fields: counts inside the window, the latest play of each arm, and the ring of plays."""
    return [
        ("t", "i8"),  # plays since the start
        ("rng", "u8"),
        ("plays", "i4", arms),
        ("earned", "i8", arms),  # in steps of 1/255
        ("latest", "i8", arms),  # the number of the arm's latest play, counted from 0
        ("arms", "u1", spec.window),
        ("values", "u2", spec.window),  # in steps of 1/255; above 255 where clicks of older plays arrived late
    ]


@kernel
def window_begin(spec, row, word):
    row.rng = word
    restart(spec, row)


@kernel
def window_restart(spec, row):
    row.t = 0
    for i in range(row.arms.shape[0]):
        row.arms[i] = EMPTY
        row.values[i] = 0
    for arm in range(row.plays.shape[0]):
        clear_arm(row, arm)


@kernel
def clear_arm(row, arm):
    row.plays[arm] = 0
    row.earned[arm] = 0
    row.latest[arm] = -1


@kernel
def window_evict(spec, row, arm):
    for i in range(row.arms.shape[0]):
        if row.arms[i] == arm:
            row.arms[i] = EMPTY
            row.values[i] = 0
    clear_arm(row, arm)


@kernel
def window_show(spec, row, arm, now):
    """Count the play; return the arm whose play has left the window, or EMPTY."""
    here = row.t % row.arms.shape[0]
    gone = np.int64(row.arms[here])
    if gone != EMPTY:
        row.plays[gone] -= 1
        row.earned[gone] -= np.int64(row.values[here])
    row.arms[here] = arm
    row.values[here] = 0
    row.plays[arm] += 1
    row.latest[arm] = row.t
    row.t += 1
    return gone


@kernel
def window_reward(spec, row, arm, value, shown, now):
    if row.latest[arm] < 0 or row.t - row.latest[arm] > row.arms.shape[0]:
        return False  # its play has left the window
    there = row.latest[arm] % row.arms.shape[0]
    # a play earns at most 1, even if it is rewarded twice, and an entry of the ring has 16 bits
    room = min(STEPS * np.int64(row.plays[arm]) - row.earned[arm], MOST - np.int64(row.values[there]))
    more = max(0, min(np.int64(value * STEPS + 0.5), room))
    row.values[there] += more
    row.earned[arm] += more
    return True


@kernel
def window_room(spec, row):
    return row.plays.shape[0]


@kernel
def window_played(spec, row):
    return row.t


@kernel
def window_plays_of(spec, row, arm):
    return row.plays[arm]


@kernel
def window_mean_of(spec, row, arm):
    # a late click may stay longer in the window than the play it belongs to
    return min(1.0, row.earned[arm] / (STEPS * row.plays[arm])) if row.plays[arm] > 0 else 0.0


for _cls in (SWUCB, SWTS):
    layout.register(_cls)(window_layout)
    begin.register(_cls)(window_begin)
    restart.register(_cls)(window_restart)
    evict.register(_cls)(window_evict)
    show.register(_cls)(window_show)
    reward.register(_cls)(window_reward)
    room.register(_cls)(window_room)
    played.register(_cls)(window_played)
    plays_of.register(_cls)(window_plays_of)
    mean_of.register(_cls)(window_mean_of)


@select.register(SWUCB)
def _(spec, row, pool, available, now):
    scale = spec.xi * log(float(min(row.t + 1, row.arms.shape[0])))
    best, chosen = -1.0, -1
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            if row.plays[arm] == 0:
                return arm
            index = mean_of(spec, row, arm) + math.sqrt(scale / row.plays[arm])
            if index > best:
                best, chosen = index, arm
    return chosen


@layout.register(SWTS)
def _(spec, arms, features):
    return [*window_layout(spec, arms, features), ("click_scale", "f8", arms), ("skip_scale", "f8", arms)]


@kernel
def clicks_of(spec, row, arm):
    return spec.a + min(row.earned[arm], STEPS * row.plays[arm]) / STEPS


@kernel
def skips_of(spec, row, arm):
    return spec.b + max(0, STEPS * row.plays[arm] - row.earned[arm]) / STEPS


@kernel
def rescale(spec, row, arm):
    row.click_scale[arm] = gamma_scale(clicks_of(spec, row, arm))
    row.skip_scale[arm] = gamma_scale(skips_of(spec, row, arm))


@restart.register(SWTS)
def _(spec, row):
    window_restart(spec, row)
    for arm in range(row.plays.shape[0]):
        rescale(spec, row, arm)


@evict.register(SWTS)
def _(spec, row, arm):
    window_evict(spec, row, arm)
    rescale(spec, row, arm)


@show.register(SWTS)
def _(spec, row, arm, now):
    gone = window_show(spec, row, arm, now)
    if gone != EMPTY:
        rescale(spec, row, gone)
    rescale(spec, row, arm)


@reward.register(SWTS)
def _(spec, row, arm, value, shown, now):
    learnt = window_reward(spec, row, arm, value, shown, now)
    rescale(spec, row, arm)
    return learnt


@select.register(SWTS)
def _(spec, row, pool, available, now):
    best, chosen = -1.0, -1
    word = row.rng
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            theta, word = beta(word, clicks_of(spec, row, arm), skips_of(spec, row, arm), row.click_scale[arm], row.skip_scale[arm])
            if theta > best:
                best, chosen = theta, arm
    row.rng = word
    return chosen
