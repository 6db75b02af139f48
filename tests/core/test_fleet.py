"""A fleet: groups, random streams, refusals, and robustness to invalid calls."""

from __future__ import annotations

import math

import numpy as np
import pytest

from swerve import BWC, UCB1, Decision, Decisions, Fleet, Rectangle, SwerveError, Testable, Thompson
from swerve.core import engine
from swerve.core.pooling import groups_of

BOX = BWC(Testable(UCB1(), length=20), Rectangle(margin=0.2))


@pytest.fixture
def fleet():
    return Fleet(BOX, queries=3, arms=4, features=2)


def test_groups_of_a_list_and_of_a_number_as_text():
    assert groups_of([2, 0, 2], 3).tolist() == [1, 0, 1]
    assert groups_of([0, 10**12, 1], 3).tolist() == [0, 2, 1]  # three groups, whatever their numbers
    assert groups_of("2", 3).tolist() == [0, 1, 0]
    assert groups_of(np.int32(2), 3).tolist() == [0, 1, 0]
    assert groups_of(10**30, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "bad",
    [
        [0, 1],
        [0, 1, -1],
        [0, 1, 2**70],
        [0.0, 1.0, 2.0],
        ["a", "b", "c"],
        [[0], [1], [2]],
        [[0], [1, 2], 3],
        None,
        2.5,
        -1,
        True,
        "²",
        "-1",
    ],
    ids=repr,
)
def test_other_poolings_are_refused(bad):
    with pytest.raises(SwerveError, match=r"^pooling = .* each of the 3 queries") as caught:
        groups_of(bad, 3)
    assert "\n" not in str(caught.value)


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
    # between rounds the delta is empty: everything learnt is in the pool
    assert [int(f.pools[f.writer].classifier.known) for f in (shared, apart, pairs)] == [0, 0, 0]


def test_the_seed_names_the_streams():
    def arms(seed):
        fleet = Fleet(Thompson(), queries=2, arms=4, seed=seed)
        return [fleet.select(q).arm for _ in range(30) for q in (0, 1)]

    assert arms(1) == arms(1)
    assert arms(1) != arms(2)
    assert arms(1)[::2] != arms(1)[1::2]  # two queries have two streams


def columns(*arms):
    """Return decisions for these arms, of their first generation and the first start."""
    count = len(arms)
    return Decisions(np.array(arms), np.zeros(count, np.int64), np.ones(count, np.int64), np.zeros(count))


