"""Plays that wait for their clicks: where a click goes, when a play is handed over, what is void. Its worth: test_late.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve import BWC, Fleet, Rectangle, Swerve, SwerveError, Testable, Thompson
from swerve.core.contract import begin, evict, phase, plays_of, restart, reward, settle, show
from swerve.core.tables import pool_dtype, row_dtype
from swerve.policies.patient import MOST, PARTS, Patient, attribute


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
    attribute(spec, row, 0, 1.0, 2.0, 8.0)
    attribute(spec, row, 1, 1.0, 7.0, 8.0)
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
        attribute(spec, row, 1, 1.0, 0.5, 2.0)
    assert row.earned[1].sum() == 3.0
    row.earned[1, 0] = 1.75
    settle(spec, row, pools[0], pools[1], 50.0)
    assert (row.bandit.plays[1], row.bandit.total[1]) == (3, 1.75)


def test_a_click_after_the_grace_still_counts_and_one_from_before_a_restart_does_not():
    spec = Patient(Thompson(), 9.0)
    row, pools = row_of(spec)
    shown_at(spec, row, pools, 2, 0.0)
    settle(spec, row, pools[0], pools[1], 20.0)
    attribute(spec, row, 2, 1.0, 0.0, 21.0)
    assert (row.bandit.plays[2], row.bandit.total[2]) == (1, 1.0)
    shown_at(spec, row, pools, 2, 22.0)
    shown_at(spec, row, pools, 2, 23.0)
    restart(spec, row)
    for shown in (22.0, 23.0):
        attribute(spec, row, 2, 1.0, shown, 24.0)
    settle(spec, row, pools[0], pools[1], 60.0)
    assert plays_of(spec, row, 2) == 0


def test_an_alarm_makes_void_what_is_waiting():
    fleet = Fleet(Patient(BWC(Testable(Thompson(), length=2), Rectangle(margin=0.1)), 5.0), queries=1, arms=3, features=1)
    for t in range(30):
        before = fleet.table[0].plays.sum()
        then = phase(fleet.policy, fleet.table[0])
        fleet.select(0, [0.5], now=float(t))
        if phase(fleet.policy, fleet.table[0]) != then:  # only the play of this very round is waiting
            assert before > 1
            assert fleet.table[0].plays.sum() == 1
            assert fleet.table[0].void == t
            return
    pytest.fail("no phase ended")


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


def test_a_reward_without_a_time_is_for_the_latest_play():
    spec = Patient(Thompson(), 9.0)
    row, pools = row_of(spec)
    shown_at(spec, row, pools, 0, 3.0)
    reward(spec, row, 0, 1.0, 100.0)
    assert row.earned[0, 0] == 1.0


def test_its_state_is_small_and_it_needs_a_policy():
    assert row_dtype(Patient(), 8, 8).itemsize - row_dtype(Swerve(), 8, 8).itemsize <= 256
    with pytest.raises(SwerveError, match=r"bandit = .* is not allowed"):
        Patient(Rectangle(margin=0.1))
