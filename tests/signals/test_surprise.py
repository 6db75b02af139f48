"""Volume and counts: the definition, and the changes that are loud or quiet."""

import random

import pytest
from signals.sensing import Query, Volume

from swerve.core.spec import pack
from swerve.signals import COUNT, VOLUME, Senses
from swerve.signals.surprise import surprise, volume


def test_the_volume_is_its_definition():
    dice, twin, query = random.Random(1), Volume(), Query()
    heard = 0
    for t in range(4000):
        du = dice.expovariate(40.0 if 3000 < t < 3300 else 8.0)
        expected = twin.request(du)
        level, weight = volume(query.spec, query.row, du)
        assert level == pytest.approx(expected, abs=1e-12)
        assert 0.0 < weight <= 1.0
        assert [query.row.fast, query.row.slow, query.row.span] == pytest.approx([twin.F, twin.S, twin.B], rel=1e-12)
        heard += level >= 0.5
    assert heard > 50  # the burst was included


def test_a_surprise_is_nothing_below_the_past_and_one_far_above():
    spec = pack(Senses())[0]
    assert surprise(spec, 5.0, 1.0, 1000.0, 100.0, 10.0) == 0.0
    levels = [surprise(spec, count, 1.0, 1000.0, 100.0, 10.0) for count in (12.0, 20.0, 30.0, 50.0, 5000.0)]
    assert levels == sorted(levels)
    assert levels[0] < 0.01
    assert levels[-1] == 1.0


def test_nothing_is_a_surprise_on_the_first_day():
    query = Query(VOLUME)
    assert all(query.ask(0.001 * i)[0] < 0.3 for i in range(300))
    assert all(query.ask(10.0 + 0.001 * i)[0] < 0.3 for i in range(300))


@pytest.mark.parametrize("every", [0.2, 1.0, 20.0])
@pytest.mark.parametrize("level", [0.0, 0.4, 1e6, 1e300])
def test_the_same_number_with_every_request_is_normal_at_any_rate(every, level):
    query = Query(COUNT, numbers=1)
    hours = max(50.0, 20 * every)
    assert all(query.ask(every * i, level)[0] < 0.3 for i in range(int(hours / every)))


@pytest.mark.parametrize("every", [0.25, 1.0, 8.0])
@pytest.mark.parametrize("level", [4.0, 100.0, 1e6])
def test_a_jump_to_five_times_as_much_is_heard_once(every, level):
    query = Query(COUNT, numbers=1)
    before = [query.ask(every * i, level)[0] for i in range(int(100 / every))]
    assert max(before) < 0.3
    after = [query.ask(100.0 + every * i, 5 * level)[0] for i in range(int(60 / every))]
    assert after[0] >= 0.5
    assert max(after[1:]) < 0.3


def test_a_count_that_was_never_there_is_heard_when_it_comes():
    query = Query(COUNT, numbers=1)
    for i in range(50):
        query.ask(float(i), 0.0)
    assert query.ask(50.0, 1.0)[0] < 0.3
    assert query.ask(51.0, 6.0)[0] >= 0.5


def test_a_number_that_is_not_sent_holds_and_says_nothing():
    """Requests without the number leave its baseline unchanged, up to rounding."""
    flat = Senses(season_half_trust_requests=1e15)  # otherwise the season would learn that one of the two services is busier
    silent, chatty = Query(COUNT, numbers=1, spec=flat), Query(COUNT, numbers=1, spec=flat)
    for i in range(60):
        for query in (silent, chatty):
            query.ask(float(i), 7.0)
        assert chatty.ask(i + 0.5)[0] < 0.3
    for query in (silent, chatty):
        assert query.ask(60.0, 35.0)[0] >= 0.5
    assert chatty.row.number_slow[0] == pytest.approx(silent.row.number_slow[0], rel=1e-9)
    assert chatty.row.number_span[0] == pytest.approx(silent.row.number_span[0], rel=1e-9)


def test_numbers_do_not_mix():
    query = Query(COUNT, COUNT | 1 << 8, numbers=2)
    for i in range(60):
        query.ask(float(i), 10.0, 1000.0)
    first, second = query.ask(60.0, 10.0, 5000.0)
    assert first < 0.3
    assert second >= 0.5


def test_a_lasting_rise_becomes_normal_and_a_burst_does_not_hide_the_next():
    query = Query(COUNT, numbers=1)
    for i in range(200):
        query.ask(float(i), 10.0)
    assert query.ask(200.0, 60.0)[0] >= 0.5
    for i in range(24):  # a day of it, then quiet
        query.ask(201.0 + i, 60.0)
    for i in range(48):
        query.ask(225.0 + i, 10.0)
    assert query.ask(273.0, 60.0)[0] >= 0.5
    later = [query.ask(274.0 + i, 60.0)[0] for i in range(800)]
    assert max(later) < 0.3
    assert query.row.number_slow[0] / query.row.number_span[0] == pytest.approx(60.0, rel=0.1)
