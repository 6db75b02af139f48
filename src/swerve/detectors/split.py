"""Posterior odds that an arm has changed, over a geometric grid of splits."""

from __future__ import annotations

import math

from swerve.core.contract import evidence, intake, onset, watch
from swerve.core.elementary import log
from swerve.core.spec import Gap, Natural, Positive, Spec
from swerve.core.verbs import kernel
from swerve.detectors.counts import over_suffixes, take_in
from swerve.detectors.glr import surely_below
from swerve.detectors.suffixes import MOST_LEVELS, suffix

STIRLING = 10.0  # from here on four terms of Stirling's series are exact to 10⁻¹²
HALF_LOG_TWO_PI = 0.5 * log(2.0 * math.pi)
LEAST_BAR, LEAST_ODDS = 6.0, 404.0  # ln 404 = 6.0014: above 6, however it is rounded
LOW, HIGH = 0.159, 0.182  # Γ(1 + x) is between (x/e)^x √(2π(x + LOW)) and (x/e)^x √(2π(x + HIGH)), for every x ≥ 0
TINY = 1e-30  # replaces a divisor of 0 where what is divided is 0 too, or the other bound is used
FEW = 4  # plays required before a split: with fewer there is no record to compare with


@over_suffixes
class Split(Spec):
    """Raise an alarm when the odds that an arm has changed recently exceed `alarm_odds`.

    For a suffix of m plays that earned r, after n − m plays that earned s − r: prior odds hazard · m, and the Bayes factor of "the
    suffix is a new Beta(1, 1)-Bernoulli" against "it continues as before",
    BF = B(1 + r, 1 + m − r) · B(1 + s − r, 1 + n − m − s + r) / B(1 + s, 1 + n − s);
    alarm ⇔ hazard · m · BF > alarm_odds for some suffix.

    Suffixes have 2^k to 2^(k+1) − 1 plays, with at least 4 plays before them, one for each k in [2, `suffix_levels`). Each is
    tested `checks_per_doubling` times (a power of 2) while it doubles. `evidence` returns the highest ln(hazard · m · BF /
    alarm_odds) + bonus if that is positive, and its suffix. `onset` returns the suffix with the highest m · BF.

    Source: the Bayes factor is that of Fearnhead and Liu (JRSS B 69, 2007), as in `BOCPD`; the constant hazard is that of Adams
    and MacKay, "Bayesian online changepoint detection" (arXiv 0710.3742, 2007).

    >>> from swerve.detectors import Watcher
    >>> Watcher(Split()).run([1, 1, 0, 1] * 100 + [0, 0, 1, 0] * 100)
    [428]
    """

    hazard: Gap = 1e-6
    alarm_odds: Positive = 1.0
    suffix_levels: Natural = 12
    checks_per_doubling: Natural = 4

    def check(self) -> None:
        if not 3 <= self.suffix_levels <= MOST_LEVELS:
            self.refuse("suffix_levels", f"in [3, {MOST_LEVELS}]")
        if self.checks_per_doubling & (self.checks_per_doubling - 1):  # the plays at which the levels are tested must nest
            self.refuse("checks_per_doubling", "a power of 2")


@kernel
def log_gamma(x):
    """Return ln Γ(x) for x > 0, to 10⁻¹² (Stirling's series). `math.lgamma` rounds differently in Python and in compiled code."""
    product = 1.0
    while x < STIRLING:
        product *= x
        x += 1.0
    y = 1.0 / (x * x)
    series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x
    value = (x - 0.5) * log(x) - x + HALF_LOG_TWO_PI + series
    return value if product == 1.0 else value - log(product)


@kernel
def log_beta(a, b):
    """Return ln B(a, b)."""
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


@kernel
def log_bayes(n, s, m, r):
    """Return the log Bayes factor for a change before the last m of n plays, which earned r of s."""
    before = log_beta(1.0 + s - r, 1.0 + (n - m) - (s - r))
    return log_beta(1.0 + r, 1.0 + m - r) + before - log_beta(1.0 + s, 1.0 + n - s)


@kernel
def kl_bound(at_q, at_p):
    """Return a bound of n · kl(p, q) from n (p − q)² / (q (1 − q)) and n (p − q)² / (p (1 − p)).

    kl(p, q) is the integral of (p − t) / (t (1 − t)) over t from q to p. 1 / (t (1 − t)) is convex, so a straight line from q to p
    lies above it, which gives a third and a sixth of the arguments. The first argument alone is a bound too.
    """
    return min(at_q, at_q / 3.0 + at_p / 6.0)


@kernel
def log_bayes_bound(n, s, m, r):
    """Return g and k such that `log_bayes(n, s, m, r)` ≤ g − ln(k) / 2, without computing a logarithm; requires n ≥ m > 0.

    g is at least the gain of the split in log-likelihood, and the rest of the Bayes factor at most 1 / √k, by Stirling's formula.
    """
    old, left = n - m, s - r
    variance = s * (n - s)
    excess = (r * n - m * s) * (r * n - m * s)
    here = kl_bound(excess / max(m * variance, TINY), excess * m / max(r * (m - r) * (n * n), TINY))
    before = kl_bound(excess / max(old * variance, TINY), excess * old / max(left * (old - left) * (n * n), TINY))
    spread = (r + HIGH) * (m - r + HIGH) * (left + HIGH) * (old - left + HIGH) * (n + HIGH)
    one = (m + LOW) * (old + LOW) * (s + LOW) * (n - s + LOW)
    both = (m + 1.0) * (old + 1.0) / (n + 1.0)
    return here + before, one * both * both / (2.0 * math.pi * spread)


@evidence.register(Split)
def _(spec, row, arm, bonus):
    n, s = row.plays[arm], row.total[arm]
    top, plays, total = 0.0, 0, 0.0
    for k in range(2, spec.suffix_levels):
        if n * spec.checks_per_doubling & ((1 << k) - 1) != 0:
            break  # longer suffixes do not have enough new plays to be tested either
        m, r = suffix(row, arm, k, n, s)
        if n - m < FEW:  # a change right after the start is not one: there is no record before it
            break
        if bonus < LEAST_BAR and spec.alarm_odds > LEAST_ODDS * spec.hazard * m and surely_below(n, s, m, r, LEAST_BAR - bonus):
            continue  # below the bar, since that is not lower: nearly every record is, and the logarithm is saved
        bar = log(spec.alarm_odds / spec.hazard / m) - bonus
        if bar > 0.0 and surely_below(n, s, m, r, bar):
            continue  # BF < exp(gain) at every split (checked for all records of up to 110 clicks), so this hides no alarm
        score = log_bayes(n, s, m, r) - bar
        if score > top:
            top, plays, total = score, m, r
    return top, plays, total


@onset.register(Split)
def _(spec, row, arm):
    n, s = row.plays[arm], row.total[arm]
    top, plays, total = -math.inf, n, s
    for k in range(2, spec.suffix_levels):
        m, r = suffix(row, arm, k, n, s)
        if m >= n:
            break
        score = log_bayes(n, s, m, r) + log(m)
        if score > top:
            top, plays, total = score, m, r
    return plays, total


@intake.register(Split)
def _(spec, row, arm, value):
    take_in(row, arm, value)


@watch.register(Split)
def _(spec, row, arm, value):
    take_in(row, arm, value)
    score, _, _ = evidence(spec, row, arm, 0.0)
    return score > 0.0
