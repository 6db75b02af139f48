"""Searches that a rule concerns: what is asked of the engine, what differs in the answer, pages, sessions."""

from __future__ import annotations

import gzip
import json

import pytest
from proxy.stub import Client, Reply, answer, encoded, headers

WINDOW = 8  # the candidates that the small service takes
RULES = [
    {
        "name": "main",
        "indices": ["shop*"],
        "requests": ["search", "msearch"],
        "session": ["header:x-session", "cookie:sid", "ext.ubi.client_id"],
        "strip": ["ext.ubi"],
        "entry": 1,
    },
    {"name": "marked", "indices": ["multi"], "where": {"ext.list": "true"}, "strip": ["ext.list"], "requests": ["msearch"]},
    {"name": "template", "indices": ["tpl"], "requests": ["template"], "query": ["params.q"], "session": ["header:x-session"]},
    {"name": "sku", "indices": ["bysku"], "id": "_source.sku", "session": ["header:x-session"], "scores": False},
]


def search(text: str = "boots", **more: object) -> dict[str, object]:
    return {"query": {"match": {"title": text}}, **more}


@pytest.fixture
def client(whole, clients) -> Client:
    return clients(whole.proxy)


@pytest.fixture
def direct(stub, clients) -> Client:
    return clients(stub.port)


def asked(stub) -> str:
    """Return the last request line that the engine got."""
    return stub.seen[-1][0].split(b"\r\n")[0].decode()


def differs_only_as_documented(got: Reply, plain: Reply) -> None:
    """Check a re-ranked page against the engine's own: the order, the scores by position, `ext.swerve`, and nothing else."""
    ours, theirs = got.json, plain.json
    said = ours["ext"].pop("swerve")
    if not ours["ext"]:
        del ours["ext"]
    assert said["decision"] == got.headers["x-swerve-decision"]
    hits, other = ours["hits"].pop("hits"), theirs["hits"].pop("hits")
    assert ours == theirs
    assert [one["_score"] for one in hits] == [one["_score"] for one in other]
    for one in (*hits, *other):
        del one["_score"]
    assert sorted(hits, key=str) == sorted(other, key=str)
    changed = {"content-length", "x-swerve-decision"}
    assert {k: v for k, v in got.headers.items() if k not in changed} == {
        k: v for k, v in plain.headers.items() if k not in changed
    }


def test_a_search_is_re_ranked_and_nothing_else_of_its_answer_changes(stub, client, direct):
    orders = set()
    for number in range(8):
        got = client.call("POST", "/shop/_search", search("many", size=WINDOW), x_session=f"u{number}")
        differs_only_as_documented(got, direct.call("POST", "/shop/_search", search("many", size=WINDOW)))
        orders.add(tuple(got.ids))
        for exact in (b'"big":12345678901234567890', b'"aggregations":{"prices":{"value":1e-07,', b'"price":19.0'):
            assert exact in got.said
    assert len(orders) > 1  # the policy explores


def test_highlights_suggestions_and_profiles_are_the_engines(stub, client, direct):
    stub.changed = lambda path, found: {**found, "suggest": {"s": [{"text": "bots", "options": []}]}, "profile": {"shards": []}}
    body = search("lit", size=WINDOW, highlight={"fields": {"title": {}}}, suggest={}, profile=True)
    got = client.call("POST", "/shop/_search", body, x_session="lit")
    differs_only_as_documented(got, direct.call("POST", "/shop/_search", body))
    assert all(one["_source"]["title"] in one["highlight"]["title"][0] for one in got.json["hits"]["hits"])


def test_hits_without_scores_are_re_ranked_too(stub, client):
    def unscored(path, found):
        found["hits"]["hits"] = [{**one, "_score": None} for one in found["hits"]["hits"]]
        return found

    stub.changed = unscored
    got = client.call("POST", "/shop/_search", search("unscored", size=WINDOW), x_session="n")
    assert sorted(got.ids) == [f"d{n}" for n in range(WINDOW)] and "x-swerve-decision" in got.headers
    assert {one["_score"] for one in got.json["hits"]["hits"]} == {None}


