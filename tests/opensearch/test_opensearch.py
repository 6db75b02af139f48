"""The proxy in front of a real OpenSearch, with a client that knows nothing of Swerve: `make test-opensearch`."""

from __future__ import annotations

import collections
import os
import random
import re
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from proxy.running import proxied
from service.running import Http, running
from tap import Tap

pytestmark = pytest.mark.opensearch

ENGINE = os.environ.get("OPENSEARCH_URL", "")
if not ENGINE:
    pytest.skip("no OpenSearch: OPENSEARCH_URL names none, and `make test-opensearch` started none", allow_module_level=True)
opensearchpy = pytest.importorskip("opensearchpy", reason="opensearch-py is not installed; `make test-opensearch` installs it")

from swerve.demo.clicks import TRAITS, clicked, user  # noqa: E402
from swerve.demo.corpus import documents  # noqa: E402

INDEX, MIXED, WINDOW = "demo", 10_000, 30
DOCUMENTS = {document.id: document for document in documents()}
#: An hour of the demo's users, and the minute in which the intent shifts.
USERS, SHIFT = 1500, 500
BEFORE, AFTER = {"cocktail": 0.8, "general": 0.2}, {"irma": 0.9, "general": 0.1}
#: Clicks come at once here, so that the policy need not wait for late ones; one capacity compiles.
CONFIG: dict[str, dict[str, Any]] = {
    "policy": {"spec": "swerve", "arms": 32, "grace_seconds": 0.0},
    "limits": {"candidates": 32},
    "server": {"port": 0, "deadline_ms": 2000.0},
}
SETTINGS = {"number_of_shards": 1, "number_of_replicas": 0}
FIELDS = {"title": {"type": "text"}, "text": {"type": "text"}, "meaning": {"type": "keyword"}, "quality": {"type": "float"}}
RULE = {"window": WINDOW, "indices": [INDEX], "strip": ["ext.ubi"]}


def client_of(port: int) -> Any:
    return opensearchpy.OpenSearch(
        hosts=[{"host": "127.0.0.1", "port": port}], pool_maxsize=1, max_retries=0, timeout=20, http_compress=False
    )


class Chain:
    """Client, tap, proxy, tap, engine; and the service."""

    def __init__(self, service: Any, proxy: Any, near: Tap, far: Tap) -> None:
        self.service, self.proxy, self.near, self.far = service, proxy, near, far
        self.client = client_of(near.port)
        self.direct = client_of(urlsplit(ENGINE).port or 9200)
        self.feedback = Http(service.port)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    far = Tap(urlsplit(ENGINE).port or 9200)
    with running(tmp_path_factory.mktemp("service"), CONFIG) as service:
        changes = {"proxy": {"rules": [RULE], "timeout_seconds": 20.0}, "policy": CONFIG["policy"]}
        with proxied(tmp_path_factory.mktemp("proxy"), far.port, service.port, changes) as proxy:
            near = Tap(proxy.port)
            made = Chain(service, proxy, near, far)
            made.direct.indices.delete(index=f"{INDEX},other", ignore_unavailable=True)
            made.client.indices.create(index=INDEX, body={"settings": SETTINGS, "mappings": {"properties": FIELDS}})
            lines: list[Any] = []
            for document in DOCUMENTS.values():
                lines += [
                    {"index": {"_index": INDEX, "_id": document.id}},
                    {"title": document.title, "text": document.text, "meaning": document.meaning, "quality": document.quality},
                ]
            assert not made.client.bulk(body=lines, refresh=True)["errors"]
            yield made
            for one in (made.client, made.direct):
                one.close()
            made.feedback.close()
            near.close()
    far.close()


def search(text: str, session: str | None = None, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"query": {"multi_match": {"query": text, "fields": ["title^2", "text"]}}, **more}
    if session is not None:
        body["ext"] = {"ubi": {"client_id": session, "user_query": text, "query_id": f"q-{session}"}}
    return body


def mixed(client: Any, rng: random.Random, number: int) -> str:
    """Send one request of the kinds that an application sends besides searches; return its kind."""
    kinds = {
        "bulk": lambda: client.bulk(
            body=[{"index": {"_index": "other", "_id": str(rng.randrange(500))}}, {"n": number, "t": "x" * rng.randrange(2000)}]
        ),
        "get": lambda: client.get(index=INDEX, id=rng.choice(list(DOCUMENTS))),
        "missing": lambda: client.get(index=INDEX, id=f"missing-{number}"),
        "mapping": lambda: client.indices.get_mapping(index=INDEX),
        "aggregations": lambda: client.search(
            index=INDEX, body={"size": 0, "aggs": {"m": {"terms": {"field": "meaning"}}, "q": {"avg": {"field": "quality"}}}}
        ),
        "sorted": lambda: client.search(
            index=INDEX, body=search("hurricane", sort=[{"quality": "desc"}], size=rng.randrange(1, 20))
        ),
        "deep": lambda: client.search(index=INDEX, body=search("hurricane", **{"from": WINDOW + rng.randrange(20)})),
        "all": lambda: client.search(index=INDEX, body={"query": {"match_all": {}}, "size": rng.randrange(1, 50)}),
        "msearch": lambda: client.msearch(
            body=[{"index": INDEX}, {"query": {"match_all": {}}, "size": 2}, {"index": "other"}, {"size": 1}]
        ),
        "exists": lambda: client.exists(index=INDEX, id="hurricane-irma"),
        "no index": lambda: client.search(index="nowhere", body={"query": {"match_all": {}}}),
        "no query": lambda: client.search(index=INDEX, body={"query": {"nonsense": {}}}),
        "count": lambda: client.count(index=INDEX, body={"query": {"match": {"text": "storm"}}}),
        "cat": lambda: client.cat.indices(format="text"),
        "health": lambda: client.cluster.health(),
        "update": lambda: client.update(index="other", id="1", body={"doc": {"n": number}, "doc_as_upsert": True}),
        "delete": lambda: client.delete(index="other", id=str(rng.randrange(1000))),
    }
    kind = rng.choice([*kinds, "scroll"])
    try:
        if kind == "scroll":
            page = client.search(index=INDEX, body={"query": {"match_all": {}}, "size": 20}, scroll="1m")
            client.scroll(body={"scroll_id": page["_scroll_id"], "scroll": "1m"})
            client.clear_scroll(body={"scroll_id": [page["_scroll_id"]]})
        else:
            kinds[kind]()
    except opensearchpy.exceptions.TransportError as error:
        kind = f"{kind} {error.status_code}"
    return kind


