"""Both clients against a real server that misbehaves deliberately."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from client.misbehaving import BROKEN, broken, hang, page, refused, unavailable

from swerve_client import AsyncClient, Client, Ranking, ServiceAway, SwerveClientError, exchange


def test_the_good_case(server, connect):
    client = connect(api_key="secret", timeout=2.0)
    ranking = client.rank("storm", ["a", {"id": "b"}], signals={"news": 2}, session="s")
    assert ranking == Ranking("d", ["b", "a"], [1.0], None, 0, False, None)
    assert client.feedback(ranking.decision, "b") is True
    assert client.feedback(None, "b") is False
    batch = client.rank_many([{"query": "x", "candidates": ["a"]}, {"query": "y", "candidates": ["b", "c"], "session": "s"}])
    assert [one.ranking for one in batch] == [["a"], ["c", "b"]]
    assert client.feedback_many([("d", None), ("e", "a")]) == [True, True]
    assert client.queries("shifted", limit=5)[0].requests == 3
    assert client.shift("storm", locale="en") == 4
    assert client.observe("storm", ["a", "b"], ["a", 2], session="s") == "o"
    assert client.health() is True
    methods = [(method, path) for method, path, _, _ in server.seen]
    assert methods == [
        ("POST", "/v1/rank"),
        ("POST", "/v1/feedback"),
        ("POST", "/v1/rank/batch"),
        ("POST", "/v1/feedback/batch"),
        ("GET", "/v1/queries?order=shifted&limit=5"),
        ("POST", "/v1/queries/storm/shift?locale=en"),
        ("POST", "/v1/observe"),
        ("GET", "/readyz"),
    ]
    assert {headers["Authorization"] for _, _, headers, _ in server.seen} == {"Bearer secret"}
    assert server.seen[0][2]["Content-Type"] == "application/json"


def test_a_query_arrives_as_it_is(connect):
    client = connect()
    for query in ("storm", "..", ".", "a/b", "/", "//", "a?b#c", "50%", "é ü", "a+b", "/shift"):
        assert client.state(query).query == query
    state = client.state("storm")
    assert state.arms[0].id == "a" and state.alarms[0].verdict == "true"


@pytest.mark.parametrize("misbehave", BROKEN)
def test_rank_never_breaks_search(server, connect, misbehave):
    client = connect()
    server.script += [misbehave, misbehave]
    began = time.monotonic()
    ranking = client.rank("storm", ["a", "b"])
    first, second = client.rank_many([{"query": "x", "candidates": ["b", "a"]}, {"query": "y", "candidates": ["c"]}])
    took = time.monotonic() - began
    assert (ranking.decision, ranking.ranking, ranking.degraded) == (None, ["a", "b"], True)
    assert ranking.reason
    assert (first.ranking, second.ranking) == (["b", "a"], ["c"]) and first.degraded and second.degraded
    assert took < 1.0  # two timeouts of 0.1 s, and a busy machine
    assert client.feedback(ranking.decision, "a") is False
    assert connect(timeout=2.0).rank("storm", ["a", "b"]).ranking == ["b", "a"]  # the next request is served


def test_nobody_listens(connect):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = connect(f"http://127.0.0.1:{taken.getsockname()[1]}", retries=1)
        ranking = client.rank("storm", ["a", "b"])
        assert ranking.degraded and ranking.ranking == ["a", "b"] and "no answer" in ranking.reason
        assert client.health() is False
        with pytest.raises(ServiceAway):
            client.feedback("d", "a")
        with pytest.raises(ServiceAway):
            client.state("storm")
        with pytest.raises(ServiceAway):
            client.shift("storm")


def test_a_dead_service_costs_no_timeouts(server, connect):
    client = connect(breaker_failures=2, breaker_seconds=0.3)
    server.script += [hang, hang]
    for _ in range(2):
        assert "within 0.1 s" in client.rank("storm", ["a", "b"]).reason
    began = time.monotonic()
    for _ in range(100):
        assert client.rank("storm", ["a", "b"]).degraded
    assert time.monotonic() - began < 0.25
    assert len(server.seen) == 2
    time.sleep(0.3)
    assert not client.rank("storm", ["a", "b"]).degraded


@pytest.mark.parametrize("status", [401, 403, 422])
def test_the_callers_mistakes_are_raised(server, connect, status):
    client = connect(timeout=5.0)  # a busy machine must not turn a refusal into a timeout
    server.script += [refused(status)] * 4
    ask = (lambda: client.rank("q", ["a"])) if status != 422 else (lambda: client.observe("q", ["a", "a"]))
    for call in (ask, lambda: client.feedback("d"), lambda: client.state("q"), client.queries):
        with pytest.raises(SwerveClientError, match="'a' twice") as caught:
            call()
        assert (caught.value.status, caught.value.field, caught.value.request_id) == (status, "candidates", "r-7")
    assert len(server.seen) == 4  # no request was retried


@pytest.mark.parametrize("misbehave", BROKEN)
def test_feedback_is_tried_again(server, connect, misbehave, monkeypatch):
    monkeypatch.setattr(exchange, "LONGEST_WAIT", 0.05)
    client = connect(feedback_timeout=0.15)
    server.script += [misbehave, misbehave]
    assert client.feedback("d", "a") is True
    bodies = [json.loads(body) for _, _, _, body in server.seen]
    assert bodies == [{"decision": "d", "events": [{"kind": "click", "result": "a"}]}] * 3


def test_feedback_waits_as_it_is_told(server, connect):
    client = connect()
    server.script += [unavailable("0.4")]
    began = time.monotonic()
    assert client.feedback("d", "a") is True
    assert 0.4 <= time.monotonic() - began < 1.5


def test_feedback_gives_up_and_says_why(server, connect):
    client = connect(retries=2)
    server.script += [unavailable("0")] * 3
    with pytest.raises(ServiceAway, match=r"3 tries: HTTP 503: the store is locked; keep it"):
        client.feedback("d", "a")
    assert len(server.seen) == 3
    server.script += [unavailable("0")] * 3
    with pytest.raises(ServiceAway):
        client.feedback_many([("d", "a")])


def test_what_is_read_once_is_not_tried_again(server, connect):
    client = connect()
    server.script += [broken, page]
    with pytest.raises(ServiceAway, match="HTTP 500"):
        client.state("storm")
    with pytest.raises(ServiceAway, match="not one of the service's"):
        client.shift("storm")
    assert len(server.seen) == 2


def test_not_ready(server, connect):
    client = connect()
    server.script += [unavailable("1")]
    assert client.health() is False
    assert client.health() is True


def test_threads_share_one_client(server):
    with Client(server.url, timeout=5.0) as client, ThreadPoolExecutor(8) as pool:
        wanted = [[f"{number}-a", f"{number}-b"] for number in range(200)]
        given = list(pool.map(lambda names: client.rank("storm", names).ranking, wanted))
    assert given == [names[::-1] for names in wanted]


def test_coroutines_share_one_client(server):
    async def main():
        async with AsyncClient(server.url, timeout=5.0) as client:
            return await asyncio.gather(*(client.rank("storm", [f"{number}-a", f"{number}-b"]) for number in range(100)))

    assert [one.ranking for one in asyncio.run(main())] == [[f"{number}-b", f"{number}-a"] for number in range(100)]


def test_a_cancelled_call_is_cancelled(server):
    server.script += [hang]

    async def main():
        async with AsyncClient(server.url, timeout=5.0) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.rank("storm", ["a"]), 0.1)

    asyncio.run(main())


def test_the_key_is_not_shown():
    with Client(api_key="top-secret") as client:
        assert "top-secret" not in repr(client) and "top-secret" not in str(client)


def test_a_closed_client_is_a_mistake_of_the_program(server):
    client = Client(server.url)
    client.close()
    with pytest.raises(RuntimeError):
        client.rank("storm", ["a"])


def test_both_clients_have_the_same_calls_with_their_signatures():
    names = [name for name, call in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")]
    assert {"rank", "feedback", "pin", "ramp", "signal", "health", "export", "close"} <= set(names)
    for name in names:
        one, other = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.getdoc(one) and inspect.getdoc(other)
        assert list(inspect.signature(one).parameters.values()) == list(inspect.signature(other).parameters.values())
        assert inspect.iscoroutinefunction(other) is (name != "export") and not inspect.iscoroutinefunction(one)
    assert str(inspect.signature(Client.feedback_many)) == "(self, reports: 'Iterable[Report]') -> 'list[bool]'"
    with Client() as client, pytest.raises(TypeError, match="unexpected keyword argument 'slot'"):
        client.rank("storm", ["a"], slot=3)
