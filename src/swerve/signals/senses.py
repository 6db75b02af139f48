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

    Volume and counts: `memory` is how far back a baseline reaches, `warm` how much of it there must be before anything can be a
    surprise. The fast window is as long as `window_requests` requests take, between `window_low` and `window_high`. `spread` is
    how much real counts vary beyond Poisson's, `scale` the deviance that is a surprise of 1; a burst enters the baseline with at
    most `winsor` times the rate known.

    Rates: a CUSUM for odds that rise by the factor `odds`, up to `ceiling` (a crossing is at half of it). The baseline forgets by
    `rate_memory` a request, what it is winsorised by forgets by `rate_fast`; it speaks after `rate_warm` requests, of which
    `contrary` had the other outcome. `close_after` is in seconds: so long at least a request may still be answered.

    Latch: a crossing (`loud` or more) is heard if the last one is more than `latch` hours old, and for rates, age and new
    candidates also `latch_requests` requests. What is not heard is noise below `quiet`.

    `fresh` is the age in which the freshness of a candidate falls by the factor e. Season: an hour of the week is trusted by half
    after `season_requests` requests, averaged over `season_weeks` weeks; a young query is at most `season_share` of all traffic.

    >>> Senses(latch=6).latch
    6.0
    """

    memory: Positive = 168.0
    warm: Positive = 24.0
    window_low: Positive = 2.0
    window_high: Positive = 24.0
    window_requests: Positive = 4.0
    spread: Annotated[float, Range(0.0)] = 0.1
    scale: Positive = 16.0
    winsor: Annotated[float, Range(1.0)] = 2.0
    odds: Annotated[float, Range(1.0, open_low=True)] = 2.0
    ceiling: Positive = 30.0
    rate_fast: Gap = 0.975
    rate_memory: Gap = 0.9995
    rate_warm: Positive = 30.0
    contrary: Positive = 5.0
    close_after: Positive = 300.0
    latch: Positive = 12.0
    latch_requests: Annotated[int, Range(0, 30_000)] = 40
    loud: Probability = 0.5
    quiet: Probability = 0.3
    fresh: Positive = 24.0
    season_requests: Positive = 50.0
    season_weeks: Annotated[float, Range(1.0)] = 4.0
    season_share: Probability = 0.05

    def check(self) -> None:
        self.ordered("window")
        if self.quiet >= self.loud:
            self.refuse("quiet", f"< loud = {self.loud:g}")
        if self.rate_fast > self.rate_memory:
            self.refuse("rate_fast", f"≤ rate_memory = {self.rate_memory:g}")


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
        ("asked", "i4", 4),  # in each bucket: requests, and requests with a session (current, current, before, before)
        ("told", "i4", 4),  # in each bucket: clicks, and reformulations
        ("muted", "i2", OWN),  # requests for which each signal stays latched, whatever the time
    ]
