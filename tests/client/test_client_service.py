"""Both clients against the real service, and the examples of docs/client.md."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from service.running import running

from swerve_client import AsyncClient, Client, Ranking, ServiceAway, SwerveClientError

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), {"namespaces": {"toys": {}}}) as started:
        yield started


@pytest.fixture(scope="module")
def url(service):
    return f"http://127.0.0.1:{service.port}"


def test_a_decision_and_its_feedback(url):
    with Client(url, timeout=5.0) as client:
        assert client.health()
        answer = client.rank("Hurricane ", ["team", {"id": "storm", "published_at": 1.7e9}], signals={"news": 3}, session="s")
        assert sorted(answer.ranking) == ["storm", "team"] and not answer.degraded and answer.phase == 1
        assert client.feedback(answer.decision, answer.ranking[0]) is True
        assert client.feedback(answer.decision, answer.ranking[0]) is True  # a repeat gets the same answer
        state = client.state("hurricane")
        assert {arm.id: (arm.plays, arm.clicks) for arm in state.arms} == {answer.ranking[0]: (1, 1), answer.ranking[1]: (1, 0)}
        assert client.feedback(answer.decision, 2) is True  # a further click, by its position
        assert sum(arm.clicks for arm in client.state("hurricane").arms) == 2
        assert client.shift("hurricane") == 2
        after = client.state("HURRICANE")
        assert after.phase == 2 and after.alarms[0].signal == "operator"
        assert any(one.requests == 1 and one.phase == 2 for one in client.queries("shifted"))


def test_many_at_once(url):
    with Client(url, timeout=5.0) as client:
        asked = [{"query": f"many {number}", "candidates": ["a", "b"]} for number in range(20)]
        answers = client.rank_many([*asked, {"query": " ", "candidates": ["a"]}])
        assert [one.degraded for one in answers] == [False] * 20 + [True]
        assert "white space" in answers[-1].reason
        assert client.feedback_many([(one.decision, one.ranking[0]) for one in answers]) == [True] * 20 + [False]
        assert sum(arm.clicks for arm in client.state("many 7").arms) == 1


def test_many_of_which_some_are_refused_can_be_sent_again_without_them(url):
    """The loop of docs/client.md: drop the refused entry and send the rest again; entries taken before count once."""
    with Client(url, timeout=5.0) as client:
        answers = client.rank_many([{"query": f"again {number}", "candidates": ["a", "b"]} for number in range(3)])
        pairs = [(one.decision, one.ranking[0]) for one in answers]
        pairs.insert(1, ("forged", "a"))
        pairs.insert(3, ("forged too", "a"))
        for field in ("[1]", "[2]"):
            with pytest.raises(SwerveClientError) as caught:
                client.feedback_many(pairs)
            assert (caught.value.status, caught.value.field) == (200, field)
            assert sum(arm.clicks for arm in client.state("again 2").arms) == 1  # taken, although the call raises
            del pairs[int(field.strip("[]"))]
        assert client.feedback_many(pairs) == [True] * 3
        assert [sum(arm.clicks for arm in client.state(f"again {number}").arms) for number in range(3)] == [1, 1, 1]


def test_every_text_is_a_query(url):
    with Client(url, timeout=5.0) as client:
        for query in ("..", ".", "a/b", "/", "/shift", "a/shift", "//", "50%", "é ü?#", "a+b&c"):
            assert not client.rank(query, ["a"]).degraded
            assert client.state(query).requests == 1
            assert client.shift(query) == 2


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [
        (lambda client: client.observe("q", ["a", "a"]), 422, "repeated"),
        (lambda client: client.observe("q", ["a"], "b"), 422, "not_offered"),
        (lambda client: client.observe("q", ["a"], signals={"newz": 1}), 422, "unknown_signal"),
        (lambda client: client.feedback("forged", "a"), 403, "forged"),
        (lambda client: client.feedback_many([("forged", "a")]), 200, "forged"),
        (lambda client: client.state("never asked"), 404, "unknown_query"),
        (lambda client: client.queries(limit=0), 422, "invalid"),
    ],
)
def test_mistakes_come_back_with_the_services_words(url, call, status, code):
    with Client(url, timeout=5.0) as client, pytest.raises(SwerveClientError) as caught:
        call(client)
    assert (caught.value.status, caught.value.code) == (status, code)


@pytest.mark.parametrize(
    ("query", "candidates", "says"),
    [
        (" ", ["a"], "white space"),
        ("x" * 10_000, ["a"], "characters"),
        ("a\0b", ["a"], "NUL"),
        ("q", ["a", "a"], "twice"),
        ("q", [f"doc-{number}" for number in range(5000)], "at most"),
        ("q", ["x" * 3_000_000, "b"], "bytes"),
        ("q", [], "no candidates"),
        ("q\ud800", ["b", "a"], "surrogate"),
    ],
    ids=["white space", "long", "NUL", "repeated", "many", "large", "none", "surrogate"],
)
def test_rank_never_raises_for_what_a_user_typed_or_an_engine_returned(url, query, candidates, says):
    with Client(url, timeout=5.0) as client:
        answer = client.rank(query, candidates)
        assert (answer.ranking, answer.degraded, answer.decision) == (candidates, True, None)
        assert says in answer.reason


def test_what_others_ranked_teaches_too(url):
    with Client(url, timeout=5.0) as client:
        decision = client.observe("observed", ["a", "b"], "b", session="s", locale="de")
        assert client.feedback(decision, "a") is True  # a later click
        state = client.state("observed", locale="DE")
        assert {arm.id: (arm.plays, arm.clicks) for arm in state.arms} == {"a": (1, 1), "b": (1, 1)}
        with pytest.raises(SwerveClientError):
            client.state("observed")  # another query


def test_a_reload_shows_the_same(url):
    with Client(url, timeout=5.0) as client:
        first, again = (client.rank("reload", ["a", "b", "c"], session="s") for _ in range(2))
        assert (first.ranking, client.state("reload").requests) == (again.ranking, 1)
        assert client.feedback(again.decision, 3) is client.feedback(first.decision, 3) is True
        assert sum(arm.clicks for arm in client.state("reload").arms) == 1


def test_everything_learnt_is_exported_line_by_line(url):
    with Client(url, timeout=5.0) as client:
        client.feedback(client.rank("exported", ["a", "b"]).decision, "a")  # durable, and so written
        client.feedback(client.rank("exported too", ["a", "b", "c"], namespace="toys").decision, "a")
        *lines, end = client.export(brief=True)
        kinds = [line["kind"] for line in lines]
        assert end["kind"] == "end" and (end["queries"], end["candidates"]) == (kinds.count("query"), kinds.count("candidate"))
        assert end["queries"] >= 2 and end["damaged"] == 0
        toys = list(client.export(namespace="toys", brief=True))
        assert [line["kind"] for line in toys] == ["query", "candidate", "candidate", "candidate", "end"]
        assert any(line["kind"] == "shared" for line in client.export())

    async def gathered():
        async with AsyncClient(url, timeout=5.0, namespace="toys") as client:
            return [line async for line in client.export(brief=True)]

    assert asyncio.run(gathered()) == toys


def test_a_page_says_what_was_swapped_and_whether_the_policy_only_watches(tmp_path):
    changes = {"policy": {"mode": "shadow"}}
    with running(tmp_path / "shadow", changes) as service, Client(f"http://127.0.0.1:{service.port}", timeout=5.0) as client:
        answer = client.rank("storm", ["a", "b", "c"])
        assert (answer.shadow, answer.ranking, answer.swapped) == (True, ["a", "b", "c"], None)
        assert client.rank_many([{"query": "storm", "candidates": ["a", "b"]}])[0].shadow is True
    changes = {"evaluation": {"swaps": 1.0}, "policy": {"slots": 3}}
    with running(tmp_path / "swaps", changes) as service, Client(f"http://127.0.0.1:{service.port}", timeout=5.0) as client:
        answers = [client.rank(f"storm {number}", ["a", "b", "c"]) for number in range(20)]
        assert any(answer.swapped is not None for answer in answers)
        for answer in answers:
            assert answer.shadow is False
            assert answer.swapped is None or (len(answer.swapped) == 2 and 1 <= min(answer.swapped) < max(answer.swapped) <= 3)


def test_from_coroutines(url):
    async def main():
        async with AsyncClient(url, timeout=5.0) as client:
            answers = await asyncio.gather(*(client.rank("together", ["a", "b", "c"]) for _ in range(30)))
            counted = await asyncio.gather(*(client.feedback(one.decision, one.ranking[0]) for one in answers))
            return counted, await client.state("together")

    counted, state = asyncio.run(main())
    assert counted == [True] * 30
    assert sum(arm.clicks for arm in state.arms) == state.requests == 30


def test_the_examples_of_the_page_run(url):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    assert len(blocks) == 14
    # a busy machine must not make an example degraded: only the default timeout is changed
    source = "\n".join(blocks).replace('"http://127.0.0.1:8350"', f'"{url}", timeout=5.0')
    names: dict = {}
    exec(compile(source, str(PAGE), "exec"), names)
    assert sorted(names["show"]) == ["storm-warning", "team-page"]
    assert names["unsent"] == [] and names["counted"] == [True, True]
    assert names["phase"] == names["state"].phase + 1 and len(names["busiest"]) <= 10


def test_the_page_has_every_argument_and_field():
    page = PAGE.read_text(encoding="utf-8")
    for name, parameter in inspect.signature(Client).parameters.items():
        default = "none" if parameter.default is None else parameter.default
        assert re.search(rf"^\| `{name}` \| `?{re.escape(str(default))}`? \|", page, re.M), name
    for field in dataclasses.fields(Ranking):
        assert f"| `{field.name}` |" in page


def test_when_it_is_killed_search_goes_on(service, url):
    """This test must be the last: it kills the service of this file."""
    with Client(url, timeout=5.0, retries=0) as client:
        answer = client.rank("storm", ["a", "b"])
        assert not answer.degraded
        service.kill()
        after = client.rank("storm", ["a", "b"])
        assert (after.ranking, after.degraded, after.decision) == (["a", "b"], True, None)
        assert client.health() is False
        with pytest.raises(ServiceAway):
            client.feedback(answer.decision, "a")
