"""Samples of a service: rates over the time since the last sample."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from swerve.dashboard.sample import Sampler, quantiles
from swerve.service.config.load import Config, Policy, Store
from swerve.service.http.server import open_service
from swerve.service.metrics import Histogram
from swerve.serving.messages import encode


@pytest.fixture
def service(tmp_path):
    made = open_service(Config(policy=Policy(spec="ts", arms=8), store=Store(url=f"sqlite:///{tmp_path}/swerve.db", cache_mb=16)))
    yield made
    made.loader.stop()
    made.store.close()


def test_rates_are_of_the_time_since_the_last_sample(service, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    sampler = Sampler(service)
    metrics = service.metrics
    for _ in range(2):  # the same traffic twice: totals grow, rates do not
        metrics.decisions.value += 30
        metrics.degraded("store").value += 6
        metrics.degraded("limit").value += 4
        metrics.feedback("learned").value += 8
        metrics.alarms("volume").value += 1
        metrics.restarts.value += 2
        metrics.commits.value += 4
        metrics.commit_seconds.observe(0.01)
        metrics.commit_seconds.observe(0.03)
        metrics.store_errors("full").value += 1
        metrics.rank_seconds.observe(0.0015)
        clock[0] += 2.0
        sample = sampler.take()
        assert (sample["rank_per_s"], sample["feedback_per_s"], sample["degraded_per_s"]) == (20.0, 4.0, 5.0)
        assert sample["store"]["commits_per_s"] == 2.0
        assert sample["store"]["commit_ms"] == pytest.approx(10.0)
        assert 1.0 <= sample["rank_ms"]["p50"] <= 2.0 and sample["feedback_ms"] is None
    assert (sample["decisions"], sample["alarms"], sample["restarts"], sample["store"]["errors"]) == (60, 2, 4, 2)
    clock[0] += 1.0
    idle = sampler.take()
    assert idle["rank_per_s"] == 0.0 and idle["rank_ms"] is None and idle["store"]["commit_ms"] is None
    assert json.loads(encode(idle))["decisions"] == 60
    assert abs(idle["at"] - time.time()) < 60 and abs(idle["now"] - service.clock.now()) < 60


def test_the_state_of_the_store_is_one_word(service):
    sampler = Sampler(service)
    assert sampler.state() == "starting"
    service.availability.compiled = True
    assert sampler.state() == "ok"
    service.availability.away = "locked"
    assert sampler.state() == "locked"
    service.availability.stopping = True
    assert sampler.state() == "stopping"


def test_lists_stay_while_the_store_does_not_answer(service):
    sampler = Sampler(service)
    asyncio.run(sampler.look())
    assert sampler.top == [] and sampler.shifted == []
    sampler.top = ["as it was"]
    service.store.close()
    asyncio.run(sampler.look())
    assert sampler.top == ["as it was"]


def test_quantiles_lie_where_the_values_were():
    spread = Histogram()
    before = tuple(spread.counts)
    values = [0.0001 * step for step in range(1, 400)]
    for value in values:
        spread.observe(value)
    found = quantiles(spread, before, tuple(spread.counts))
    assert found["p50"] == pytest.approx(20.0, rel=0.05) and found["p99"] == pytest.approx(39.6, rel=0.25)
    assert quantiles(spread, tuple(spread.counts), tuple(spread.counts)) is None
    before = tuple(spread.counts)
    spread.observe(60.0)
    assert quantiles(spread, before, tuple(spread.counts)) == {"p50": 5000.0, "p99": 5000.0}  # above the last bound
