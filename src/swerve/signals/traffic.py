"""A request through all senses: the verbs that a service calls. No allocation, no clock: time is an argument, in unix seconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from swerve.core.engine import Entry
from swerve.core.rng import at, unit, wrap_add
from swerve.core.verbs import kernel
from swerve.signals.rates import count_answer, enter, rate_level
from swerve.signals.season import DAY, advance, begin_season
from swerve.signals.senses import ABANDONED, ABANDONMENT, AGE, COUNT, HOUR, OWN, RAW, REFORMULATED, REFORMULATION, VOLUME
from swerve.signals.surprise import busyness, number, volume


@kernel
def begin_senses(spec: Any, row: Any, word: Any, now: Any) -> None:
    """Make a zeroed row that of a query which has never been asked; `word` is a random one of the query's own."""
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
    """Fresh rows and a fresh season."""
    for i in range(len(table)):
        begin_senses(params[0], table[i], at(np.uint64(0), np.uint64(i)), now)
    begin_season(params[0], seasons[0], now)


@kernel
def freshness(spec, since, now):
    """1 for what is new, falling by e in `freshness_hours` hours; 0 where nothing is known."""
    if math.isnan(since):
        return 0.0
    return math.exp(-max(0.0, now - since) / (HOUR * spec.freshness_hours))


@kernel
def noise(row, j, now):
    """A number in [0, 1) that depends on the query, on the request, and on which signal asks."""
    moment = wrap_add(np.uint64(np.int64(now * 1e3)), np.uint64(j) << np.uint64(56))
    return unit(at(row.word ^ moment, np.uint64(row.requests)))


@kernel
def latched(spec, crossed, now):
    """Whether the last crossing is too recent for another to be heard; time may have gone back since."""
    return abs(now - crossed) <= HOUR * spec.latch_hours


@kernel
def own_level(spec, row, kind, loudness, published, first, now):
    """The level of one of the signals that the traffic itself has; `loudness` is that of the volume."""
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
    """One request: into the season and the row; then x[j] for each signal of the plan.

    A signal that is loud, and was not of late, is heard: x[j] is its level, `crossing_level` or more. Else x[j] is noise, uniform below
    `noise_ceiling`: a classifier that learns where a feature usually lies needs it to lie somewhere, and no level below `crossing_level` is worth
    an alarm. RAW numbers go through as they are, clipped to [0, 1].
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
            # a query that has not been known for a day has no "usual": it only shuts its latches
            if known and row.muted[kind] == 0 and not latched(spec, row.crossed[kind], now):
                heard |= 1 << kind
            row.crossed[kind] = now
            row.muted[kind] = spec.latch_requests if kind != VOLUME else 0
    for j in range(len(plan)):
        kind, i = plan[j] & 255, plan[j] >> 8
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
            x[j] = 0.0 if math.isnan(numbers[i]) else min(max(numbers[i], 0.0), 1.0)
        else:
            x[j] = level if level >= spec.crossing_level else spec.noise_ceiling * noise(row, j, now)


@kernel
def answered(spec: Any, row: Any, shown: Any, clicked: Any, now: Any) -> None:
    """Feedback for a request shown at `shown`: 1 clicked, 0 abandoned. What nobody answers is abandoned in the end, too."""
    if clicked != 0:
        count_answer(row, ABANDONED, shown)


@kernel
def reformulated(spec: Any, row: Any, shown: Any, now: Any) -> None:
    """The session of a request shown at `shown` went on to another query shortly after."""
    count_answer(row, REFORMULATED, shown)
