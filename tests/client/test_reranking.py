"""`rerank` and `report_clicks`: hits of any kind in the order of the service, the given order where that cannot be."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
from service.running import running

from swerve.client import (
    AsyncClient,
    Client,
    RankArguments,
    SwerveClientError,
    report_clicks,
    report_clicks_async,
    rerank,
    rerank_async,
)
from swerve.service.secrets import new_key
from swerve_client.reranking import SearchArguments

KEY, OPERATOR = new_key("shop"), new_key("operator")
CONFIG = {
    "policy": {"spec": "ts", "arms": 8},
    "security": {"api_keys": [{"name": key.entry.name, "hash": key.entry.hash} for key in (KEY, OPERATOR)]},
}
NOWHERE = "http://127.0.0.1:9"  # the port `discard`, on which nobody listens


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running(tmp_path_factory.mktemp("reranking"), CONFIG) as service:
        yield f"http://127.0.0.1:{service.port}"


@pytest.fixture
def client(url):
    with Client(url, KEY.text, timeout=5.0) as made:
        yield made


def hits(*names):
    return [SimpleNamespace(pk=name, relevance=10.0 - place) for place, name in enumerate(names)]


def names(found):
    return [hit.pk for hit in found.hits]


def test_the_hits_themselves_come_back_with_a_decision_whose_clicks_count(client):
    given = hits(1, 2, 3)  # ids of a database
    found = rerank(client, "numbers", given, id=lambda hit: hit.pk, score=lambda hit: hit.relevance, session="s")
    assert sorted(map(id, found.hits)) == sorted(map(id, given)) and found.reason is None
    assert report_clicks(client, found.decision, "2") is True
    assert {arm.id: arm.clicks for arm in client.state("numbers").arms} == {"1": 0, "2": 1, "3": 0}


def test_parts_of_the_key_and_the_session_reach_the_service(client):
    first, again = (
        rerank(client, "parts", hits("a", "b"), lambda hit: hit.pk, session="s", locale="de", slots=1) for _ in range(2)
    )
    assert names(first) == names(again) and client.state("parts", locale="de").requests == 1  # a reload
    with pytest.raises(SwerveClientError):
        client.state("parts")


def test_every_argument_of_rank_can_be_given():
    assert SearchArguments.__annotations__.keys() | {"query", "candidates"} == RankArguments.__annotations__.keys()


def test_scores_are_sent_where_they_are_numbers(client, monkeypatch):
    sent = []
    rank = client.rank
    monkeypatch.setattr(
        client, "rank", lambda query, candidates, **more: sent.append(candidates) or rank(query, candidates, **more)
    )
    scores = {"a": 2, "b": None, "c": float("nan"), "d": "1.5", "e": 10**400}
    found = rerank(client, "scores", hits(*scores, "f"), id=lambda hit: hit.pk, score=lambda hit: scores[hit.pk])
    assert sent == [[{"id": "a", "score": 2.0}, {"id": "b"}, {"id": "c"}, {"id": "d", "score": 1.5}, {"id": "e"}, {"id": "f"}]]
    assert found.decision is not None


def test_hits_without_an_id_and_repeated_ones_keep_their_places(client):
    with Client(client._exchange.options["base_url"], OPERATOR.text, timeout=5.0) as operator:
        operator.pin("c", 1, query="places")
        operator.block("x", query="places")
    given = hits("a", None, "b", "a", "c", "x", "x")
    found = rerank(client, "places", given, id=lambda hit: hit.pk)
    assert found.hits[1] is given[1] and found.hits[3] is given[3]
    assert names(found)[0] == "c" and sorted(map(str, names(found))) == ["None", "a", "a", "b", "c"]
    found = rerank(client, "lacking", [{"id": "a"}, {}, {"id": "b"}], id=lambda hit: hit["id"])
    assert found.hits[1] == {} and found.decision is not None


def test_hits_behind_the_window_stay_there(client):
    given = hits(*map(str, range(90)))
    found = rerank(client, "long", given, id=lambda hit: hit.pk, window=8)
    assert found.decision is not None and found.hits[8:] == given[8:]
    assert sorted(names(found)) == sorted(names(SimpleNamespace(hits=given)))
    short = rerank(client, "short", given, id=lambda hit: hit.pk, window=2)
    assert short.hits[2:] == given[2:] and len(client.state("short").arms) == 2
    with pytest.raises(SwerveClientError, match="window = 0"):
        rerank(client, "none", given, id=lambda hit: hit.pk, window=0)


@pytest.mark.parametrize(
    ("query", "given", "more", "says"),
    [
        ("q", [], {}, "no hits"),
        (" ", ["a", "b"], {}, "white space"),
        ("x" * 10_000, ["a", "b"], {}, "characters"),
        ("q\ud800", ["a", "b"], {}, "surrogate"),
        ("q", ["a", "\ud800"], {}, "surrogate"),
        ("q", [None, None], {}, "no hit has an id"),
        ("q", ["a", "b"], {"signals": {"news": float("nan")}}, "finite"),
        ("q", ["a", "b"], {"signals": {"unheard": 1.0}}, "unheard"),
        ("q", ["a", "b"], {"namespace": "unheard"}, "namespace"),
        (None, ["a", "b"], {}, "query"),
    ],
)
def test_what_cannot_be_ranked_is_shown_as_given(client, query, given, more, says):
    found = rerank(client, query, hits(*given), id=lambda hit: hit.pk, **more)
    assert (names(found), found.decision) == (given, None)
    assert says in found.reason


def test_more_hits_than_the_service_takes_are_logged(client, caplog):
    given = [f"hit {number}" for number in range(65)]
    with caplog.at_level(logging.WARNING, "swerve.client"):
        found = rerank(client, "q", hits(*given), id=lambda hit: hit.pk, window=65)
    assert names(found) == given and "HTTP 422" in found.reason
    assert ["candidates has 65 entries" in record.message for record in caplog.records] == [True]


def test_a_function_that_fits_no_hit_is_named(client):
    found = rerank(client, "q", [{"id": "a"}], id=lambda hit: hit["key"])
    assert (found.hits, found.reason) == ([{"id": "a"}], "no hit has an id: KeyError('key')")


def test_a_wrong_key_is_logged_and_breaks_no_search(url, caplog):
    with caplog.at_level(logging.WARNING, "swerve.client"), Client(url, "wrong", timeout=5.0) as client:
        found = rerank(client, "q", hits("a", "b"), id=lambda hit: hit.pk)
        assert names(found) == ["a", "b"] and "HTTP 401" in found.reason
        assert report_clicks(client, "forged", "a") is False
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the search engine's order is shown",
        "clicks are not counted",
    ]


def test_a_forged_decision_and_a_service_that_is_away_do_not_raise(client):
    assert report_clicks(client, "forged", "a") is False
    assert report_clicks(client, None, "a") is False
    with Client(NOWHERE, retries=0) as away:
        found = rerank(away, "q", hits("a", "b"), id=lambda hit: hit.pk)
        assert (names(found), found.decision) == (["a", "b"], None) and "no answer" in found.reason
        assert report_clicks(away, "a decision", "a") is False


def test_from_coroutines(url):
    async def search():
        async with AsyncClient(url, KEY.text, timeout=5.0) as client:
            found = await rerank_async(client, "async", hits("a", "b", None), id=lambda hit: hit.pk)
            assert found.hits[2].pk is None and await report_clicks_async(client, found.decision, "b") is True
            assert sum(arm.clicks for arm in (await client.state("async")).arms) == 1
            refused = await rerank_async(client, "async", hits("a", "b"), id=lambda hit: hit.pk, namespace="unheard")
            assert names(refused) == ["a", "b"] and "namespace" in refused.reason
            assert (await rerank_async(client, "async", [], id=lambda hit: hit)).reason == "there are no hits"
            assert await report_clicks_async(client, "forged", "b") is False

    asyncio.run(search())
