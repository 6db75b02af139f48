"""Swerve: how much it explores. Arms that are left out, and tries where changes come long after their alarms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from policies.changing import fresh
from policies.scripted import GOOD, RISEN, TOLD, Query, warmed

from swerve import Blind, Listed, Never, Swerve, SwerveError
from swerve.core.contract import select
from swerve.core.tables import bit, full_mask, has, pool_dtype
from swerve.policies.swerve.draws import is_behind, lead

LEAVING = Swerve(classifier=Never(), net=Blind(), leave_out_from=2.0)
FALLS, RISES = (1e6, 0.0), (1.0, 1.0)


def pool_of(falls, rises, policy=LEAVING):
    pool = np.zeros(1, pool_dtype(policy, 2))[0]
    pool.trust.falls, pool.trust.rises = falls, rises
    return pool


def left_out(policy, records, counts, word=1, offer=None):
    """Return the arms that are left out, for records of (clicks, skips) and pooled (falls, rises)."""
    row = fresh(records)
    offer = full_mask(len(records)) if offer is None else offer
    top, most, _ = lead(policy, row, pool_of(*counts).trust, offer, np.uint64(word))
    return {arm for arm in range(len(records)) if has(offer, arm) and is_behind(policy, row, arm, top, most)}


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), min_size=1, max_size=6),
    st.floats(0.5, 5.0),
)
def test_arms_far_behind_the_leader_are_left_out(records, distance):
    """The rule in floating point of its own: gap² · plays > distance · (1 + 0.3 ln(1 + plays of the leader / 100)) · variance."""
    means = [(1 + clicks) / (2 + clicks + skips) for clicks, skips in records]
    ahead = int(np.argmax(means))
    top, plays = means[ahead], sum(records[ahead])
    bound = distance * (1 + 0.3 * np.log(1 + plays / 100)) * top * (1 - top)
    squares = [(top - mean) ** 2 * sum(record) for mean, record in zip(means, records, strict=True)]
    sure = {arm for arm, square in enumerate(squares) if square > bound * (1 + 1e-9)}
    perhaps = {arm for arm, square in enumerate(squares) if square > bound * (1 - 1e-9)}
    out = left_out(Swerve(leave_out_from=distance), records, FALLS)
    assert sure <= out <= perhaps
    assert ahead not in out


def test_only_arms_on_offer_lead():
    records = [(900, 100), (300, 700), (10, 90)]
    assert left_out(LEAVING, records, FALLS) == {1, 2}
    assert left_out(LEAVING, records, FALLS, offer=bit(1) | bit(2)) == {2}
    assert left_out(LEAVING, [(0, 0), (500, 500)], FALLS) == set()  # an arm without plays is never left out


def test_by_default_and_before_anything_has_changed_every_arm_stays_in():
    records = [(900, 100), (10, 990)]
    for word in range(200):
        assert left_out(Swerve(), records, FALLS, word) == set()
        assert left_out(LEAVING, records, (0.0, 0.0), word) == set()


def test_the_larger_the_share_of_rises_the_more_often_every_arm_stays_in():
    """4 · ((½ + rises) / (½ + rises + falls))² of the rounds."""
    records = [(900, 100), (10, 990)]
    for falls, rises, share in [(9.5, 0.0, 0.05), (7.5, 2.0, 0.25), (2.0, 1.5, 0.5)]:
        stay = sum(left_out(LEAVING, records, (falls, rises), word) == set() for word in range(3000)) / 3000
        assert stay == pytest.approx(min(4 * share**2, 1.0), abs=0.03)


def test_what_is_left_out_is_not_played_until_its_rise_is_to_be_feared():
    def plays(policy, counts):
        query = Query(policy)
        for arm, (plays, clicks) in enumerate([(1000, 500), (40, 12), (0, 0)]):
            query.row.test.old_plays[arm], query.row.test.old_total[arm] = plays, clicks
        query.row.test.click_scale[:], query.row.test.skip_scale[:] = 0.05, 0.05
        pool = pool_of(*counts, policy)
        return [select(policy, query.row, pool, 0b011, 0.0) for _ in range(2000)].count(1)

    assert plays(LEAVING, FALLS) == 0
    assert plays(LEAVING, RISES) > 0
    assert plays(Swerve(classifier=Never(), net=Blind()), FALLS) > 0


def test_an_arm_that_a_test_suspects_is_tried_although_it_is_far_behind():
    query = warmed(Swerve(classifier=TOLD.classifier, leave_out_from=2.0))
    query.pools[0].trust.falls, query.pools[0].trust.fall_trials = 500.0, 1000.0
    query.pools[0].trust.rises, query.pools[0].trust.rise_trials = 5.0, 20.0
    assert query.rounds(100, RISEN).count(2) == 0
    query.rounds(400, RISEN, alarm=True)
    assert query.played[-100:].count(2) > 60


def test_pages_leave_no_result_out():
    with pytest.raises(SwerveError, match="leave_out_from=0"):
        Listed(bandit=LEAVING)


# ---------------------------------------------------------------- changes long after their alarms


CAUTIOUS = Swerve(classifier=TOLD.classifier, late_caution=2.0)


def tries(policy, swift, slow):
    """Return the plays of other arms after an idle alarm, where so many falls were found soon, and so many late."""
    query = warmed(policy)
    query.trust.falls, query.trust.fall_trials = 90.0, 100.0
    query.trust.swift, query.trust.slow = swift, slow
    return 150 - query.rounds(150, GOOD, alarm=True).count(0)


def test_where_falls_come_long_after_their_alarms_an_unchanged_leader_is_no_sign_of_a_rise():
    assert tries(CAUTIOUS, 0.0, 50.0) < tries(TOLD, 0.0, 50.0) / 2
    assert tries(CAUTIOUS, 5.0, 5.0) == tries(TOLD, 5.0, 5.0)


@pytest.mark.parametrize(("swift", "slow", "prompt"), [(0.0, 30.0, 0.25), (5.0, 15.0, 0.5), (2.0, 3.0, 1.0), (0.0, 0.0, 1.0)])
@pytest.mark.parametrize("caution", [0.0, 2.0])
def test_rises_are_believed_as_far_as_falls_come_with_their_alarms(swift, slow, prompt, caution):
    """The share of falls that came with their alarms, ten more of them at first, to the power `late_caution`."""
    query = warmed(Swerve(classifier=TOLD.classifier, late_caution=caution))
    trust = query.trust
    trust.falls, trust.fall_trials, trust.rises, trust.rise_trials = 30.0, 100.0, 20.0, 100.0
    trust.swift, trust.slow = swift, slow
    query.round(GOOD, alarm=True)
    falls, rises = 30.5 / 105.0, 20.25 / 105.0 * prompt**caution
    assert query.row.test.prior == pytest.approx((falls + rises) / (1.0 - falls - rises))
    assert query.row.hasty == (prompt == 1.0)
