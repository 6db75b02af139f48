"""Restarts on detection, for result pages: the detector's input, restarts of the bandit, and forced exploration."""

from __future__ import annotations

import numpy as np
import pytest
from bandits.paging import Desk

from swerve import CUSUM, GLR, UCB1, Pages, SwerveError, simulate
from swerve.bandits import DCMKLUCB, CascadeKLUCB, ListThompson
from swerve.core.contract import RESTARTED
from swerve.policies import RestartingList


def test_the_detector_sees_the_slots_that_count_as_read():
    desk = Desk(RestartingList(DCMKLUCB(), GLR()), 6, 4)
    page = desk.page()
    desk.click(0, 2)
    desk.settle()
    seen = desk.row.detector
    assert [int(seen.plays[arm]) for arm in page] == [1, 1, 1, 0]
    assert [int(seen.total[arm]) for arm in page] == [1, 0, 1, 0]
    assert [int(desk.row.bandit.plays[arm]) for arm in page] == [1, 1, 1, 0]


def test_everything_starts_over_when_one_arm_changes():
    desk = Desk(RestartingList(CascadeKLUCB(), CUSUM(10, 0.05, 2.0)), 4, 2)
    for _ in range(200):
        desk.page()
        desk.click(0)
    assert int(desk.row.starts) == 1
    reports = []
    for _ in range(60):
        desk.page()
        reports.append(desk.settle())
    assert RESTARTED in reports
    at = reports.index(RESTARTED)
    assert int(desk.row.starts) >= 2
    assert 0 < at < 40
    assert int(desk.row.bandit.t) < 60


@pytest.mark.parametrize("seed", [1, 2])
def test_big_shifts_are_found_and_quiet_queries_left_alone(seed):
    policy = RestartingList(CascadeKLUCB(), GLR.tuned(4000))
    shifting = Pages(queries=4, impressions=16_000, results=8, slots=4, clicks="cascade", events_low=2, events_high=2,
                     minimum_event_distance=800)  # fmt: skip
    found = simulate(policy, shifting, runs=2, seed=seed, points=1).count("restarts")
    assert (found >= 6).all()
    assert (found <= 12).all()
    quiet = Pages(queries=4, impressions=16_000, results=8, slots=4, clicks="cascade", events_low=0, events_high=0)
    assert simulate(policy, quiet, runs=2, seed=seed, points=1).count("restarts").sum() <= 1


def test_forced_exploration_puts_every_arm_on_top_in_turn():
    desk = Desk(RestartingList(CascadeKLUCB(), GLR(), exploration=0.25), 5, 3)
    tops = []
    for _ in range(60):
        page = desk.page()
        assert len(set(page)) == 3
        tops.append(page[0])
        desk.click(*[slot for slot, arm in enumerate(page) if arm == 0])
    assert [tops[20 * period : 20 * period + 5] for period in range(3)] == [[0, 1, 2, 3, 4]] * 3
    assert np.mean([top == 0 for top in tops[45:]]) > 0.8, "in between the bandit chooses"


@pytest.mark.parametrize("bandit", [UCB1(), ListThompson()], ids=["one slot", "no depth"])
def test_a_bandit_that_cannot_say_what_was_read_is_refused(bandit):
    with pytest.raises(SwerveError, match=r"bandit must be a bandit for pages, such as CascadeKLUCB\(\)"):
        RestartingList(bandit, GLR())


def test_only_a_whole_restart():
    with pytest.raises(SwerveError, match="scope must be all"):
        RestartingList(CascadeKLUCB(), GLR(), "arm")
