"""The signals of a request: the verbs that a service calls. No allocation, no clock: time is an argument, in unix seconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from swerve.core.elementary import exp
from swerve.core.engine import Entry
from swerve.core.rng import at, unit, wrap_add
from swerve.core.verbs import kernel
from swerve.signals.rates import count_answer, enter, rate_level
from swerve.signals.season import DAY, advance, begin_season
from swerve.signals.senses import ABANDONED, ABANDONMENT, AGE, COUNT, HOUR, OWN, RAW, REFORMULATED, REFORMULATION, VOLUME
from swerve.signals.surprise import busyness, number, volume

KIND_BITS, KIND_MASK = 8, 255  # the bits of a plan's entry that hold the kind of signal; the index of a number is above
MILLISECONDS = 1e3  # noise changes every millisecond
SIGNAL_SHIFT = np.uint64(56)  # puts the index of a signal above the bits of the time


@kernel
def begin_senses(spec: Any, row: Any, word: Any, now: Any) -> None:
    """Initialise a zeroed row for a new query; `word` is a random word of the query's own."""
    row.requests = 0
    row.word = word
    row.clock = 0.0
    row.fast = 0.0
    row.slow = 0.0
    row.span = 0.0
    for j in range(OWN):
        row.crossed[j] = -math.inf
        row.muted[j] = 0
    for k in range(2):
        row.climb[k] = 0.0
        row.recent_hits[k] = 0.0
        row.recent[k] = 0.0
        row.past_hits[k] = 0.0
        row.past[k] = 0.0
        row.opened[k] = math.floor(now)
    for b in range(4):
        row.bucket_requests[b] = 0
        row.bucket_answers[b] = 0
    for i in range(row.number.shape[0]):
        row.number[i] = math.nan
        row.number_slow[i] = 0.0
        row.number_span[i] = 0.0
        row.number_crossed[i] = -math.inf


@Entry
def set_up(params: Any, table: Any, seasons: Any, now: Any) -> None:
    """Initialise rows and a season."""
    for i in range(len(table)):
        begin_senses(params[0], table[i], at(np.uint64(0), np.uint64(i)), now)
    begin_season(params[0], seasons[0], now)


@kernel
def freshness(spec, since, now):
    """Return 1 for a new candidate, falling by the factor e in `freshness_hours`; 0 if its age is unknown."""
    if math.isnan(since):
        return 0.0
    return exp(-max(0.0, now - since) / (HOUR * spec.freshness_hours))


@kernel
def noise(row, j, now):
    """Return a number in [0, 1) that depends on the query, on the request, and on the signal."""
    moment = wrap_add(np.uint64(np.int64(now * MILLISECONDS)), np.uint64(j) << SIGNAL_SHIFT)
    return unit(at(row.word ^ moment, np.uint64(row.requests)))


@kernel
def latched(spec, crossed, now):
    """Return whether the last crossing is too recent for another to be heard; the clock may have been set back since."""
    return abs(now - crossed) <= HOUR * spec.latch_hours


@kernel
def own_level(spec, row, kind, loudness, published, first, now):
    """Return the level of one of the signals computed from the traffic; `loudness` is that of the volume."""
    if kind == VOLUME:
        return loudness
    if kind == ABANDONMENT:
        return rate_level(spec, row, ABANDONED)
    if kind == REFORMULATION:
        return rate_level(spec, row, REFORMULATED)
    return freshness(spec, published if kind == AGE else first, now)


@kernel
def sense(
    spec: Any, row: Any, season: Any, plan: Any, numbers: Any, published: Any, first: Any, session: Any, now: Any, x: Any
) -> None:
    """Add one request to the season and the row; then write x[j] for each signal of the plan.

    A signal at `crossing_level` or more that is not latched is heard: x[j] is its level. Otherwise x[j] is noise, uniform below
    `noise_ceiling`: a classifier that learns the usual range of a feature needs some variation, and no level below `crossing_level`
    justifies an alarm. RAW numbers are passed through, clipped to [0, 1]; one that was not sent stays NaN, a missing feature. A
    COUNT that was not sent is no surprise: its last value holds, and x[j] is noise.
    """
    advance(spec, season, now)
    du = max(0.0, season.clock - row.clock) if row.requests > 0 else 0.0
    row.clock = season.clock
    row.requests += 1
    enter(spec, row, session, now)
    known = row.span >= spec.warmup_hours
    loudness, weight = volume(spec, row, du)
    if not known and season.known >= DAY:
        weight = min(1.0, spec.season_max_share * season.typical / busyness(spec, row))
    season.requests += weight
    heard = 0
    for kind in range(OWN):
        level = own_level(spec, row, kind, loudness, published, first, now)
        if row.muted[kind] > 0:
            row.muted[kind] -= 1
        if level >= spec.crossing_level:
            # a query known for less than `warmup_hours` has no usual level: its crossings only start the latches
            if known and row.muted[kind] == 0 and not latched(spec, row.crossed[kind], now):
                heard |= 1 << kind
            row.crossed[kind] = now
            row.muted[kind] = spec.latch_requests if kind != VOLUME else 0
    for j in range(len(plan)):
        kind, i = plan[j] & KIND_MASK, plan[j] >> KIND_BITS
        level = 0.0
        if kind < OWN:
            if (heard >> kind) & 1:
                level = own_level(spec, row, kind, loudness, published, first, now)
        elif kind == COUNT:
            level = number(spec, row, i, numbers[i], du)
            if level >= spec.crossing_level:
                shut = latched(spec, row.number_crossed[i], now)
                row.number_crossed[i] = now
                level = 0.0 if shut else level
        if kind == RAW:
            x[j] = numbers[i] if math.isnan(numbers[i]) else min(max(numbers[i], 0.0), 1.0)
        else:
            x[j] = level if level >= spec.crossing_level else spec.noise_ceiling * noise(row, j, now)


@kernel
def answered(spec: Any, row: Any, shown: Any, clicked: Any, now: Any) -> None:
    """Count the feedback for a request shown at `shown`: 1 clicked, 0 abandoned. Unanswered requests count as abandoned later."""
    if clicked != 0:
        count_answer(row, ABANDONED, shown)


@kernel
def reformulated(spec: Any, row: Any, shown: Any, now: Any) -> None:
    """Note that the session of a request shown at `shown` soon asked another query."""
    count_answer(row, REFORMULATED, shown)
