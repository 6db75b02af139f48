"""Synthetic traffic: drawn instances, contexts against the oracles, and independence of the policy."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from twins import traffic as twins

from swerve import SwerveError, Traffic
from swerve.core.spec import pack
from swerve.environments import world
from swerve.environments.worlds import advance, click, context

SMALL = Traffic(queries=20, impressions=20_000, shifting_share=0.5, features=3)


def walk(instance, query, rounds):
    """Yield (event, context, clicks) of each round of a query, from the uncompiled kernels."""
    cursors = instance.cursors.copy()
    spec, scene = pack(instance.spec)[0], instance.scene[0]
    for _ in range(rounds):
        told = advance(spec, scene, instance.segments, cursors[query])
        x = np.zeros(instance.features)
        context(spec, scene, cursors[query], told, x)
        yield told, x, [bool(click(spec, scene, instance.segments, cursors[query], arm)) for arm in range(instance.arms)]


def histories(instance):
    """Return each query's history from the tables."""
    out = [[] for _ in range(instance.queries)]
    for query, segment in zip(instance.owner, instance.segments, strict=True):
        out[query].append((int(segment["since"]), segment["chance"][: instance.arms].tolist()))
    return out


@pytest.mark.parametrize("seed", [0, 1])
def test_as_many_queries_shift_as_asked_each_as_often_as_asked(seed):
    spec = Traffic(queries=40, impressions=40_000, shifting_share=0.25, events_low=2, events_high=5)
    instance = world(spec, seed)
    shifting = instance.events[instance.events > 0]
    assert len(shifting) == 10
    assert set(shifting) <= {2, 3, 4, 5}
    assert instance.k == shifting.sum()
    assert world(dataclasses.replace(spec, shifting_share=0.0), seed).k == 0


def test_numbers_and_times_of_events_are_uniform():
    spec = Traffic(queries=400, impressions=400_000, shifting_share=1.0, events_low=1, events_high=10)
    instance = world(spec, 5)
    assert stats.chisquare(np.bincount(instance.events, minlength=11)[1:]).pvalue > 0.001
    starts = instance.segments["since"][instance.segments["since"] > 1]
    assert starts.min() >= 2
    assert starts.max() <= 1000
    assert stats.kstest((starts - 1.5) / 999, "uniform").pvalue > 0.001


def test_chances_are_those_asked_for_and_an_event_changes_the_best():
    spec = Traffic(queries=100, impressions=100_000, shifting_share=1.0, best_low=0.5, best_high=0.6, other_low=0.1, other_high=0.2)
    for history in histories(world(spec, 2)):
        for (_, before), (_, after) in itertools.pairwise(history):
            assert int(np.argmax(before)) != int(np.argmax(after))
        for _, chances in history:
            ordered = sorted(chances)
            assert 0.5 <= ordered[-1] <= 0.6
            assert all(0.1 <= p <= 0.2 for p in ordered[:-1])


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.2, 0.35]), st.sampled_from([0, 1, 50, 90]))
def test_minimum_shift_and_distance_are_kept(seed, shift, distance):
    spec = Traffic(queries=10, impressions=10_000, shifting_share=1.0, minimum_shift=shift, minimum_event_distance=distance)
    instance = world(spec, seed)
    assert instance.shift > shift
    assert instance.distance >= max(1, distance)


def test_events_fill_the_room_that_distances_leave():
    """Ten events 90 apart in 1,000 rounds: the last may be anywhere up to the last round."""
    spec = Traffic(queries=300, impressions=300_000, shifting_share=1.0, events_low=10, events_high=10, minimum_event_distance=90)
    instance = world(spec, 1)
    first = instance.segments["since"][1::11]
    last = instance.segments["since"][10::11]
    assert first.min() >= 91
    assert last.max() <= 1000
    assert last.max() > 990
    assert instance.distance == 90


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"events_low": 10, "minimum_event_distance": 200}, "10 events at least 200 rounds apart"),
        ({"minimum_shift": 0.9}, "minimum_shift = 0.9"),
    ],
)
def test_what_cannot_be_drawn_is_refused(fields, words):
    with pytest.raises(SwerveError, match=words):
        world(Traffic(queries=2, impressions=2000, shifting_share=1.0, **fields), 0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"best_low": 0.2, "best_high": 0.3, "other_low": 0.3, "other_high": 0.4}, "best_high = 0.3 .* > other_low = 0.3"),
        ({"minimum_shift": 0.8}, "minimum_shift = 0.8 is not allowed; minimum_shift must be < 0.8"),
        ({"minimum_shift": 0.3, "best_low": 0.3, "best_high": 0.4, "other_low": 0.2, "other_high": 0.4}, "must be < 0.2"),
    ],
)
def test_what_no_draw_can_give_is_refused_before_drawing(fields, words):
    with pytest.raises(SwerveError, match=words):
        Traffic(shifting_share=1.0, **fields)


