"""Swerve: alarms that are on time, early, late, idle or repeated, and the net meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
from policies.scripted import BAD, GOOD, RISEN, TOLD, N, Query, warmed

from swerve import Blind, Swerve, Told, Trust
from swerve.core.contract import ALARM, LABEL_FALSE, LABEL_TRUE, RESTARTED, REVISED
from swerve.policies.swerve.lifecycle import CALLED_FALSE, QUIET, REVISE_MASK, WAITING, conclude, follow_up, give_label
from swerve.policies.swerve.posterior import CERTAIN, event_odds, hidden, stale, suspicion

# ---------------------------------------------------------------- an alarm on time, early, late, idle, repeated


def test_an_alarm_that_is_true_is_called_true_and_acted_on_at_once():
    query = warmed()
    query.rounds(300, BAD, alarm=True)
    assert query.when(ALARM) == [601]
    assert len(query.when(LABEL_TRUE)) == 1
    assert not query.when(LABEL_FALSE)
    assert query.trust.falls == pytest.approx(1.0)
    assert query.played[620:].count(2) > 250
    assert query.played[600:].count(0) < 20


@pytest.mark.parametrize("enough", [True, False])
def test_an_alarm_is_believed_from_the_probability_that_is_set(enough):
    query = warmed()
    query.rounds(5, BAD, alarm=True)
    odds, _ = event_odds(query.row.test)
    policy = Swerve(classifier=Told(), true_from=odds / (1.0 + odds) + (-0.01 if enough else 0.01))

    def verdict(act, *more, label=WAITING):
        row, delta = query.table.copy()[0], query.pools.copy()[1]
        row.label = label
        row.t = (row.t | REVISE_MASK) + 1  # a round in which revisions are checked
        return act(policy, row, delta, *more) & (LABEL_TRUE | LABEL_FALSE | REVISED)

    assert verdict(give_label, False) == (LABEL_TRUE if enough else LABEL_FALSE)
    assert verdict(conclude) == (LABEL_TRUE if enough else 0)
    assert verdict(conclude, label=CALLED_FALSE) == (REVISED if enough else 0)
    assert verdict(follow_up, label=CALLED_FALSE) == (REVISED if enough else 0)


def test_an_idle_alarm_costs_little_and_the_record_is_kept():
    query = warmed()
    before = query.row.test.old_plays.sum()
    query.rounds(300, GOOD, alarm=True)
    assert query.when(LABEL_FALSE) == [601 + TOLD.verdict_after]
    assert query.row.label == CALLED_FALSE
    assert not query.when(LABEL_TRUE)
    assert query.played[600:].count(0) > 270
    assert query.row.test.old_plays.sum() + query.row.test.new_plays.sum() == before + 300
    assert query.trust.falls == query.trust.rises == 0.0
    assert query.trust.tests == 1.0


def test_a_test_ends_when_every_arm_has_been_looked_at_and_nothing_was_found():
    query = Query(Swerve(classifier=Told(), trust=Trust(prior_falls=0.02, prior_rises=0.01)))
    for t in range(1701):
        query.round(GOOD, alarm=t == 600, offer=1 << t % 3)
    assert (int(query.row.open), int(query.row.label)) == (0, QUIET)
    assert query.row.test.old_plays.sum() == 1701
    assert query.row.test.new_plays.sum() == 0
    assert not query.when(RESTARTED)


def test_a_test_that_nobody_settles_stays_open_as_a_suspicion():
    query = warmed()
    query.round(GOOD, alarm=True)
    for _ in range(1100):
        query.round(GOOD, offer=1)
    assert (int(query.row.open), int(query.row.label)) == (1, QUIET)
    assert query.trust.rise_trials < 0.01 < 0.9 < query.trust.fall_trials  # and nothing was learnt about rises


@pytest.mark.parametrize("later", [250, 600, 900])
def test_a_verdict_is_revised_when_the_change_comes_after_it(later):
    query = warmed()
    query.rounds(later, GOOD, alarm=True)
    assert query.when(LABEL_FALSE) == [801]
    query.rounds(200, BAD)
    assert query.row.label == QUIET
    assert query.trust.falls == pytest.approx(1.0)
    assert query.trust.tests == pytest.approx(1.0)  # the same test came true, not another one
    assert not query.when(LABEL_TRUE)  # revised without a second label
    assert query.played[-100:].count(2) > 90


def test_a_change_after_the_wait_is_not_the_alarms_doing():
    query = warmed()
    query.rounds(1500, GOOD, alarm=True)
    query.rounds(200, BAD)
    assert query.trust.falls == 0.0
    assert query.played[-100:].count(2) > 90  # but the net has seen the change


@pytest.mark.parametrize("early", [10, 60, 150])
def test_an_alarm_may_come_early(early):
    query = warmed()
    query.rounds(early, GOOD, alarm=True)
    query.rounds(300, BAD)
    assert len(query.when(LABEL_TRUE)) == 1
    assert query.trust.falls == pytest.approx(1.0)
    assert query.played[-150:].count(2) > 135


@pytest.mark.parametrize("late", [2, 5, 8])
def test_an_alarm_may_come_a_little_late(late):
    query = warmed()
    query.rounds(late, BAD)
    query.rounds(300, BAD, alarm=True)
    assert len(query.when(LABEL_TRUE)) == 1
    assert query.played[-150:].count(2) > 135


def test_an_alarm_that_comes_after_the_net_has_seen_it_costs_little():
    query = warmed()
    query.rounds(150, BAD)
    assert query.played[-50:].count(2) > 40
    known = int(query.row.test.old_plays[2] + query.row.test.new_plays[2])
    query.rounds(250, BAD, alarm=True)
    assert query.played[-250:].count(2) > 220
    assert query.row.test.old_plays[2] + query.row.test.new_plays[2] >= 0.9 * (known + query.played[-250:].count(2))
    assert len(query.when(LABEL_FALSE)) == 1


def test_a_second_alarm_keeps_the_suspicion_of_the_first():
    """The last arm was not played since the first alarm, so it may still have risen then."""
    query = warmed()
    for t in range(40):
        query.round(GOOD, alarm=t == 0, offer=1)
    odds, _ = event_odds(query.row.test)
    assert odds < 1.0
    before = [stale(query.row.test, arm, hidden(query.row.test, odds)) for arm in range(N)]
    assert suspicion(query.row.test, 1, odds) > before[1]  # a fall of the leader that nobody could have seen is left out
    before[0] = suspicion(query.row.test, 0, odds)
    query.round(GOOD, alarm=True, offer=1)
    assert query.when(ALARM) == [601, 641]
    assert query.when(LABEL_FALSE) == [641]  # the first alarm gets its label early, from the evidence so far
    for arm in (1, 2):
        assert before[arm] > 0.01
        assert query.row.test.anyway[arm] == pytest.approx(before[arm], rel=0.1)
        assert query.row.test.given[arm] > TOLD.test.other_change_probability
    assert query.row.test.anyway[0] <= before[0] < before[1] / 2.0  # the leader was seen to be unchanged


def test_a_rise_that_proves_no_single_alarm_is_counted_for_all_that_were_unseen():
    """Several alarms without a try of the other arms; the last arm has risen, and is tried only then."""
    query = warmed(Swerve(classifier=Told(), trust=Trust(prior_falls=0.02, prior_rises=0.01)))
    for _ in range(8):
        for t in range(240):
            query.round(RISEN, alarm=t == 0, offer=1)
    assert not query.when(LABEL_TRUE)
    assert (query.trust.rises, query.trust.rise_trials) == pytest.approx((0.0, 0.0), abs=0.01)
    alarms = len(query.when(ALARM))
    assert alarms >= 4
    assert query.row.trust.unseen == pytest.approx(alarms, abs=0.01)
    for _ in range(40):
        query.round(RISEN, offer=1 << 2)
    assert query.trust.rises == 1.0
    assert query.trust.rise_trials == pytest.approx(alarms, abs=0.1)
    assert query.row.trust.unseen == 0.0


@pytest.mark.parametrize("delay", [0.0, 10.0])
def test_an_unlikely_alarm_may_leave_a_test_that_has_found_its_event_more_time(delay):
    query = warmed(Swerve(classifier=Told(), found_event_delay=delay))
    query.rounds(60, BAD, alarm=True)
    query.row.test.found = CERTAIN
    query.trust.fall_trials += 20.0  # an alarm is true in one case in fourteen: without the delay it waits for 34 rounds
    since = int(query.row.since)
    query.round(BAD, alarm=True)
    assert (int(query.row.since) == since) == (delay > 0.0)


def test_an_alarm_right_after_another_does_not_cut_its_test_short():
    query = warmed()
    for i in range(40):
        query.round(GOOD, alarm=i < 20)
    assert query.when(ALARM) == [601]
    assert query.row.since == 600


def test_alarms_that_are_hardly_ever_true_are_spaced_out():
    idle = warmed()
    for _ in range(60):
        idle.rounds(40, GOOD, alarm=True)
    gaps = np.diff(idle.when(ALARM))
    assert gaps[0] == 40
    assert gaps[-1] > 40


def test_a_rise_that_an_alarm_announces_is_found_although_the_leader_does_not_move():
    query = warmed()
    query.rounds(400, RISEN, alarm=True)
    assert query.played[-100:].count(2) > 60
    idle = warmed()
    idle.rounds(400, RISEN)  # without the alarm the arm is not tried
    assert idle.played[-100:].count(2) < 20


def test_alarms_that_have_come_true_are_trusted():
    query, chances = warmed(), [GOOD, BAD]
    odds = []
    for event in range(6):
        query.round(chances[(event + 1) % 2], alarm=True)
        odds.append(float(query.row.test.prior))
        query.rounds(400, chances[(event + 1) % 2])
    assert odds[0] == pytest.approx(0.15 / 0.85)
    assert min(odds[1:]) > 10.0
    assert len(query.when(LABEL_TRUE)) == 6


# ---------------------------------------------------------------- the net


def test_the_net_sees_what_nobody_announces():
    query = warmed()
    query.rounds(200, BAD)
    assert not query.when(ALARM)
    assert query.when(RESTARTED)[0] - 600 < 60
    assert query.played[-100:].count(2) > 90
    blind = warmed(Swerve(classifier=Told(), net=Blind()))
    blind.rounds(200, BAD)
    assert not blind.when(RESTARTED)
    assert blind.played[-100:].count(2) < 10


def test_the_net_works_while_a_test_is_open():
    """The leader stays good long after the alarm, so that the test decides that it is unchanged; then it falls."""

    def delay(policy):
        query = warmed(policy)
        query.rounds(500, GOOD, alarm=True)
        assert query.row.open == 1
        query.rounds(150, BAD)
        return min(query.when(RESTARTED), default=9999) - 1100

    assert delay(TOLD) < 30 < 60 < delay(Swerve(classifier=Told(), net=Blind()))


@pytest.mark.parametrize("label", [WAITING, CALLED_FALSE])
def test_what_a_test_has_proved_outlives_a_suspicion_of_the_net(label):
    """The leader falls, which is detected; then the new leader has a bad run, and the net opens a test that finds nothing."""
    query = warmed()
    query.rounds(75, BAD, alarm=True)
    odds, _ = event_odds(query.row.test)
    assert odds > 20.0
    assert query.row.label == WAITING
    query.row.label = label
    query.rounds(14, [0.1, 0.2, 0.0])
    assert query.row.test.prior == 1.0  # the net's test
    assert query.row.since == 600  # another alarm need not wait for it
    query.rounds(300, BAD)
    assert query.trust.falls == pytest.approx(1.0)
    assert query.row.label == QUIET
    assert len(query.when(LABEL_TRUE)) == (1 if label == WAITING else 0)
    assert not query.when(LABEL_FALSE)


def test_what_a_test_has_proved_outlives_the_next_alarm():
    """The verdict was false, the change came after it, and another alarm comes before the verdict is looked at again."""
    query = warmed()
    query.rounds(250, GOOD, alarm=True)
    while event_odds(query.row.test)[0] < 20.0:
        query.round(BAD)
    assert query.row.label == CALLED_FALSE
    assert query.trust.falls == 0.0
    query.round(BAD, alarm=True)
    assert query.when(ALARM) == [601, query.t]
    assert query.trust.falls == pytest.approx(1.0)
    assert query.when(REVISED) == [query.t]


def test_after_an_alarm_the_net_asks_for_less():
    def delay(alarm):
        query = warmed()
        query.rounds(300, GOOD, alarm=alarm)
        query.rounds(300, [0.45, 0.2, 0.1])
        return query.when(RESTARTED)[0] - 900

    assert delay(True) < delay(False)
