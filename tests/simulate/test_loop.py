"""The round loop: against a twin in plain Python, against its own source uncompiled, and in pairs of policies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from twins import bwc, traffic
from twins.finite import Finite as FiniteTwin
from twins.oracle import Oracle as OracleTwin, Plain
from twins.rectangle import Rectangle as RectangleTwin
from twins.testable import Testable as TestableTwin
from twins.ucb1 import UCB1 as UCB1Twin

from swerve import BWC, UCB1, Oracle, Rectangle, Testable, Traffic
from swerve.environments import world
from swerve.simulate import Session, loop
from swerve.simulate.results import Plan
from swerve.simulate.runner import play_run

SPEC = Traffic(queries=3, impressions=1800, results=4, shifting_share=1.0, events_low=2, events_high=4, features=2, order="uniform")
L = 40
POLICIES = {
    "ucb1": (UCB1(), lambda shared: Plain(UCB1Twin(4))),
    "ora": (Oracle(UCB1()), lambda shared: OracleTwin(UCB1Twin(4))),
    "bwc": (BWC(Testable(UCB1(), L), Rectangle(0.1)), lambda shared: bwc.BWC(TestableTwin(UCB1Twin(4), L, 0.3), shared)),
}


def histories(instance):
    out = [[] for _ in range(instance.queries)]
    for query, segment in zip(instance.owner, instance.segments, strict=True):
        out[query].append((int(segment["since"]), segment["chance"][: instance.arms].tolist()))
    return out


@pytest.mark.parametrize("pooling", ["shared", "query"])
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_regret_and_every_counter_equal_the_twins(name, seed, pooling):
    policy, make = POLICIES[name]
    instance = world(SPEC, seed)
    run = play_run(Plan(policy, SPEC, pooling, points=1800), instance)
    edges = instance.scene[0].edge[:2].tolist()
    common = RectangleTwin(0.1)
    team = [make(common if pooling == "shared" else RectangleTwin(0.1)) for _ in range(3)]
    curve, counts, _ = traffic.play(
        seed,
        instance.schedule.tolist(),
        histories(instance),
        team,
        lambda query, t, event: traffic.box_context(seed, query, t, event, edges, SPEC.margin),
    )
    np.testing.assert_allclose(run.regret, curve, rtol=1e-12)
    expected = {name: pytest.approx(counts[name]) for name in run.counts if name != "regret"}
    assert {name: value for name, value in run.counts.items() if name != "regret"} == expected
    assert counts["events"] == instance.k > 0
    if name == "bwc":
        assert counts["true_labels"] + counts["false_labels"] > 3
    assert run.facts == {"k": instance.k, "shift": instance.shift, "gap": instance.gap}


@pytest.mark.parametrize("oracle", ["rectangle", "hyperplane"])
def test_compiled_equals_interpreted(oracle):
    policy = POLICIES["bwc"][0]
    instance = world(dataclasses.replace(SPEC, oracle=oracle), 3)
    fast, slow = Session(policy, instance), Session(policy, instance, compiled=False)
    fast.play(600)
    slow.play(600)
    assert fast.state == slow.state
    assert fast.counts["rounds"] == 600


def test_pieces_of_a_run_equal_the_whole():
    policy, instance = POLICIES["bwc"][0], world(SPEC, 3)
    whole, parts = Session(policy, instance), Session(policy, instance)
    whole.play(1800)
    for stop in (1, 700, 1800):
        parts.play(stop)
    assert whole.state == parts.state


def test_contexts_not_drawn_change_nothing_for_who_reads_none():
    instance = world(SPEC, 3)
    seeing, blind = Session(UCB1(), instance), Session(UCB1(), instance)
    assert blind.see is False
    seeing.see = True
    seeing.play(1800)
    blind.play(1800)
    assert seeing.x.any()
    assert not blind.x.any()
    assert seeing.state == blind.state


def test_policies_meet_the_same_world():
    """Events, contexts and click draws have the same keys for all policies: after a run the cursors have the same bytes."""
    instance = world(SPEC, 4)
    ends = []
    for policy, _ in POLICIES.values():
        session = Session(policy, instance)
        session.play(1800)
        ends.append(session.state["cursors"])
        assert session.counts["events"] == instance.k
    assert len(set(ends)) == 1
    assert instance.cursors.tobytes() != ends[0]  # a run does not change the instance itself


def test_a_missed_event_is_counted_as_one():
    """A rectangle that has learnt the whole ball is negative everywhere."""
    policy, instance = POLICIES["bwc"][0], world(dataclasses.replace(SPEC, queries=1, impressions=600), 5)
    session = Session(policy, instance)
    session.play(L)
    box = session.fleet.pools[0].classifier
    box.known, box.low[:], box.high[:] = 1, 0.0, 1.0
    session.play(600)
    counts = session.counts
    assert counts["misses"] + counts["unseen"] == instance.k
    assert counts["misses"] > 0
    assert (counts["true_alarms"], counts["false_alarms"]) == (0, 0)
    assert counts["regret_missed"] > 0.0
    assert counts["regret_false_alarm"] == 0.0


# ---------------------------------------------------------------- causes of regret
QUIET, TEST_ENDS, FALSE = 0, loop.RESTARTED, loop.CONSULTED | loop.ALARM | loop.RESTARTED


@pytest.mark.parametrize(
    ("rounds", "cause"),
    [
        ([], "learning"),
        ([(0, TEST_ENDS)], "learning"),
        ([(0, TEST_ENDS), (0, FALSE)], "false_alarm"),
        ([(0, TEST_ENDS), (0, FALSE), (0, TEST_ENDS)], "false_alarm"),
        ([(0, TEST_ENDS), (0, FALSE), (1, QUIET)], "unseen"),  # an event inside the test of a false alarm
        ([(0, TEST_ENDS), (0, FALSE), (1, QUIET), (0, TEST_ENDS)], "learning"),  # and the bandit after the test starts in it
        ([(0, TEST_ENDS), (1, loop.CONSULTED)], "missed"),
        ([(0, TEST_ENDS), (1, loop.CONSULTED), (0, FALSE)], "false_alarm"),
        ([(0, TEST_ENDS), (1, FALSE)], "learning"),  # a true alarm
        ([(0, TEST_ENDS), (1, FALSE), (0, TEST_ENDS)], "learning"),
        ([(1, QUIET)], "unseen"),
    ],
)
def test_every_history_has_one_cause(rounds, cause):
    now = loop.LEARNING
    for told, report in rounds:
        now = loop.cause_after(now, told, report)
    assert loop.CAUSES[now] == cause


@pytest.mark.parametrize("name", list(POLICIES))
def test_the_causes_add_up(name):
    session = Session(POLICIES[name][0], world(SPEC, 7))
    session.play(1800)
    counts = session.counts
    by_cause = {cause: counts[f"regret_{cause}"] for cause in loop.CAUSES}
    assert sum(by_cause.values()) == pytest.approx(counts["regret"])
    if name == "ora":
        assert by_cause["learning"] == pytest.approx(counts["regret"])
    if name == "ucb1":
        assert by_cause["unseen"] > 0.0
        assert by_cause["learning"] + by_cause["unseen"] == pytest.approx(counts["regret"])
    assert (by_cause["testing"] > 0.0) == (name == "bwc")


def test_twins_of_finite_and_rectangle_differ():
    """Checks the tests above: a twin that ignored its classifier would pass them with any classifier."""
    assert FiniteTwin(((1,),)).predict([0.0]) is True
    learnt = RectangleTwin(0.1)
    learnt.learn([0.0])
    assert learnt.predict([0.0]) is False