def test_clicks_for_the_decision_in_the_answer_are_learnt(stub, whole, client):
    service, top = whole.client(), []
    for number in range(120):
        got = client.call("POST", "/shop/_search", search("learn", size=5), x_session=f"l{number}")
        top.append(got.ids[0])
        decision = got.json["ext"]["swerve"]["decision"]
        clicked = "d4" if "d4" in got.ids else None
        assert service.feedback(decision, clicked).json["status"] == "learned"
    assert top[-30:].count("d4") > 20


def test_pages_of_a_session_never_repeat_a_result(stub, client, direct):
    pages = [
        client.call("POST", "/shop/_search", search("paged", **{"from": at, "size": 3}), cookie="a=b; sid=p1")
        for at in (0, 3, 6, 9)
    ]
    assert [one for page in pages for one in page.ids][WINDOW:] == [
        "d8",
        "d9",
        "d10",
        "d11",
    ]  # behind the window: as the engine has them
    assert sorted(one for page in pages for one in page.ids) == sorted(f"d{n}" for n in range(12))
    lines = [head.split(b"\r\n")[0].decode() for head, _ in stub.seen]
    assert lines == [
        "POST /shop/_search?from=0&size=8 HTTP/1.1",
        "POST /shop/_search?from=0&size=8 HTTP/1.1",
        "POST /shop/_search?from=0&size=9 HTTP/1.1",
        "POST /shop/_search HTTP/1.1",  # begins behind the window: untouched
    ]
    assert len({page.headers["x-swerve-decision"] for page in pages[:3]}) == 1
    assert "x-swerve-decision" not in pages[3].headers
    again = [client.call("POST", "/shop/_search", search("paged", **{"from": at, "size": 3}), cookie="sid=p1") for at in (3, 0, 6)]
    assert [page.ids for page in again] == [pages[1].ids, pages[0].ids, pages[2].ids]
    plain = direct.call("POST", "/shop/_search", search("paged", **{"from": 9, "size": 3}))
    assert pages[3].said == plain.said


def test_a_result_that_goes_moves_no_other(stub, client):
    first = client.call("POST", "/shop/_search", search("moving", size=4), x_session="m")
    rest = client.call("POST", "/shop/_search", search("moving", **{"from": 4, "size": 4}), x_session="m")
    gone = first.ids[1]

    def without(path, found):
        hits = [one for one in found["hits"]["hits"] if one["_id"] != gone]
        found["hits"]["hits"] = [*hits, {**stub.documents[15]}][:WINDOW]
        return found

    stub.changed = without
    assert client.call("POST", "/shop/_search", search("moving", **{"from": 4, "size": 4}), x_session="m").ids == rest.ids


def test_a_page_in_the_url_goes_before_the_body(stub, client):
    got = client.call("GET", "/shop/_search?q=url&%66rom=2&size=2&timeout=1s", x_session="u")
    assert asked(stub) == "GET /shop/_search?q=url&timeout=1s&from=0&size=8 HTTP/1.1"
    assert len(got.ids) == 2 and "x-swerve-decision" in got.headers


def test_the_parameters_that_clients_always_send_are_no_obstacle(stub, client):
    always = "typed_keys=true&max_concurrent_shard_requests=5&search_type=query_then_fetch&batched_reduce_size=512"
    assert "x-swerve-decision" in client.call("POST", f"/shop/_search?{always}", search("java"), x_session="j").headers
    assert asked(stub) == f"POST /shop/_search?{always} HTTP/1.1"  # ten hits hold the whole window: the page is the same


