"""M-UCB's detector: it compares the latest plays with those just before."""

from __future__ import annotations

import math

import numpy as np

from swerve.core.contract import evict, layout, restart, watch
from swerve.core.elementary import log
from swerve.core.spec import Natural, Positive, Spec, coerced
from swerve.detectors.counts import restart_arms

STEPS = 255  # a reward is stored in one byte
LONGEST = 65536  # a ring of 64 KiB per arm


class MUCB(Spec):
    """Raise an alarm when the sums of the last w/2 rewards and of the w/2 before them differ by more than b.

    w is the `window`, b the `threshold`. A change by Δ is detected if w/2 · Δ > b, and only after about w/2 · (1 + b / (w Δ))
    plays. `tuned` sets the published threshold b = √(w/2 · ln(2KT²)).

    The ring of the last w rewards has one byte for each: clicks are exact, other rewards are rounded to 1/255. The row has room for
    w plays of each arm, so that each w is compiled separately.

    Source: Cao, Wen, Kveton and Xie, "Nearly optimal adaptive procedure with change detection for piecewise-stationary bandit"
    (AISTATS 2019).

    >>> from swerve.detectors import Watcher
    >>> Watcher(MUCB(window=40, threshold=12)).run([1] * 100 + [0] * 100)
    [113]
    """

    window: Natural = 200
    threshold: Positive = 50.0

    def check(self) -> None:
        if self.window % 2 or self.window > LONGEST:
            self.refuse("window", f"an even number ≤ {LONGEST}")

    @classmethod
    def tuned(cls, arms: int, horizon: int, window: int = 200) -> MUCB:
        """Return the detector with the published threshold for this window."""
        arms, horizon = coerced("MUCB.tuned", "arms", Natural, arms), coerced("MUCB.tuned", "horizon", Natural, horizon)
        return cls(window=window, threshold=math.sqrt(0.5 * window * log(2.0 * arms * horizon * horizon)))


@layout.register(MUCB)
def _(spec, arms, features):
    return [("plays", "i8", arms), ("late", "i4", arms), ("early", "i4", arms), ("ring", "u1", (arms, spec.window))]


restart.register(MUCB)(restart_arms)


@evict.register(MUCB)
def _(spec, row, arm):
    row.plays[arm] = 0
    row.late[arm] = 0
    row.early[arm] = 0
    for i in range(row.ring.shape[1]):
        row.ring[arm, i] = 0


@watch.register(MUCB)
def _(spec, row, arm, value):
    window = row.ring.shape[1]
    here = row.plays[arm] % window
    middle = (here + window // 2) % window
    new = np.int64(value * STEPS + 0.5)
    # a ring that is not full yet holds zeros, which change neither sum when they move from one half to the other
    old, passing = np.int64(row.ring[arm, here]), np.int64(row.ring[arm, middle])
    row.late[arm] += new - passing
    row.early[arm] += passing - old
    row.ring[arm, here] = new
    row.plays[arm] += 1
    return row.plays[arm] >= window and abs(np.int64(row.late[arm]) - np.int64(row.early[arm])) > STEPS * spec.threshold
