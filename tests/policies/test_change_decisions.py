"""Decisions of the change test: arms that changed or did not, and successive tests."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, strategies as st
from policies.changing import SPEC, cases_of, fresh, play, under_way

from swerve.core.tables import bit
from swerve.policies.swerve import posterior as change
from swerve.policies.swerve.posterior import (
    SURE,
    begin_change,
    decide_changed,
    decide_unchanged,
    event_odds,
    share_changed,
    split_off,
    still_better,
    suspicion,
    verdict,
)

# ---------------------------------------------------------------- decisions


@given(under_way(), st.data())
def test_an_arm_decided_unchanged_leaves_the_rest_as_it_was(test, data):
    spec, n, row = test
    assume(n > 1)
    cases = cases_of(row, n, spec)
    arm = data.draw(st.integers(0, n - 1))
    others = [other for other in range(n) if other != arm]
    exact = cases.odds(outside=(arm,))
    plays, total = change.plays_in(row, arm), change.total_in(row, arm)
    decide_unchanged(row, arm)
    odds, none = event_odds(row)
    assume(10.0 / SURE < row.odds < SURE / 10.0 and 10.0 / SURE < exact < SURE / 10.0)
    assert odds == pytest.approx(exact, rel=1e-6)
    for other in others:
        share = share_changed(row, other, row.given[other]) / (1.0 - none) * odds / (1.0 + odds)
        assert share == pytest.approx(cases.chance(True, (other,), (arm,)) / cases.chance(outside=(arm,)), rel=1e-6, abs=1e-12)
    assert row.stayed == bit(arm)
    assert (row.old_plays[arm], row.old_total[arm], row.new_plays[arm], row.given[arm]) == (plays, total, 0, 0.0)


@given(under_way(), st.data())
def test_an_arm_decided_changed_leaves_the_rest_as_it_was(test, data):
    spec, n, row = test
    arm = data.draw(st.integers(0, n - 1))
    others = [other for other in range(n) if other != arm]
    cases = cases_of(row, n, spec)
    exact = cases.odds(inside=(arm,))
    doubtful = row.anyway[arm] > 0.0
    plays, total = int(row.new_plays[arm]), float(row.new_total[arm])
    decide_changed(spec, row, arm, 0, 0.0)
    odds, none = event_odds(row)
    assert (row.found, row.moved, none) == (1 if doubtful else change.CERTAIN, bit(arm), 0.0)
    assert (row.old_plays[arm], row.old_total[arm], row.new_plays[arm], row.given[arm]) == (plays, total, 0, 0.0)
    if not doubtful:
        assert exact == math.inf
        assert odds == SURE
    else:
        assume(10.0 / SURE < row.odds < SURE / 10.0 and 10.0 / SURE < exact < SURE / 10.0)
        assert odds == pytest.approx(exact, rel=1e-6)
        for other in others:
            share = share_changed(row, other, row.given[other]) * odds / (1.0 + odds)
            assert share == pytest.approx(cases.chance(True, (other, arm)) / cases.chance(inside=(arm,)), rel=1e-6, abs=1e-12)


def test_a_proven_event_stays_proven_however_many_arms_did_not_change():
    row = fresh([(800, 200)] + [(100, 900)] * 31, room=32)
    begin_change(SPEC, row, False, 0.0, 0.1, 0.05, 0.995)
    decide_changed(SPEC, row, 0, 0, 0.0)
    for arm in range(1, 32):
        decide_unchanged(row, arm)
    assert event_odds(row) == (SURE, 0.0)


def test_an_arm_that_changed_later_than_suspected_keeps_only_what_came_since():
    row = fresh([(80, 20), (10, 90)])
    begin_change(SPEC, row, False, 0.0, 0.1, 0.05, 0.995)
    for value in [1.0] * 20 + [0.0] * 30:
        play(row, 0, value)
    decide_changed(SPEC, row, 0, 32, 2.0)
    assert (row.old_plays[0], row.old_total[0], row.new_plays[0]) == (32, 2.0, 0)


def test_verdicts_wait_for_proof():
    row = fresh([(800, 200), (100, 900)])
    begin_change(SPEC, row, False, 0.0, 0.4, 0.05, 0.995)
    assert verdict(SPEC, row, 0) == 0
    assert verdict(SPEC, row, 5) == 0  # an arm that was never on offer
    needed = 0
    while verdict(SPEC, row, 0) == 0:
        play(row, 0, 0.0)
        needed += 1
    assert verdict(SPEC, row, 0) == 1
    assert suspicion(row, 0, event_odds(row)[0]) > SPEC.decision_confidence
    assert 2 <= needed <= 8
    needed = 0
    while verdict(SPEC, row, 1) == 0:
        play(row, 1, float(needed % 10 == 3))
        needed += 1
    assert verdict(SPEC, row, 1) == -1
    row.anyway[1] = 0.05  # this event's odds do not settle an earlier suspicion
    assert verdict(SPEC, row, 1) == 0


# ---------------------------------------------------------------- successive tests


@given(under_way())
def test_the_next_test_takes_over_what_was_learnt_and_the_suspicion_that_is_left(test):
    """While an event is unlikely and the leader seems steady, other arms are suspected only of one that left it unchanged."""
    spec, n, row = test
    odds, _ = event_odds(row)
    suspicions = [suspicion(row, arm, odds) for arm in range(n)]
    if odds < 1.0 and not row.found and row.factor[row.leader] < change.FALLING:
        hidden = odds / (1.0 + odds) * (1.0 - share_changed(row, row.leader, row.given[row.leader]))
        for arm in set(range(n)) - {int(row.leader)}:
            now, before = (share_changed(row, arm, prior[arm]) for prior in (row.given, row.anyway))
            suspicions[arm] = hidden * now + (1.0 - hidden) * before
    both = [(change.plays_in(row, arm), change.total_in(row, arm)) for arm in range(n)]
    since = [(int(row.new_plays[arm]), float(row.new_total[arm])) for arm in range(n)]
    before = row.copy()
    dropped = begin_change(spec, row, True, odds, 0.1, 0.05, 0.995)
    before.top = row.top
    for arm in range(n):
        kept = (row.old_plays[arm], row.old_total[arm])
        if suspicions[arm] > 0.5:
            assert dropped >> arm & 1
            assert kept == since[arm]
            assert row.anyway[arm] == 0.0
        else:
            assert not dropped >> arm & 1
            assert kept == both[arm]
            left = suspicions[arm] * still_better(spec, before, arm)
            assert row.anyway[arm] == pytest.approx(left if left >= change.LEAST else 0.0)
        assert (row.new_plays[arm], row.factor[arm]) == (0, 1.0)
        assert row.given[arm] >= row.anyway[arm]
    assert (row.found, row.moved, row.stayed) == (0, 0, 0)


def test_false_alarms_under_a_steady_leader_do_not_add_up_to_a_suspicion_of_the_other_arms():
    """Alarms are falls in one case in fifty, rises in one in a hundred thousand. The leader's clicks stay as they were."""
    row = fresh([(400, 100), (50, 450), (25, 475)])
    begin_change(SPEC, row, False, 0.0, 0.02, 1e-5, 0.9999)
    for _ in range(100):
        for t in range(40):
            play(row, 0, float(t % 5 > 0))
        odds, _ = event_odds(row)
        assert odds < 0.02
        begin_change(SPEC, row, True, odds, 0.02, 1e-5, 0.9999)
        assert row.leader == 0
    assert max(row.anyway[1], row.anyway[2]) < 0.002  # below 100 · 10⁻⁵ for each, and not the 0.0014 of a single fall 100 times
    assert row.given[1] == pytest.approx(SPEC.other_change_probability, abs=0.002)


