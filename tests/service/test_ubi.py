"""User Behavior Insights: what its collectors send, in the shapes in which they send it."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from service.running import Answer, Http, Running, running

from swerve.service.secrets import new_key
from swerve.serving.ubi import QueryIds

SEARCH = "https://search.example.com"
KEY = new_key("shop")
CONFIG: dict[str, dict[str, Any]] = {
    "server": {"origins": [SEARCH]},
    "ubi": {"enabled": True, "clicks": ["click", "Product_Click"]},
    "feedback": {"events": {"cart": {"weight": 1.0}}},
    "limits": {"beacon_rate": 100_000.0},
    "security": {"api_keys": [{"name": KEY.entry.name, "hash": KEY.entry.hash}]},
    "log": {"level": "debug"},
}


@pytest.fixture(scope="module")
def shop(served: Running) -> Http:
    return served.client(KEY.text)


@pytest.fixture
def page(served: Running) -> Http:
    return served.client()


def send(page: Http, path: str, body: Any, kind: str = "application/json") -> Answer:
    return page.call("POST", path, json.dumps(body).encode(), {"Content-Type": kind, "Origin": SEARCH})


def counted(shop: Http, route: str, outcome: str) -> float:
    text = shop.call("GET", "/metrics").body.decode()
    found = re.search(rf'^swerve_beacons_total{{route="{route}",outcome="{outcome}"}} (\S+)$', text, re.M)
    return float(found[1]) if found else 0.0


def asked(shop: Http, query: str, **more: Any) -> tuple[str, dict[str, Any]]:
    name = str(uuid.uuid4())
    answer = shop.rank(query, ["7", "b", "c"], query_id=name, **more)
    assert answer.status == 200 and not answer.json["degraded"]
    return name, answer.json


def event(name: Any, action: str = "click", **attributes: Any) -> dict[str, Any]:
    """An event as the collector makes it."""
    return {
        "application": "shop",
        "action_name": action,
        "query_id": name,
        "client_id": "c-1",
        "session_id": "s-1",
        "timestamp": "2024-09-26T14:00:00.123Z",
        "message_type": "CLICK_THROUGH",
        "message": "clicked",
        "event_attributes": attributes,
    }


def test_a_click_finds_its_decision_by_the_query_id(shop: Http, page: Http):
    name, ranked = asked(shop, "ubi one")
    top = ranked["ranking"][0]
    answer = send(page, "/ubi_events", [event(name, object={"object_id": top, "object_id_field": "_id"}, position={"ordinal": 1})])
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == SEARCH
    assert shop.clicks("ubi one") == {top: 1}
    send(page, "/ubi_events", [event(name, object={"object_id": top})])  # sent again
    assert shop.clicks("ubi one") == {top: 1}


def test_on_the_short_way_and_in_batches_the_query_id_is_remembered_too(shop: Http, page: Http):
    for _ in range(3):  # from the second on the row is in memory
        name, ranked = asked(shop, "ubi short")
        send(page, "/ubi_events", [event(name, object={"object_id": ranked["ranking"][0]})])
    assert sum(shop.clicks("ubi short").values()) == 3
    body = [{"query": "ubi batch", "candidates": ["a", "b"], "query_id": "in-a-batch"}]
    ranked = shop.call("POST", "/v1/rank/batch", body).json[0]
    send(page, "/ubi_events", event("in-a-batch", object={"object_id": ranked["ranking"][0]}))
    assert shop.clicks("ubi batch") == {ranked["ranking"][0]: 1}


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ("an id", {"object": {"object_id": "{top}"}}),
        ("an id beside a position that is wrong", {"object": {"object_id": "{top}"}, "position": {"ordinal": 0}}),
        ("keys with dots", {}),
        ("a position", {"position": {"ordinal": 1}}),
        ("a position as text", {"position": {"ordinal": "1"}}),
        ("the decision itself", {"object": {"object_id": "{top}"}, "decision": "{decision}"}),
        ("the decision in a table of its own", {"object": {"object_id": "{top}"}, "swerve": {"decision": "{decision}"}}),
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_clicks_in_many_shapes(shop: Http, page: Http, shape: str, attributes: dict[str, Any], kind: str):
    query = f"{shape} {kind}"
    name, ranked = asked(shop, query)
    top = ranked["ranking"][0]
    text = json.dumps(attributes).replace("{top}", top).replace("{decision}", ranked["decision"])
    one = event(None if "decision" in shape else name, "PRODUCT_CLICK", **json.loads(text))
    if shape == "keys with dots":
        one["event_attributes.object.object_id"] = top
    one["timestamp"] = {"an id": 1727359200123, "keys with dots": "26/Sep/2024:14:00:00 +0000"}.get(shape, "soon")
    assert send(page, "/ubi_events", [{"_source": one} if shape == "an id" else one], kind).status == 204
    assert shop.clicks(query) == {top: 1}


def test_an_action_named_like_a_kind_is_of_that_kind(shop: Http, page: Http):
    name, ranked = asked(shop, "ubi cart")
    send(page, "/ubi_events", [event(name, "cart", object={"object_id": ranked["ranking"][0]})])
    assert shop.clicks("ubi cart") == {ranked["ranking"][0]: 1}  # a cart of weight 1 counts as a click


def test_what_is_dropped_is_counted_by_its_reason_and_the_rest_is_taken(served: Running, shop: Http, page: Http):
    name, ranked = asked(shop, "ubi drops")
    top = ranked["ranking"][0]
    wrong = {
        "no_object": [7, None, "text", []],
        "no_action": [{"query_id": name}, {}],
        "other_action": [event(name, "on_search"), event(name, "purchase", object={"object_id": top})],
        "unknown_query": [event("never asked", object={"object_id": top}), event(17, object={"object_id": top})],
        "no_query": [event(None, object={"object_id": top}), event({"a": 1}, object={"object_id": top})],
        "no_result": [event(name), event(name, object=7, position="first"), {**event(name), "event_attributes": None}],
        "no_position": [
            event(name, position={"ordinal": 0}),
            event(name, position={"ordinal": 1.5}),
            event(name, position={"ordinal": 1e300}),
        ],
        "forged": [event(None, object={"object_id": top}, decision="A" * 132)],
    }
    before = {reason: counted(shop, "ubi_events", reason) for reason in [*wrong, "learned"]}
    entries = [one for some in wrong.values() for one in some]
    entries[-1]["message"] = "a secret text"
    body = [*entries, {**event(name, object={"object_id": top}), "user_query": "a secret text"}]
    assert send(page, "/ubi_events", body).status == 204
    after = {reason: counted(shop, "ubi_events", reason) for reason in [*wrong, "learned"]}
    assert {reason: after[reason] - before[reason] for reason in after} == {
        **{reason: len(some) for reason, some in wrong.items()},
        "learned": 1,
    }
    assert shop.clicks("ubi drops") == {top: 1}
    said = served.stderr()
    assert '"reason":"other_action"' in said and "action_name" in said  # an example of each reason, by its fields
    assert "a secret text" not in said and name not in said


def test_a_query_tells_the_decision_of_its_id(shop: Http, page: Http):
    answer = shop.rank("ubi told", ["a", "b"]).json  # by a program that knows no query_id
    name, top = str(uuid.uuid4()), answer["ranking"][0]
    query = {"query_id": name, "user_query": "ubi told", "client_id": "c", "query_response_hit_ids": answer["ranking"]}
    assert send(page, "/ubi_queries", [query]).status == 204
    send(page, "/ubi_events", [event(name, object={"object_id": top})])
    assert shop.clicks("ubi told") == {}
    taken, known, forged = (counted(shop, "ubi_queries", reason) for reason in ("taken", "known", "forged"))
    told = {**query, "query_attributes": {"decision": answer["decision"]}}
    other = {**query, "query_attributes": {"decision": shop.rank("another", ["a", "b"]).json["decision"]}}
    bad = {**query, "query_id": "bad", "query_attributes": {"decision": "A" * 132}}
    assert send(page, "/ubi_queries", [told, other, bad, 7]).status == 204
    assert [counted(shop, "ubi_queries", reason) for reason in ("taken", "known", "forged")] == [taken + 1, known + 1, forged + 1]
    send(page, "/ubi_events", [event(name, object={"object_id": top})])
    assert shop.clicks("ubi told") == {top: 1}
    assert shop.clicks("another") == {}  # the first one stays


def test_hostile_bodies_are_refused_and_do_no_harm(shop: Http, page: Http, unharmed: None):
    for path in ("/ubi_events", "/ubi_queries"):
        for body in (b"", b"{", b"\xff", b"[" * 30_000, b'{"a":' * 9000):
            assert page.call("POST", path, body, {"Content-Type": "application/json"}).status == 400, body[:20]
        assert page.call("POST", path, b"[" + b" " * 70_000 + b"]", {"Content-Type": "application/json"}).status == 413
        assert page.call("POST", path, b"[]", {"Content-Type": "application/x-www-form-urlencoded"}).status == 415
        for body in (b"[]", b"7", b"null", b'"text"', b"[[[]]]", b'{"query_id": ' + b"9" * 5000 + b"}", b"[1e999]"):
            status = 400 if b"9" in body else 204
            assert page.call("POST", path, body, {"Content-Type": "application/json"}).status == status, body[:20]
        deep = b'[{"action_name": "click", "event_attributes": ' + b'{"object":' * 200 + b"1" + b"}" * 200 + b"}]"
        assert page.call("POST", path, deep, {"Content-Type": "application/json"}).status == 204
        assert page.call("POST", path, b"[]", {"Content-Type": "application/json", "Origin": "https://evil.example"}).status == 403


@pytest.fixture
def unharmed(served: Running, shop: Http):
    yield
    assert not shop.rank("after all", ["a", "b"]).json["degraded"]
    assert '"level":"error"' not in served.stderr()


def test_a_query_id_must_be_a_text(shop: Http):
    for name in ("", "x" * 257, "a\0b"):
        answer = shop.call("POST", "/v1/rank", {"query": "q", "candidates": ["a"], "query_id": name})
        assert (answer.status, answer.json["error"]["field"]) == (422, "query_id")


def test_it_is_off_unless_it_is_configured_and_positions_may_begin_at_zero(tmp_path):
    with running(tmp_path) as service:
        client = service.client()
        for path in ("/ubi_events", "/ubi_queries"):
            answer = client.call("POST", path, [])
            assert (answer.status, answer.json["error"]["code"]) == (404, "off")
        assert client.rank("q", ["a", "b"], query_id="some").status == 200
        service.stop()
        service.configure({"ubi": {"enabled": True, "first_position": 0}})
        service.start()
        client = service.client()
        ranked = client.rank("q", ["a", "b"], query_id="some").json
        client.call("POST", "/ubi_events", [event("some", position={"ordinal": 0})])
        assert client.clicks("q") == {ranked["ranking"][0]: 1}


def test_the_memory_of_query_ids_is_bounded():
    known = QueryIds(most=100)
    for number in range(10_000):
        known.put(f"q{number}", "d")
        known.put("busy", f"d{number}")
    assert len(known._decisions) == 100
    assert (known.get("busy"), known.get("q9999"), known.get("q0"), known.get(None)) == ("d9999", "d", None, None)
