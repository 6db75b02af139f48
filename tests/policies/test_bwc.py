"""BWC: Algorithm 1 against the twin, round by round; its limit cases, byte by byte; its guarantees."""

from __future__ import annotations

import functools
import itertools
import random

import numpy as np
import pytest
from twins import bwc as twins, splitmix
from twins.duel import check_duel, mask_of, same_state
from twins.explore_first import ExploreFirst as ExploreFirstTwin
from twins.finite import Finite as FiniteTwin
from twins.kl_ucb import KLUCB as KLUCBTwin
from twins.rectangle import Rectangle as RectangleTwin
from twins.testable import Testable as TestableTwin
from twins.thompson import Thompson as ThompsonTwin
from twins.ucb1 import UCB1 as UCB1Twin

from swerve import BWC, KLUCB, UCB1, Always, ExploreFirst, Finite, Fleet, Matrix, Never, Rectangle, Testable, Thompson, Told

pytestmark = pytest.mark.usefixtures("uncompiled")

N, L, EPSILON, SEED = 4, 24, 0.35, 8
WORD = splitmix.named(SEED, "policy", 0)
TABLE = tuple(tuple(random.Random(i).choices((-1, -1, 1, 0), k=6)) for i in range(12))

BANDITS = {
    "ucb1": (Testable(UCB1(), L, EPSILON), lambda: TestableTwin(UCB1Twin(N), L, EPSILON)),
    "kl_ucb": (Testable(KLUCB(), L, EPSILON), lambda: TestableTwin(KLUCBTwin(N), L, EPSILON)),
    "thompson": (Testable(Thompson(), L, EPSILON), lambda: TestableTwin(ThompsonTwin(N, splitmix.words(WORD)), L, EPSILON)),
    "explore_first": (
        ExploreFirst(UCB1(), L, EPSILON),
        lambda: ExploreFirstTwin(UCB1Twin(N), L, EPSILON, splitmix.uniforms(WORD)),
    ),
}
CLASSIFIERS = {
    "rectangle": (Rectangle(margin=0.25), lambda: RectangleTwin(0.25)),
    "finite": (Finite(Matrix(TABLE)), lambda: FiniteTwin(TABLE)),
}


#: One of the combinations also compiled.
DUELS = [
    *itertools.product(BANDITS, CLASSIFIERS),
    pytest.param("thompson", "rectangle", marks=pytest.mark.compiled, id="thompson-rectangle, compiled"),
]


def box_context(dice):
    return [dice.random(), dice.random()]


def numbered_context(dice):
    return [float(dice.randrange(6)), 0.0]


def same_classifier(fleet, twin, now, *, kind):
    pool = fleet.pools[0].classifier
    if kind == "finite":
        assert [not twin.classifier.fits(concept) for concept in TABLE] == pool.ruled_out.astype(bool).tolist(), f"round {now}"
    elif twin.classifier.false:
        assert (pool.low[:2].tolist(), pool.high[:2].tolist()) == twin.classifier.box(), f"round {now}"
    else:
        assert pool.known == 0, f"round {now}"
    assert fleet.table[0].plus == mask_of(twin.full), f"round {now}"


@pytest.mark.parametrize(("name", "kind"), DUELS)
@pytest.mark.parametrize(
    "ways",
    [
        {"seed": 1, "events": 0.01},
        {"seed": 2, "changing": True},
        {"seed": 3, "delay": 6, "grace": 9.0},
        {"seed": 4, "changing": True, "evictions": 0.03, "delay": 3, "grace": 4.0},
    ],
    ids=["plain", "changing offers", "late clicks", "everything"],
)
def test_equals_the_twin_round_by_round(name, kind, ways):
    ways = dict(ways)
    grace = ways.pop("grace", 0.0)
    (bandit, bandit_twin), (classifier, classifier_twin) = BANDITS[name], CLASSIFIERS[kind]
    twin = twins.BWC(bandit_twin(), classifier_twin(), grace)
    fleet = Fleet(BWC(bandit, classifier, grace), queries=1, arms=N, features=2, seed=SEED)
    contexts = numbered_context if kind == "finite" else box_context
    check_duel(fleet, twin, 500, contexts=contexts, check=functools.partial(same_classifier, kind=kind), **ways)
    assert twin.phase >= 4
    assert twin.labels, "the sequence was too short for a comparison"


def test_labels_of_both_kinds_were_compared():
    """The comparisons above cover labels only if both kinds occur."""
    found = set()
    for seed in range(4):
        twin = twins.BWC(TestableTwin(UCB1Twin(N), L, EPSILON), RectangleTwin(0.25))
        fleet = Fleet(BWC(BANDITS["ucb1"][0], Rectangle(margin=0.25)), queries=1, arms=N, features=2, seed=SEED)
        check_duel(fleet, twin, 500, contexts=box_context, seed=seed, events=0.02)
        found |= {label for _, label in twin.labels}
    assert found == {True, False}


# ---------------------------------------------------------------- limit cases, byte by byte
def clicks_at(t, arm):
    return splitmix.as_unit(splitmix.word(17, t)) < 0.15 + 0.2 * arm


def run(fleet, rounds, told=(), before=None):
    """Return arms and phases of a run with clicks that depend on the round alone; `before(t)` may change the fleet."""
    arms = []
    for t in range(1, rounds + 1):
        if before is not None:
            before(t)
        decision = fleet.select(0, [0.5] if fleet.features else None, told=t in told, now=t)
        arms.append(decision.arm)
        if clicks_at(t, decision.arm):
            fleet.reward(0, decision, now=t)
    return arms