def test_a_shift_that_never_happens_need_not_be_possible():
    assert world(Traffic(queries=2, impressions=20, shifting_share=0.0, minimum_shift=0.9), 0).k == 0


def test_a_relevant_result_that_is_hardly_ever_best_is_the_cause_named(monkeypatch):
    monkeypatch.setattr("swerve.environments.traffic.TRIES", 100)
    spec = Traffic(queries=2, impressions=20, results=64, best_low=0.0, best_high=0.5, other_low=0.4, other_high=1.0)
    with pytest.raises(SwerveError, match=r"best_high = 0.5 did not beat 63 results in \[0.4, 1\]"):
        world(spec, 0)


@pytest.mark.parametrize(
    "fields", [{}, {"features": 1, "margin": 0.2, "edge_low": 0.3, "edge_high": 0.8}, {"features": 12, "margin": 0.01}]
)
def test_rectangle_contexts_tell_events_by_the_margin(fields):
    spec = dataclasses.replace(SMALL, events_low=20, events_high=20, **fields)
    instance = world(spec, 4)
    edges = instance.scene[0].edge[: spec.features]
    seen = [0, 0]
    for query in range(6):
        for told, x, _ in walk(instance, query, 1000):
            outside = np.maximum(x - edges, -x).max()
            assert (outside >= spec.margin) if told else (outside <= 0), (told, x)
            assert ((x >= 0) & (x <= 1)).all()
            seen[told] += 1
    assert min(seen) >= 20


@pytest.mark.parametrize(
    "fields",
    [{}, {"features": 1, "edge_low": 0.5, "edge_high": 0.5}, {"features": 8, "margin": 0.3, "edge_low": 0.0, "edge_high": 0.6}],
)
def test_hyperplane_contexts_lie_in_the_ball_on_the_right_side(fields):
    spec = dataclasses.replace(SMALL, oracle="hyperplane", events_low=20, events_high=20, **fields)
    instance = world(spec, 4)
    normal, edge = instance.scene[0].normal[: spec.features], instance.scene[0].edge[0]
    assert np.linalg.norm(normal) == pytest.approx(1.0)
    seen = [0, 0]
    for query in range(6):
        for told, x, _ in walk(instance, query, 1000):
            height = float(normal @ x) - edge
            assert (height >= spec.margin - 1e-12) if told else (height <= -spec.margin + 1e-12), (told, x)
            assert np.linalg.norm(x) <= 1.0
            seen[told] += 1
    assert min(seen) >= 20


@pytest.mark.parametrize("oracle", ["rectangle", "hyperplane"])
def test_contexts_and_clicks_have_documented_keys(oracle):
    spec = dataclasses.replace(SMALL, oracle=oracle, edge_low=0.3, edge_high=0.7)
    instance = world(spec, 9)
    scene = instance.scene[0]
    edges, normal = scene.edge[:3].tolist(), scene.normal[:3].tolist()
    for query, history in enumerate(histories(instance)[:4]):
        for t, (told, x, clicks) in enumerate(walk(instance, query, 1000), start=1):
            if oracle == "rectangle":
                expected = twins.box_context(9, query, t, told, edges, spec.margin)
            else:
                expected = twins.plane_context(9, query, t, told, normal, edges[0], spec.margin)
            np.testing.assert_allclose(x, expected, atol=1e-11)
            chances = [p for since, p in history if since <= t][-1]
            assert clicks == [twins.click(9, query, t) < p for p in chances]


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    def everything(seed, **fields):
        w = world(dataclasses.replace(SMALL, order="zipf", **fields), seed)
        return b"".join(part.tobytes() for part in (w.schedule, w.rounds, w.cursors, w.segments, w.scene, w.owner))

    assert everything(1) == everything(1)
    assert everything(1) != everything(2)


def test_rounds_are_those_of_the_schedule():
    instance = world(dataclasses.replace(SMALL, order="zipf"), 1)
    assert instance.rounds.tolist() == np.bincount(instance.schedule).tolist()
    assert instance.rounds.max() == instance.spec.rounds_per_query
    for query, history in enumerate(histories(instance)):
        assert history[-1][0] <= instance.rounds[query]


def test_the_defaults_are_the_papers_workload():
    spec = Traffic()
    assert (spec.queries, spec.impressions, spec.results, spec.features, spec.margin) == (100, 3_000_000, 5, 10, 0.1)
    assert spec.rounds_per_query == 30_000
