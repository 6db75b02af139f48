"""Plays that wait for their clicks: the record of a click, plays handed over, void plays. test_late.py measures the benefit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve import BWC, Fleet, Rectangle, Swerve, SwerveError, Testable, Thompson
from swerve.core.contract import begin, evict, plays_of, restart, reward, settle, show, starts
from swerve.core.tables import pool_dtype, row_dtype
from swerve.policies.patient import MOST, PARTS, Patient, drop_all

pytestmark = pytest.mark.usefixtures("uncompiled")


def row_of(spec, arms=3):
    table, pools = np.zeros(1, row_dtype(spec, arms, 1)), np.zeros(2, pool_dtype(spec, 1))
    begin(spec, table[0], np.uint64(5))
    return table[0], pools


def shown_at(spec, row, pools, arm, now):
    settle(spec, row, pools[0], pools[1], now)
    show(spec, row, arm, now)


def test_a_click_goes_to_the_part_its_play_is_in_and_is_handed_over_with_it():
    spec = Patient(Thompson(), 9.0)
    row, pools = row_of(spec)
    for t in range(8):
        shown_at(spec, row, pools, t % 2, float(t))
    reward(spec, row, 0, 1.0, 2.0, 8.0)
    reward(spec, row, 1, 1.0, 7.0, 8.0)
    assert row.earned[0].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert row.earned[1].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert row.bandit.plays.sum() == 0
    assert plays_of(spec, row, 0) == 4
    settle(spec, row, pools[0], pools[1], 16.0)
    assert row.bandit.plays[:2].tolist() == [4, 4]
    assert row.bandit.total[:2].tolist() == [1.0, 1.0]
    assert row.plays.sum() == 0


def test_no_play_earns_more_than_one_click_and_parts_of_a_click_are_kept():
    spec = Patient(Thompson(), 9.0)
    row, pools = row_of(spec)
    for t in (0.0, 0.5, 1.0):
        shown_at(spec, row, pools, 1, t)
    for _ in range(5):
        reward(spec, row, 1, 1.0, 0.5, 2.0)
    assert row.earned[1].sum() == 3.0
    row.earned[1, 0] = 1.75
    settle(spec, row, pools[0], pools[1], 50.0)
    assert (row.bandit.plays[1], row.bandit.total[1]) == (3, 1.75)


def test_a_click_after_the_grace_still_counts_and_one_from_before_a_restart_does_not():
    spec = Patient(Thompson(), 9.0)
    row, pools = row_of(spec)
    shown_at(spec, row, pools, 2, 0.0)
    settle(spec, row, pools[0], pools[1], 20.0)
    reward(spec, row, 2, 1.0, 0.0, 21.0)
    assert (row.bandit.plays[2], row.bandit.total[2]) == (1, 1.0)
    shown_at(spec, row, pools, 2, 22.0)
    shown_at(spec, row, pools, 2, 23.0)
    restart(spec, row)
    for shown in (22.0, 23.0):
        reward(spec, row, 2, 1.0, shown, 24.0)
    settle(spec, row, pools[0], pools[1], 60.0)
    assert plays_of(spec, row, 2) == 0


def test_an_alarm_makes_void_what_is_waiting():
    fleet = Fleet(Patient(BWC(Testable(Thompson(), length=2), Rectangle(margin=0.1)), 5.0), queries=1, arms=3, features=1)
    for t in range(30):
        before = fleet.table[0].plays.sum()
        then = starts(fleet.policy, fleet.table[0])
        fleet.select(0, [0.5], now=float(t))
        if starts(fleet.policy, fleet.table[0]) != then:  # only the play of this round is waiting
            assert before > 1
            assert fleet.table[0].plays.sum() == 1
            assert fleet.table[0].void == t
            return
    pytest.fail("nothing began anew")


def test_a_click_of_before_an_alarm_is_learnt_if_its_play_was_handed_over():
    """Waiting plays become void at an alarm; the bandit still learns clicks on plays that it already had."""
    spec = Patient(Thompson(), 6.0)
    row, pools = row_of(spec)
    for t in range(20):
        shown_at(spec, row, pools, 0, float(t))
    handed = int(row.bandit.plays[0])
    assert 8 <= handed <= 14
    drop_all(spec, row, 20.0)
    shown_at(spec, row, pools, 0, 21.0)
    drop_all(spec, row, 22.0)
    shown_at(spec, row, pools, 0, 22.0)
    for shown, learnt in ((0, True), (handed - 1, True), (handed, False), (19, False), (21, False)):
        assert reward(spec, row, 0, 1.0, float(shown), 23.0) is learnt, shown
    assert row.bandit.total[0] == 2.0
    assert row.earned.sum() == 0.0
    assert reward(spec, row, 0, 1.0, 22.0, 23.0)  # this play is waiting
    assert row.earned[0, 0] == 1.0


def test_of_two_alarms_ago_nobody_knows_which_plays_were_handed_over():
    spec = Patient(Thompson(), 6.0)
    row, pools = row_of(spec)
    for t in range(60):
        shown_at(spec, row, pools, 0, float(t))
        if t in (20, 50):
            drop_all(spec, row, t + 0.5)
    for shown, learnt in ((0, False), (19, False), (21, True), (35, True), (48, False), (50, False)):
        assert reward(spec, row, 0, 1.0, float(shown), 60.0) is learnt, shown


def test_an_evicted_arm_has_nothing_waiting():
    spec = Patient(Thompson(), 9.0)
    row, pools = row_of(spec)
    for arm in (0, 1, 1):
        shown_at(spec, row, pools, arm, 1.0)
    evict(spec, row, 1)
    assert [plays_of(spec, row, arm) for arm in range(3)] == [1, 0, 0]


def test_a_clock_that_jumps_back_an_hour_holds_up_nothing():
    fleet = Fleet(Patient(Thompson(), 9.0), queries=1, arms=3)
    for t in (*range(10_000, 10_050), *range(6_400, 6_500)):
        fleet.reward(0, fleet.select(0, now=float(t)), now=float(t))
    assert 120 < fleet.table[0].bandit.plays.sum() < 150 - 3
    assert math.isfinite(fleet.table[0].opened[PARTS - 1])


def test_a_part_that_is_full_takes_no_more():
    spec = Patient(Thompson(), 9.0)
    row, pools = row_of(spec)
    shown_at(spec, row, pools, 0, 0.0)
    row.plays[0, 0] = MOST
    shown_at(spec, row, pools, 0, 0.0)
    assert row.plays[0, 0] == MOST


def test_a_decision_says_which_play_a_click_is_for():
    """This holds at any time of the click, and if the time is not given."""
    fleet = Fleet(Patient(Thompson(), 9.0), queries=1, arms=1)
    first, second = fleet.select(0, now=3.0), fleet.select(0, now=7.0)
    assert fleet.reward(0, second)
    assert fleet.table[0].earned[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert fleet.reward(0, first, now=100.0)
    assert fleet.table[0].earned[0].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_without_times_everything_is_current():
    fleet = Fleet(Patient(Thompson(), 9.0), queries=1, arms=1)
    for _ in range(3):
        assert fleet.reward(0, fleet.select(0))
    assert fleet.table[0].earned[0].tolist() == [3.0, 0.0, 0.0, 0.0]


def test_its_state_is_small_and_it_needs_a_policy():
    assert row_dtype(Patient(), 8, 8).itemsize - row_dtype(Swerve(), 8, 8).itemsize <= 256
    with pytest.raises(SwerveError, match=r"bandit = .* is not allowed"):
        Patient(Rectangle(margin=0.1))
