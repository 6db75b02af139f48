"""Worlds made from histories: their properties, and the verbs of a round."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swerve import SwerveError, Traffic
from swerve.environments.worlds import NEVER, Line, advance, assemble, best, chance, click

CHANCE = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])


def made(histories, rounds=20):
    schedule = np.tile(np.arange(len(histories), dtype=np.int32), rounds)
    return assemble(Traffic(), 3, arms=len(histories[0][0][1]), features=0, histories=histories, schedule=schedule)


HISTORY = st.lists(st.tuples(st.integers(1, 9), st.lists(CHANCE, min_size=3, max_size=3)), min_size=1, max_size=5)


def spread(steps):
    """Return rounds from the distances between them; the first is 1."""
    out, since = [], 1
    for i, (distance, chances) in enumerate(steps):
        since += distance if i else 0
        out.append((since, chances))
    return out


@settings(max_examples=100)
@given(st.lists(HISTORY.map(spread), min_size=1, max_size=4))
def test_facts_equal_brute_force(histories):
    world = made(histories)
    assert world.k == sum(len(history) - 1 for history in histories)
    assert world.events.tolist() == [len(history) - 1 for history in histories]
    shifts, distances = [], []
    for history in histories:
        for (then, before), (now, after) in itertools.pairwise(history):
            falls = [max(after) - after[arm] for arm in range(3) if before[arm] == max(before)]
            shifts.append(max(falls))
            distances.append(now - then)
    assert world.shift == pytest.approx(min(shifts, default=math.inf))
    assert world.distance == min(distances, default=int(NEVER))
    gaps = [max(p) - x for history in histories for _, p in history for x in p if x < max(p)]
    assert world.gap == pytest.approx(min(gaps, default=math.inf))


@settings(max_examples=60)
@given(st.lists(HISTORY.map(spread), min_size=1, max_size=3))
def test_a_walk_through_the_rounds_meets_every_change_in_its_round(histories):
    world = made(histories)
    spec = world.spec
    for query, history in enumerate(histories):
        cursor = world.cursors[query]
        for t in range(1, 40):
            told = advance(spec, world.scene[0], world.segments, cursor)
            now = [p for since, p in history if since <= t][-1]
            assert told == (t > 1 and any(since == t for since, _ in history))
            assert [chance(spec, world.scene[0], world.segments, cursor, arm) for arm in range(3)] == now
            assert best(spec, world.scene[0], world.segments, cursor) == max(now)
            for arm in range(3):
                got = click(spec, world.scene[0], world.segments, cursor, arm)
                assert got or now[arm] < 1.0
                assert not got or now[arm] > 0.0


def test_one_number_decides_for_all_arms_of_a_round():
    world = made([[(1, [0.2, 0.5, 0.9])]])
    cursor = world.cursors[0]
    seen = set()
    for _ in range(200):
        advance(world.spec, world.scene[0], world.segments, cursor)
        clicks = tuple(bool(click(world.spec, world.scene[0], world.segments, cursor, arm)) for arm in range(3))
        seen.add(clicks)
    assert seen == {(False, False, False), (False, False, True), (False, True, True), (True, True, True)}


LINES = st.lists(
    st.tuples(st.integers(1, 9), st.lists(CHANCE, min_size=3, max_size=3), st.booleans(), st.integers(0, 9)), min_size=1, max_size=6
)


def lined(steps):
    """Return lines from the distances between their rounds; the first is in round 1."""
    out, since = [], 1
    for i, (distance, chances, event, signal) in enumerate(steps):
        since += distance if i else 0
        out.append(Line(since, chances, event, signal))
    return out


@settings(max_examples=60)
@given(st.lists(LINES.map(lined), min_size=1, max_size=3))
def test_a_line_may_be_a_change_an_event_a_signal_or_any_of_them(histories):
    schedule = np.tile(np.arange(len(histories), dtype=np.int32), 60)
    world = assemble(Traffic(), 3, arms=3, features=0, histories=histories, schedule=schedule)
    shifts, distances = [], []
    for query, lines in enumerate(histories):
        cursor, by_round = world.cursors[query], {line.since: line for line in lines}
        before, lost, last = None, None, 1
        for t in range(1, 60):
            told = advance(world.spec, world.scene[0], world.segments, cursor)
            line = by_round.get(t)
            now = [entry.chances for entry in lines if entry.since <= t][-1]
            begins = line is not None and t > 1  # a query's first round cannot be an event
            assert told == (begins and line.event)
            assert cursor["signal"] == (line.signal if begins else 0)  # any number, not just 0 or 1
            assert [chance(world.spec, world.scene[0], world.segments, cursor, arm) for arm in range(3)] == now
            if told:
                shifts += [] if lost is None else [lost]
                former = [arm for arm in range(3) if before[arm] == max(before)]
                distances.append(t - last)
                last = t
            if last > 1:
                lost = max(now) - min(now[arm] for arm in former)
            before = now
        shifts += [] if lost is None else [lost]
    assert world.k == len(distances)
    assert world.shift == pytest.approx(min(shifts, default=math.inf))
    assert world.distance == min(distances, default=int(NEVER))


def test_an_entry_without_flags_is_an_announced_event():
    world = made([[(1, [0.1, 0.2]), (5, [0.2, 0.1])]])
    assert world.segments["event"].tolist() == world.segments["signal"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("histories", "words"),
    [
        ([[]], "query 0 must begin"),
        ([[(2, [0.1])]], "round 1"),
        ([[(1, [0.1, 0.2])], [(1, [0.1])]], "query 1, round 1: 1 click prob"),
    ],
)
def test_histories_that_make_no_sense_are_refused(histories, words):
    with pytest.raises(SwerveError, match=words):
        assemble(Traffic(), 0, arms=2, features=0, histories=histories, schedule=np.zeros(3, np.int32))
