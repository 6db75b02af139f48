"""The contract of every policy."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from conformance.examples import classifiers, contexts_for, examples_of, label, load, policies

import swerve
from swerve import Fleet, Spec, Traffic
from swerve.core import engine
from swerve.core.contract import mean_of, played, plays_of, reads_context, starts
from swerve.core.spec import pack
from swerve.core.tables import full_mask, pool_dtype, row_dtype
from swerve.environments import world
from swerve.simulate import loop

N, D = 4, 2
EVERY = pytest.mark.parametrize("policy", policies(), ids=label)
#: The first example of each class; the others are slow. A combinator's code is the same around any part, and the parts are compiled
#: by themselves (`test_classifiers.py`, `test_detectors.py`). `Listed` is compiled for pages, in tests/simulate/test_pages.py.
ELSEWHERE = {"Listed"}
FIRST = [
    policy
    if policy == examples_of(type(policy))[0] and type(policy).__name__ not in ELSEWHERE
    else pytest.param(policy, marks=pytest.mark.slow)
    for policy in policies()
]


@functools.cache
def drawn(features):
    return world(Traffic(queries=2, impressions=700, results=N, shifting_share=1.0, features=features, order="uniform"), 1)


class Plain:
    """A fleet's tables with the kernels' source run by Python."""

    def __init__(self, policy, queries=1, arms=N, features=D, seed=5):
        self.policy, self.params, self.arms = policy, pack(policy), arms
        self.table = np.zeros(queries, row_dtype(policy, arms, features))
        self.pools = np.zeros(2, pool_dtype(policy, features))
        words = np.array([swerve.core.rng.split(seed, "policy", i) for i in range(queries)], np.uint64)
        engine.begin_rows.plain(self.params, self.table, words)
        engine.begin_pools.plain(self.params, self.pools, features)

    def select(self, x, available=None, told=0, now=0.0):
        mask = np.int64(full_mask(self.arms) if available is None else available)
        code = engine.select_one.plain(self.params, self.table, 0, self.pools, 0, 1, np.array(x), told, mask, now)
        assert code >= 0
        return int(code) & 63, int(code) >> 14

    def reward(self, arm, then, value=1.0, now=0.0):
        owner = int(self.table[0].generation[arm])
        return engine.update_one.plain(self.params, self.table, 0, arm, owner, then, value, now, now)

    def evict(self, arm):
        engine.evict_one.plain(self.params, self.table, 0, arm)

    def restart(self):
        engine.restart_one.plain(self.params, self.table, 0)


def test_something_is_registered():
    names = {type(policy).__name__ for policy in policies()}
    assert names >= {"UCB1", "KLUCB", "Thompson", "EXP3S", "Testable", "ExploreFirst", "BWC", "Oracle"}
    tried = {type(policy.classifier).__name__ for policy in policies() if type(policy).__name__ == "BWC"}
    assert tried >= {type(classifier).__name__ for classifier in classifiers()}


def test_a_class_without_an_example_is_named():
    class NeedsMore(Spec):
        what: Spec

    with pytest.raises(AssertionError, match=r"NeedsMore needs arguments .* tests/conformance/examples.py"):
        examples_of(NeedsMore)
    assert NeedsMore not in load()


def accepts_boxes(policy):
    """Return whether the policy accepts the contexts of the drawn instance; a finite class needs numbers."""
    return type(getattr(policy, "classifier", None)).__name__ != "Finite"


def features_of(policy):
    """As many as `Traffic` has, so that the loop compiled here is that of the commands and the README; few for the hull's ball."""
    return D if type(getattr(policy, "classifier", None)).__name__ == "Hull" else Traffic().features


@pytest.mark.parametrize("policy", FIRST, ids=label)
def test_compiled_equals_interpreted_to_the_byte(policy):
    """Begin, 300 rounds of the whole simulation loop, an eviction, a restart, and 100 rounds more."""
    features = features_of(policy)
    fast, slow = Fleet(policy, queries=2, arms=N, features=features, seed=5), Plain(policy, queries=2, features=features)
    see = bool(reads_context(policy)) and accepts_boxes(policy)  # unseen contexts are zeros, which is a number too
    instance, states = drawn(features), []
    for tables, pick in ((fast, lambda entry, *more: entry.bind(policy, *more)), (slow, lambda entry, *more: entry.plain)):
        places, x = instance.cursors.copy(), np.zeros(features)
        tally, notes = np.zeros(2, loop.TALLY), np.zeros(2, loop.NOTE)

        def rounds(start, stop, tables=tables, pick=pick, places=places, x=x, tally=tally, notes=notes):
            pick(loop.play, instance.spec)(
                tables.params, tables.table, tables.pools, np.zeros(2, np.int64), 1, pack(instance.spec), instance.scene,
                instance.segments, places, instance.schedule, start, stop, see, x, np.int64(full_mask(N)), tally, notes,
            )  # fmt: skip

        seen = [tables.table.tobytes(), tables.pools.tobytes()]
        rounds(0, 300)
        seen += [tables.table.tobytes(), tables.pools.tobytes()]
        pick(engine.evict_one)(tables.params, tables.table, 0, 1)
        pick(engine.restart_one)(tables.params, tables.table, 1)
        rounds(300, 400)
        states.append(
            [*seen, tables.table.tobytes(), tables.pools.tobytes(), places.tobytes(), x.tobytes(), tally.tobytes(), notes.tobytes()]
        )
    assert states[0] == states[1]
    assert states[0][0] != states[0][2]


