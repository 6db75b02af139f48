"""Shadow mode over HTTP: the given order is shown, clicks on it are learnt, and the report says what the policy would have done."""

from __future__ import annotations

import pytest
from service.running import Http, running

CONFIG = {"policy": {"mode": "shadow", "slots": 3, "seed": 5}}
OFFER = ["a", "b", "c", "d"]

pytestmark = pytest.mark.usefixtures("unharmed")


def shadow(client: Http, query: str, clicked: str | None = None, session: str | None = None, offer: list[str] = OFFER) -> dict:
    more = {} if session is None else {"session": session}
    answer = client.rank(query, offer, **more).json
    if clicked is not None:
        assert client.feedback(answer["decision"], clicked).json["status"] in ("learned", "ignored")
    return answer


def test_the_given_order_is_shown_and_learnt_from(client):
    for number in range(60):
        answer = shadow(client, "storm", "a" if number % 2 else None, f"s{number}")
        assert answer["ranking"] == OFFER and answer["propensities"] == [1.0] * 3
        assert answer["shadow"] and not answer["degraded"] and answer["explored"] is None
    arms = {arm["id"]: arm for arm in client.query("storm").json["arms"]}
    assert (arms["a"]["plays"], arms["a"]["clicks"], arms["a"]["phase_clicks"]) == (60, 30, 30)


def test_the_report_says_how_often_and_how_it_would_have_differed(client):
    """`b` is on top and never clicked; where it is offered below `a`, the policy has learnt to show `a` first."""
    before = client.call("GET", "/v1/shadow").json
    for number in range(80):
        shadow(client, "learns", "a", f"x{number}")
        shadow(client, "learns", None, f"y{number}", ["b", "a", "c", "d"])
    after = client.call("GET", "/v1/shadow").json
    assert after["mode"] == "shadow" and after["since"] == before["since"] > 1e9
    assert after["rankings"] - before["rankings"] == 160
    assert after["differs"] >= after["top_differs"] > before["top_differs"]
    line = max(after["queries"], key=lambda one: one["rankings"])
    assert line["rankings"] == 160 and 160 >= line["differs"] >= line["top_differs"] > 30
    assert line["shown"] == ["b", "a", "c"] and len(line["choice"]) == 3 and set(line["choice"]) <= set(OFFER)
    assert client.call("GET", "/v1/shadow?limit=1").json["queries"] == [after["queries"][0]]
    lines = client.call("GET", "/metrics").body.decode().splitlines()
    counts = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith("swerve_shadow_total")}
    assert sum(counts.values()) == after["rankings"]
    assert counts['swerve_shadow_total{outcome="top"}'] == after["top_differs"]


def test_a_session_that_repeats_its_request_is_one_impression(client):
    before = client.call("GET", "/v1/shadow").json["rankings"]
    first, again = shadow(client, "steady", session="s"), shadow(client, "steady", session="s")
    assert first["decision"] == again["decision"]
    assert client.call("GET", "/v1/shadow").json["rankings"] == before + 1


def test_rules_hold_in_shadow_mode(client):
    rule = client.call("POST", "/v1/rules", {"kind": "pin", "result": "d", "position": 1, "query": "ruled"}).json
    answer = shadow(client, "ruled", "a")
    assert answer["ranking"] == ["d", "a", "b", "c"] and answer["ruled"][0]["kind"] == "pin" and answer["shadow"]
    assert client.call("DELETE", f"/v1/rules/{rule['id']}").status == 200
    assert shadow(client, "ruled")["ranking"] == OFFER


def test_a_batch_is_its_requests_one_by_one(client):
    asked = [{"query": f"batch {number % 3}", "candidates": OFFER} for number in range(20)]
    before = client.call("GET", "/v1/shadow").json["rankings"]
    for answer in client.call("POST", "/v1/rank/batch", asked).json:
        assert answer["ranking"] == OFFER and answer["shadow"]
    after = client.call("GET", "/v1/shadow").json
    assert after["rankings"] == before + 20
    assert all(sorted(set(line["choice"])) == sorted(line["choice"]) for line in after["queries"])


def test_the_report_names_queries_by_their_texts_where_they_are_kept(tmp_path):
    with running(tmp_path, {**CONFIG, "store": {"store_queries": True}}) as service:
        client = service.client()
        for number in range(5):
            client.rank("Winter Boots", OFFER, session=f"s{number}", locale="de")
        (line,) = client.call("GET", "/v1/shadow").json["queries"]
        assert (line["query"], line["parts"], line["rankings"]) == ("winter boots", {"locale": "de"}, 5)
    with running(tmp_path / "without", CONFIG) as service:
        client = service.client()
        client.rank("Winter Boots", OFFER)
        (line,) = client.call("GET", "/v1/shadow").json["queries"]
        assert "query" not in line and len(line["key"]) == 32
