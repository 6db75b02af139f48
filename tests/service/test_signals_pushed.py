"""Numbers that are pushed to the service: who gets them, how long they hold, and that a replay has them."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from service.running import Http, Running, running
from service.test_ranking import service_at
from service.test_replay import replay_of

import swerve
from swerve.service.http.schemas import read_observe, read_rank, read_signal
from swerve.service.runtime import Service
from swerve.service.secrets import new_key
from swerve.serving.feeds import Feeds, Pushed
from swerve.serving.messages import Refused
from swerve.serving.recording import Ranked, lines_of

NOW = 1.7e9


def push(client: Http, name: str, value: float | None, **more: Any) -> str:
    answer = client.call("POST", "/v1/signals", {"name": name, "value": value, **more})
    assert answer.status == 200, answer
    return str(answer.json["status"])


def seen(client: Http, query: str, **more: Any) -> dict[str, float | None]:
    """Rank, and return the context that the policy saw. A raw number is shown as it was used, null if it was missing."""
    assert client.rank(query, ["a", "b"], **more).status == 200
    signals: dict[str, float | None] = client.query(query).json["signals"]
    return signals


def test_rankings_use_the_pushed_number_unless_they_carry_one(client: Http):
    assert seen(client, "lynx")["given"] is None
    assert push(client, "given", 0.75, query="Lynx ") == "taken"
    assert seen(client, "lynx")["given"] == 0.75
    assert seen(client, "lynx", signals={"given": 0.25})["given"] == 0.25
    assert seen(client, "lynx", signals={"given": None})["given"] == 0.75
    assert seen(client, "lynx", signals={"news": 3})["given"] == 0.75
    assert seen(client, "puma")["given"] is None  # another query
    assert seen(client, "lynx", locale="de")["given"] == 0.75  # the state of "lynx" itself is unchanged
    assert client.call("GET", "/v1/queries/lynx?locale=de").json["signals"]["given"] is None
    assert push(client, "given", 0.5, query="lynx", locale="de") == "taken"
    assert client.rank("lynx", ["a", "b"], locale="de").status == 200
    assert client.call("GET", "/v1/queries/lynx?locale=de").json["signals"]["given"] == 0.5
    assert push(client, "given", None, query="lynx") == "taken"
    assert seen(client, "lynx")["given"] is None


def test_a_batch_of_rankings_uses_it_too(client: Http):
    push(client, "given", 0.6, query="batched")
    asked = [{"query": "batched", "candidates": ["a", "b"]}] * 2
    for _ in range(2):  # on the long and on the short way
        assert client.call("POST", "/v1/rank/batch", asked).status == 200
        assert client.query("batched").json["signals"]["given"] == 0.6


def test_the_nearest_number_goes_first(client: Http):
    assert push(client, "given", 0.1) == "taken"
    assert seen(client, "ocelot")["given"] == 0.1
    assert push(client, "given", 0.9, query="ocelot") == "taken"
    assert seen(client, "ocelot")["given"] == 0.9
    assert seen(client, "margay")["given"] == 0.1
    assert push(client, "given", None) == "taken"
    assert seen(client, "margay")["given"] is None


def test_a_list_is_answered_one_by_one(client: Http):
    body = [
        {"name": "given", "value": 0.5, "query": "one"},
        {"name": "gvien", "value": 1},
        {"name": "given"},
        {"name": "given", "value": 0.5, "query": "two", "at": 1e9},
    ]
    answer = client.call("POST", "/v1/signals/batch", body)
    assert answer.status == 200
    first, unknown, shapeless, stale = answer.json
    assert (first, stale) == ({"status": "taken"}, {"status": "stale"})
    assert unknown["error"]["code"] == "unknown_signal" and "did you mean 'given'" in unknown["error"]["message"]
    assert unknown["error"]["field"] == "name"
    assert shapeless["error"]["code"] == "invalid"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "nobody", "value": 1}, "name"),
        ({"name": "news", "value": "many"}, "value"),
        ({"name": "news"}, "value"),
        ({"name": "news", "value": 1, "locale": "de"}, "locale"),
        ({"name": "news", "value": 1, "query": " "}, "query"),
        ({"name": "news", "value": 1, "namespace": "toys"}, "namespace"),
        ({"name": "news", "value": 1, "ttl_seconds": 0}, "ttl_seconds"),
        ({"name": "news", "value": 1, "at": 9e9}, "at"),
    ],
)
def test_wrong_numbers_are_refused(client: Http, body: dict[str, Any], field: str):
    answer = client.call("POST", "/v1/signals", body)
    assert answer.status == 422, answer
    assert answer.json["error"].get("field") in (field, None)


# time ----------------------------------------------------------------------------------------------------------------------------


def given(service: Service, query: str = "q", **more: Any) -> float:
    """Return the number that a request would get; NaN if none."""
    asked = {"query": query, "candidates": ["a", "b"], **more}
    signals = service.ranking.prepare(read_rank(json.dumps(asked).encode()))[1].signals
    number = (signals or {}).get("given")
    return math.nan if number is None else number


def told(service: Service, value: float | None, **more: Any) -> str:
    return service.feeding.push(read_signal(json.dumps({"name": "given", "value": value, **more}).encode())).status


@pytest.fixture
def at(tmp_path: Path):
    """A service that is not started, and its clock."""
    now = [NOW]
    spaces = {"toys": {}, "*": {"numbers": ["news"]}}
    service = service_at(tmp_path / "s", now, limits={"fed_queries": 3}, namespaces=spaces)
    yield service, now
    service.loader.stop()
    service.store.close()


def test_a_stale_feed_is_silent_and_not_zero(at):
    service, now = at
    assert told(service, 0.5, query="q") == "taken"
    assert told(service, 0.2, ttl_seconds=10_000) == "taken"
    now[0] += 3599.0
    assert given(service) == 0.5
    now[0] += 2.0  # past `signals.feed_ttl_seconds`: the number for all still holds
    assert given(service) == 0.2
    now[0] += 10_000.0
    assert math.isnan(given(service))
    prepared = service.ranking.prepare(read_rank(b'{"query": "q", "candidates": ["a"]}'))[1]
    assert prepared.signals is None
    assert all(map(math.isnan, service.ranker.packing.numbers_in(prepared.signals)))


def test_the_latest_measurement_holds_whatever_comes_last(at):
    service, now = at
    assert told(service, 0.5, at=NOW - 10) == "taken"
    assert told(service, 0.9, at=NOW - 20) == "older"
    assert given(service) == 0.5
    assert told(service, 0.7, at=NOW - 4000) == "stale"
    assert told(service, 0.6, at=NOW - 10) == "taken"  # a correction
    assert given(service) == 0.6
    assert told(service, 0.8, at=NOW - 3000, ttl_seconds=7000) == "older"
    now[0] += 3600.0
    assert told(service, 0.8, at=NOW - 3000, ttl_seconds=7000) == "taken"  # the later one no longer holds


def test_namespaces_have_their_own(at):
    service, _ = at
    told(service, 0.1)
    told(service, 0.2, namespace="toys")
    told(service, 0.3, namespace="toys", query="q")
    assert (given(service), given(service, namespace="toys"), given(service, "r", namespace="toys")) == (0.1, 0.3, 0.2)
    assert math.isnan(given(service, namespace="other"))  # a namespace that may not have this number
    with pytest.raises(Refused, match="given"):
        told(service, 0.4, namespace="other")


def test_memory_is_bounded(at):
    service, _ = at
    for number in range(100):
        told(service, number / 100, query=f"q{number}")
    assert [query for query in range(100) if not math.isnan(given(service, f"q{query}"))] == [97, 98, 99]
    told(service, 0.5)
    assert given(service, "q1") == 0.5  # a number for all is never pushed out


def test_an_observed_ranking_uses_it_and_a_deletion_forgets_it(at):
    service, _ = at
    told(service, 0.5, query="q")
    prepared = service.ranking.prepare_shown(read_observe(b'{"query": "q", "shown": ["a"], "events": []}'))
    assert prepared.signals == {"given": 0.5}
    service.ranking.forget({prepared.key})
    assert math.isnan(given(service))


def test_numbers_of_nobody_cost_one_test():
    feeds = Feeds(("news",))
    assert not feeds
    feeds.push("news", b"q", Pushed(1.0, 0.0, 10.0), 0.0)
    assert feeds
    feeds.forget([b"q"])
    assert not feeds


# keys, clients, recordings -------------------------------------------------------------------------------------------------------


def test_a_bound_key_pushes_into_its_namespaces_only(tmp_path: Path):
    feed, bound, shop = new_key("feed", ("signals",)), new_key("toys", ("signals",)), new_key("shop", ("rank", "feedback", "read"))
    keys = [{"name": one.entry.name, "hash": one.entry.hash, "scopes": list(one.entry.scopes)} for one in (feed, bound, shop)]
    keys[1]["namespaces"] = ["toys", ""]
    tables: dict[str, Any] = {"security": {"api_keys": keys}, "namespaces": {"toys": {}, "shoes": {}}}
    with running(tmp_path, tables) as service:
        number = {"name": "given", "value": 0.5}
        every = [{}, {"query": "q"}, {"namespace": "toys"}, {"namespace": "shoes"}, {"namespace": "shoes", "query": "q"}]
        statuses = {
            key.entry.name: [service.client(key.text).call("POST", "/v1/signals", {**number, **to}).status for to in every]
            for key in (feed, bound, shop)
        }
        # without a namespace and a query it would reach the namespaces of others
        assert statuses == {"feed": [200] * 5, "toys": [403, 200, 200, 403, 403], "shop": [403] * 5}


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_the_client_pushes(served: Running, client: Http, kind: str):
    address = f"http://127.0.0.1:{served.port}"
    entries = [{"name": "given", "value": 0.4, "query": f"{kind} b"}, {"name": "given", "value": 0.3, "query": f"{kind} c"}]
    wrong = [entries[0], {"name": "nobody", "value": 1.0}]
    if kind == "plain":
        with swerve.Client(address) as plain:
            assert plain.signal("given", 0.5, f"{kind} a", ttl_seconds=60) == "taken"
            assert plain.signal_many(entries) == ["taken", "taken"]
            assert plain.signal_many([]) == []
            with pytest.raises(swerve.client.SwerveClientError, match="number 1 of the list"):
                plain.signal_many(wrong)
            with pytest.raises(swerve.client.SwerveClientError, match="finite"):
                plain.signal("given", math.nan)
            assert plain.signal("given", None, f"{kind} c") == "taken"
    else:

        async def play() -> None:
            async with swerve.AsyncClient(address) as pushing:
                assert await pushing.signal("given", 0.5, f"{kind} a", ttl_seconds=60) == "taken"
                assert await pushing.signal_many(entries) == ["taken", "taken"]
                assert await pushing.signal("given", None, f"{kind} c") == "taken"

        asyncio.run(play())
    assert [seen(client, f"{kind} {query}")["given"] for query in "abc"] == [0.5, 0.4, None]


def test_a_replay_has_the_pushed_numbers(tmp_path: Path):
    recording = tmp_path / "state" / "swerve.db.journal"
    changes: dict[str, dict[str, Any]] = {"store": {"journal_days": 30}, "policy": {"spec": "bwc", "arms": 8, "slots": 1}}
    with running(tmp_path, changes) as service:
        http = service.client()
        for turn in range(120):
            if turn % 10 == 0:
                push(http, "news", float(turn % 40))
            if turn % 15 == 0:
                push(http, "given", (turn % 7) / 7.0, query="hurricane")
            answer = http.rank("hurricane" if turn % 3 else "oasis", ["a", "b", "c"], session=f"s{turn}").json
            if turn % 2:
                http.feedback(answer["decision"], answer["ranking"][0])
        assert service.stop() == 0
    ranked = [line for _, line in lines_of(recording) if isinstance(line, Ranked)]
    assert len(ranked) == 120
    assert all(line.signals["news"] == float((turn - turn % 10) % 40) for turn, line in enumerate(ranked))
    assert all(("given" in line.signals) == bool(turn % 3) for turn, line in enumerate(ranked))
    counts = replay_of(recording).run()
    assert (counts.same, counts.first_difference) == (120, None)
