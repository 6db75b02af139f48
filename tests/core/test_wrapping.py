"""A combinator loses no ability of its bandit: the pool begins, learns, is folded and read at any depth."""

from __future__ import annotations

import pytest
from numba import njit

from swerve import BWC, CUSUM, UCB1, ExploreFirst, Fleet, Never, Oracle, Restarting, Spec, SwerveError, Testable, Thompson
from swerve.bandits.counts import counting
from swerve.core.contract import (
    LEARNT,
    begin_pool,
    clear,
    domain,
    mean_of,
    merge,
    observe,
    played,
    plays_of,
    pool_layout,
    reads_context,
    reward,
    select,
    settle,
    starts,
)
from swerve.core.verbs import VERBS, verb
from swerve.core.wrapping import wrapping
from swerve.policies.patient import Patient

pytestmark = pytest.mark.usefixtures("uncompiled")


@counting
class Pooled(Spec):
    """Learns, over all queries, the largest first feature, and plays the arm of that number."""


@pool_layout.register(Pooled)
def _(spec, features):
    return [("top", "f8"), ("settled", "i8")]


@begin_pool.register(Pooled)
def _(spec, pool, d):
    pool.top = 0.25
    pool.settled = 0
    return 0


@settle.register(Pooled)
def _(spec, row, pool, delta, now):
    delta.settled = 1
    return LEARNT


@observe.register(Pooled)
def _(spec, row, pool, delta, x, told, now):
    delta.top = max(delta.top, x[0])
    return LEARNT


@select.register(Pooled)
def _(spec, row, pool, available, now):
    return int(4 * pool.top)


@merge.register(Pooled)
def _(spec, pool, delta):
    pool.top = max(pool.top, delta.top)
    pool.settled = max(pool.settled, delta.settled)
    return 0


@clear.register(Pooled)
def _(spec, delta):
    delta.top = 0.0
    return 0


@starts.register(Pooled)
def _(spec, row):
    return 5


@domain.register(Pooled)
def _(spec, pool, x):
    return x[0] >= 0.0


@reads_context.register(Pooled)
def _(spec):
    return True


def inside(pool, depth):
    for _ in range(depth):
        pool = pool["bandit"]
    return pool


@pytest.mark.parametrize(
    ("policy", "depth"),
    [
        (Pooled(), 0),
        (Testable(Pooled(), length=4), 1),
        (ExploreFirst(Pooled(), length=1), 1),
        (Oracle(Pooled()), 1),
        (Oracle(Testable(Pooled(), length=4)), 2),
        (BWC(Testable(Pooled(), length=4), Never()), 2),
        pytest.param(BWC(Testable(Pooled(), length=4), Never()), 2, marks=pytest.mark.compiled, id="BWC, compiled"),
    ],
    ids=str,
)
def test_a_bandits_pool_works_at_any_depth(policy, depth):
    fleet = Fleet(policy, queries=2, arms=4, features=1)
    pool = inside(fleet.pools[0], depth)
    assert (pool["top"], pool["settled"]) == (0.25, 0)
    for query in (0, 1, 0, 1):
        decision = fleet.select(query, [0.5])
    assert (pool["top"], pool["settled"]) == (0.5, 1)
    assert decision.arm == 2
    assert bool(reads_context(policy))


@pytest.mark.parametrize("policy", [Testable(Pooled(), length=4), ExploreFirst(Pooled()), Oracle(Pooled())], ids=str)
def test_its_domain_and_starts_count_too(policy):
    fleet = Fleet(policy, queries=1, arms=4, features=1)
    assert fleet.select(0, [0.5]).start == (6 if isinstance(policy, Oracle | BWC) else 5)
    with pytest.raises(SwerveError, match="outside the"):
        fleet.select(0, [-0.5])


def test_a_class_says_what_it_does_not_pass_on():
    @wrapping(without=(plays_of, mean_of))
    class Secretive(Spec):
        bandit: Spec

    spec = Secretive(UCB1())
    assert not mean_of.knows(spec)
    assert mean_of.lookup(Secretive) is None
    assert plays_of.lookup(Secretive) is plays_of.default
    assert played.knows(spec)
    with pytest.raises(TypeError, match="mean_of: Secretive has no such verb"):
        mean_of(spec, None, 0)
    with pytest.raises(SwerveError, match="sample average"):
        Testable(spec)


def test_verbs_that_come_later_are_passed_on_too():
    @verb
    def colour(spec, row, shade):
        """A verb of another package."""

    @colour.register(UCB1)
    def _(spec, row, shade):
        return 10 * row.t + shade

    fleet = Fleet(Oracle(Testable(UCB1(), length=4)), queries=1, arms=4)
    fleet.select(0)
    try:
        assert colour.knows(fleet.policy)
        assert colour(fleet.policy, fleet.table[0], 3) == 13
        assert njit(lambda params, table, shade: colour(params[0], table[0], shade))(fleet.params, fleet.table, 4) == 14
        assert not colour.knows(Oracle(Thompson()))
        with pytest.raises(TypeError, match="colour: Thompson has no such verb"):
            colour(Oracle(Thompson()), fleet.table[0], 3)
    finally:
        VERBS.remove(colour)


def test_who_takes_rewards_himself_is_not_passed_by():
    """If a combinator, or a subclass of one, handles rewards itself, a click must not bypass it."""

    @wrapping
    class Doubting(Spec):
        bandit: Spec

    @reward.register(Doubting)
    def _(spec, row, arm, value, shown, now):
        return reward(spec.bandit, row.bandit, arm, 0.5 * value, shown, now)

    class Doubter(Oracle):
        pass

    @reward.register(Doubter)
    def _(spec, row, arm, value, shown, now):
        return reward(spec.bandit, row.bandit, arm, 0.25 * value, shown, now)

    for cls, earned in ((Oracle, 1.0), (Doubting, 0.5), (Doubter, 0.25)):
        fleet = Fleet(cls(UCB1()), queries=1, arms=4)
        decision = fleet.select(0)
        assert fleet.reward(0, decision)
        assert fleet.table[0].bandit.total[decision.arm] == earned


def test_a_click_keeps_its_time_under_every_combinator():
    """`Patient` finds the play by the time of its show, also inside another combinator."""
    for policy in (Patient(Thompson(), 9.0), Oracle(Patient(Thompson(), 9.0)), Restarting(Patient(Thompson(), 9.0), CUSUM())):
        fleet = Fleet(policy, queries=1, arms=1)
        for now in (0.0, 4.0):
            fleet.select(0, now=now)
        row = inside(fleet.table[0], 0 if isinstance(policy, Patient) else 1)
        assert reward(policy, fleet.table[0], 0, 1.0, 0.0, 5.0)
        assert row["earned"][0].tolist()[:2] == [0.0, 1.0], policy