def test_without_a_session_only_the_first_page_is_re_ranked(stub, client, direct):
    first = client.call("POST", "/shop/_search", search("nobody"))
    assert sorted(first.ids[:WINDOW]) == [f"d{n}" for n in range(WINDOW)] and first.ids[WINDOW:] == ["d8", "d9"]
    assert asked(stub) == "POST /shop/_search HTTP/1.1"
    second = search("nobody", **{"from": 10})
    assert client.call("POST", "/shop/_search", second).raw == direct.call("POST", "/shop/_search", second).raw


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/shop/_search", search(sort=[{"price": "asc"}])),
        ("/shop/_search", search(collapse={"field": "sku"})),
        ("/shop/_search", search(search_after=[1])),
        ("/shop/_search", search(pit={"id": "x"})),
        ("/shop/_search", search(rescore={"query": {}})),
        ("/shop/_search", search(size=0, aggs={})),
        ("/shop/_search", search(**{"from": WINDOW})),
        ("/shop/_search", search(**{"from": -1})),
        ("/shop/_search", search(size=9999, **{"from": 2})),
        ("/shop/_search", {"query": {"match_all": {}}}),
        ("/shop/_search?scroll=1m", search()),
        ("/shop/_search?sort=price", search()),
        ("/shop/_search?filter_path=hits.hits._source", search()),
        ("/shop/_search?search_type=scan", search()),
        ("/other/_search", search()),
        ("/shop,other/_search", search()),
        ("/_search", search()),
    ],
)
def test_what_the_engine_alone_can_order_passes_untouched(stub, client, direct, path, body):
    got, plain = client.call("POST", path, body, x_session="s"), direct.call("POST", path, body, x_session="s")
    assert (got.head, got.raw) == (plain.head, plain.raw)
    (one, raw), (two, other) = stub.seen
    assert (one, raw) == (two, other)


def test_own_scores_are_kept_with_track_scores_and_explain(stub, client):
    scores = {one["_id"]: one["_score"] for one in stub.documents}
    moved = 0
    for number in range(8):
        for extra in ({"track_scores": True}, {"explain": True}):
            got = client.call("POST", "/shop/_search", search("tracked", size=WINDOW, **extra), x_session=f"t{number}")
            hits = got.json["hits"]["hits"]
            assert {one["_id"]: one["_score"] for one in hits} == {f"d{n}": scores[f"d{n}"] for n in range(WINDOW)}
            moved += got.ids != [f"d{n}" for n in range(WINDOW)]
    assert moved


def test_pinned_results_stay_on_top(stub, client):
    organic = {"match": {"title": "pinned"}}
    for number in range(6):
        got = client.call(
            "POST", "/shop/_search", {"query": {"pinned": {"ids": ["d0", "d1"], "organic": organic}}}, x_session=f"p{number}"
        )
        assert got.ids[:2] == ["d0", "d1"] and "x-swerve-decision" in got.headers
        assert sorted(got.ids) == sorted(f"d{n}" for n in range(10))


def test_one_entry_of_an_msearch_is_re_ranked_and_the_others_keep_their_bytes(stub, client, direct):
    lines = [{"index": "shop"}, search("ms", size=6), {}, search("other"), {"index": "shop"}, search("third", sort=["price"])]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    got, plain = client.call("POST", "/shop/_msearch", body, x_session="ms"), direct.call("POST", "/shop/_msearch", body)
    ours, theirs = got.json["responses"], plain.json["responses"]
    assert ours[1:] == theirs[1:]
    assert ours[0].pop("ext") == {"swerve": {"decision": got.headers["x-swerve-decision"], "rule": "main"}}
    assert {one["_id"] for one in ours[0]["hits"]["hits"]} <= {f"d{n}" for n in range(WINDOW)} and len(ours[0]["hits"]["hits"]) == 6
    sent = stub.seen[0][1].split(b"\n")
    assert sent[2:] == body.split(b"\n")[2:]
    assert json.loads(sent[1]) == search("ms", size=WINDOW, **{"from": 0})


def test_an_entry_of_an_msearch_is_found_by_its_mark(stub, client):
    lines = [{}, search("a"), {}, {**search("b"), "ext": {"list": True}}]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    got = client.call("POST", "/multi/_msearch", body)
    assert ["ext" in one for one in got.json["responses"]] == [False, True]
    assert json.loads(stub.seen[-1][1].split(b"\n")[3]) == search("b")


