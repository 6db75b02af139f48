"""Workers that exchange what they learn: one of one plays as one alone, and eight have hardly more regret."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from swerve.environments import workload, world
from swerve.experiments.intervals import ratio_of
from swerve.policies import policy
from swerve.simulate.sessions import Session
from swerve.simulate.workers import Workers

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", ["clear-noisy", "page-clear-noisy"])
def test_one_worker_of_several_plays_as_one_alone(name):
    instance = world(workload(name, 0.5, queries=4, impressions=400), 3)
    spec = policy("swerve", arms=instance.arms, slots=getattr(instance.spec, "slots", 1))
    alone, worker = Session(spec, instance, compiled=False), Workers(spec, instance, [0] * 4, compiled=False)
    for session in (alone, worker):
        session.play(400)
    worker.exchange()
    assert worker.state == alone.state


@pytest.mark.usefixtures("uncompiled")
def test_what_is_exchanged_is_counted_once_by_all():
    instance = world(workload("page-clear-noisy", 0.5, queries=6, impressions=900), 3)
    spec = policy("swerve", arms=instance.arms, slots=instance.spec.slots)
    together, apart = (Workers(spec, instance, [0, 1, 2] * 2, compiled=False) for _ in range(2))
    for until in range(100, 1000, 100):
        together.play(until)
        together.exchange()
    apart.play(900)
    seen = [float(pool.bandit.classifier.seen) for pool in together.fleet.pools[:3]]
    clicks = [pool.pages.level_clicks for pool in together.fleet.pools[:3]]
    assert seen[0] == seen[1] == seen[2] == sum(float(own.bandit.classifier.count) for own in together.owns)
    np.testing.assert_allclose(clicks, sum(own.pages.level_clicks for own in together.owns))
    assert seen[0] > 2.0 * max(float(pool.bandit.classifier.seen) for pool in apart.fleet.pools[:3])


@pytest.mark.compiled
@pytest.mark.slow
def test_eight_workers_that_exchange_each_second_lose_next_to_nothing(monkeypatch):
    """At most 1.02 × the regret of one worker, over all workloads of the tool; without exchange more."""
    monkeypatch.syspath_prepend(str(TOOLS))
    tool = __import__("measure_workers")
    found = np.array([tool.played(name, 300 + run, **sizes) for name, sizes in tool.WORKLOADS.items() for run in range(6)])
    ratio, _, high = ratio_of(found[:, 1], found[:, 0])
    assert ratio is not None and high is not None
    assert ratio <= 1.02
    sys.modules.pop("measure_workers")
