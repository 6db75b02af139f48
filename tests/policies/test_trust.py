"""How often alarms come true: rates computed by hand, tests that could not see, and the independence of signals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swerve import SwerveError, Trust
from swerve.core.tables import nested
from swerve.policies.swerve.trust import (
    came_true,
    clear_trust,
    contribute_trust,
    forget_trust,
    found_rise,
    looked,
    merge_trust,
    novel_trust,
    plain_rates,
    rates,
    take_up_trust,
    tried,
    trust_contribution_layout,
    trust_layout,
    trust_pool_layout,
)

SPEC = Trust()
SIGNALS = 8


class World:
    """Some queries, their common pool, and a delta that is folded into it after each test."""

    def __init__(self, spec=SPEC, queries=2):
        self.spec = spec
        self.rows = np.zeros(queries, nested(trust_layout()))
        self.pool, self.delta = np.zeros(2, nested(trust_pool_layout(SIGNALS)))
        for row in self.rows:
            forget_trust(row)

    def test(self, signal=0, query=0, fall=0.0, rise=0.0, saw=(1.0, 1.0, 1.0)):
        """End a test, which could have seen a fall, a rise, any event with the weights `saw`."""
        row = self.rows[query]
        row.plain_fall, row.plain_rise = plain_rates(self.spec, self.pool, signal)
        if rise > 0.0:
            found_rise(row, self.delta)
        if fall + rise > 0.0:
            came_true(row, self.delta, signal, fall)
        tried(row, self.delta, signal, *saw)
        self.fold()

    def fold(self):
        merge_trust(self.spec, self.pool, self.delta)
        clear_trust(self.delta)

    def plain(self, signal=0):
        return plain_rates(self.spec, self.pool, signal)

    def rates(self, signal=0, query=0):
        return rates(self.spec, self.rows[query], self.pool, signal)


def test_what_is_believed_at_first():
    world = World()
    assert world.plain() == pytest.approx((0.5 / 5.0, 0.25 / 5.0))
    assert world.rates() == pytest.approx((0.1, 0.05))


def test_rates_of_a_known_sequence():
    """A fall, nothing, a rise, nothing; every number computed by hand, with memory 1/2 so that forgetting is visible."""
    world = World(Trust(retention_per_trial=0.5, signal_prior_alarms=8.0))
    world.test(fall=1.0)
    world.test()
    world.test(rise=1.0)
    world.test()
    falls, rises, trials = 1 / 8, 1 / 2, 1 + 1 / 2 + 1 / 4 + 1 / 8
    fall, rise = (0.5 + falls) / (5.0 + trials), (0.25 + rises) / (5.0 + trials)
    own = (8.0 * (fall + rise) + falls + rises) / (8.0 + trials) / (fall + rise)
    assert world.plain() == pytest.approx((fall * own, rise * own))
    assert world.pool.tests == pytest.approx(trials)


def test_a_query_is_compared_with_what_was_expected_of_it():
    world = World()
    plain = [world.plain()]
    world.test(query=0, fall=1.0)
    plain.append(world.plain())
    world.test(query=0)
    row = world.rows[0]
    assert row.fall_trials == pytest.approx(plain[0][0] + plain[1][0])
    fall, rise = world.plain()
    assert world.rates(query=0) == pytest.approx(
        (fall * (0.1 + 1.0) / (0.1 + row.fall_trials), rise * 0.1 / (0.1 + row.rise_trials))
    )
    assert world.rates(query=1) == pytest.approx((fall, rise))  # another query has only the common rates


def test_a_query_whose_alarms_are_idle_is_distrusted_and_one_whose_come_true_is_not():
    world = World(queries=3)
    for _ in range(30):
        world.test(query=0)
        world.test(query=1, fall=1.0)
    idle, true, new = [sum(world.rates(query=query)) for query in range(3)]
    assert idle < 0.05 < 0.3 < new < 0.9 < true
    assert true < 1.0


def test_a_signal_that_cries_wolf_is_distrusted_and_the_others_are_not():
    world = World(queries=40)
    for number in range(200):
        query = number % 40
        world.test(signal=0, query=query)
        if number % 5 == 0:
            world.test(signal=1, query=query, fall=1.0)
    wolf, honest, unknown = [sum(world.plain(signal)) for signal in range(3)]
    assert wolf < 0.02
    assert honest > 0.75
    assert wolf < unknown < honest
    pool = world.pool
    overall = (SPEC.prior_falls + pool.falls) / (SPEC.prior_trials + pool.fall_trials)
    overall += (SPEC.prior_rises + pool.rises) / (SPEC.prior_trials + pool.rise_trials)
    assert unknown == pytest.approx(overall)


def test_a_test_that_could_not_see_teaches_nothing():
    """Tests that could not see leave the rates unchanged, so that rates do not fall without evidence."""
    world = World()
    world.test(fall=1.0)
    before = world.plain(), world.rates()
    for _ in range(100):
        world.test(saw=(0.0, 0.0, 0.0))
    assert (world.plain(), world.rates()) == before
    assert world.pool.tests == pytest.approx(sum(0.999**i for i in range(101)))


def test_a_test_that_saw_only_the_leader_teaches_only_about_falls():
    world = World()
    fall, rise = world.plain()
    for _ in range(50):
        world.test(saw=(1.0, 0.0, 0.0))
    after = world.plain()
    assert after[0] == pytest.approx(0.5 / (5.0 + world.pool.fall_trials))
    assert after[0] < fall / 5.0
    assert after[1] == rise
    assert world.rates()[0] < after[0]


def test_half_a_look_is_half_a_trial():
    half, whole = World(Trust(retention_per_trial=0.5)), World(Trust(retention_per_trial=0.5))
    for _ in range(2):
        half.test(saw=(0.5, 0.5, 0.5))
    whole.test()
    assert half.pool.fall_trials == pytest.approx(0.5 + 0.5 * 0.5**0.5)
    assert whole.pool.fall_trials == 1.0


def test_a_look_tells_of_all_alarms_since_the_last_one():
    """Three alarms without a look, then one test that would have shown a rise with probability 3/4, then a rise is found."""
    world = World(Trust(retention_per_trial=1.0 - 1e-9))
    row = world.rows[0]
    row.plain_rise = 0.05
    for unseen in (1.0, 1.0, 1.0, 0.25):
        row.unseen += 1.0
        tried(row, world.delta, 0, 1.0, looked(row, unseen), 1.0)
        world.fold()
    assert (world.pool.rise_trials, world.pool.fall_trials) == pytest.approx((3.0, 4.0))
    assert (row.unseen, row.rise_trials) == pytest.approx((1.0, 3.0 * 0.05))
    row.unseen += 1.0
    found_rise(row, world.delta)
    world.fold()
    assert (world.pool.rises, world.pool.rise_trials, row.rises, row.unseen) == pytest.approx((1.0, 5.0, 1.0, 0.0))
    assert world.plain()[1] > 0.0


def test_an_event_settles_what_earlier_alarms_have_left_unseen():
    world = World()
    world.rows[0].unseen = 7.0
    world.test(fall=1.0, saw=(1.0, 0.0, 1.0))
    assert (world.rows[0].unseen, world.pool.rise_trials) == (0.0, 0.0)


def test_what_was_counted_long_ago_gives_way():
    """After 1 / (1 − memory) trials without an event, a high rate has fallen as `memory` says."""
    world = World(Trust(retention_per_trial=0.99), queries=200)
    for query in range(100):
        world.test(query=query, fall=1.0)
    high = world.pool.falls
    for query in range(100, 200):
        world.test(query=query)
    assert high == pytest.approx((1.0 - 0.99**100) / 0.01)
    assert world.pool.falls == pytest.approx(high * 0.99**100)
    assert world.pool.fall_trials == pytest.approx((1.0 - 0.99**200) / 0.01)


def test_memory_bounds_the_counts():
    world = World(Trust(retention_per_trial=0.9))
    for _ in range(500):
        world.test(fall=1.0)
    assert world.pool.falls == pytest.approx(10.0)
    assert world.pool.alarms_of[0] == pytest.approx(10.0)


def test_an_event_of_which_nobody_can_say_the_kind_counts_for_its_signal():
    world = World()
    came_true(world.rows[0], world.delta, 3, 0.0)
    world.fold()
    assert (world.pool.trues_of[3], world.pool.falls, world.pool.rises) == (1.0, 0.0, 0.0)
    assert world.plain(3) > world.plain(2)


def test_a_delta_is_folded_in_once():
    world = World()
    came_true(world.rows[0], world.delta, 1, 1.0)
    world.delta.swift, world.delta.afters = 1.0, 1.0
    world.fold()
    once = world.pool.copy()
    world.fold()
    assert world.pool == once
    assert all(not np.asarray(world.delta[name]).any() for name in world.delta.dtype.names)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from(["fall", "rise", None]), st.floats(0.0, 1.0)), max_size=60
    )
)
def test_rates_are_chances(history):
    world = World(Trust(retention_per_trial=0.9))
    for signal, query, what, saw in history:
        world.test(signal, query, float(what == "fall"), float(what == "rise"), (saw, saw, saw))
        for other in range(4):
            for query in range(2):
                falls, rises = world.rates(other, query)
                assert 0.0 < falls < 1.0 and 0.0 < rises < 1.0
                assert falls + rises <= 0.999 + 1e-12


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"retention_per_trial": 1.0}, "retention_per_trial"),
        ({"prior_trials": 0.0}, "prior_trials"),
        ({"max_leader_share": 1.5}, "max_leader_share"),
    ],
)
def test_what_could_not_work_is_refused(named, words):
    with pytest.raises(SwerveError, match=words):
        Trust(**named)


# ---------------------------------------------------------------- several workers
def contributed(tests, seed):
    """A world after random tests, and what it has contributed."""
    dice, world = np.random.default_rng(seed), World()
    own = np.zeros(1, nested(trust_contribution_layout(SIGNALS)))[0]
    for _ in range(tests):
        fall, rise = float(dice.random() < 0.3), float(dice.random() < 0.1)
        row, signal = world.rows[0], int(dice.integers(SIGNALS))
        row.plain_fall, row.plain_rise = world.plain(signal)
        if fall + rise > 0.0:
            came_true(row, world.delta, signal, fall)
        tried(row, world.delta, signal, dice.random(), dice.random(), 1.0)
        contribute_trust(own, world.delta)
        world.fold()
    return world, own


@pytest.mark.parametrize("tests", [1, 20, 5000])
def test_counts_that_are_taken_up_at_once_count_as_if_they_had_come_one_by_one(tests):
    """Five times the memory of the pool, in one message."""
    theirs, own = contributed(tests, 3)
    ours, known = World(), np.zeros(1, own.dtype)[0]
    assert novel_trust(own, known)
    take_up_trust(SPEC, ours.pool, own, known)
    for name in ("tests", "fall_trials", "rise_trials", "alarms_of"):
        np.testing.assert_allclose(ours.pool[name], theirs.pool[name], rtol=0.02)
    for name in ("falls", "trues_of"):  # they have come by chance, not evenly
        np.testing.assert_allclose(ours.pool[name], theirs.pool[name], rtol=0.15, atol=0.5)
    assert known.tests == tests
    again = known.copy()
    assert not novel_trust(again, known)


def test_many_small_messages_and_a_large_one_teach_the_same():
    _, whole = contributed(400, 4)
    steps, at_once = World(), World()
    known = np.zeros(1, whole.dtype)[0]
    for tests in range(20, 401, 20):
        _, own = contributed(tests, 4)
        assert novel_trust(own, known)
        take_up_trust(SPEC, steps.pool, own, known)
    fresh = np.zeros(1, whole.dtype)[0]
    novel_trust(whole, fresh)
    take_up_trust(SPEC, at_once.pool, whole, fresh)
    for name in ("tests", "falls", "fall_trials", "rise_trials", "trues_of", "alarms_of"):
        np.testing.assert_allclose(steps.pool[name], at_once.pool[name], rtol=0.05, atol=0.3)
