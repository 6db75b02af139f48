"""Rates: the definition, and requests whose clicks come late, never, or twice."""

import math
import random

import numpy as np
import pytest
from signals.sensing import HOUR, MONDAY, Query, Rate

from swerve.bench.requests import CLICKED_BIT, REFORMULATED_BIT, START, WEEK, Listener, arrivals
from swerve.bench.signals import on_rates, ramp
from swerve.signals import ABANDONMENT, REFORMULATION, VOLUME, Senses
from swerve.signals.rates import rate_level, tally

SECOND = 1.0 / HOUR


def test_one_outcome_at_a_time_it_is_its_definition():
    dice, twin, query = random.Random(2), Rate(), Query()
    crossed = 0
    for t in range(4000):
        y = int(dice.random() < (0.7 if 2500 < t < 2800 else 0.3))
        expected = twin.outcome(y)
        tally(query.spec, query.row, 1, 1, y)
        assert rate_level(query.spec, query.row, 1) == pytest.approx(expected, abs=1e-9)
        crossed += expected >= 0.5
    assert crossed > 50


def test_a_bucket_counts_as_its_outcomes_evenly_mixed():
    """Agrees with the definition on the same outcomes one by one, shuffled: baselines within a few percent."""
    dice, twin, query = random.Random(3), Rate(), Query()
    for _ in range(400):
        seen = dice.randrange(1, 30)
        outcomes = [int(dice.random() < 0.4) for _ in range(seen)]
        for y in outcomes:
            twin.outcome(y)
        tally(query.spec, query.row, 0, seen, sum(outcomes))
    assert query.row.past[0] == pytest.approx(twin.Sn, rel=1e-9)
    assert query.row.past_hits[0] / query.row.past[0] == pytest.approx(twin.Sk / twin.Sn, rel=0.05)
    assert query.row.climb[0] < 5.0


@pytest.mark.parametrize("every", [0.002, 0.05, 1.0])
def test_callers_who_never_send_feedback_are_normal(every):
    query = Query(ABANDONMENT)
    for i in range(600):
        assert query.ask(every * i)[0] < 0.3
        assert query.row.climb[0] == 0.0
    assert query.row.past[0] > 500 or every < 0.05
    big = Query(ABANDONMENT)
    for _ in range(300):  # more than a million outcomes
        tally(big.spec, big.row, 0, 5000, 5000)
        assert rate_level(big.spec, big.row, 0) == 0.0


def test_no_sessions_no_reformulation_rate():
    query = Query(REFORMULATION)
    for i in range(200):
        query.ask(0.2 * i, session=0)
    assert query.row.past[1] == 0.0
    for i in range(200):
        query.ask(40.0 + 0.2 * i, session=1)
    assert query.row.past[1] > 100.0


def test_a_click_counts_for_the_request_that_it_answers():
    query = Query(ABANDONMENT)
    query.ask(0.0)
    query.click(0.0)
    query.ask(100 * SECOND)  # the same bucket; no click
    query.ask(400 * SECOND)  # the next bucket; the first is still open
    assert query.row.past[0] == 0.0
    query.click(100 * SECOND, now=450 * SECOND)  # late, but in time
    query.ask(2000 * SECOND)  # both buckets are closed
    assert query.row.past[0] == pytest.approx(3.0, rel=0.01)
    assert query.row.past_hits[0] == pytest.approx(1.0, rel=0.5)


def test_a_click_that_comes_too_late_changes_nothing():
    query = Query(ABANDONMENT)
    for second in (0, 1000, 2000):
        query.ask(second * SECOND)
    before = query.row.tobytes()
    query.click(0.0, now=2100 * SECOND)
    assert query.row.tobytes() == before
    query.click(2000 * SECOND, now=2100 * SECOND)
    assert query.row.tobytes() != before


def test_abandonment_that_is_told_is_the_same_as_what_nobody_answers():
    told, silent = Query(ABANDONMENT), Query(ABANDONMENT)
    for i in range(300):
        for query in (told, silent):
            query.ask(0.05 * i)
            if i % 3 == 0:
                query.click(0.05 * i)
        if i % 3:
            told.click(0.05 * i, clicked=0)
    assert told.row.tobytes() == silent.row.tobytes()


def test_times_in_whole_seconds_find_their_bucket():
    query = Query(ABANDONMENT)
    for i in range(60):
        hour = i + 0.123456 * SECOND
        query.ask(hour)
        query.click(math.floor(hour * HOUR) / HOUR)
    assert query.row.past_hits[0] == 0.0
    assert query.row.past[0] > 50.0


def test_more_clicks_than_requests_are_as_many():
    """A row that was rolled back has lost requests whose clicks still come."""
    query = Query(ABANDONMENT)
    query.ask(0.0)
    for _ in range(5):
        query.click(0.0)
    query.ask(1.0)
    assert query.row.past[0] == pytest.approx(1.0)
    assert query.row.past_hits[0] == 0.0


def test_time_that_goes_back_closes_nothing_early():
    query = Query(ABANDONMENT)
    query.ask(10.0)
    query.ask(9.0)
    query.click(9.0)
    query.click(10.0)
    query.ask(9.0 + 200 * SECOND)
    assert query.row.past[0] == 0.0
    query.ask(9.5)
    assert query.row.past[0] == pytest.approx(3.0, rel=0.01)
    assert query.row.opened[0] == MONDAY + 9.5 * HOUR


def test_clicks_that_come_at_once_and_abandonment_that_comes_in_the_end_are_no_alternation():
    """At 3,000 requests per hour a bucket has 250: counted in order of arrival, its abandoned half alone would raise an alarm."""
    listener = Listener(Senses(), 1, [ABANDONMENT])
    rng = np.random.default_rng(0)
    times, whose = arrivals(rng, np.full((1, 100), 3000.0), START)
    outcomes = CLICKED_BIT * (rng.random(len(times)) < 0.5)
    assert listener.hear(times, whose, outcomes) == []
    assert listener.table[0].past_hits[0] / listener.table[0].past[0] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("rate", [10, 100])
def test_three_times_the_odds_are_found(rate):
    for found, delay, alarms in on_rates(Senses(), rate, 20):
        assert found >= 0.95
        assert delay < 400 / rate
        assert alarms <= 1.2


def test_a_burst_of_requests_is_no_change_of_a_rate():
    rng = np.random.default_rng(1)
    rates = 20.0 * np.array([ramp(3 * WEEK, 2 * WEEK + 10 * i) for i in range(10)])
    times, whose = arrivals(rng, rates, START)
    outcomes = CLICKED_BIT * (rng.random(len(times)) < 0.4) + REFORMULATED_BIT * (rng.random(len(times)) < 0.1)
    heard = Listener(Senses(), 10, [VOLUME, ABANDONMENT, REFORMULATION]).hear(times, whose, outcomes)
    assert {one.signal for one in heard} == {0}
    assert len(heard) == 10
