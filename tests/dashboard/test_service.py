"""The dashboard of a real `swerve serve`: live rankings, the read scope, and the end of the process."""

from __future__ import annotations

import itertools
import signal
import threading
import time

import pytest
from dashboard.listening import Listener
from service.running import Http, Running

from swerve.service.secrets import new_key

ALL, READ, RANK = new_key("all"), new_key("reader", ["read"]), new_key("searcher", ["rank"])
CONFIG = {
    "security": {
        "api_keys": [{"name": k.entry.name, "hash": k.entry.hash, "scopes": list(k.entry.scopes)} for k in (ALL, READ, RANK)]
    },
    "log": {"access": "all"},
    "server": {"drain_seconds": 20.0},
}
CANDIDATES = ["a", "b", "c"]


def listen(served: Running, query: str | None = None, last: str = "") -> Listener:
    return Listener(served.port, query, last, READ.text)


def ask(client: Http, query: str, count: int) -> list[str]:
    """Rank and click; return the tops."""
    tops = []
    for _ in range(count):
        answer = client.rank(query, CANDIDATES).json
        assert not answer["degraded"]
        tops.append(answer["ranking"][0])
        client.feedback(answer["decision"], tops[-1])
    return tops


def test_each_ranking_of_a_watched_query_is_told_once(served):
    client = served.client(ALL.text)
    ask(client, "hurricane", 3)  # before the query is watched
    with listen(served, "Hurricane") as line:
        first = line.until("query")[0]
        assert first.data["state"]["requests"] == 3 and first.data["tops"] == {}
        tops = ask(client, "hurricane", 20)
        told: dict[str, int] = {}
        while sum(told.values()) < 20:
            (event,) = line.until("query")
            assert event.data["query"] == "Hurricane"
            for top, count in event.data["tops"].items():
                told[top] = told.get(top, 0) + count
        assert told == {top: tops.count(top) for top in set(tops)}
        assert event.data["ranking"][0] == tops[-1] and sorted(event.data["ranking"]) == CANDIDATES
        state = client.query("hurricane").json
        assert event.data["state"] == state
        history = listen(served, "Hurricane")
        past = history.until("history")[0].data
        current = history.next()
        history.close()
    arms = {arm["id"]: [arm["plays"], arm["clicks"]] for arm in state["arms"]}
    assert current.name == "query" and current.data["state"]["requests"] == 23
    points = [*past["query"], {"tops": current.data["tops"], "arms": arms}]
    assert sum(count for point in points for count in point["tops"].values()) == 20
    assert points[0]["arms"].keys() == arms.keys() and points[0]["phase"] == 1


def test_held_out_pages_and_their_clicks_are_not_told(served):
    """Half of the sessions are held out: the list and the clicks by slot are those of the policy's pages."""
    client = served.client(ALL.text)
    ask(client, "divided", 1)
    arms = {"treated": 0, "control": 0}
    with listen(served, "divided") as line:
        ask(client, "divided", 1)  # told: a page outside of an experiment
        assert client.call("PUT", "/v1/experiments", {"name": "half", "treated": 0.5}).status == 200
        while min(arms.values()) < 10:
            answer = client.rank("divided", CANDIDATES, session=f"s{sum(arms.values())}").json
            arms[answer["arm"]] += 1
            client.feedback(answer["decision"], answer["ranking"][0])
        client.call("PUT", "/v1/experiments", {"name": ""})
        ask(client, "divided", 1)
        told = clicks = 0
        enough = 2  # seconds beyond the last page, in which nothing more may come
        while enough:
            (event,) = line.until("query")
            told += sum(event.data["tops"].values())
            clicks += sum(event.data["slots"])
            enough -= min(told, clicks) >= arms["treated"] + 2
        assert told == clicks == arms["treated"] + 2


def test_who_may_operate_is_told_so_and_rules_are_told_to_all(served):
    client = served.client(ALL.text)
    ask(client, "ruled", 1)
    rule = client.call("POST", "/v1/rules", {"kind": "pin", "result": "c", "position": 1, "query": "ruled", "note": "why"}).json
    client.call("POST", "/v1/rules", {"kind": "block", "result": "c", "query": "another query"})
    for key, operate in ((ALL, True), (READ, False)):
        with Listener(served.port, "ruled", key=key.text) as line:
            assert line.until("hello")[0].data["operate"] is operate
            ruled = line.until("query", 2)[-1].data["ruled"]
            assert ruled == [{"kind": "pin", "result": "c", "position": 1, "until": None}]  # neither a note nor a name
    client.call("DELETE", f"/v1/rules/{rule['id']}")
    with listen(served, "ruled") as line:
        assert line.until("query", 2)[-1].data["ruled"] == []


def test_rankings_of_a_batch_are_told_too(served):
    """This also holds for a batch of rows in memory with the same candidates, which takes the short way."""
    client = served.client(ALL.text)
    batch = [{"query": text, "candidates": CANDIDATES} for text in ("batched", "another") for _ in range(10)]
    with listen(served, "batched") as line:
        line.until("history")
        tops = []
        for _ in range(4):
            answers = client.call("POST", "/v1/rank/batch", batch).json
            assert not any(answer["degraded"] for answer in answers)
            tops += [answer["ranking"][0] for answer in answers[:10]]
        told: dict[str, int] = {}
        while sum(told.values()) < 40:
            data = line.until("query")[0].data
            for top, count in data.get("tops", {}).items():
                told[top] = told.get(top, 0) + count
    assert told == {top: tops.count(top) for top in set(tops)}