def test_a_template_is_asked_for_the_window_by_its_parameters(stub, client):
    got = client.call("POST", "/tpl/_search/template", {"id": "t", "params": {"q": "tpl", "from": 2, "size": 2}}, x_session="t")
    assert json.loads(stub.seen[-1][1]) == {"id": "t", "params": {"q": "tpl", "from": 0, "size": WINDOW}}
    assert len(got.ids) == 2 and got.json["ext"]["swerve"]["rule"] == "template"


def test_ubi_is_stripped_and_its_query_id_is_in_the_answer(stub, client):
    ubi = {"query_id": "q-7", "client_id": "c-1", "user_query": "ubi text"}
    got = client.call("POST", "/shop/_search", {"query": {"match_all": {}}, "ext": {"ubi": ubi}})
    assert got.json["ext"]["swerve"]["query_id"] == "q-7"
    assert json.loads(stub.seen[-1][1]) == {"query": {"match_all": {}}}
    plain = client.call("POST", "/shop/_search", {**search(sort=["price"]), "ext": {"ubi": ubi, "more": 1}})
    assert plain.status == 200 and "ext" not in plain.json  # not re-ranked, but the engine would refuse it
    assert json.loads(stub.seen[-1][1]) == {**search(sort=["price"]), "ext": {"more": 1}}


def test_ext_of_the_engine_is_kept(stub, client):
    stub.changed = lambda path, found: {**found, "ext": {"ubi": {"query_id": "made"}}}
    got = client.call("POST", "/shop/_search", search("ext"), x_session="e")
    assert got.json["ext"]["ubi"] == {"query_id": "made"} and got.json["ext"]["swerve"]["decision"]


def test_compressed_requests_are_read_and_answers_compressed_for_who_accepts_it(stub, client):
    body = gzip.compress(encoded(search("packed")))
    got = client.call(
        "POST",
        "/shop/_search",
        body,
        content_type="application/json",
        content_encoding="gzip",
        accept_encoding="gzip",
        x_session="z",
    )
    assert got.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(got.raw))["ext"]["swerve"]["decision"] == got.headers["x-swerve-decision"]
    seen, raw = stub.seen[-1]
    assert "accept-encoding" not in headers(seen) and raw == body


def test_results_are_known_by_another_field(stub, whole, client):
    got = client.call("POST", "/bysku/_search", search("sku"), x_session="k")
    state = whole.client().query("sku").json
    assert {one["id"] for one in state["arms"]} == {f"s{n}" for n in range(WINDOW)} and len(got.ids) == 10


def test_what_an_operator_blocks_is_on_no_page(stub, whole, client):
    rule = whole.client().call("POST", "/v1/rules", {"kind": "block", "result": "d2", "query": "blocked"}).json
    try:
        pages = [client.call("POST", "/shop/_search", search("blocked", **{"from": at, "size": 4}), x_session="b") for at in (0, 4)]
        assert sorted(one for page in pages for one in page.ids) == sorted(f"d{n}" for n in range(WINDOW) if n != 2)
    finally:
        whole.client().call("DELETE", f"/v1/rules/{rule['id']}")


def test_a_page_without_a_blocked_result_is_short_and_repeats_nothing(stub, whole, client):
    rule = whole.client().call("POST", "/v1/rules", {"kind": "block", "result": "d2", "query": "short"}).json
    try:
        pages = [
            client.call("POST", "/shop/_search", search("short", **{"from": at, "size": 3}), x_session="sh") for at in (0, 3, 6, 9)
        ]
        assert [len(page.ids) for page in pages] == [3, 3, 2, 3]
        assert sorted(one for page in pages for one in page.ids) == sorted(f"d{n}" for n in range(12) if n != 2)
    finally:
        whole.client().call("DELETE", f"/v1/rules/{rule['id']}")


