"""Beacons: feedback from a page that the user leaves, permitted by the signed decision alone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from service.running import Answer, Http, Running, running, said_of

from swerve.service.secrets import new_key
from swerve.service.throttle import Addresses

SEARCH = "https://search.example.com"
KEY = new_key("shop")
ENTRY = {"name": KEY.entry.name, "hash": KEY.entry.hash}
CONFIG: dict[str, dict[str, Any]] = {
    "server": {"origins": [SEARCH]},
    "feedback": {"beacon": True},
    "limits": {"beacon_bytes": 4096, "beacon_rate": 100_000.0, "beacon_burst": 0},
    "security": {"api_keys": [ENTRY]},
}


@pytest.fixture(scope="module")
def shop(served: Running) -> Http:
    """The application's server, which has a key."""
    return served.client(KEY.text)


@pytest.fixture
def page(served: Running) -> Http:
    """A browser, which has none."""
    return served.client()


def beacon(page: Http, body: Any, kind: str = "text/plain;charset=UTF-8", **headers: str) -> Answer:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return page.call("POST", "/v1/beacon", sent, {"Content-Type": kind, **headers})


def counted(shop: Http, outcome: str) -> float:
    text = shop.call("GET", "/metrics").body.decode()
    found = re.search(rf'^swerve_beacons_total{{route="beacon",outcome="{outcome}"}} (\S+)$', text, re.M)
    return float(found[1]) if found else 0.0


def decided(shop: Http, query: str) -> dict[str, Any]:
    answer = shop.rank(query, ["a", "b", "c"])
    assert answer.status == 200 and not answer.json["degraded"]
    return answer.json


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "application/json"])
def test_a_click_in_a_beacon_is_learnt_without_a_key(shop: Http, page: Http, kind: str):
    query = f"storm {kind}"
    ranked = decided(shop, query)
    top = ranked["ranking"][0]
    answer = beacon(page, said_of(ranked["decision"], top), kind, Origin=SEARCH)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == SEARCH
    assert "content-length" not in answer.headers and "content-type" not in answer.headers
    assert shop.clicks(query) == {top: 1}
    assert beacon(page, said_of(ranked["decision"], top), kind).status == 204  # a repeat
    assert shop.clicks(query) == {top: 1}


def test_a_list_of_forms_is_taken_one_by_one(shop: Http, page: Http):
    first, second = decided(shop, "list one"), decided(shop, "list two")
    forged, learned = counted(shop, "forged"), counted(shop, "learned")
    body = [
        said_of(first["decision"], first["ranking"][0]),
        said_of("A" * 132, "a"),
        {"decision": 7},
        said_of(second["decision"], second["ranking"][0]),
    ]
    invalid = counted(shop, "invalid")
    assert beacon(page, body).status == 204
    assert shop.clicks("list one") == {first["ranking"][0]: 1}
    assert shop.clicks("list two") == {second["ranking"][0]: 1}
    assert (counted(shop, "forged"), counted(shop, "invalid")) == (forged + 1, invalid + 1)
    assert counted(shop, "learned") == learned + 2


def test_an_answer_does_not_tell_a_good_decision_from_a_forged_one(shop: Http, page: Http):
    good = decided(shop, "good")
    changed = good["decision"][:-1] + ("A" if good["decision"][-1] != "A" else "B")
    answers = [beacon(page, said_of(token, good["ranking"][0])) for token in (good["decision"], changed, "A" * 132, "")]
    assert {(answer.status, answer.body) for answer in answers} == {(204, b"")}
    assert shop.clicks("good") == {good["ranking"][0]: 1}


@pytest.mark.parametrize(
    ("body", "kind", "status", "reason"),
    [
        (b"{", "text/plain", 400, "not_json"),
        (b"", "text/plain", 400, "not_json"),
        (b"7", "text/plain", 422, "invalid"),
        (b'{"decision": "x"}', "text/plain", 422, "invalid"),
        (b'{"decision": "x", "events": []},{"decision": "x", "events": []}', "text/plain", 400, "not_json"),
        (b"[" * 4000, "text/plain", 400, "not_json"),
        (b"\xff\xfe", "text/plain", 400, "not_json"),
        (b" " * 5000, "text/plain", 413, "too_large"),
        (b"{}", "application/x-www-form-urlencoded", 415, "not_json"),
        (b"{}", "multipart/form-data", 415, "not_json"),
    ],
)
def test_what_cannot_be_read_is_refused_and_counted(shop: Http, page: Http, body: bytes, kind: str, status: int, reason: str):
    before = counted(shop, reason)
    answer = beacon(page, body, kind)
    assert (answer.status, answer.json["error"]["code"]) == (status, reason)
    assert counted(shop, reason) == before + 1


def test_pages_of_other_origins_and_names_are_refused(shop: Http, page: Http):
    ranked = decided(shop, "others")
    click = said_of(ranked["decision"], ranked["ranking"][0])
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert beacon(page, click, **headers).status == 403
    assert beacon(page, click, Host="evil.example").status == 421
    assert shop.clicks("others") == {}


def test_every_other_route_still_needs_a_key(shop: Http, page: Http):
    ranked = decided(shop, "keyed")
    assert page.call("POST", "/v1/feedback", said_of(ranked["decision"], None)).status == 401
    answer = page.call(
        "POST", "/v1/feedback", json.dumps(said_of(ranked["decision"], None)).encode(), {"Content-Type": "text/plain"}
    )
    assert answer.status == 401


def test_it_is_off_unless_it_is_configured(tmp_path):
    with running(tmp_path) as service:
        client = service.client()
        ranked = client.rank("q", ["a", "b"]).json
        answer = beacon(client, said_of(ranked["decision"], ranked["ranking"][0]))
        assert (answer.status, answer.json["error"]["code"]) == (404, "off")
        assert client.clicks("q") == {}


def test_an_address_has_a_rate(tmp_path):
    limits = {"beacon_rate": 0.01, "beacon_burst": 5}
    with running(tmp_path, {"feedback": {"beacon": True}, "limits": limits}) as service:
        client = service.client()
        ranked = client.rank("q", ["a", "b"]).json
        click = said_of(ranked["decision"], ranked["ranking"][0])
        assert beacon(client, [click] * 3).status == 204
        refused = beacon(client, [click] * 3)  # the first is counted when it comes, the others when they are read
        assert refused.status == 429 and int(refused.headers["retry-after"]) > 1
        assert beacon(client, click).status == 204
        assert beacon(client, click).status == 429
        assert counted(client, "rate") == 2
        assert client.rank("q", ["a", "b"]).status == 200  # other routes go on


def test_memory_for_addresses_is_bounded_and_many_of_them_gain_nothing():
    now = [0.0]
    callers = Addresses(rate=1.0, burst=10, clock=lambda: now[0], most=100)
    taken = 0
    for number in range(10_000):  # more addresses than there are places, at one moment
        if not callers.retry(f"10.0.{number // 256}.{number % 256}", 1):
            callers.take(f"10.0.{number // 256}.{number % 256}", 1)
            taken += 1
    assert len(callers._each) == 100
    assert taken == 100 + 10  # one of each place, and the shared bucket of the rest
    now[0] = 60.0
    assert callers.retry("10.9.9.9", 10) == 0  # buckets that are full again give up their places
    assert len(callers._each) == 100
