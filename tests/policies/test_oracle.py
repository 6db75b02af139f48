"""Oracle restarts: against the twin, and against a bandit that the test restarts."""

from __future__ import annotations

import pytest
from twins.duel import check_duel, same_state
from twins.oracle import Oracle as Twin
from twins.ucb1 import UCB1 as UCB1Twin

from swerve import BWC, EXP3S, KLUCB, UCB1, Fleet, Never, Oracle, Testable, Thompson

pytestmark = pytest.mark.usefixtures("uncompiled")


@pytest.mark.parametrize(
    "ways", [pytest.param({}, marks=pytest.mark.compiled), {"changing": True, "evictions": 0.02}, {"delay": 6}]
)
def test_equals_the_twin_round_by_round(ways):
    twin = type("Told", (Twin,), {"evict": lambda self, arm: self.bandit.evict(arm)})(UCB1Twin(4))
    check_duel(
        Fleet(Oracle(UCB1()), queries=1, arms=4, features=1),
        twin,
        400,
        contexts=lambda d: [d.random()],
        seed=1,
        events=0.03,
        **ways,
    )
    assert twin.starts > 5


@pytest.mark.parametrize(
    "bandit", [UCB1(), KLUCB(), Thompson(), EXP3S(), Testable(UCB1(), 20)], ids=lambda spec: type(spec).__name__
)
def test_is_the_bandit_restarted_at_each_event(bandit):
    told, alone = Fleet(Oracle(bandit), queries=1, arms=3), Fleet(bandit, queries=1, arms=3)
    for t in range(200):
        event = t in (40, 41, 120)
        if event:
            alone.restart(0)
        one, two = told.select(0, told=event), alone.select(0)
        assert one.arm == two.arm
        if (t * 7 + one.arm) % 3 == 0:
            told.reward(0, one)
            alone.reward(0, two)
    assert same_state(told.table["bandit"], alone.table)
    assert told.table[0].starts == 4


def test_an_oracle_over_an_oracle_is_an_oracle():
    twice, once = Fleet(Oracle(Oracle(UCB1())), queries=1, arms=3), Fleet(Oracle(UCB1()), queries=1, arms=3)
    for t in range(50):
        assert twice.select(0, told=t == 20).arm == once.select(0, told=t == 20).arm
    assert twice.table["bandit"]["bandit"].tobytes() == once.table["bandit"].tobytes()


def test_a_click_from_before_the_event_is_not_learnt():
    fleet = Fleet(Oracle(UCB1()), queries=1, arms=3)
    before = fleet.select(0)
    fleet.select(0, told=True)
    assert not fleet.reward(0, before)


def test_feedback_for_a_start_of_the_bandit_inside_is_not_learnt_later():
    policy = Oracle(BWC(Testable(UCB1(), length=3), Never()))
    fleet = Fleet(policy, queries=1, arms=2, features=1)
    first = fleet.select(0, [0.0], now=0.0)
    for t in range(1, 5):
        last = fleet.select(0, [0.0], now=float(t))
    assert last.start > first.start  # the test inside is over
    assert fleet.reward(0, first) is False
    assert fleet.reward(0, last) is True
