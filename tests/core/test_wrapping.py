"""Nothing that a bandit can do is lost under a combinator: its pool begins, learns, is folded and read at any depth."""

from __future__ import annotations

import pytest

from swerve import BWC, ExploreFirst, Fleet, Never, Oracle, Spec, SwerveError, Testable
from swerve.bandits.counts import counting
from swerve.core.contract import (
    LEARNT,
    begin_pool,
    clear,
    domain,
    merge,
    observe,
    phase,
    pool_layout,
    reads_context,
    select,
    settle,
)
from swerve.core.wrapping import FORWARDED


@counting
class Pooled(Spec):
    """Learns the largest first feature it has seen, together with all queries, and plays the arm of that number."""


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


@phase.register(Pooled)
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
def test_its_domain_and_phase_count_too(policy):
    fleet = Fleet(policy, queries=1, arms=4, features=1)
    assert fleet.select(0, [0.5]).phase == (6 if isinstance(policy, Oracle) else 5)
    with pytest.raises(SwerveError, match="outside the"):
        fleet.select(0, [-0.5])


def test_every_verb_of_a_round_is_passed_on():
    from swerve.core import contract
    from swerve.core.verbs import Verb

    own = {"guess", "test_length", "slots", "played", "mean_of"}  # a testable bandit's, not every bandit's
    classifiers = {"predict", "learn", "absorb", "blame"}  # a combinator asks its classifier itself
    detectors = {"watch", "intake", "evidence", "onset"}  # the same for its detector
    verbs = {name for name, value in vars(contract).items() if isinstance(value, Verb)}
    assert set(FORWARDED) == verbs - own - classifiers - detectors