def test_ten_thousand_mixed_requests_pass_byte_for_byte(chain):
    """What the client got is what the engine said; what the engine got is what the client sent, without `connection`."""
    rng, kinds = random.Random(16), collections.Counter()
    chain.near.forget()
    chain.far.forget()
    for number in range(MIXED):
        kinds[mixed(chain.client, rng, number)] += 1
    assert sum(kinds.values()) == MIXED and {"missing 404", "no index 404", "no query 400", "scroll", "bulk"} <= set(kinds)
    assert len(chain.near.received) > 10_000_000
    assert chain.near.received == chain.far.received
    plain = re.sub(rb"\r\nconnection: keep-alive(?=\r\n)", b"", bytes(chain.near.sent), flags=re.IGNORECASE)
    assert plain == bytes(chain.far.sent)


def test_re_ranked_answers_differ_only_as_documented(chain):
    for number, (text, size) in enumerate(
        [(text, size) for text in ("hurricane", "jaguar", "java", "delta") for size in (5, 10, 20)]
    ):
        aggregations = {"m": {"terms": {"field": "meaning"}}}
        ours = chain.client.search(index=INDEX, body=search(text, f"d{number}", size=size, aggs=aggregations))
        window = chain.direct.search(index=INDEX, body=search(text, size=WINDOW, aggs=aggregations))
        theirs = chain.direct.search(index=INDEX, body=search(text, size=size, aggs=aggregations))
        said = ours.pop("ext")["swerve"]
        assert said["decision"] and said["query_id"] == f"q-d{number}"
        hits, other = ours["hits"].pop("hits"), theirs["hits"].pop("hits")
        ours.pop("took"), theirs.pop("took")
        assert ours == theirs
        assert [one["_score"] for one in hits] == [one["_score"] for one in other]
        whole = {one["_id"]: one for one in window["hits"]["hits"]}
        assert all({**whole[one["_id"]], "_score": 0} == {**one, "_score": 0} for one in hits)


def test_pages_never_repeat_a_result(chain):
    pages = [
        chain.client.search(index=INDEX, body=search("hurricane", "pages", **{"from": at, "size": 7}))["hits"]["hits"]
        for at in range(0, 42, 7)
    ]
    ids = [one["_id"] for page in pages for one in page]
    assert len(ids) == len(set(ids))
    total = chain.direct.search(index=INDEX, body=search("hurricane", size=42))["hits"]["hits"]
    assert set(ids) == {one["_id"] for one in total}


def test_the_order_follows_a_shift_in_an_hour_of_the_demos_users(chain):
    rng, tops = random.Random(7), []
    for number in range(USERS):
        shares = BEFORE if number < SHIFT else AFTER
        answer = chain.client.search(index=INDEX, body=search("hurricane", f"user-{number}", size=10))
        ranking = [DOCUMENTS[one["_id"]] for one in answer["hits"]["hits"]]
        one = user("hurricane", shares, [rng.random() for _ in range(TRAITS + len(ranking))])
        at = clicked(one, ranking)
        tops.append(ranking[0].meaning)
        decision = answer["ext"]["swerve"]["decision"]
        assert chain.feedback.feedback(decision, None if at < 0 else ranking[at].id).status == 200
    before, after = tops[SHIFT - 100 : SHIFT], tops[-200:]
    print("top before", collections.Counter(before), "after", collections.Counter(after))
    assert before.count("cocktail") > 60
    assert after.count("irma") > 120


def test_killing_the_service_breaks_no_search(chain):
    port = chain.service.port
    chain.service.kill()
    ours = chain.client.search(index=INDEX, body=search("jaguar", "killed"))
    theirs = chain.direct.search(index=INDEX, body=search("jaguar"))
    assert ours["hits"] == theirs["hits"] and "ext" not in ours
    chain.service.start("--port", str(port))


def test_an_engine_that_goes_and_comes_back_is_noticed_at_once(chain):
    chain.far.cut()
    for body in (search("jaguar", "cut"), {"size": 0}):
        with pytest.raises(opensearchpy.exceptions.TransportError) as error:
            chain.client.search(index=INDEX, body=body)
        assert error.value.status_code == 502
    chain.far.cut_off = False
    assert chain.client.search(index=INDEX, body=search("jaguar", "mended"))["hits"]["hits"]
    assert urllib.request.urlopen(ENGINE, timeout=5).status == 200


def test_the_engine_alone_refuses_what_the_proxy_strips(chain):
    with pytest.raises(opensearchpy.exceptions.RequestError):
        chain.direct.search(index=INDEX, body=search("jaguar", "ubi"))
