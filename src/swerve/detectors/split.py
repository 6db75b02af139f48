"""Posterior odds that an arm has changed, over a geometric grid of splits."""

from __future__ import annotations

import math

from swerve.core.contract import evidence, watch
from swerve.core.spec import Gap, Natural, Positive, Spec
from swerve.core.verbs import kernel
from swerve.detectors.counts import over_suffixes, take_in
from swerve.detectors.glr import surely_below
from swerve.detectors.suffixes import MOST_LEVELS, suffix


@over_suffixes
class Split(Spec):
    """An alarm when the odds that an arm has changed lately come above `odds`.

    For a suffix of m plays that earned r, after n − m plays that earned s − r: prior odds hazard · m, and the Bayes factor of "the
    suffix is a fresh Beta(1, 1)-Bernoulli" against "it goes on as before",
    B(1 + r, 1 + m − r) · B(1 + s − r, 1 + n − m − s + r) / B(1 + s, 1 + n − s).

    Suffixes have 2^k to 2^(k+1) − 1 plays, one for each k < `levels`; each is looked at `often` times while it doubles.
    """

    hazard: Gap = 1e-6
    odds: Positive = 1.0
    levels: Natural = 12
    often: Natural = 4

    def check(self) -> None:
        if self.levels > MOST_LEVELS:
            self.refuse("levels", f"in [1, {MOST_LEVELS}]")


@kernel
def log_beta(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@kernel
def log_bayes(n, s, m, r):
    """The log Bayes factor for a change before the last m of n plays, which earned r of s."""
    before = log_beta(1.0 + s - r, 1.0 + (n - m) - (s - r))
    return log_beta(1.0 + r, 1.0 + m - r) + before - log_beta(1.0 + s, 1.0 + n - s)


@evidence.register(Split)
def _(spec, row, arm, bonus):
    n, s = row.plays[arm], row.total[arm]
    top, plays, total = 0.0, 0, 0.0
    for k in range(2, spec.levels):
        size = 1 << k
        if n & (size // spec.often - 1 if size > spec.often else 0) != 0:
            break  # neither does any longer suffix have enough new plays to be looked at
        m, r = suffix(row, arm, k, n, s)
        if m >= n:
            break
        bar = math.log(spec.odds / spec.hazard / m) - bonus
        if bar > 0.0 and surely_below(n, s, m, r, bar):
            continue
        score = log_bayes(n, s, m, r) - bar
        if score > top:
            top, plays, total = score, m, r
    return top, plays, total


@watch.register(Split)
def _(spec, row, arm, value):
    take_in(row, arm, value)
    score, _, _ = evidence(spec, row, arm, 0.0)
    return score > 0.0
