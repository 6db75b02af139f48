"""The round loop: against a twin in plain Python, against its own source uncompiled, and paired over policies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from twins import bwc, traffic
from twins.finite import Finite as FiniteTwin
from twins.oracle import Oracle as OracleTwin
from twins.oracle import Plain
from twins.rectangle import Rectangle as RectangleTwin
from twins.testable import Testable as TestableTwin
from twins.ucb1 import UCB1 as UCB1Twin

from swerve import BWC, UCB1, Fleet, Oracle, Rectangle, Testable, Traffic
from swerve.core.spec import pack
from swerve.environments import world
from swerve.simulate import loop
from swerve.simulate.results import Plan
from swerve.simulate.runner import play_run

SPEC = Traffic(queries=3, impressions=1800, results=4, shifting=1.0, events_low=2, events_high=4, features=2, order="uniform")
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
    expected = {name: counts[name] for name in run.counts if name != "regret"}
    assert {name: value for name, value in run.counts.items() if name != "regret"} == expected
    assert counts["events"] == instance.k > 0
    if name == "bwc":
        assert counts["true_labels"] + counts["false_labels"] > 3
    assert run.facts == {"k": instance.k, "shift": instance.shift, "gap": instance.gap}


def arguments(policy, instance, see=True, pooling="shared"):
    fleet = Fleet(
        policy, queries=instance.queries, arms=instance.arms, features=instance.features, pooling=pooling, seed=instance.seed
    )
    places = instance.places.copy()
    state = {
        "table": fleet.table,
        "pools": fleet.pools,
        "places": places,
        "x": np.zeros(instance.features),
        "tally": np.zeros(1, loop.TALLY),
        "truth": np.zeros(instance.queries, np.int64),
    }

    def call(play, start, stop):
        play(
            fleet.params, fleet.table, fleet.pools, fleet.groups, fleet.writer, pack(instance.spec), instance.scene,
            instance.segments, places, instance.schedule, start, stop, see, state["x"], fleet.available, state["tally"],
            state["truth"],
        )  # fmt: skip

    return call, state


def bytes_of(state):
    return {name: part.tobytes() for name, part in state.items()}


@pytest.mark.parametrize("oracle", ["rectangle", "hyperplane"])
def test_compiled_equals_interpreted(oracle):
    policy = POLICIES["bwc"][0]
    instance = world(dataclasses.replace(SPEC, oracle=oracle), 3)
    fast, fast_state = arguments(policy, instance)
    slow, slow_state = arguments(policy, instance)
    fast(loop.play.bind(policy, instance.spec), 0, 600)
    slow(loop.play.plain, 0, 600)
    assert bytes_of(fast_state) == bytes_of(slow_state)
    assert fast_state["tally"][0]["rounds"] == 600


def test_pieces_of_a_run_equal_the_whole():
    policy, instance = POLICIES["bwc"][0], world(SPEC, 3)
    play = loop.play.bind(policy, instance.spec)
    whole, whole_state = arguments(policy, instance)
    parts, parts_state = arguments(policy, instance)
    whole(play, 0, 1800)
    for start, stop in ((0, 1), (1, 700), (700, 1800)):
        parts(play, start, stop)
    assert bytes_of(whole_state) == bytes_of(parts_state)


def test_contexts_not_drawn_change_nothing_for_who_reads_none():
    instance = world(SPEC, 3)
    play = loop.play.bind(UCB1(), instance.spec)
    seeing, one = arguments(UCB1(), instance, see=True)
    blind, two = arguments(UCB1(), instance, see=False)
    seeing(play, 0, 1800)
    blind(play, 0, 1800)
    one.pop("x"), two.pop("x")
    assert bytes_of(one) == bytes_of(two)


def test_policies_meet_the_same_world():
    """Events, contexts and click draws have the same keys for everybody: after a run the places are the same bytes."""
    instance = world(SPEC, 4)
    ends = []
    for policy, _ in POLICIES.values():
        call, state = arguments(policy, instance)
        call(loop.play.bind(policy, instance.spec), 0, 1800)
        ends.append(state["places"].tobytes())
        assert state["tally"][0]["events"] == instance.k
    assert len(set(ends)) == 1
    assert instance.places.tobytes() != ends[0]  # and a run leaves the instance itself as it was drawn


def test_a_missed_event_is_counted_as_one():
    """A rectangle that has learnt the whole ball calls everything negative."""
    policy, instance = POLICIES["bwc"][0], world(dataclasses.replace(SPEC, queries=1, impressions=600), 5)
    call, state = arguments(policy, instance)
    play = loop.play.bind(policy, instance.spec)
    call(play, 0, L)
    box = state["pools"][0].classifier
    box.known, box.low[:], box.high[:] = 1, 0.0, 1.0
    call(play, L, 600)
    tally = state["tally"][0]
    assert tally["misses"] + tally["unseen"] == instance.k
    assert tally["misses"] > 0
    assert (tally["true_alarms"], tally["false_alarms"]) == (0, 0)


def test_twins_of_finite_and_rectangle_differ():
    """Guard of the guard: a twin that ignored its classifier would pass the tests above with any other."""
    assert FiniteTwin(((1,),)).predict([0.0]) is True
    learnt = RectangleTwin(0.1)
    learnt.learn([0.0])
    assert learnt.predict([0.0]) is False
