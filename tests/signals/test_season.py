"""The season's clock: its learning, and its robustness."""

import numpy as np
import pytest
from signals.sensing import HOUR, MONDAY, Query

from swerve.bench.requests import START, WEEK, Listener, arrivals
from swerve.bench.signals import season as shape, through_seasons
from swerve.core.spec import pack
from swerve.core.tables import nested
from swerve.signals import VOLUME, Senses, begin_season, season_layout
from swerve.signals.season import advance, factor_of

SPEC = pack(Senses())[0]


def fresh():
    season = np.zeros(1, nested(season_layout()))[0]
    begin_season(SPEC, season, MONDAY)
    return season


def at(hour):
    return MONDAY + HOUR * hour


def week_of(rates, weeks=1, season=None):
    """Return a season after this many weeks of exactly these requests per hour."""
    season = fresh() if season is None else season
    for hour in range(weeks * WEEK + 1):
        advance(SPEC, season, at(hour))
        season.requests = rates[hour % WEEK]
        season.whole = 1
    return season


def test_an_hour_is_an_hour_as_long_as_nothing_is_known():
    season = fresh()
    begun = season.clock
    assert begun == MONDAY / HOUR
    for hour in np.cumsum(np.random.default_rng(0).exponential(0.7, 20)):
        advance(SPEC, season, at(hour))
        assert season.clock - begun == pytest.approx(hour, abs=1e-6)


def test_it_learns_the_hours_of_the_week_and_a_day_is_still_a_day_on_average():
    rates = 1000.0 * shape()
    season = week_of(rates, weeks=3)
    factors = np.array([factor_of(SPEC, season, int(at(h) / HOUR)) for h in range(WEEK)])
    busy = shape() > 0.2
    assert np.abs(factors / shape() - 1.0)[busy].max() < 0.1
    before = season.clock
    for hour in range(3 * WEEK + 1, 4 * WEEK + 1):
        advance(SPEC, season, at(hour))
        season.requests = rates[hour % WEEK]
    assert season.clock - before == pytest.approx(WEEK, rel=0.02)


def test_the_hours_of_the_day_are_known_before_those_of_the_week():
    season = fresh()
    for hour in range(49):
        advance(SPEC, season, at(hour))
        season.requests = 2000.0 if 8 <= hour % 24 < 20 else 100.0
        season.whole = 1
    thursday = [factor_of(SPEC, season, int(at(72 + hour) / HOUR)) for hour in (3, 12)]
    assert thursday[0] < 0.3
    assert thursday[1] > 1.6


def test_little_traffic_teaches_little():
    factors = [factor_of(SPEC, week_of(level * shape()), int(at(15) / HOUR)) for level in (0.0, 0.5, 5.0, 500.0)]
    assert factors == sorted(factors)
    assert factors[0] == 1.0
    assert factors[1] < 1.1
    assert factors[3] > 2.0


def test_an_hour_of_madness_is_cut_down():
    season = week_of(np.full(WEEK, 100.0), weeks=2)
    season.requests = 1e9
    advance(SPEC, season, at(2 * WEEK + 1))
    assert factor_of(SPEC, season, int(at(0) / HOUR)) < 2.0
    assert season.typical < 110.0


def test_time_that_goes_back_does_not_move_the_clock_and_time_goes_on_from_there():
    season = week_of(np.full(WEEK, 100.0))
    before = season.clock
    advance(SPEC, season, at(WEEK - 1))
    assert season.clock == before
    advance(SPEC, season, at(WEEK - 1) + 0.25 * HOUR)
    assert season.clock == pytest.approx(before + 0.25, abs=1e-6)
    levels = season.levels.copy()
    advance(SPEC, season, at(WEEK))  # that hour was seen in part, so it is not learnt
    assert (season.levels == levels).all()
    assert season.clock == pytest.approx(before + 1.0, abs=1e-6)


def test_a_silent_night_counts_and_a_week_away_does_not():
    season = week_of(np.full(WEEK, 100.0))
    advance(SPEC, season, at(WEEK + 5))
    assert season.weeks.max() == 2.0
    assert season.levels[2] == pytest.approx(50.0)
    levels, before = season.levels.copy(), season.clock
    advance(SPEC, season, at(5 * WEEK + 5))
    changed = np.flatnonzero(season.levels != levels).tolist()
    assert changed in ([], [5])  # at most the hour in which the service stopped
    assert season.clock - before == pytest.approx(4 * WEEK, rel=0.05)


def test_rows_go_on_with_a_season_that_was_lost():
    query = Query(VOLUME)
    for i in range(400):
        query.ask(0.5 * i)
    lost = Query(VOLUME)
    query.season = lost.season
    begin_season(SPEC, query.season, at(200.0))
    assert all(query.ask(200.0 + 0.5 * i)[0] < 0.3 for i in range(100))
    assert query.row.span > 100.0


def test_a_strong_season_costs_no_alarms_and_would_without_the_clock():
    assert sum(through_seasons(Senses(), 3)) == 0.0
    assert sum(through_seasons(Senses(season_half_trust_requests=1e15), 3)) > 0.5


def test_one_query_that_bursts_is_hardly_a_season():
    """A query with a tenth of the traffic is twenty times as busy on Wednesdays: unweighted, that hour would have factor 2.9."""
    rng = np.random.default_rng(2)
    rates = np.full((10, WEEK), 10.0)
    rates[0, 60:64] = 200.0
    listener = Listener(Senses(), 10, [VOLUME])
    for week in range(4):
        listener.hear(*arrivals(rng, rates, START + week * WEEK * HOUR))
    season = listener.seasons[0]
    assert 1.0 < season.levels[60:64].max() / season.typical < 2.0
    assert season.levels[61:64].max() / season.typical < 1.5


def test_new_queries_are_a_small_share_of_it():
    """A thousand requests within half an hour for a new query."""
    season = week_of(np.full(WEEK, 100.0))
    old, new = Query(VOLUME, season=season), Query(VOLUME, season=season)
    for _ in range(3):
        old.ask(WEEK)
    before = season.requests
    for i in range(1000):
        new.ask(WEEK + 0.0005 * i)
    assert season.requests - before < 100.0
