"""The settings and the state of the signals that are computed from a query's own traffic."""

from __future__ import annotations

from typing import Annotated, Any

from swerve.core.spec import Gap, Positive, Probability, Range, Spec

#: Kinds of signals in a plan: five are computed from the traffic, two from numbers that the caller sends.
VOLUME, ABANDONMENT, REFORMULATION, AGE, NEW, COUNT, RAW = 0, 1, 2, 3, 4, 5, 6
#: The number of signals that need no number from the caller. Each has its own latch.
OWN = 5
#: Indices of the two rates in the fields of a row.
ABANDONED, REFORMULATED = 0, 1
HOUR = 3600.0


class Senses(Spec):
    """How traffic becomes surprises. Times are hours unless a name says otherwise; docs/signals.md has the rules and the figures.

    Volume and counts: the baseline covers `baseline_hours`; nothing is a surprise before `warmup_hours` of it. The fast window is
    as long as `window_requests` requests take, between `window_hours_low` and `window_hours_high`. `overdispersion` is the excess
    variance of real counts over Poisson's. A deviance of `full_surprise_deviance` is a surprise of 1. A burst enters the baseline
    with at most `burst_cap` times the known rate.

    Rates: a CUSUM for odds that rise by the factor `odds_factor`, up to `evidence_ceiling` (a crossing is at half of it). With each
    request the baseline keeps `baseline_rate_retention` of its weight, and the recent rate that winsorises it keeps
    `recent_rate_retention`. A rate can be a surprise after `rate_warmup_requests` requests, of which `min_contrary_outcomes` had
    the other outcome. A request waits at least `close_after_seconds` for its answer.

    Latch: a crossing (a level of at least `crossing_level`) is heard if the last one is more than `latch_hours` old, and for rates,
    age and new candidates also `latch_requests` requests ago. Otherwise the signal is noise below `noise_ceiling`.

    The freshness of a candidate falls by the factor e in `freshness_hours`. Season: an hour of the week has half its full weight
    after `season_half_trust_requests` requests and is averaged over `season_weeks` weeks; a young query counts for at most
    `season_max_share` of all traffic.

    >>> Senses(latch_hours=6).latch_hours
    6.0
    """

    baseline_hours: Positive = 168.0
    warmup_hours: Positive = 24.0
    window_hours_low: Positive = 2.0
    window_hours_high: Positive = 24.0
    window_requests: Positive = 4.0
    overdispersion: Annotated[float, Range(0.0)] = 0.1
    full_surprise_deviance: Positive = 16.0
    burst_cap: Annotated[float, Range(1.0)] = 2.0
    odds_factor: Annotated[float, Range(1.0, open_low=True)] = 2.0
    evidence_ceiling: Positive = 30.0
    recent_rate_retention: Gap = 0.975
    baseline_rate_retention: Gap = 0.9995
    rate_warmup_requests: Positive = 30.0
    min_contrary_outcomes: Positive = 5.0
    close_after_seconds: Positive = 300.0
    latch_hours: Positive = 12.0
    latch_requests: Annotated[int, Range(0, 30_000)] = 40
    crossing_level: Probability = 0.5
    noise_ceiling: Probability = 0.3
    freshness_hours: Positive = 24.0
    season_half_trust_requests: Positive = 50.0
    season_weeks: Annotated[float, Range(1.0)] = 4.0
    season_max_share: Probability = 0.05

    def check(self) -> None:
        self.ordered("window_hours")
        if self.noise_ceiling >= self.crossing_level:
            self.refuse("noise_ceiling", f"< crossing_level = {self.crossing_level:g}")
        if self.recent_rate_retention > self.baseline_rate_retention:
            self.refuse("recent_rate_retention", f"≤ baseline_rate_retention = {self.baseline_rate_retention:g}")


def senses_layout(numbers: int) -> list[tuple[Any, ...]]:
    """Return the fields of a query's row when the caller may send this many numbers."""
    each = numbers
    return [
        ("requests", "i8"),
        ("word", "u8"),  # a random word of the query, for its noise
        ("clock", "f8"),  # the season's clock at the last request
        ("fast", "f8"),  # F, S and B of docs/signals.md: requests in the fast window, in the baseline; hours of baseline
        ("slow", "f8"),
        ("span", "f8"),
        ("crossed", "f8", OWN),  # the time of each signal's last crossing
        ("climb", "f8", 2),  # W of each rate
        ("recent_hits", "f8", 2),  # Fk, Fn
        ("recent", "f8", 2),
        ("past_hits", "f8", 2),  # Sk, Sn
        ("past", "f8", 2),
        ("opened", "f8", 2),  # start times of the buckets of unanswered requests: the current one, and the one before
        ("number", "f8", each),  # the last number from the caller
        ("number_slow", "f8", each),
        ("number_span", "f8", each),
        ("number_crossed", "f8", each),
        ("bucket_requests", "i4", 4),  # per bucket: requests, and requests with a session (current, current, before, before)
        ("bucket_answers", "i4", 4),  # per bucket: clicks, and reformulations
        ("muted", "i2", OWN),  # requests for which each signal stays latched, whatever the time
    ]