REFUSED = {
    "infinite": (lambda f: f.select(0, [-math.inf, math.nan]), ["x = [-inf, nan]", "finite", "NaN where it is missing"]),
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
    "many: infinite": (lambda f: f.select_many([0, 1], [[0.0, 0.0], [0.0, math.inf]]), ["x = [0.0, inf]", "finite"]),
    "many: no such arm": (lambda f: f.update_many([0], columns(9), [1.0]), ["arm", "9", "[0, 3]"]),
    "many: lengths": (
        lambda f: f.update_many([0], columns(1, 2), [1.0]),
        ["arms", "(2,)", "(1,)"],
    ),
    "many: generations": (
        lambda f: f.update_many([0, 1], columns(1, 2)._replace(generations=np.array([0])), [1.0, 1.0]),
        ["generations", "(1,)", "(2,)"],
    ),
    "many: starts": (
        lambda f: f.update_many([0, 1], columns(1, 2)._replace(starts=np.array([1])), [1.0, 1.0]),
        ["starts", "(1,)", "(2,)"],
    ),
    "many: shown": (
        lambda f: f.update_many([0, 1], columns(1, 2)._replace(shown=np.zeros(1)), [1.0, 1.0]),
        ["shown", "(1,)", "(2,)"],
    ),
    "many: shown a word": (lambda f: f.update_many([0], columns(1)._replace(shown=["noon"]), [1.0]), ["shown = ['noon']"]),
    "many: two columns": (lambda f: f.update_many([0], ([0], [1]), [1.0]), ["decisions = ([0], [1])", "what select_many returned"]),
    "evict no such arm": (lambda f: f.evict(0, 4), ["arm = 4", "[0, 3]"]),
    "no context": (lambda f: f.select(0), ["x is missing", "2 features"]),
    "step no context": (lambda f: f.step(0, Decision(0, 1), 1.0), ["x is missing", "2 features"]),
    "many: no contexts": (lambda f: f.select_many([0]), ["xs is missing", "2 features"]),
    "complex": (lambda f: f.select(0, [0.0, 1j]), ["x = [0.0, 1j]", "numbers"]),
    "complex array": (lambda f: f.select(0, np.array([0.0, 1j])), ["x = array(", "numbers"]),
    "words": (lambda f: f.select(0, ["0.0", "1.0"]), ["x = ['0.0', '1.0']", "numbers"]),
    "ragged": (lambda f: f.select(0, [0.0, [1.0]]), ["x = [0.0, [1.0]]", "numbers", "equal length"]),
    "query of a float": (lambda f: f.select(0.0, [0.0, 0.0]), ["query = 0.0", "whole number", "[0, 2]"]),
    "query true": (lambda f: f.select(True, [0.0, 0.0]), ["query = True", "whole number", "[0, 2]"]),
    "query of a word": (lambda f: f.reward("a", Decision(0, 1)), ["query = 'a'", "whole number", "[0, 2]"]),
    "step query none": (lambda f: f.step(None, Decision(0, 1), 1.0, [0.0, 0.0]), ["query = None", "whole number"]),
    "now nan": (lambda f: f.select(0, [0.0, 0.0], now=math.nan), ["now = nan", "finite"]),
    "now inf": (lambda f: f.step(0, Decision(0, 1), 1.0, [0.0, 0.0], now=math.inf), ["now = inf", "finite"]),
    "reward now inf": (lambda f: f.reward(0, Decision(0, 1), now=-math.inf), ["now = -inf", "finite"]),
    "now beyond floats": (lambda f: f.select(0, [0.0, 0.0], now=10**400), ["now = 1000", "finite"]),
    "now a word": (lambda f: f.select(0, [0.0, 0.0], now="noon"), ["now = 'noon'", "number"]),
    "told a list": (lambda f: f.select(0, [0.0, 0.0], told=np.array([1, 0])), ["told", "one number"]),
    "available a list": (lambda f: f.select(0, [0.0, 0.0], available=[0, 1]), ["available = [0, 1]", "whole number"]),
    "available half": (lambda f: f.select(0, [0.0, 0.0], available=2.5), ["available = 2.5", "whole number"]),
    "one arm too many": (lambda f: f.select(0, [0.0, 0.0], available=0b10001), ["available = 17", "4 arms, no others"]),
    "negative mask": (lambda f: f.select(0, [0.0, 0.0], available=-1), ["available = -1", "4 arms, no others"]),
    "no decision": (lambda f: f.reward(0, 1), ["decision = 1", "what select returned"]),
    "step no decision": (lambda f: f.step(0, None, 1.0, [0.0, 0.0]), ["decision = None", "what select returned"]),
    "shown a word": (lambda f: f.reward(0, Decision(0, shown="noon")), ["shown = 'noon'", "number"]),
    "half a decision": (lambda f: f.reward(0, (0, 1)), ["decision = (0, 1)", "what select returned"]),
    "decision of words": (lambda f: f.reward(0, Decision("a", 1)), ["arm = 'a'", "whole number", "[0, 3]"]),
    "value a word": (lambda f: f.reward(0, Decision(0, 1), "much"), ["value = 'much'", "number"]),
    "value none": (lambda f: f.step(0, Decision(0, 1), None, [0.0, 0.0]), ["value = None", "number"]),
    "many: table of rows": (lambda f: f.select_many([[0, 1]], np.zeros((1, 2))), ["rows = [[0, 1]]", "[0, 2]"]),
    "many: rows of floats": (lambda f: f.select_many([0.0, 1.5], np.zeros((2, 2))), ["rows = [0.0, 1.5]", "[0, 2]"]),
    "many: true rows": (lambda f: f.select_many([True, False], np.zeros((2, 2))), ["rows = [True, False]", "[0, 2]"]),
    "many: complex": (lambda f: f.select_many([0], [[0.0, 1j]]), ["xs = [[0.0, 1j]]", "numbers"]),
    "many: ragged": (lambda f: f.select_many([0, 1], [[0.0, 0.0], [0.0]]), ["xs = [[0.0, 0.0], [0.0]]", "equal length"]),
    "many: stray bits": (
        lambda f: f.select_many([0, 1], np.zeros((2, 2)), available=[1, 16]),
        ["available = 16", "4 arms, no others"],
    ),
    "many: half an offer": (lambda f: f.select_many([0], np.zeros((1, 2)), available=[0.5]), ["available = 0.5", "whole number"]),
    "many: half told": (lambda f: f.select_many([0], np.zeros((1, 2)), told=[0.5]), ["told = [0.5]", "whole numbers"]),
    "many: too few times": (lambda f: f.select_many([0, 1], np.zeros((2, 2)), now=[0.0]), ["now has shape (1,)", "(2,)"]),
    "many: time nan": (lambda f: f.select_many([0], np.zeros((1, 2)), now=math.nan), ["now = nan", "finite"]),
    "many: outside": (lambda f: f.select_many([0, 1], [[0.0, 0.0], [0.0, 1.5]]), ["x = [0.0, 1.5]", "outside the domain"]),
    "many: no decisions": (lambda f: f.update_many([0], 1, [1.0]), ["decisions = 1", "what select_many returned"]),
    "many: single decisions": (
        lambda f: f.update_many([0, 1, 2], [Decision(0, 1), Decision(1, 1), Decision(2, 1)], [1.0, 1.0, 1.0]),
        ["decisions", "Decisions(arms, generations, starts, shown)"],
    ),
    "many: half arms": (lambda f: f.update_many([0], columns(0.5), [1.0]), ["arms = array([0.5])", "whole numbers"]),
    "many: value nan": (lambda f: f.update_many([0], columns(0), [math.nan]), ["value = nan", "[0, 1]"]),
    "many: reward times": (lambda f: f.update_many([0], columns(0), [1.0], now=[0.0, 1.0]), ["now has shape (2,)", "(1,)"]),
    "evict half": (lambda f: f.evict(0, 0.5), ["arm = 0.5", "whole number", "[0, 3]"]),
    "restart a float": (lambda f: f.restart(0.5), ["query = 0.5", "whole number"]),
    "restart no such query": (lambda f: f.restart(5), ["query", "[0, 2]"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_at_the_door_and_nothing_has_changed(fleet, case):
    call, words = REFUSED[case]
    before = fleet.table.tobytes() + fleet.pools.tobytes()
    # kernels do not check indices: a bad one would write into foreign memory, so the fleet must refuse it
    safe = {
        "_update_one": lambda *a: pytest.fail(f"let through: {a[2:]}"),
        "_step_one": lambda *a: pytest.fail(f"let through: {a[2:]}"),
    }
    for name, stop in safe.items():
        setattr(fleet, name, stop)
    with pytest.MonkeyPatch.context() as patch:
        if case.startswith("many") and case not in (
            "many: infinite",
            "many: outside",
        ):  # the batch kernel itself refuses these
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
    assert fleet.table.tobytes() + fleet.pools.tobytes() == before


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"queries": 2.0}, "queries = 2.0 is not allowed; queries must be a whole number ≥ 1"),
        ({"arms": "3"}, "arms = '3' is not allowed; arms must be a whole number ≥ 1"),
        ({"features": None}, "features = None is not allowed; features must be a whole number ≥ 0"),
        ({"features": 0}, "features = 0 is not allowed; features must be ≥ 1: BWC"),
        ({"seed": 0.5}, "seed = 0.5 is not allowed; seed must be a whole number"),
    ],
)
def test_a_fleet_is_made_of_whole_numbers(fields, words):
    with pytest.raises(SwerveError) as caught:
        Fleet(BOX, **{"queries": 2, "arms": 3, "features": 2, **fields})
    assert str(caught.value).startswith(words)


