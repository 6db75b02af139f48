"""Rules through both clients, against the real service."""

from __future__ import annotations

import asyncio
import time

import pytest

from swerve_client import AsyncClient, Client, SwerveClientError

OFFER = ["a", "b", "c", "d"]


def test_rules_are_set_listed_and_removed(url):
    with Client(url, timeout=5.0) as client:
        pin = client.pin("d", 1, query="storm", until=time.time() + 100, note="why")
        block = client.block("a", until="2099-01-01T00:00:00Z")
        boost = client.boost("c", 2, query="other", locale="de")
        assert client.rules() == [pin, block, boost]
        assert (pin.kind, pin.position, pin.note, pin.by) == ("pin", 1, "why", None)
        ranking = client.rank("storm", OFFER)
        assert ranking.ranking[0] == "d" and "a" not in ranking.ranking
        assert not ranking.degraded  # that a blocked result is missing is no mistake of the service
        assert [(mark.kind, mark.result, mark.position) for mark in ranking.ruled] == [("pin", "d", 1), ("block", "a", None)]
        for rule in (pin, block, boost):
            assert client.remove_rule(rule.id) == rule
        assert client.rules() == [] and client.rank("storm", OFFER).ruled == ()
        assert [change.what for change in client.audit(2)] == ["remove", "remove"]


def test_the_switch(url):
    with Client(url, timeout=5.0) as client:
        assert client.on() is None
        for where in ({}, {"query": "storm"}, {"query": "storm", "locale": "de"}):
            client.off(**where)
            off = client.rank(where.get("query", "any"), OFFER, locale=where.get("locale"))
            assert off.ranking == OFFER and off.decision is None and not off.degraded
            assert client.feedback(off.decision, "a") is False  # there is nothing to learn
            assert client.on(**{**where, "query": f" {where['query'].upper()}"} if where else {}) is not None
            assert client.rules() == []


def test_a_wrong_rule_is_an_error_that_names_the_field(url):
    with Client(url, timeout=5.0) as client:
        with pytest.raises(SwerveClientError, match="at most 256") as refused:
            client.block("x" * 300)
        assert refused.value.field == "result"
        with pytest.raises(SwerveClientError, match="no rule 12345"):
            client.remove_rule(12345)
        with pytest.raises(SwerveClientError) as refused:
            client.pin("a", 1, query="q", until="yesterday")
        assert refused.value.field == "until"


def test_the_same_without_threads(url):
    async def run() -> None:
        async with AsyncClient(url, timeout=5.0) as client:
            pin = await client.pin("d", 2, query="async")
            block, boost, off = (
                await client.block("a", query="async"),
                await client.boost("c", 1, query="x"),
                await client.off(query="y"),
            )
            assert await client.rules() == [pin, block, boost, off]
            assert (await client.rank("async", OFFER)).ranking[1] == "d"
            assert await client.on("y") == off
            for rule in (pin, block, boost):
                assert await client.remove_rule(rule.id) == rule
            assert len(await client.audit()) >= 8

    asyncio.run(run())
