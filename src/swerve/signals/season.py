"""The season: how busy each hour of the week is for the whole service, and a clock that runs by it.

The clock u advances by an hour's factor while the time advances by an hour, so that the daily and weekly pattern of all traffic is
no surprise for any query. One record serves all queries; a query stores only the clock at its last request.
"""

from __future__ import annotations

import math
from typing import Any

from swerve.core.verbs import kernel
from swerve.signals.senses import HOUR

WEEK = 168
DAY = 24
LOWEST, HIGHEST = 0.125, 8.0  # more extreme factors would stop the clock, or let it jump
OUTBURST = 3.0  # an hour counts as at most this many times its expected requests
SHIFT = 72  # hours from Monday to Thursday: the week begins on Monday, and the clock's zero was a Thursday


def season_layout() -> list[tuple[Any, ...]]:
    """Return the fields of the record that a service keeps once."""
    return [
        ("last", "f8"),  # the time of the last request
        ("clock", "f8"),  # u
        ("hour", "i8"),  # the current hour since the epoch, and its factor
        ("factor", "f8"),
        ("requests", "f8"),  # in the current hour so far
        ("whole", "i8"),  # whether the current hour was observed from its beginning
        ("known", "f8"),  # hours of the week that were observed at all
        ("typical", "f8"),  # requests in an average hour
        ("levels", "f8", WEEK),  # requests in each hour of the week
        ("weeks", "f8", WEEK),  # the number of weeks in that average
    ]


@kernel
def begin_season(spec: Any, season: Any, now: Any) -> None:
    """Initialise a zeroed record: every hour has the same factor."""
    season.last = now
    # near the hours of the real time, so that the rows of a service whose season was lost continue with a new one
    season.clock = now / HOUR
    season.hour = math.floor(now / HOUR)
    season.factor = 1.0
    season.requests = 0.0
    season.whole = 0
    season.known = 0.0
    season.typical = 0.0
    for h in range(WEEK):
        season.levels[h] = 0.0
        season.weeks[h] = 0.0


@kernel
def factor_of(spec, season, hour):
    """Return the expected busyness of this hour: 1 is the average, and the answer before enough was seen."""
    if season.known < DAY or season.typical <= 0.0:
        return 1.0
    h = (hour + SHIFT) % WEEK
    total, weeks = 0.0, 0.0
    for day in range(WEEK // DAY):  # the same hour on all days is known a week earlier than the hour of this day
        other = (h + DAY * day) % WEEK
        total += season.weeks[other] * season.levels[other]
        weeks += season.weeks[other]
    need = spec.season_half_trust_requests / season.typical  # weeks
    level = (total + need * season.typical) / (weeks + need)
    level = (season.weeks[h] * season.levels[h] + need * level) / (season.weeks[h] + need)
    return min(max(level / season.typical, LOWEST), HIGHEST)


@kernel
def close_hour(spec, season, hour, requests):
    """Add a finished hour to the averages."""
    h = (hour + SHIFT) % WEEK
    if season.known >= DAY:
        requests = min(requests, OUTBURST * factor_of(spec, season, hour) * season.typical)
    if season.weeks[h] == 0.0:
        season.known += 1.0
    season.weeks[h] = min(season.weeks[h] + 1.0, spec.season_weeks)
    season.levels[h] += (requests - season.levels[h]) / season.weeks[h]


@kernel
def average_hour(season):
    """Return the requests in an average hour; every observed hour of the week counts equally."""
    total = 0.0
    for h in range(WEEK):
        total += season.levels[h]  # 0 if never observed
    return total / max(season.known, 1.0)


@kernel
def advance(spec, season, now):
    """Advance the clock to the time `now`. A time before the last one does not move it."""
    hour = math.floor(now / HOUR)
    if hour == season.hour:
        season.clock += max(0.0, now - season.last) / HOUR * season.factor
    elif hour < season.hour:
        season.whole = 0
    else:
        start = season.hour
        season.clock += max(0.0, (start + 1) - season.last / HOUR) * season.factor
        if season.whole != 0:
            close_hour(spec, season, start, season.requests)
        passed = hour - start - 1
        for g in range(min(passed, WEEK)):
            season.clock += factor_of(spec, season, start + 1 + g)
        season.clock += max(0, passed - WEEK)
        if passed < DAY:  # hours without a single request; a longer silence means that the service was down
            for g in range(passed):
                close_hour(spec, season, start + 1 + g, 0.0)
        season.typical = average_hour(season)
        season.whole = 1 if passed < DAY else 0
    if hour != season.hour:
        season.hour = hour
        season.requests = 0.0
        season.factor = factor_of(spec, season, hour)
        if season.whole != 0:
            season.clock += (now / HOUR - hour) * season.factor
    season.last = now