@pytest.mark.parametrize("bandit", [bandit for bandit, _ in BANDITS.values()], ids=list(BANDITS))
def test_with_never_it_is_the_bandit_restarted_once_after_round_l(bandit):
    meta = Fleet(BWC(bandit, Never()), queries=1, arms=N, features=1, seed=SEED)
    alone = Fleet(bandit, queries=1, arms=N, seed=SEED)
    expected = run(alone, 300, before=lambda t: alone.restart(0) if t == L + 1 else None)
    assert run(meta, 300) == expected
    assert same_state(meta.table["bandit"], alone.table)
    assert meta.table[0].phase == 2


@pytest.mark.parametrize("bandit", [bandit for bandit, _ in BANDITS.values()], ids=list(BANDITS))
@pytest.mark.parametrize("events", [(60, 60 + 2 * L, 200), (2 * L + 1, 4 * L + 1, 6 * L + 1)], ids=["apart", "as close as allowed"])
def test_told_by_the_oracle_it_restarts_at_each_event_and_l_rounds_later(bandit, events):
    meta = Fleet(BWC(bandit, Told()), queries=1, arms=N, features=1, seed=SEED)
    alone = Fleet(bandit, queries=1, arms=N, seed=SEED)
    restarts = {L + 1, *events, *(event + L for event in events)}
    expected = run(alone, 300, before=lambda t: alone.restart(0) if t in restarts else None)
    assert run(meta, 300, told=events) == expected
    assert same_state(meta.table["bandit"], alone.table)
    assert meta.table[0].phase == 2 + 2 * len(events)


def test_with_always_one_test_follows_the_other():
    meta = Fleet(BWC(Testable(UCB1(), L), Always()), queries=1, arms=N, features=1)
    alone = Fleet(Testable(UCB1(), L), queries=1, arms=N)
    # an adapting phase of no rounds: settled and alarmed in the same round, two restarts of which one is visible
    expected = run(alone, 5 * L, before=lambda t: alone.restart(0) if t % L == 1 and t > 1 else None)
    assert run(meta, 5 * L) == expected
    assert meta.table[0].phase == 9
    assert same_state(meta.table["bandit"], alone.table)


# ---------------------------------------------------------------- readings of the paper
def test_inside_a_test_nobody_asks_the_classifier():
    meta = Fleet(BWC(Testable(UCB1(), L), Told()), queries=1, arms=N, features=1)
    run(meta, L, told=range(1, L + 1))
    assert meta.table[0].phase == 1
    meta.select(0, [0.5], now=L + 1)
    assert meta.table[0].phase == 2


def test_the_first_test_gives_no_label():
    meta = Fleet(BWC(Testable(UCB1(), L), Rectangle()), queries=1, arms=N, features=1)
    for t in range(L + 1):
        meta.select(0, [0.5], now=t)
    assert meta.table[0].phase == 3  # test 1, an empty adapting phase, test 3
    assert meta.pools[0].classifier.known == 0


def test_a_restart_by_hand_begins_with_a_test_and_forgets_the_guess():
    meta = Fleet(BWC(Testable(UCB1(), L), Told()), queries=1, arms=N, features=1)
    run(meta, L + 5)
    assert meta.table[0].plus != 0
    old = meta.select(0, [0.5], now=L + 6)
    meta.restart(0)
    row = meta.table[0]
    assert (int(row.phase), int(row.plus), int(row.guessed)) == (3, 0, 0)
    assert not meta.reward(0, old)
    meta.restart(0)
    assert meta.table[0].phase == 5  # a phase number is never reused: late clicks must not match it


def test_after_an_eviction_arms_that_both_phases_knew_decide():
    """With G⁺ evicted there is nothing to compare, so no label is given."""
    meta = Fleet(BWC(Testable(UCB1(), L), Always()), queries=1, arms=2, features=1)
    twin = twins.BWC(TestableTwin(UCB1Twin(2), L, 0.3), twins.Always())
    for t in range(3 * L + 1):
        x, offer = [0.5], [0, 1]
        if t == L + 3:  # inside test 3
            for arm in range(2):
                if arm in twin.full:
                    meta.evict(0, arm)
                    twin.evict(arm)
        assert meta.select(0, x, now=t).arm == twin.decide(x, False, offer, float(t))
    assert [phase for phase, _ in twin.labels] == [5]


def test_queries_share_what_they_learn_in_the_order_of_rounds():
    policy = BWC(Testable(UCB1(), L), Rectangle(margin=0.3))
    fleet = Fleet(policy, queries=3, arms=2, features=1, pooling="shared")
    teams = [twins.BWC(TestableTwin(UCB1Twin(2), L, 0.3), None) for _ in range(3)]
    common = RectangleTwin(0.3)
    for team in teams:
        team.classifier = common
    dice = np.random.default_rng(4)
    for t in range(600):
        query, x = int(dice.integers(3)), [float(dice.random())]
        decision = fleet.select(query, x, now=t)
        assert (decision.arm, decision.start) == (teams[query].decide(x, False, [0, 1], float(t)), teams[query].phase), f"round {t}"
        if dice.random() < 0.3 + 0.4 * decision.arm:
            fleet.reward(query, decision, now=t)
            teams[query].reward(decision.arm, 1.0)
    assert len(common.false) > 2