def test_a_click_on_slot_3_is_told_with_the_places_and_the_given_order(served):
    client = served.client(ALL.text)
    with listen(served, "slots") as line:
        line.until("history")
        ranking = (answer := client.rank("slots", CANDIDATES).json)["ranking"]
        click = {"decision": answer["decision"], "events": [{"kind": "click", "position": 3}]}
        assert client.call("POST", "/v1/feedback", click).status == 200
        assert client.call("POST", "/v1/feedback", click).status == 200  # a repeat counts once
        slots, places = [0] * 10, {}
        while not sum(slots):
            data = line.until("query")[0].data
            slots = [a + b for a, b in zip(slots, data.get("slots", slots), strict=True)]
            places = {**places, **data.get("places", {})}
    assert slots == [0, 0, 1, *[0] * 7]
    assert places == {result: [1, slot] for slot, result in enumerate(ranking)}
    assert data["given"] == CANDIDATES


def test_samples_come_every_second_and_none_is_missed(served):
    """The connection is lost once, under continuous requests."""
    stop = threading.Event()

    def work() -> None:
        client = served.client(ALL.text)
        while not stop.is_set():
            ask(client, "busy", 1)
            time.sleep(0.01)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with listen(served) as line:
            line.until("history")
            events = line.until("sample", 2)
        time.sleep(2.2)
        with listen(served, last=events[-1].id) as line:
            assert line.next().data["resumed"] is True
            events += line.until("sample", 3)
    finally:
        stop.set()
        worker.join()
    times = [event.data["at"] for event in events]
    assert all(0.7 < later - earlier < 1.6 for earlier, later in itertools.pairwise(times)), times
    numbers = [event.number for event in events]
    assert numbers == sorted(set(numbers))
    last = events[-1].data
    assert last["rank_per_s"] > 5 and last["feedback_per_s"] > 5 and last["degraded_per_s"] == 0.0
    assert last["rank_ms"]["p50"] > 0 and last["feedback_ms"]["p99"] >= last["feedback_ms"]["p50"]
    assert last["store"]["state"] == "ok" and last["store"]["commits_per_s"] > 0
    counts = [event.data["decisions"] for event in events]
    assert counts == sorted(counts)


def test_lists_and_shifts(served):
    client = served.client(ALL.text)
    ask(client, "shifting", 2)
    with listen(served, "shifting") as line:
        line.until("query")
        client.call("POST", "/v1/queries/shifting/shift", {})
        while (state := line.until("query")[0].data["state"])["phase"] != 2:
            pass
        assert state["alarms"][0]["signal"] == "operator"
        key = next(one["key"] for one in client.call("GET", "/v1/queries?order=shifted").json["queries"])
        while not (sample := line.until("sample")[0].data)["shifted"]:
            pass
    assert sample["shifted"][0]["key"] == key and sample["shifted"][0]["phase"] == 2
    assert sample["top"] and len(sample["top"]) <= 10


def test_an_unknown_query_is_told_to_be_missing_until_somebody_asks_it(served):
    with listen(served, "not yet") as line:
        assert line.until("query")[0].data == {"query": "not yet", "missing": True}
        ask(served.client(ALL.text), "not yet", 1)
        while line.until("query")[0].data.get("missing"):
            pass


def test_a_query_that_is_only_in_the_store_is_found(served):
    ask(served.client(ALL.text), "kept", 2)
    assert served.stop() == 0
    served.start()
    with listen(served, "kept") as line:
        assert line.until("query")[0].data["state"]["requests"] == 2


@pytest.mark.parametrize(
    ("key", "status"), [("", 401), ("swerve_wrong", 401), (RANK.text, 403), (READ.text, 200)], ids=["none", "wrong", "rank", "read"]
)
def test_it_is_for_the_read_scope(served, key, status):
    with Listener(served.port, key=key) as line:
        assert line.response.status == status
    assert served.client().call("GET", "/").status == 200  # the page itself contains no data


def test_a_stop_ends_streams_at_once_and_the_next_start_begins_anew(served):
    """Streams end at once, although requests under way get twenty seconds."""
    lines = [listen(served, "hurricane") for _ in range(5)]
    last = [line.until("sample")[0] for line in lines][-1]
    started = time.perf_counter()
    served.child.send_signal(signal.SIGTERM)
    assert served.wait() == 0
    assert time.perf_counter() - started < 5.0
    assert served.said_last[-1] == "stopped: everything is written"
    for line in lines:
        with pytest.raises(EOFError):
            line.until("nothing")
        line.close()
    log = served.stderr()
    assert '"level":"error"' not in log
    assert '"route":"live"' in log  # a stream is logged when it ends
    served.start()
    with listen(served, "hurricane", last.id) as line:
        assert line.next().data["resumed"] is False
        assert line.until("history")


def test_the_text_of_a_watched_query_is_in_no_log(served):
    with listen(served, "zanzibar-xylophone") as line:
        line.until("query")
    assert served.client(ALL.text).call("GET", "/metrics").status == 200
    assert "zanzibar" not in served.stderr()