def test_a_blocked_result_that_falls_behind_the_window_stays_away(stub, whole, client):
    rule = whole.client().call("POST", "/v1/rules", {"kind": "block", "result": "d2", "query": "falls"}).json
    try:
        first = client.call("POST", "/shop/_search", search("falls", size=6), x_session="f")
        assert "d2" not in first.ids

        def fallen(path, found):
            hits = found["hits"]["hits"]
            found["hits"]["hits"] = [*hits[:2], *hits[3 : WINDOW + 1], hits[2], *hits[WINDOW + 1 :]]
            return found

        stub.changed = fallen
        rest = client.call("POST", "/shop/_search", search("falls", **{"from": 6, "size": 6}), x_session="f")
        assert "x-swerve-decision" in rest.headers and "d2" not in rest.ids and not set(rest.ids) & set(first.ids)
    finally:
        whole.client().call("DELETE", f"/v1/rules/{rule['id']}")


@pytest.mark.parametrize("as_number", [False, True])
def test_an_engine_that_ignores_the_window_is_asked_again_as_the_request_came(stub, client, direct, as_number):
    def own_page(path, found):  # as if the parameters of the URL were not read: the page of the body
        found["hits"]["hits"] = stub.documents[4:7]
        if as_number:
            found["hits"]["total"] = stub.count
        return found

    stub.changed = own_page
    body = search("ignored", **{"from": 4, "size": 3})
    got, plain = client.call("POST", "/shop/_search", body, x_session=f"i{as_number}"), direct.call("POST", "/shop/_search", body)
    assert (got.head, got.raw) == (plain.head, plain.raw) and got.ids == ["d4", "d5", "d6"]


def test_few_results_are_a_whole_window(stub, client):
    def few(path, found):
        found["hits"]["hits"] = stub.documents[:5]
        found["hits"]["total"]["value"] = 5
        return found

    stub.changed = few
    got = client.call("POST", "/shop/_search", search("few", **{"from": 2, "size": 3}), x_session="few")
    assert "x-swerve-decision" in got.headers and len(got.ids) == 3 and len(stub.seen) == 1


@pytest.mark.parametrize(
    "rubbish",
    [
        answer(b"not json"),
        answer(b"[]"),
        answer(b'{"hits":{"hits":[{"no":"id"}]}}'),
        answer(b'{"hits":{"hits":[{"_id":"a"},{"_id":"a"}]}}'),
        answer(b'{"hits":{"hits":{}}}'),
        answer(b'{"hits":{"hits":[{"_id":"a"},{"_id":"b"}]},"ext":7}'),
        answer(b'{"error":"x"}', b"500 Internal Server Error"),
        answer(gzip.compress(b"{}"), b"200 OK", b"content-encoding: gzip"),
        answer(b"a: b", kind=b"application/yaml"),
        answer(b'{"hits":{"hits":[' + b" " * 3_000_000 + b"]}}"),
    ],
)
def test_rubbish_of_the_engine_passes_as_it_is(stub, client, rubbish):
    stub.prepared["rubbish"] = [rubbish]
    got = client.call("POST", "/shop/_search", search("rubbish", **{"from": 2}), x_session="r", x_case="rubbish")
    assert got.head + got.raw == rubbish
    lines = [head.split(b"\r\n")[0].decode() for head, _ in stub.seen]
    assert lines == ["POST /shop/_search?from=0&size=12 HTTP/1.1", "POST /shop/_search HTTP/1.1"]  # asked again as it came


def test_searches_of_a_session_that_repeats_itself_are_one_decision(stub, client):
    answers = [client.call("POST", "/shop/_search", search("steady"), x_session="same") for _ in range(5)]
    assert len({one.headers["x-swerve-decision"] for one in answers}) == 1
    assert len({one.raw for one in answers}) == 1


def test_the_metrics_of_the_service_count_what_passed(whole, client):
    client.call("GET", "/x")
    text = whole.client().call("GET", "/metrics").body.decode()
    figures = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("swerve_proxy")
    }
    assert figures['swerve_proxy_requests_total{outcome="streamed"}'] >= 1
    assert figures['swerve_proxy_requests_total{outcome="reranked"}'] >= 1
    assert figures["swerve_proxy_connections"] >= 1