def test_any_kind_of_whole_number_will_do():
    fleet = Fleet(UCB1(), queries=np.int64(2), arms=np.int8(3), seed=np.uint32(0))
    for kind in (np.int64, np.uint8):
        decision = fleet.select(kind(1), available=kind(0b100), now=kind(1))
        assert decision.arm == 2
        assert fleet.reward(kind(1), decision, kind(1))
    before = fleet.table.copy()
    assert fleet.update_many([0, 1], ([0, 2], [0, 0], [0, 0], [0, 1]), [0, 1]) == 1  # arm 0 of query 0 was never shown
    fleet.table[1] = before[1]
    assert fleet.update_many(np.array([1], np.uint8), Decisions([2], [0], [0], [0]), [True]) == 1
    assert fleet.select_many([], now=[]).arms.tolist() == []


def test_all_sixty_four_arms_can_be_offered_signed_or_not():
    fleet = Fleet(UCB1(), queries=3, arms=64)
    offers = np.array([1 << 63, 1 << 62, 3], np.uint64)
    assert fleet.select_many([0, 1, 2], available=offers).arms.tolist() == [63, 62, 0]
    assert fleet.select_many([0, 1], available=[-(2**63), 2**64 - 1]).arms.tolist()[0] == 63
    with pytest.raises(SwerveError, match="available = 18446744073709551616"):
        fleet.select(0, available=1 << 64)


@pytest.mark.parametrize("policy", [UCB1(), Thompson()])
def test_a_click_for_an_arm_that_was_forgotten_meanwhile_is_harmless(policy):
    """An arm is shown and forgotten, and its click arrives afterwards."""
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
    """A class typed at a prompt has no source that identifies its version: it is compiled once per fleet, not at every call."""
    compiled = []

    def count(function, digest):
        compiled.append(function.__name__)
        return function

    monkeypatch.setattr(engine.Entry, "digest", lambda self, *specs: "typed at a prompt")
    monkeypatch.setattr(engine, "compiled", count)
    fleet = Fleet(UCB1(), queries=2, arms=3)
    for _ in range(3):
        fleet.update_many(np.array([0, 1]), fleet.select_many(np.array([0, 1])), [1.0, 0.0])
    assert len(compiled) == len(set(compiled)), compiled
