"""CUSUM: cumulative sums of the deviations from the average of an arm's first plays."""

from __future__ import annotations

from swerve.core.contract import evict, layout, restart, watch
from swerve.core.elementary import log
from swerve.core.errors import SwerveError
from swerve.core.spec import Count, Natural, NonNegative, Positive, Spec, coerced
from swerve.detectors.counts import restart_arms


class CUSUM(Spec):
    """Two-sided CUSUM: raise an alarm when an arm has stayed away from the average of its first M plays for long enough.

    û₀ = average of the first M rewards;  after them g⁺ ← max(0, g⁺ + y − û₀ − ε),  g⁻ ← max(0, g⁻ + û₀ − y − ε);
    alarm ⇔ g⁺ ≥ h or g⁻ ≥ h.

    A change smaller than ε, the `drift`, is never detected; a change by Δ is detected after about h / (Δ − ε) plays. If û₀ is wrong
    by more than ε, an alarm is certain, so a small M needs a large ε. `tuned` sets the published threshold h = ln(T / Υ) for Υ
    expected changes; the other defaults are ours (docs/baselines.md has the measurements behind them).

    Source: Liu, Lee and Shroff, "A change-detection based framework for piecewise-stationary multi-armed bandit problem" (AAAI
    2018); the test is Page's (Biometrika 1954).

    >>> from swerve.detectors import Watcher
    >>> Watcher(CUSUM(warmup=50, drift=0.1, threshold=5)).run([0.9] * 200 + [0.1] * 200)
    [208]
    """

    warmup: Natural = 100
    drift: NonNegative = 0.1
    threshold: Positive = 10.0

    @classmethod
    def tuned(cls, horizon: int, shifts: int = 1, warmup: int = 100, drift: float = 0.1) -> CUSUM:
        """Return the detector with the published threshold for `horizon` rounds with `shifts` expected changes."""
        horizon, shifts = coerced("CUSUM.tuned", "horizon", Natural, horizon), coerced("CUSUM.tuned", "shifts", Count, shifts)
        if horizon <= max(1, shifts):
            raise SwerveError(f"CUSUM.tuned: horizon = {horizon} is not allowed; horizon must be > shifts = {max(1, shifts)}")
        return cls(warmup=warmup, drift=drift, threshold=log(horizon / max(1, shifts)))


@layout.register(CUSUM)
def _(spec, arms, features):
    return [("plays", "i8", arms), ("total", "f8", arms), ("up", "f8", arms), ("down", "f8", arms)]


restart.register(CUSUM)(restart_arms)


@evict.register(CUSUM)
def _(spec, row, arm):
    row.plays[arm] = 0
    row.total[arm] = 0.0
    row.up[arm] = 0.0
    row.down[arm] = 0.0


@watch.register(CUSUM)
def _(spec, row, arm, value):
    row.plays[arm] += 1
    if row.plays[arm] <= spec.warmup:
        row.total[arm] += value
        return False
    away = value - row.total[arm] / spec.warmup
    row.up[arm] = max(0.0, row.up[arm] + (away - spec.drift))
    row.down[arm] = max(0.0, row.down[arm] - (away + spec.drift))
    return row.up[arm] >= spec.threshold or row.down[arm] >= spec.threshold
