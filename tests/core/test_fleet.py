"""A fleet: groups, streams, what it refuses, and what must not be able to hurt it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve import BWC, UCB1, Decision, Decisions, Fleet, Rectangle, SwerveError, Testable, Thompson
from swerve.core import engine
from swerve.core.fleet import groups_of

BOX = BWC(Testable(UCB1(), length=20), Rectangle(margin=0.2))


@pytest.fixture
def fleet():
    return Fleet(BOX, queries=3, arms=4, features=2)


def test_groups_of_a_list_and_of_a_number_as_text():
    assert groups_of([2, 0, 2], 3).tolist() == [2, 0, 2]
    assert groups_of("2", 3).tolist() == [0, 1, 0]
    for bad in ([0, 1], [0, 1, -1]):
        with pytest.raises(SwerveError, match="each of the 3 queries"):
            groups_of(bad, 3)


def drive(fleet, rounds=300, seed=1):
    dice = np.random.default_rng(seed)
    for t in range(rounds):
        query = t % fleet.queries
        decision = fleet.select(query, dice.random(2), now=t)
        if dice.random() < 0.2 + 0.2 * decision.arm:
            fleet.reward(query, decision, now=t)
    return fleet


def test_what_one_query_learns_counts_for_its_group_only():
    shared = drive(Fleet(BOX, queries=4, arms=4, features=2, pooling="shared"))
    apart = drive(Fleet(BOX, queries=4, arms=4, features=2, pooling="query"))
    pairs = drive(Fleet(BOX, queries=4, arms=4, features=2, pooling=2))
    assert (len(shared.pools), len(apart.pools), len(pairs.pools)) == (2, 5, 3)
    boxes = [apart.pools[g].classifier for g in range(4)]
    assert len({box.low.tobytes() + box.high.tobytes() for box in boxes}) == 4
    alone = drive(Fleet(BOX, queries=4, arms=4, features=2, pooling=[0, 1, 2, 3]))
    assert alone.pools.tobytes() == apart.pools.tobytes()
    # the delta is empty between rounds: everything learnt has been folded in
    assert [int(f.pools[f.writer].classifier.known) for f in (shared, apart, pairs)] == [0, 0, 0]


def test_the_seed_names_the_streams():
    def arms(seed):
        fleet = Fleet(Thompson(), queries=2, arms=4, seed=seed)
        return [fleet.select(q).arm for _ in range(30) for q in (0, 1)]

    assert arms(1) == arms(1)
    assert arms(1) != arms(2)
    assert arms(1)[::2] != arms(1)[1::2]  # two queries, two streams


REFUSED = {
    "nan": (lambda f: f.select(0, [math.nan, 0.0]), ["x = [nan, 0.0]", "finite"]),
    "inf": (lambda f: f.select(0, [0.0, -math.inf]), ["x = [0.0, -inf]", "finite"]),
    "outside": (lambda f: f.select(0, [0.0, 1.01]), ["x = [0.0, 1.01]", "outside", "Rectangle"]),
    "shape": (lambda f: f.select(0, [0.0]), ["x", "(1,)", "2 features"]),
    "nothing on offer": (lambda f: f.select(0, [0.0, 0.0], available=0), ["available = 0", "4 arms"]),
    "only others on offer": (lambda f: f.select(0, [0.0, 0.0], available=0b110000), ["available = 48", "4 arms"]),
    "no such query": (lambda f: f.select(3, [0.0, 0.0]), ["query = 3", "[0, 2]"]),
    "negative query": (lambda f: f.select(-1, [0.0, 0.0]), ["query = -1", "[0, 2]"]),
    "reward no such query": (lambda f: f.reward(7, Decision(0, 1)), ["query = 7", "[0, 2]"]),
    "reward no such arm": (lambda f: f.reward(0, Decision(4, 1)), ["arm", "4", "[0, 3]"]),
    "reward negative arm": (lambda f: f.reward(0, Decision(-1, 1)), ["arm", "-1", "[0, 3]"]),
    "reward nan": (lambda f: f.reward(0, Decision(0, 1), math.nan), ["value", "nan", "[0, 1]"]),
    "reward too high": (lambda f: f.reward(0, Decision(0, 1), 1.5), ["value", "1.5", "[0, 1]"]),
    "step no such arm": (lambda f: f.step(0, Decision(9, 1), 1.0, [0.0, 0.0]), ["arm", "9", "[0, 3]"]),
    "many: empty offer": (lambda f: f.select_many([0], [[0.0, 0.0]], available=[0]), ["available = 0"]),
    "many: too few offers": (lambda f: f.select_many([0, 1], np.zeros((2, 2)), available=[1]), ["available", "2"]),
    "many: too few told": (lambda f: f.select_many([0, 1], np.zeros((2, 2)), told=[1]), ["told", "2"]),
    "many: shape": (lambda f: f.select_many([0, 1], np.zeros((2, 3))), ["xs", "(2, 3)", "(2, 2)"]),
    "many: no such query": (lambda f: f.select_many([0, 3], np.zeros((2, 2))), ["query", "[0, 2]"]),
    "many: nan": (lambda f: f.select_many([0, 1], [[0.0, 0.0], [0.0, math.nan]]), ["x = [0.0, nan]", "finite"]),
    "many: no such arm": (lambda f: f.update_many([0], Decisions(np.array([9]), np.array([1])), [1.0]), ["arm", "9", "[0, 3]"]),
    "many: lengths": (
        lambda f: f.update_many([0], Decisions(np.array([1, 2]), np.array([1, 1])), [1.0]),
        ["arms", "(2,)", "(1,)"],
    ),
    "many: phases": (
        lambda f: f.update_many([0, 1], Decisions(np.array([1, 2]), np.array([1])), [1.0, 1.0]),
        ["phases", "(1,)", "(2,)"],
    ),
    "evict no such arm": (lambda f: f.evict(0, 4), ["arm = 4", "[0, 3]"]),
    "restart no such query": (lambda f: f.restart(5), ["query", "[0, 2]"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_at_the_door_and_nothing_has_changed(fleet, case):
    call, words = REFUSED[case]
    before = fleet.table.tobytes()
    if case == "many: nan":  # in order: what came before the bad one has been done
        before = None
    # kernels trust what the door lets in: a bad index that gets through would write into foreign memory, so look before it does
    safe = {
        "_update_one": lambda *a: pytest.fail(f"let through: {a[2:]}"),
        "_step_one": lambda *a: pytest.fail(f"let through: {a[2:]}"),
    }
    for name, stop in safe.items():
        setattr(fleet, name, stop)
    with pytest.MonkeyPatch.context() as patch:
        if case.startswith("many") and case != "many: nan":
            refuse = type("Stop", (), {"bind": lambda *a: lambda *b: pytest.fail("let through")})()
            patch.setattr(engine, "select_many", refuse)
            patch.setattr(engine, "update_many", refuse)
            for name in ("_select_many", "_update_many"):
                if hasattr(fleet, name):
                    patch.setattr(fleet, name, lambda *a: pytest.fail("let through"))
        with pytest.raises(SwerveError) as caught:
            call(fleet)
    text = str(caught.value)
    assert "\n" not in text
    missing = [word for word in words if word not in text]
    assert not missing, f"{text!r} does not say {missing}"
    assert before is None or fleet.table.tobytes() == before


@pytest.mark.parametrize("policy", [UCB1(), Thompson()])
def test_a_click_for_an_arm_that_was_forgotten_meanwhile_is_harmless(policy):
    """Candidates come and go: an arm is shown, leaves, and its click arrives after that."""
    fleet = Fleet(policy, queries=1, arms=3)
    decision = fleet.select(0)
    fleet.evict(0, decision.arm)
    empty = fleet.table.copy()
    fleet.reward(0, decision)
    assert fleet.table.tobytes() == empty.tobytes()
    decision = fleet.select(0)
    fleet.restart(0)
    fleet.reward(0, decision)
    assert all(0 <= fleet.select(0).arm < 3 for _ in range(5))


def test_a_class_without_source_is_compiled_once_per_fleet(monkeypatch):
    """A class typed into a prompt has no source to tell versions apart by: compiled for this fleet alone, not at every call."""
    compiled = []

    def count(function, digest):
        compiled.append(function.__name__)
        return function

    monkeypatch.setattr(engine.Entry, "digest", lambda self, *specs: None)
    monkeypatch.setattr(engine, "compiled", count)
    fleet = Fleet(UCB1(), queries=2, arms=3)
    for _ in range(3):
        fleet.update_many(np.array([0, 1]), fleet.select_many(np.array([0, 1])), [1.0, 0.0])
    assert len(compiled) == len(set(compiled)), compiled
