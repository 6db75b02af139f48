"""The Bernoulli generalised likelihood ratio test, over a geometric grid of splits."""

from __future__ import annotations

import math

from swerve.core.contract import watch
from swerve.core.elementary import log
from swerve.core.spec import Gap, Natural, Spec, coerced
from swerve.core.verbs import kernel
from swerve.detectors.counts import over_suffixes, take_in
from swerve.detectors.suffixes import MOST_LEVELS, due, suffix


@over_suffixes
class GLR(Spec):
    """Raise an alarm when two click probabilities, before and after a split, explain an arm's record much better than one.

    max over splits s of  s · kl(μ̂_{1:s}, μ̂_{1:n}) + (n − s) · kl(μ̂_{s+1:n}, μ̂_{1:n})  >  β(n, δ) = ln(n^{3/2} / δ).

    n counts the arm's plays since its last start. The authors test every split. Here the part after the split has 2^k to 2^(k+1) −
    1 plays, with one split for each k < `suffix_levels`, so that the state does not grow. The arm is tested after every
    `check_every` plays, long suffixes less often (`suffixes.due`). `tuned(T)` sets δ = 1/√T; the default is the value for T =
    30,000.

    Source: Besson, Kaufmann, Maillard and Seznec, "Efficient change-point detection for tackling piecewise-stationary bandits"
    (JMLR 23, 2022). β is the one of their experiments; the proven threshold is 2 𝒯(ln(3 n^{3/2} / δ) / 2) + 6 ln(1 + ln n).

    >>> from swerve.detectors import Watcher
    >>> Watcher(GLR()).run([1, 1, 0, 1] * 100 + [0, 0, 1, 0] * 100)
    [430]
    """

    delta: Gap = 0.00577
    check_every: Natural = 1
    suffix_levels: Natural = 12

    def check(self) -> None:
        if self.suffix_levels > MOST_LEVELS:
            self.refuse("suffix_levels", f"in [1, {MOST_LEVELS}]")

    @classmethod
    def tuned(cls, horizon: int, check_every: int = 1) -> GLR:
        """Return the detector with δ = 1/√T, as in the authors' experiments."""
        # T + 1: δ must be below 1 at T = 1
        return cls(delta=1.0 / math.sqrt(coerced("GLR.tuned", "horizon", Natural, horizon) + 1.0), check_every=check_every)


@kernel
def surprise(n, s):
    """Return −ln of the highest likelihood of n plays that earned s: n · H(s/n)."""
    if s <= 0.0 or s >= n:
        return 0.0
    return n * log(n) - s * log(s) - (n - s) * log(n - s)


@kernel
def gain(n, s, m, r):
    """Return the GLR statistic: the gain in log-likelihood from splitting off m of the n plays, which earned r of the total s."""
    return surprise(n, s) - surprise(m, r) - surprise(n - m, s - r)


@kernel
def surely_below(n, s, m, r, bar):
    """Return whether `gain(n, s, m, r)` is certainly below the bar, without computing a logarithm.

    kl(p, q) ≤ (p − q)² / (q (1 − q)), so the gain is at most (r − m·s/n)² · n / (m · (n − m)) / (μ (1 − μ)), μ = s/n.
    """
    mu = s / n
    excess = r - m * mu
    return excess * excess * n <= bar * mu * (1.0 - mu) * m * (n - m)


@watch.register(GLR)
def _(spec, row, arm, value):
    n, s = take_in(row, arm, value)
    if n % spec.check_every != 0:
        return False
    bar = log(n * math.sqrt(n) / spec.delta)
    for k in range(spec.suffix_levels):
        m, r = suffix(row, arm, k, n, s)
        if m == n or not due(k, n, spec.check_every):
            break
        if not surely_below(n, s, m, r, bar) and gain(n, s, m, r) > bar:
            return True
    return False
