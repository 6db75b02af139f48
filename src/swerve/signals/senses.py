"""Senses: what a query's own traffic says, as surprises in [0, 1]: what is measured, and with which constants."""

from __future__ import annotations

from typing import Annotated, Any

from swerve.core.spec import Gap, Positive, Probability, Range, Spec

#: Kinds of signals, as a plan names them: five of the traffic itself, and two made of numbers that the caller sends.
VOLUME, ABANDONMENT, REFORMULATION, AGE, NEW, COUNT, RAW = 0, 1, 2, 3, 4, 5, 6
#: How many signals need no number from the caller: each has a latch of its own.
OWN = 5
#: The two rates, by their place in the fields of a row: abandoned or not, reformulated or not.
ABANDONED, REFORMULATED = 0, 1
HOUR = 3600.0


class Senses(Spec):
    """How traffic becomes surprises. Times are hours where nothing else is said; docs/signals.md has the rules and the figures.

    Volume and counts: `baseline_hours` is how far back a baseline reaches, `warmup_hours` how much of it there must be before anything can be a
    surprise. The fast window is as long as `window_requests` requests take, between `window_hours_low` and `window_hours_high`. `overdispersion` is
    how much real counts vary beyond Poisson's, `full_surprise_deviance` the deviance that is a surprise of 1; a burst enters the baseline with at
    most `burst_cap` times the rate known.

    Rates: a CUSUM for odds that rise by the factor `odds_factor`, up to `evidence_ceiling` (a crossing is at half of it). The baseline forgets by
    `baseline_rate_retention` a request, what it is winsorised by forgets by `recent_rate_retention`; it speaks after `rate_warmup_requests` requests, of which
    `min_contrary_outcomes` had the other outcome. `close_after_seconds` is in seconds: so long at least a request may still be answered.

    Latch: a crossing (`crossing_level` or more) is heard if the last one is more than `latch_hours` hours old, and for rates, age and new
    candidates also `latch_requests` requests. What is not heard is noise below `noise_ceiling`.

    `freshness_hours` is the age in which the freshness of a candidate falls by the factor e. Season: an hour of the week is trusted by half
    after `season_half_trust_requests` requests, averaged over `season_weeks` weeks; a young query is at most `season_max_share` of all traffic.

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
    """Fields of a query's row, for so many numbers that the caller may send."""
    each = numbers
    return [
        ("requests", "i8"),
        ("word", "u8"),  # of the query: its noise is its own
        ("clock", "f8"),  # the season's, at the last request
        ("fast", "f8"),  # F, S and B of SIGNALS: requests in the fast window, in the baseline; hours of baseline
        ("slow", "f8"),
        ("span", "f8"),
        ("crossed", "f8", OWN),  # when each signal was last loud
        ("climb", "f8", 2),  # W of each rate
        ("recent_hits", "f8", 2),  # Fk, Fn
        ("recent", "f8", 2),
        ("past_hits", "f8", 2),  # Sk, Sn
        ("past", "f8", 2),
        ("opened", "f8", 2),  # the buckets of requests that may still be answered: the current one, and the one before
        ("number", "f8", each),  # what the caller sent last
        ("number_slow", "f8", each),
        ("number_span", "f8", each),
        ("number_crossed", "f8", each),
        ("bucket_requests", "i4", 4),  # in each bucket: requests, and requests with a session (current, current, before, before)
        ("bucket_answers", "i4", 4),  # in each bucket: clicks, and reformulations
        ("muted", "i2", OWN),  # requests for which each signal stays latched, whatever the time
    ]
