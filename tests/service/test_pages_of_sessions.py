"""Rankings that Swerve did not make, orders that stay for a session, and the parts of a query's key, over HTTP."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from service.paging import (
    CONFIG as CONFIG,  # the service of these tests, see conftest.py
    PAGE,
    WINDOW,
    click,
    metric,
    observe,
    refused,
)
from service.running import Http, said_of


# ---------------------------------------------------------------------- observed rankings
def test_an_observed_ranking_teaches_and_takes_further_clicks(client):
    for number in range(30):
        said = observe(client, "observed", ["d", "a", "b"], click("d"), session=f"s{number}")
        assert (said.status, said.json["status"]) == (200, "learned")
        observe(client, "observed", ["a", "d", "b"], session=f"n{number}")
    tops = Counter(client.rank("observed", ["a", "b", "d"], session=f"r{number}").json["ranking"][0] for number in range(40))
    assert tops["d"] > 30 > tops["a"]
    said = observe(client, "further", PAGE, click("b"), session="s").json
    for event in (click("c"), click("b"), click(position=5)):
        assert client.events(said["decision"], event).json == {"status": "learned"}
    assert client.clicks("further") == {"b": 1, "c": 1, "e": 1}


def test_an_observed_ranking_is_not_what_a_session_is_shown_again(client):
    said = observe(client, "not again", PAGE[::-1], session="s").json
    assert client.rank("not again", PAGE, session="s").json["decision"] != said["decision"]


def test_when_an_observed_ranking_was_shown(client):
    now = time.time()
    for at in (now, now - WINDOW / 2, now + 5, datetime.fromtimestamp(now - 60, UTC).isoformat(), None):
        assert observe(client, "when", PAGE, at=at).status == 200, at
    early = datetime.fromtimestamp(now - WINDOW - 60, UTC).isoformat()
    for at in (now - WINDOW - 60, early):
        assert refused(observe(client, "when", PAGE, click("a"), at=at)) == (422, "too_old", "at")
    assert refused(observe(client, "when", PAGE, click("a"), at=now + 3600)) == (422, "in_the_future", "at")
    assert refused(observe(client, "when", ["a", "a"])) == (422, "repeated", "shown")
    assert refused(observe(client, "when", [])) == (422, "empty", "shown")
    client.rank("when", ["x"])
    for other in ("x", "never seen"):
        assert refused(observe(client, "when", PAGE, click("a"), click(other))) == (422, "not_offered", "events[1].result")
    assert client.query("when").json["requests"] == 6  # what is refused does not count as shown
    assert client.clicks("when") == {}


# ---------------------------------------------------------------------- steady orders
def test_the_same_session_gets_the_same_decision_and_order(client):
    first = client.rank("steady", PAGE, session="s").json
    before = metric(client, "swerve_shown_again_total")
    given = list(PAGE)
    for number in range(20):
        random.Random(number).shuffle(given)
        assert client.rank("steady", given, session="s").json == first
    assert metric(client, "swerve_shown_again_total") == before + 20
    assert client.query("steady").json["requests"] == 1
    ask = {"query": "steady", "candidates": PAGE, "session": "s"}
    assert client.call("POST", "/v1/rank/batch", [ask, ask]).json == [first, first]
    twice = client.call("POST", "/v1/rank/batch", [{**ask, "query": "steady batch"}] * 3).json
    assert twice[0] == twice[1] == twice[2]
    assert client.query("steady batch").json["requests"] == 1
    # a click for it counts once, whichever of the answers it came from
    for _ in range(2):
        assert client.feedback(first["decision"], first["ranking"][0]).json == {"status": "learned"}
    assert client.clicks("steady") == {first["ranking"][0]: 1}


def test_another_session_or_none_other_candidates_or_a_shift_bring_a_new_decision(client):
    seen = {client.rank("unsteady", PAGE, session="s").json["decision"]}

    def new(**more: Any) -> bool:
        ask = {"query": "unsteady", "candidates": PAGE, "session": "s", **more}
        decision = client.call("POST", "/v1/rank", ask).json["decision"]
        fresh = decision not in seen
        seen.add(decision)
        return fresh

    assert not new()
    assert new(session="t") and new(session=None) and new(session=None)
    assert new(candidates=PAGE[:4]) and new(candidates=[*PAGE, "f"])
    assert new(slots=2) and new(slots=3)
    assert new(locale="de") and new(filter="new") and new(segment="app")
    assert new() and not new()  # the last one was for other candidates or slots
    assert client.call("POST", "/v1/queries/unsteady/shift", {}).status == 200
    assert new() and not new()


# ---------------------------------------------------------------------- parts of a query's key
def best_on_top(client: Http, query: str, rounds: int, filtered: bool) -> int:
    """Six filters with eight results each under one text, of which one is clicked; how often it is on top in the last half."""
    won = 0
    for number in range(rounds):
        asked = []
        for filter_ in range(6):
            more = {"filter": f"f{filter_}"} if filtered else {}
            candidates = [f"{filter_}-{name}" for name in "abcdefgh"]
            asked.append({"query": query, "candidates": candidates, "session": f"{number}", **more})
        answers = client.call("POST", "/v1/rank/batch", asked).json
        told = []
        for filter_, answer in enumerate(answers):
            best = f"{filter_}-h"
            on_top = answer["ranking"][0] == best
            told.append(said_of(answer["decision"], best if on_top else None))
            won += on_top and number >= rounds // 2
        client.call("POST", "/v1/feedback/batch", told)
    return won


def test_filters_under_one_text_do_not_evict_each_other(client):
    """A record has room for eight candidates, and six filters have 48."""
    rounds = 80
    apart, together = best_on_top(client, "boots", rounds, True), best_on_top(client, "shoes", rounds, False)
    shows = 6 * rounds // 2
    assert apart > 0.7 * shows
    assert together < 0.4 * shows  # each request finds a record that the five others have emptied: one in eight, by chance
    found = client.call("GET", "/v1/queries/boots?filter=f3").json
    assert {arm["id"] for arm in found["arms"]} == {f"3-{name}" for name in "abcdefgh"}
    assert found["requests"] == rounds
    assert client.query("boots").status == 404  # nobody asked without a filter


def test_parts_are_told_apart_and_a_locale_has_one_form(client):
    asks: list[dict[str, str]] = [{}, {"locale": "x"}, {"filter": "x"}, {"segment": "x"}, {"locale": "x", "filter": "x"}]
    for times, parts in enumerate(asks, 1):
        for number in range(times):
            client.rank("parts", PAGE, session=f"{number}", **parts)
    for times, parts in enumerate(asks, 1):
        path = "/v1/queries/parts?" + "&".join(f"{name}={part}" for name, part in parts.items())
        assert client.call("GET", path).json["requests"] == times
    client.rank("locales", PAGE, locale="en_US")
    client.rank("Locales ", PAGE, locale="EN-us")
    assert client.call("GET", "/v1/queries/locales?locale=en-us").json["requests"] == 2
    assert client.call("POST", "/v1/queries/parts/shift?filter=x", {}).json == {"phase": 2}
    assert client.query("parts").json["phase"] == 1
