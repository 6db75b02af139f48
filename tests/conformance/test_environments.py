"""The contract of every environment."""

from __future__ import annotations

import numpy as np
import pytest
from conformance.examples import environments, label

import swerve
from swerve import UCB1, simulate
from swerve.core.spec import pack
from swerve.environments import world
from swerve.environments.worlds import advance, best, chance, click, context
from swerve.simulate import Session

EVERY = pytest.mark.parametrize("environment", environments(), ids=label)


def tables(instance):
    parts = (instance.schedule, instance.rounds, instance.cursors, instance.segments, instance.scene, instance.owner)
    return [part.tobytes() for part in parts]


def walk(instance):
    """Yield every round of every query from the uncompiled kernels: (query, event, context, probabilities, best, clicks)."""
    spec, scene, cursors = pack(instance.spec)[0], instance.scene[0], instance.cursors.copy()
    for query in instance.schedule:
        cursor, x = cursors[query], np.zeros(instance.features)
        told = advance(spec, scene, instance.segments, cursor)
        context(spec, scene, cursor, told, x)
        arms = range(instance.arms)
        yield (
            int(query),
            int(told),
            x,
            [float(chance(spec, scene, instance.segments, cursor, arm)) for arm in arms],
            float(best(spec, scene, instance.segments, cursor)),
            [bool(click(spec, scene, instance.segments, cursor, arm)) for arm in arms],
        )


def glides(environment):
    """Return whether click probabilities also move between events."""
    return type(environment).__name__ in ("Hurricane", "Series") or getattr(environment, "glide_rounds", 0) > 0


def test_something_is_registered():
    assert "Traffic" in {type(environment).__name__ for environment in environments()}


@EVERY
def test_a_seed_names_an_instance(environment):
    assert tables(world(environment, 1)) == tables(world(environment, 1))
    assert tables(world(environment, 1)) != tables(world(environment, 2))


@EVERY
def test_every_round_makes_sense_and_the_facts_are_true(environment):
    instance = world(environment, 3)
    events = np.zeros(instance.queries, int)
    before, lost = {}, {}
    shifts, gaps = [], []
    for query, told, x, chances, top, clicks in walk(instance):
        assert not np.isinf(x).any()  # NaN is a missing feature
        assert not (np.abs(x) > 1).any(), "contexts lie in the unit ball"
        assert all(0.0 <= p <= 1.0 for p in chances)
        assert top == max(chances)
        assert all(not c or p > 0 for p, c in zip(chances, clicks, strict=True))
        if told:
            events[query] += 1
            assert before[query] != chances, "an event changes something"
            shifts += lost.get(query, ())[1:]
            lost[query] = [[arm for arm, old in enumerate(before[query]) if old == max(before[query])]]
        elif not glides(environment):
            assert before.get(query, chances) == chances, "without an event nothing changes"
        else:
            steps = [abs(p - old) for p, old in zip(chances, before.get(query, chances), strict=True)]
            assert max(steps) < 0.2, "a glide moves in small steps"
        if query in lost:  # the sum of a glide's steps until the next event counts
            lost[query][1:] = [top - min(chances[arm] for arm in lost[query][0])]
        before[query] = chances
        gaps += [top - p for p in chances if p < top]
    shifts += [each for _, each in lost.values()]
    assert events.tolist() == instance.events.tolist()
    assert instance.k == events.sum()
    assert instance.shift == pytest.approx(min(shifts, default=np.inf))
    assert instance.gap == pytest.approx(min(gaps, default=np.inf))
    assert instance.rounds.tolist() == np.bincount(instance.schedule, minlength=instance.queries).tolist()
    assert environment.rounds_per_query == instance.rounds.max()


@EVERY
def test_compiled_equals_interpreted_to_the_byte(environment):
    instance = world(environment, 4)
    fast, slow = Session(UCB1(), instance), Session(UCB1(), instance, compiled=False)
    for session in (fast, slow):
        session.see = True
        session.play(300)
    assert fast.state == slow.state
    assert fast.x.tobytes() == slow.x.tobytes()


@EVERY
def test_can_be_simulated_and_read_back_from_its_text(environment):
    results = simulate(UCB1(), environment, runs=1, points=3)
    assert results.rounds[-1] == len(world(environment, 0).schedule)
    assert swerve.environment(repr(environment)) == environment
