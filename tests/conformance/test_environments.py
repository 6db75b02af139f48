"""The contract of every environment: the checks of `swerve.conformance`, and what we ask of our own."""

from __future__ import annotations

import numpy as np
import pytest
from conformance.examples import environments, label, of_kind, subject_of

import swerve
from swerve import UCB1, simulate
from swerve.conformance.environments import walk
from swerve.environments import world

EVERY = pytest.mark.parametrize("environment", environments(), ids=label)


@pytest.mark.parametrize("check", of_kind("environment"), ids=lambda check: check.name)
@EVERY
def test_what_holds_for_every_environment(check, environment):
    check.run(subject_of(environment))


def glides(environment):
    """Return whether click probabilities also move between events."""
    return type(environment).__name__ in ("Hurricane", "Series") or getattr(environment, "glide_rounds", 0) > 0


def test_something_is_registered():
    assert "Traffic" in {type(environment).__name__ for environment in environments()}


@EVERY
def test_the_facts_of_ours_are_true(environment):
    instance = world(environment, 3)
    events = np.zeros(instance.queries, int)
    before, lost = {}, {}
    shifts, gaps = [], []
    for query, told, x, chances, top, _ in walk(instance):
        assert not (np.abs(x) > 1).any(), "contexts lie in the unit ball"
        assert top == max(chances)
        if told:
            events[query] += 1
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
    assert environment.rounds_per_query == instance.rounds.max()


@EVERY
def test_can_be_simulated_and_read_back_from_its_text(environment):
    results = simulate(UCB1(), environment, runs=1, points=3)
    assert results.rounds[-1] == len(world(environment, 0).schedule)
    assert swerve.environment(repr(environment)) == environment
