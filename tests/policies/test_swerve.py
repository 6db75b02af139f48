"""Swerve: its limit cases, the safe mode, arms that come and go, late clicks, large numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, strategies as st
from policies.scripted import BAD, GOOD, TOLD, D, N, Query, assert_finite, warmed

from swerve import UCB1, Blind, ChangeTest, Fleet, Learner, Never, Rectangle, Swerve, SwerveError, Thompson, Trust
from swerve.core.contract import ALARM, LABEL_FALSE, LABEL_TRUE, LEARNT, RESTARTED, evict, restart, reward
from swerve.core.engine import decide
from swerve.core.tables import row_dtype
from swerve.detectors.suffixes import length_of, word_of
from swerve.policies.swerve.lifecycle import QUIET
from swerve.policies.swerve.posterior import event_odds, rescale

# ---------------------------------------------------------------- limit cases


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 3.0)])
@pytest.mark.parametrize("ways", ["plain", "offers", "evictions", "late"])
def test_without_alarms_and_without_a_net_it_is_thompson_sampling(ways, a, b):
    """The same arms, the same records, the same random stream; no label is ever given."""
    ours = Query(Swerve(classifier=Never(), net=Blind(), test=ChangeTest(a=a, b=b)), arms=4)
    alone = Query(Thompson(a, b), arms=4)
    dice = random.Random(7)
    waiting = []
    for t in range(250):
        offer = dice.randrange(1, 16) if ways == "offers" else 15
        x, told = np.array([dice.random(), dice.random()]), int(dice.random() < 0.1)
        arm, report = decide(ours.policy, ours.row, ours.pools, 0, 1, x, told, offer, float(t))
        assert arm == decide(alone.policy, alone.row, alone.pools, 0, 1, x, told, offer, float(t))[0], f"round {t}"
        assert not report & (ALARM | LABEL_FALSE | LABEL_TRUE | RESTARTED | LEARNT)
        if dice.random() < 0.2 + 0.2 * arm:
            waiting.append((t + (9 if ways == "late" else 0), arm))
        for due, clicked in [entry for entry in waiting if entry[0] <= t]:
            waiting.remove((due, clicked))
            for each in (ours, alone):
                reward(each.policy, each.row, clicked, 1.0, float(t), float(t))
        if ways == "evictions" and t % 40 == 39:
            for each in (ours, alone):
                evict(each.policy, each.row, t // 40 % 4)
        if ways == "plain" and t == 150:
            for each in (ours, alone):
                restart(each.policy, each.row)
        assert ours.row.rng == alone.row.rng
    assert ours.row.test.old_plays.tolist() == alone.row.plays.tolist()
    assert ours.row.test.old_total.tolist() == alone.row.total.tolist()
    assert ours.row.test.click_scale.tolist() == alone.row.click_scale.tolist()


# ---------------------------------------------------------------- the safe mode, on which the paper's guarantee rests


@given(
    st.lists(st.floats(0.3, 0.6), min_size=3, max_size=3),
    st.lists(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), min_size=1, max_size=10),
    st.integers(0, 2),
    st.floats(0.0, 0.3),
    st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3),
)
def test_as_long_as_only_quiet_contexts_are_learnt_every_event_is_positive(edges, quiet, which, beyond, inside):
    """Quiet contexts lie in a box, and an event has a feature at least a margin beyond it: no event is missed at any time."""
    box = Learner(Rectangle(margin=0.1), d=3)
    event = [share * edge for share, edge in zip(inside, edges, strict=True)]
    event[which] = edges[which] + 0.1 + 1e-12 + beyond
    assert box.predict(event)  # nothing learnt: everything is positive
    for shares in quiet:
        box.learn([share * edge for share, edge in zip(shares, edges, strict=True)])
        assert box.predict(event)


@pytest.mark.parametrize("offer", [7, 4])
def test_a_context_is_taught_only_when_the_clicks_spoke_against_an_event(offer):
    """If only a poor arm is on offer, no change can be seen: the alarm is labelled false, and its context is not learnt."""
    query = Query(Swerve(classifier=Rectangle(margin=0.1), verdict_after=30, revise_until=60))
    classifier = query.pools[0].classifier
    begin_rectangle(classifier, 0.5)
    for _ in range(400):
        query.round(GOOD)
    assert not query.when(ALARM)
    query.round(GOOD, offer=offer, x=(0.9, 0.5))
    for _ in range(40):
        query.round(GOOD, offer=offer)
    assert query.when(ALARM) == [401]
    assert query.when(LABEL_FALSE) == [431]
    assert classifier.high[0] == (0.9 if offer == 7 else 0.5)


def begin_rectangle(pool, at):
    """Set the rectangle to its state after one quiet context."""
    pool.known = 1
    pool.low[:D] = pool.high[:D] = at


# ---------------------------------------------------------------- arms that come and go, late clicks


def test_an_arm_evicted_during_a_test_is_forgotten_by_all_parts():
    query = warmed()
    query.rounds(500, GOOD, alarm=True)
    assert query.row.open == 1
    query.row.test.stayed |= 1
    evict(query.policy, query.row, 0)
    test, net = query.row.test, query.row.net
    assert (test.old_plays[0], test.new_plays[0], test.old_total[0], test.given[0], test.anyway[0]) == (0, 0, 0.0, 0.0, 0.0)
    assert (net.plays[0], net.total[0]) == (0, 0.0)
    assert not test.stayed & 1
    assert query.row.last != 0
    query.rounds(400, [0.9, 0.2, 0.1])  # the new result is good, and found
    assert query.played[-100:].count(0) > 90
    assert_finite(query.row)


def test_all_arms_may_be_evicted_during_a_test():
    query = warmed()
    query.rounds(30, GOOD, alarm=True)
    for arm in range(N):
        evict(query.policy, query.row, arm)
    assert event_odds(query.row.test) == (0.0, 0.0)
    query.rounds(300, BAD)
    assert query.played[-100:].count(2) > 80
    assert_finite(query.row)


def test_a_restart_ends_a_test():
    query = warmed()
    query.rounds(30, GOOD, alarm=True)
    before = int(query.row.starts)
    restart(query.policy, query.row)
    row = query.row
    assert (int(row.open), int(row.label), int(row.starts), int(row.t)) == (0, QUIET, before + 1, 0)
    assert row.test.old_plays.sum() + row.test.new_plays.sum() + row.net.plays.sum() == 0
    query.rounds(1500, BAD)
    assert not query.when(LABEL_FALSE)  # the earlier alarm gets no label
    assert query.played[-100:].count(2) > 90


def test_a_leader_that_is_not_on_offer_can_be_neither_played_nor_judged():
    query = warmed()
    query.round(GOOD, alarm=True, offer=6)
    for _ in range(150):
        assert query.round(GOOD, offer=6)[0] != 0
    assert query.row.test.new_plays[0] == 0
    assert not (query.row.test.stayed | query.row.test.moved) & 1
    assert_finite(query.row)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("delay", [1, 20, 100])
def test_late_clicks_hold_up_the_policy_and_break_nothing(delay):
    """Through a fleet: clicks come some rounds late, across alarms, changes and an eviction."""
    fleet = Fleet(TOLD, queries=1, arms=N, features=1, seed=4)
    dice, waiting, played = random.Random(3), [], []
    for t in range(2400):
        chances = GOOD if t < 1000 else BAD
        decision = fleet.select(0, [0.5], told=t in (300, 1000), now=t)
        played.append(decision.arm)
        if dice.random() < chances[decision.arm]:
            waiting.append((t + delay, decision))
        while waiting and waiting[0][0] <= t:
            fleet.reward(0, waiting.pop(0)[1], now=t)
        if t == 1500:
            fleet.evict(0, 1)
    test = fleet.table[0].test
    assert (test.new_total <= test.new_plays).all() and (test.old_total <= test.old_plays).all()
    assert_finite(fleet.table[0])
    assert played[800:1000].count(0) > 170
    assert played[-300:].count(2) > 250


# ---------------------------------------------------------------- clicks on plays from before a test


def clicked(query, arm, shown):
    """Return whether a click on a play of this time was learnt, and the clicks that each of the two records gained."""
    test = query.row.test
    before = float(test.old_total[arm]), float(test.new_total[arm])
    learnt = reward(query.policy, query.row, arm, 1.0, float(shown), float(query.t))
    return learnt, float(test.old_total[arm]) - before[0], float(test.new_total[arm]) - before[1]


def test_a_click_for_a_play_of_before_the_alarm_goes_into_the_old_record_and_says_nothing_about_the_alarm():
    """In the new record it would be evidence against a fall that came after its play."""
    query = warmed()
    alarm = query.t + 1
    query.rounds(12, BAD, alarm=True)
    test = query.row.test
    odds, factor = event_odds(test), float(test.factor[0])
    assert query.row.opened == alarm and test.new_total[0] + 1 < test.new_plays[0]
    assert clicked(query, 0, alarm - 1) == (True, 1.0, 0.0)
    assert float(test.factor[0]) == factor  # the leader's old record has one more click; the new one is unchanged
    assert event_odds(test) == odds
    assert clicked(query, 0, alarm) == (True, 0.0, 1.0)
    assert float(test.factor[0]) < factor


def test_a_click_for_a_play_whose_record_was_dropped_is_not_learnt():
    query = warmed()
    alarm = query.t + 1
    query.round(BAD, alarm=True)
    while not query.row.test.moved & 1:
        query.round(BAD)
    row = query.row.tobytes()
    assert query.row.kept[0] == alarm
    assert clicked(query, 0, alarm - 1) == (False, 0.0, 0.0)
    assert query.row.tobytes() == row
    assert clicked(query, 0, alarm)[0]
    assert clicked(query, 1, alarm - 1) == (True, 1.0, 0.0)  # the others keep their records
    evict(query.policy, query.row, 0)
    assert query.row.kept[0] == -np.inf  # the next candidate has no earlier time


def test_where_the_net_split_a_record_clicks_go_to_the_latest_plays():
    """The new record then begins with plays from before the test, and these are the plays whose clicks may still come."""
    query = warmed(Swerve(classifier=Never()))
    while not query.row.open:
        query.round(BAD)
    assert (query.row.opened, query.row.split) == (query.t, 0)
    assert query.row.test.new_plays[0] > 2
    assert clicked(query, 0, query.t - 2) == (True, 0.0, 1.0)
    assert clicked(query, 1, query.t - 2) == (True, 1.0, 0.0)
    while not query.row.test.moved & 1:
        query.round(BAD)
    assert query.row.kept[0] == -np.inf
    evict(query.policy, query.row, 0)
    assert query.row.split == -1


@pytest.mark.usefixtures("uncompiled")
def test_without_times_every_click_is_for_what_is_going_on():
    fleet = Fleet(TOLD, queries=1, arms=N, features=1, seed=4)
    for t in range(100):
        decision = fleet.select(0, [0.5])
        assert fleet.reward(0, decision, float(decision.arm == 0 and t % 2))
    decision = fleet.select(0, [0.5], available=1)
    before = fleet.table[0].test.copy()
    for told in (True, False, False):
        last = fleet.select(0, [0.5], told=told, available=1)
    assert fleet.table[0].open == 1
    assert fleet.reward(0, decision) and fleet.reward(0, last)
    test = fleet.table[0].test
    assert test.new_total.sum() == 2.0
    assert test.old_total.tolist() == before.old_total.tolist()


# ---------------------------------------------------------------- numbers


def test_the_state_of_a_query_is_small():
    assert row_dtype(Swerve(), 8, 8).itemsize <= 1536


@pytest.mark.parametrize("chance", [0.7, 1.0, 0.0])
@pytest.mark.parametrize("alarm", [False, True])
def test_an_arm_with_100_million_plays(chance, alarm):
    """The test sets its counters and plays on, with and without an alarm, until it falls (or rises)."""
    query, plays = Query(TOLD), 10**8
    row, total = query.row, float(round(10**8 * chance))
    for part, counts, earned in ((row.test, "old_plays", "old_total"), (row.net, "plays", "total")):
        part[counts][0], part[earned][0] = plays, total
        part[counts][1:N], part[earned][1:N] = 50, 0.0  # the others are known to be poor
    for k in range(row.net.marks.shape[1]):
        row.net.marks[0, k] = word_of(total - chance * length_of(k, plays))
    row.t = plays
    for arm in range(N):
        rescale(TOLD.test, row.test, arm)
    query.rounds(700, [chance, 0.0, 0.0], alarm)
    assert not query.when(RESTARTED)
    assert_finite(row)
    if chance > 0.0:
        assert query.played.count(0) > 640
        query.rounds(150, [0.05, 0.0, 0.0], alarm)
        assert query.when(RESTARTED)
        assert row.test.old_plays[0] + row.test.new_plays[0] < 1000
        assert_finite(row)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"classifier": UCB1()}, "classifier"),
        ({"net": UCB1()}, "net"),
        ({"test": Trust()}, "test"),
        ({"trust": ChangeTest()}, "trust"),
        ({"verdict_after": 1001}, "verdict_after"),
        ({"look_threshold": 2.0}, "look_threshold"),
        ({"true_from": 1.0}, "true_from"),
    ],
)
def test_what_could_not_work_is_refused(named, words):
    with pytest.raises(SwerveError, match=rf"{words} = .* is not allowed"):
        Swerve(**named)


@pytest.mark.parametrize("period", [8, 24])
def test_contexts_that_come_in_a_rhythm_are_all_learnt(period):
    """If every eighth context were learnt, the same hours would always be chosen, and the busy hours might never be."""
    fleet = Fleet(Swerve(), queries=1, arms=3, features=1, seed=5)
    dice = np.random.default_rng(0)
    for t in range(16_000):
        busy = t % period >= period - period // 8
        fleet.select(0, x=[0.5 + 0.02 * dice.random() + busy], now=float(t))
    assert fleet.pools["classifier"]["high"][0][0] > 1.5  # the busy hours count as usual
