"""Restarted Bayesian online change-point detection: one forecaster per run length, and the most likely one decides."""

from __future__ import annotations

import math

from swerve.core.contract import watch
from swerve.core.elementary import log
from swerve.core.spec import Gap, Natural, Spec, coerced
from swerve.core.verbs import kernel
from swerve.detectors.counts import over_suffixes, take_in
from swerve.detectors.glr import surely_below
from swerve.detectors.split import log_gamma
from swerve.detectors.suffixes import MOST_LEVELS, due, suffix


@over_suffixes
class BOCPD(Spec):
    """R-BOCPD: raise an alarm when a forecaster that started later outweighs the one that started with the record.

    Laplace's forecaster of start s predicts a click with (clicks since s + 1) / (plays since s + 2); L̂_{s:t} is its logarithmic
    loss. Its weight is ϑ_s = η · exp(−L̂_{s:t}) · exp(−L̂_{1:s−1}), the weight of the first is ϑ_1 = exp(−L̂_{1:t});  alarm ⇔
    ϑ_s > ϑ_1 for some s > 1.

    The authors keep one forecaster per play. The losses have a closed form, the Beta integral exp(−L̂) = c! (n − c)! / (n + 1)!, so
    a weight follows from counts. This class tries one start for each of `suffix_levels` geometric suffixes, so that the state does
    not grow. The authors' prior η is a function of (s, t) that the proofs bound; ours is η = δ / n, where n is the number of plays
    of the arm. `tuned(T)` sets δ = 1/√T; the default is the value for T = 30,000. `check_every` and `suffix_levels` are as in
    `GLR`.

    Source: Alami, Maillard and Féraud, "Restarted Bayesian online change-point detector achieves optimal detection delay" (ICML
    2020), after Fearnhead and Liu (JRSS B 2007).

    >>> from swerve.detectors import Watcher
    >>> Watcher(BOCPD()).run([1, 1, 0, 1] * 100 + [0, 0, 1, 0] * 100)
    [426]
    """

    delta: Gap = 0.00577
    check_every: Natural = 1
    suffix_levels: Natural = 12

    def check(self) -> None:
        if self.suffix_levels > MOST_LEVELS:
            self.refuse("suffix_levels", f"in [1, {MOST_LEVELS}]")

    @classmethod
    def tuned(cls, horizon: int, check_every: int = 1) -> BOCPD:
        """Return the detector with δ = 1/√T, as for the GLR."""
        return cls(delta=1.0 / math.sqrt(coerced("BOCPD.tuned", "horizon", Natural, horizon) + 1.0), check_every=check_every)


@kernel
def log_evidence(n, s):
    """Return ln of the probability that Laplace's forecaster gives n plays that earned s: −L̂."""
    return log_gamma(s + 1.0) + log_gamma(n - s + 1.0) - log_gamma(n + 2.0)


@watch.register(BOCPD)
def _(spec, row, arm, value):
    n, s = take_in(row, arm, value)
    if n % spec.check_every != 0:
        return False
    bar = log(n / spec.delta)
    # An integral is at most its highest value, which is at most n + 1 times the integral. A split whose likelihood ratio stays
    # ln(n + 1) below the bar therefore cannot outweigh the first forecaster.
    low = bar - log(n + 1.0)
    for k in range(spec.suffix_levels):
        m, r = suffix(row, arm, k, n, s)
        if m == n or not due(k, n, spec.check_every):
            break
        if not surely_below(n, s, m, r, low) and log_evidence(m, r) + log_evidence(n - m, s - r) - log_evidence(n, s) > bar:
            return True
    return False
