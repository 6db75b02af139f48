"""Experiments through both clients, against the real service."""

from __future__ import annotations

import asyncio

import pytest

from swerve_client import AsyncClient, Client, SwerveClientError

OFFER = ["a", "b", "c", "d"]


def test_an_experiment_is_begun_ramped_read_and_ended(url):
    with Client(url, timeout=5.0) as client:
        assert not client.experiment().running and client.rank("storm", OFFER, session="s").arm is None
        begun = client.ramp(0.5, name="spring", note="first look")
        assert (begun.running, begun.name, begun.treated, begun.note) == (True, "spring", 0.5, "first look")
        arms = {unit: client.rank("storm", OFFER, unit=unit) for unit in map(str, range(40))}
        assert {ranking.arm for ranking in arms.values()} == {"treated", "control"}
        assert all(ranking.ranking == OFFER for ranking in arms.values() if ranking.arm == "control")
        many = client.rank_many([{"query": "storm", "candidates": OFFER, "unit": unit} for unit in arms])
        assert [one.arm for one in many] == [ranking.arm for ranking in arms.values()]
        clicked = next(ranking for ranking in arms.values() if ranking.arm == "control")
        assert client.feedback(clicked.decision, "a")
        report = client.experiment(limit=5)
        assert report.arms.control.clicks == 1 and report.arms.treated.clicks == 0
        assert report.verdict == "undecided" and report.outcomes.reward.difference is None
        assert client.ramp(1.0).treated == 1.0 and client.rank("storm", OFFER, unit="any").arm == "treated"
        assert client.audit(1)[0].trial_after.treated == 1.0
        with pytest.raises(SwerveClientError) as refused:
            client.ramp(2.0)
        assert refused.value.field == "treated"
        assert not client.ramp(name="").running


def test_the_same_without_threads(url):
    async def run() -> None:
        async with AsyncClient(url, timeout=5.0) as client:
            assert (await client.ramp(0.0, name="async")).treated == 0.0
            assert (await client.rank("storm", OFFER, unit="u")).arm == "control"
            assert (await client.experiment()).arms.control.searches == 1
            assert not (await client.ramp(name="")).running

    asyncio.run(run())