@EVERY
def test_plays_only_what_is_on_offer_and_every_start_comes_after_the_last(policy):
    dice = random.Random(1)
    state, context = Plain(policy), contexts_for(policy)
    last, seen = 0, set()
    for t in range(150):
        mask = dice.randrange(1, 1 << N)
        arm, then = state.select(context(dice), mask, told=t % 40 == 39, now=float(t))
        assert mask >> arm & 1
        assert then >= last
        assert then == starts(policy, state.table[0])
        last = then
        seen.add(arm)
        if dice.random() < 0.2 * (arm + 1):
            assert state.reward(arm, then, now=float(t))
    assert seen == set(range(N))


@EVERY
def test_all_64_arms_can_be_played(policy):
    state, dice = Plain(policy, arms=64), random.Random(2)
    context = contexts_for(policy)
    for arm in (63, 0, 31, 32):
        mask = -(2**63) if arm == 63 else 1 << arm
        assert state.select(context(dice), mask)[0] == arm
    assert 0 <= state.select(context(dice))[0] < 64


@EVERY
def test_the_same_seed_plays_the_same_way(policy):
    def arms(seed):
        state, dice = Plain(policy, seed=seed), random.Random(3)
        out = []
        for t in range(60):
            arm, then = state.select(contexts_for(policy)(dice), now=float(t))
            out.append(arm)
            if dice.random() < 0.5:
                state.reward(arm, then)
        return out, state.table.tobytes()

    assert arms(1) == arms(1)


@EVERY
def test_after_a_restart_nothing_is_left_of_what_was_seen(policy):
    state, dice = Plain(policy), random.Random(4)
    for t in range(30):
        arm, then = state.select(contexts_for(policy)(dice), now=float(t))
        state.reward(arm, then)
    state.restart()
    row = state.table[0]
    if mean_of.knows(policy):
        assert played(policy, row) == 0
        assert [int(plays_of(policy, row, arm)) for arm in range(N)] == [0] * N
        assert [float(mean_of(policy, row, arm)) for arm in range(N)] == [0.0] * N
    if starts(policy, row) != then:
        assert not state.reward(arm, then), "a click from before the restart must not be learnt"


@EVERY
def test_a_forgotten_arm_starts_fresh_and_its_late_click_is_harmless(policy):
    state, dice = Plain(policy), random.Random(5)
    context = contexts_for(policy)
    for t in range(10):
        arm, then = state.select(context(dice), now=float(t))
        state.reward(arm, then)
    arm, then = state.select(context(dice), now=10.0)
    state.evict(arm)
    if plays_of.knows(policy):
        assert plays_of(policy, state.table[0], arm) == 0
    state.reward(arm, then, now=10.0)
    for t in range(11, 40):
        assert 0 <= state.select(context(dice), now=float(t))[0] < N


@EVERY
def test_its_text_reads_back(policy):
    assert swerve.policy(repr(policy)) == policy


@EVERY
def test_says_what_it_does_in_its_docstring(policy):
    doc = type(policy).__doc__ or ""
    assert "Paper:" in doc or "Source:" in doc, f"{type(policy).__name__} names no source"


@EVERY
def test_a_click_told_again_and_again_breaks_nothing(policy):
    """Repeated clicks may bias an arm, but they must not freeze the sampler or raise an average above 1."""
    dice, state, context = random.Random(2), Plain(policy), contexts_for(policy)
    for t in range(12):
        arm, then = state.select(context(dice), now=float(t))
        for _ in range(5):
            state.reward(arm, then, now=float(t))
    assert 0 <= state.select(context(dice), now=12.0)[0] < N
    if mean_of.knows(policy):
        assert all(mean_of(state.params[0], state.table[0], a) <= 1.0 for a in range(N))


@pytest.mark.usefixtures("uncompiled")
@EVERY
def test_a_late_click_for_an_evicted_arm_is_nobodys(policy):
    """Its arm has a new candidate, which was shown and must not be credited; this also holds for a bandit without counts."""
    fleet = Fleet(policy, queries=1, arms=1, features=D)
    x = contexts_for(policy)(random.Random(3))
    old = fleet.select(0, x)
    fleet.evict(0, 0)
    new = fleet.select(0, x)
    before = fleet.table.tobytes()
    assert (old.generation, new.generation) == (0, 1)
    assert fleet.reward(0, old) is False
    assert fleet.table.tobytes() == before
    if new.start == old.start:
        assert fleet.reward(0, new) is True


@pytest.mark.usefixtures("uncompiled")
@EVERY
def test_a_late_click_of_before_a_restart_is_nobodys(policy):
    """This also holds if the arm was shown again since, and for a policy that does not count its starts."""
    fleet = Fleet(policy, queries=1, arms=1, features=D)
    x = contexts_for(policy)(random.Random(3))
    old = fleet.select(0, x)
    fleet.restart(0)
    new = fleet.select(0, x)
    before = fleet.table.tobytes()
    assert fleet.reward(0, old) is False
    assert fleet.table.tobytes() == before
    assert fleet.reward(0, new) is True
