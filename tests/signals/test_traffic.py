"""A request through all senses: compiled and uncompiled, the latch, time, plans."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, strategies as st
from signals.sensing import HOUR, MONDAY, Query

from swerve.bench.requests import CLICKED_BIT, REFORMULATED_BIT, START, Listener, arrivals, listen
from swerve.core.spec import pack
from swerve.signals import ABANDONMENT, AGE, COUNT, NEW, RAW, REFORMULATION, VOLUME, Senses

EVERY = [VOLUME, ABANDONMENT, REFORMULATION, AGE, NEW, COUNT, RAW | 1 << 8]


def known(query, hours=50.0, every=0.5):
    """Ask the query through some quiet days; return the hour."""
    for i in range(int(hours / every)):
        query.ask(every * i)
    return hours


def test_compiled_equals_interpreted_to_the_byte():
    rng = np.random.default_rng(0)
    rates = np.full((3, 120), 2.0)
    rates[0, 80:] = 30.0
    times, whose = arrivals(rng, rates, START)
    times[400:450] -= 5000.0  # a clock that was set back
    often = np.where(times > times[900], 0.9, 0.1)
    outcomes = CLICKED_BIT * (rng.random(len(times)) < 0.5) + REFORMULATED_BIT * (rng.random(len(times)) < often)
    numbers = rng.poisson(5.0, (len(times), 2)) * np.where(times > times[700], 8.0, 1.0)[:, None]
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    fast, slow = (Listener(Senses(), 3, EVERY, numbers=2) for _ in range(2))
    heard = fast.hear(times, whose, outcomes, numbers)
    slow.listen = listen.plain
    assert slow.hear(times, whose, outcomes, numbers) == heard
    assert {EVERY[one.signal] & 255 for one in heard} >= {VOLUME, REFORMULATION, COUNT, RAW}
    assert fast.table.tobytes() == slow.table.tobytes()
    assert fast.seasons.tobytes() == slow.seasons.tobytes()


def test_contexts_are_the_same_compiled_and_not():
    spec, rng = Senses(), np.random.default_rng(1)
    times, whose = arrivals(rng, np.full((1, 60), 2.0), START)
    for t in range(len(times)):
        if t == 0:
            fast, slow = (Listener(spec, 1, EVERY, numbers=2) for _ in range(2))
        got = []
        for one, call in ((fast, fast.listen), (slow, listen.plain)):
            x, lines = np.zeros(len(EVERY)), np.zeros((10, 3))
            numbers = np.array([[3.0, 0.7]])
            outcomes = np.zeros(1, np.int64)
            call(pack(spec), one.table, one.seasons, one.plan, times[t : t + 1], whose[t : t + 1], outcomes, numbers, x, lines)
            got.append(x.tobytes())
        assert got[0] == got[1]


def test_a_burst_is_heard_once_and_again_after_half_a_day_of_quiet():
    query = Query(VOLUME)
    hour = known(query)
    heard = []
    for burst in range(2):
        for i in range(200):
            x = query.ask(hour + 0.02 * i)[0]
            if x >= 0.5:
                heard.append((burst, i))
            else:
                assert x < 0.3
        hour += 4.0
        for i in range(80):
            query.ask(hour + 0.5 * i)
        hour += 40.0
    assert [burst for burst, _ in heard] == [0, 1]


def test_every_crossing_renews_the_latch():
    query = Query(NEW)
    hour = known(query)
    assert query.ask(hour, first=hour)[0] == 1.0
    for i in range(200):  # a new item every ten hours, for weeks: usual for this query
        assert query.ask(hour + 5.0 * i, first=hour + 10.0 * (i // 2))[0] < 0.3


@pytest.mark.parametrize(("kind", "which"), [(AGE, "published"), (NEW, "first")])
def test_a_fresh_candidate_is_heard_once_and_by_its_age(kind, which):
    query = Query(kind)
    hour = known(query)
    first = query.ask(hour, **{which: hour - 5.0})[0]
    assert first == pytest.approx(math.exp(-5.0 / 24.0))
    assert all(query.ask(hour + 0.5 * i, **{which: hour - 5.0})[0] < 0.3 for i in range(1, 100))
    assert query.ask(hour + 60.0, **{which: hour + 40.0})[0] < 0.3  # 20 hours old: no longer new


@pytest.mark.parametrize(("kind", "which"), [(AGE, "published"), (NEW, "first")])
def test_who_is_asked_once_a_day_is_not_alarmed_by_every_new_candidate(kind, which):
    query = Query(kind)
    heard = [query.ask(24.0 * day, **{which: 24.0 * day - 1.0})[0] >= 0.5 for day in range(100)]
    assert sum(heard) <= 100 // 40
    assert not any(heard[:2])


@pytest.mark.slow
def test_one_new_candidate_a_day_is_two_alarms_a_week():
    """The figure of docs/signals.md, which shows why `new` does not suit every corpus: five requests per hour for sixteen weeks."""
    query, weeks = Query(NEW), 16
    appeared = np.cumsum(np.random.default_rng(0).exponential(24.0, 14 * weeks))
    heard = 0
    for hour in np.arange(0.0, 168.0 * weeks, 0.2):
        seen = np.searchsorted(appeared, hour)
        heard += query.ask(hour, first=appeared[seen - 1] if seen else math.nan)[0] >= 0.5
    assert 1.5 <= heard / weeks <= 2.5


def test_a_query_that_is_always_fresh_is_never_heard():
    query = Query(AGE)
    assert all(query.ask(0.7 * i, published=0.7 * i - 2.0)[0] < 0.3 for i in range(300))


def test_a_candidate_from_the_future_is_new_and_no_more():
    query = Query(AGE)
    hour = known(query)
    assert query.ask(hour, published=hour + 1000.0)[0] == 1.0


def test_numbers_as_they_are():
    query = Query(RAW, RAW | 1 << 8, numbers=2)
    cases = [(0.25, 0.75), (-3.0, 7.0), (math.nan, 0.5), (math.inf, -math.inf)]
    xs = [query.ask(float(i), *case) for i, case in enumerate(cases)]
    np.testing.assert_array_equal(xs, [[0.25, 0.75], [0.0, 1.0], [math.nan, 0.5], [1.0, 0.0]])


def test_a_count_that_is_not_sent_is_noise_and_its_last_value_holds():
    query = Query(COUNT, numbers=1)
    for i in range(200):
        assert query.ask(0.5 * i, 4.0 if i % 3 == 0 else math.nan)[0] < 0.3
    assert query.ask(101.0, 40.0)[0] >= 0.5


def test_quiet_is_uniform_noise_that_differs_by_signal_and_request():
    query = Query(VOLUME, ABANDONMENT, AGE)
    xs = np.array([query.ask(0.3 * i) for i in range(400)])
    assert xs.min() >= 0.0
    assert xs.max() < 0.3
    assert np.abs(xs.mean(axis=0) - 0.15).max() < 0.02
    assert len(np.unique(xs)) == xs.size
    assert np.abs(np.corrcoef(xs.T) - np.eye(3)).max() < 0.2
    same = Query(VOLUME)
    assert len({same.ask(7.0)[0] for _ in range(50)}) == 50  # the clock stands still


def test_two_queries_asked_at_the_same_moment_have_noise_of_their_own():
    """Requests of one batch have the same time, and new queries have the same number of requests."""
    queries = [Query(VOLUME, ABANDONMENT, word=word) for word in range(100)]
    xs = np.array([query.ask(1.0) for query in queries])
    assert len(np.unique(xs)) == xs.size


def test_the_plan_changes_what_is_said_and_not_what_is_known():
    one, all_of_them = Query(VOLUME), Query(*EVERY[:5])
    dice, hour = random.Random(4), 0.0
    for i in range(300):
        hour += dice.expovariate(3.0)
        for query in (one, all_of_them):
            query.ask(hour, published=hour - 30.0, session=1)
            if i % 3 == 0:
                query.click(hour)
            if i % 7 == 0:
                query.reformulate(hour)
    assert one.row.tobytes() == all_of_them.row.tobytes()


def test_a_clock_that_jumps_back_an_hour_is_no_burst():
    query = Query(VOLUME)
    hour = known(query, hours=100.0, every=0.05)
    back = [query.ask(hour - 1.0 + 0.05 * i)[0] for i in range(200)]
    assert max(back) < 0.3


def test_a_latch_shut_in_a_future_that_did_not_come_opens():
    query = Query(NEW)
    hour = known(query)
    query.ask(hour + 10_000.0, first=hour + 10_000.0)  # the clock was wrong
    for i in range(60):
        query.ask(hour + 0.5 * i)
    assert query.ask(hour + 30.0, first=hour + 30.0)[0] == 1.0


number = st.one_of(st.just(math.nan), st.floats(-1e6, 1e9), st.sampled_from([0.0, math.inf, -math.inf, 1e300]))
request = st.tuples(st.floats(-100.0, 400.0), number, number, st.booleans(), st.booleans(), st.floats(-500.0, 500.0))


@given(st.lists(request, min_size=1, max_size=60))
def test_whatever_comes_contexts_are_in_the_unit_box_and_the_state_is_numbers(requests):
    query = Query(*EVERY, numbers=2)
    hour = 0.0
    for gap, first, second, clicked, session, age in requests:
        hour += gap
        x = query.ask(hour, first, second, published=hour - age, first=hour + age, session=int(session))
        assert math.isnan(x[-1]) == math.isnan(second)  # a raw number that was not sent is missing
        assert all(0.0 <= value <= 1.0 for value in x[:-1] + ([] if math.isnan(second) else x[-1:]))
        if clicked:
            query.click(hour - abs(age) / 100.0, now=hour)
            query.reformulate(hour)
    row, season = query.row, query.season
    sums = [row.fast, row.slow, row.span, *row.climb, *row.past, *row.past_hits, *row.number_slow, season.clock, season.typical]
    assert all(math.isfinite(value) for value in sums)
    assert all(value >= 0.0 for value in sums)
    assert (row.bucket_requests >= 0).all() and (row.bucket_answers >= 0).all() and (row.muted >= 0).all()
    assert season.last == MONDAY + HOUR * hour