def test_a_leader_that_seems_to_fall_casts_the_whole_suspicion_on_the_other_arms():
    """One alarm in a hundred is a fall, and it is still more likely that nothing has happened."""
    row = fresh([(400, 100), (50, 450), (25, 475)])
    begin_change(SPEC, row, False, 0.0, 0.01, 1e-5, 0.9999)
    for t in range(12):
        play(row, 0, float(t % 12 > 5))
    odds, _ = event_odds(row)
    assert odds < 1.0 and row.factor[0] > change.FALLING
    whole = [suspicion(row, arm, odds) for arm in range(3)]
    assert whole[1] > 0.01
    before = row.copy()
    begin_change(SPEC, row, True, odds, 0.01, 1e-5, 0.9999)
    before.top = row.top
    for arm in (1, 2):
        assert row.anyway[arm] == pytest.approx(whole[arm] * still_better(SPEC, before, arm))


def fallen():
    """Return a test in which the leader has almost certainly fallen, without a verdict yet."""
    row = fresh([(400, 100), (150, 350), (50, 450)])
    begin_change(SPEC, row, False, 0.0, 0.4, 0.05, 0.995)
    assert row.leader == 0
    for t in range(30):
        play(row, 0, float(t % 10 == 0))
    odds, _ = event_odds(row)
    assert suspicion(row, 0, odds) > 0.9
    return row, odds


def test_the_leader_of_a_new_test_is_chosen_among_the_records_that_are_left():
    """By its old record the fallen arm would lead, with a click probability that it no longer has."""
    row, odds = fallen()
    assert begin_change(SPEC, row, True, odds, 0.1, 0.05, 0.995) == 1
    assert row.leader == 1
    assert row.top == pytest.approx(0.3, abs=0.01)


def test_the_arm_that_the_net_has_caught_keeps_the_record_that_proves_it():
    row, odds = fallen()
    assert begin_change(SPEC, row, True, odds, 0.5, 0.0, 0.995, 0) == 0
    assert (row.old_plays[0], row.old_total[0]) == (530, 403.0)
    split_off(SPEC, row, 0, 25, 2.0, 0.3)
    for _ in range(6):
        play(row, 0, 0.0)
    assert verdict(SPEC, row, 0) == 1
    others, odds = fallen()  # the rule applies to the fallen arm only
    assert begin_change(SPEC, others, True, odds, 0.5, 0.0, 0.995, 1) == 1


@pytest.mark.parametrize("odds", [0.5, 3.0, 200.0])
def test_what_the_net_has_caught_begins_with_the_odds_that_it_is_given(odds):
    row = fresh([(700, 300), (100, 900), (100, 900)])
    begin_change(SPEC, row, False, 0.0, 0.5, 0.0, 0.995)
    row.old_total[0] -= 15.0
    split_off(SPEC, row, 0, 40, 5.0, odds)
    assert (row.old_plays[0], row.old_total[0], row.new_plays[0], row.new_total[0]) == (960, 680.0, 40, 5.0)
    assert event_odds(row)[0] == pytest.approx(odds, rel=0.1)
    assert share_changed(row, 0, row.given[0]) > 0.99
