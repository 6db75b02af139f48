"""Feedback that is late, outside its window, from before a shift, for an evicted candidate, or sent again."""

from __future__ import annotations

import threading
import time

from service.running import Http, Running, said_of

CONFIG = {"feedback": {"window_seconds": 2.0}}
CANDIDATES = ["a", "b", "c"]


def decided(client: Http, query: str, candidates: list[str] = CANDIDATES) -> tuple[str, str]:
    answer = client.rank(query, candidates).json
    assert not answer["degraded"]
    return answer["decision"], answer["ranking"][0]


def arm(client: Http, query: str, name: str) -> dict[str, float]:
    return next(arm for arm in client.query(query).json["arms"] if arm["id"] == name)


def test_outside_the_window_nothing_is_counted(client):
    token, top = decided(client, "expired")
    used, used_top = decided(client, "expired")
    assert client.feedback(used, used_top).json == {"status": "learned"}
    time.sleep(2.1)
    for _ in range(2):
        assert client.feedback(token, top).json == {"status": "expired"}
    client.feedback(used, used_top)
    assert client.clicks("expired") == {used_top: 1}


def test_of_before_a_shift_that_somebody_told_is_counted_and_not_learned(client):
    token, top = decided(client, "older")
    assert client.call("POST", "/v1/queries/older/shift", {}).json == {"phase": 2}
    for _ in range(3):
        assert client.feedback(token, top).json == {"status": "late"}
    found = arm(client, "older", top)
    assert (found["clicks"], found["phase_clicks"], found["phase_plays"]) == (1, 0, 0)
    alarm = client.query("older").json["alarms"][0]
    assert (alarm["signal"], alarm["phase"], alarm["verdict"]) == ("operator", 2, "true")
    # feedback of the new phase is learned
    token, top = decided(client, "older")
    assert client.feedback(token, top).json == {"status": "learned"}
    assert arm(client, "older", top)["phase_clicks"] == 1


def test_for_a_candidate_that_has_gone_nobody_else_gets_the_click(client):
    first = [f"old {n}" for n in range(8)]
    token, top = decided(client, "gone", first)
    # as many other candidates as there are arms: all of the old ones are evicted
    others = [f"new {n}" for n in range(8)]
    decided(client, "gone", others)
    assert {arm["id"] for arm in client.query("gone").json["arms"]} == set(others)
    for _ in range(2):
        assert client.feedback(token, top).json == {"status": "late"}
    assert client.clicks("gone") == {}


def test_a_candidate_that_came_back_is_credited_with_what_it_got(client):
    first, others = [f"old {n}" for n in range(8)], [f"new {n}" for n in range(8)]
    token, top = decided(client, "back", first)
    decided(client, "back", others)
    decided(client, "back", first)
    assert client.feedback(token, top).json == {"status": "late"}  # the arm has a new generation: counted, not learned
    assert client.clicks("back") == {top: 1}
    assert arm(client, "back", top)["phase_clicks"] == 0


def test_that_nobody_clicked_neither_prevents_a_click_nor_takes_one_back(client):
    token, top = decided(client, "nobody")
    assert client.feedback(token, None).json == {"status": "learned"}
    assert client.clicks("nobody") == {}
    for _ in range(2):
        assert client.feedback(token, top).json == {"status": "learned"}
        assert client.feedback(token, None).json == {"status": "learned"}
    assert client.clicks("nobody") == {top: 1}


def test_a_click_on_another_candidate_is_no_click_for_the_top(client):
    answer = client.rank("other", CANDIDATES).json
    other = answer["ranking"][1]
    assert client.feedback(answer["decision"], other).json == {"status": "learned"}
    token, _ = decided(client, "other")
    assert client.feedback(token, "never on offer").json == {"status": "ignored"}
    assert client.clicks("other") == {other: 1}


def test_twice_in_one_batch_counts_once(client):
    token, top = decided(client, "batch")
    entries = [said_of(token, top)] * 5
    assert client.call("POST", "/v1/feedback/batch", entries).json == [{"status": "learned"}] * 5
    assert client.clicks("batch") == {top: 1}


def at_once(served: Running, token: str, top: str, threads: int = 8) -> list[tuple[int, object]]:
    """Send the same feedback from several connections at the same moment; return the answers."""
    answers: list[tuple[int, object]] = []
    gate = threading.Barrier(threads)

    def send(client: Http) -> None:
        client.call("GET", "/healthz")
        gate.wait()
        said = client.feedback(token, top)
        answers.append((said.status, said.json))

    workers = [threading.Thread(target=send, args=(served.client(),)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return answers


def test_sent_from_many_sides_at_once_it_counts_once(served, client):
    for count in range(1, 6):
        token, top = decided(client, "at once", ["only"])
        assert at_once(served, token, top) == [(200, {"status": "learned"})] * 8
        assert client.clicks("at once") == {"only": count}


def test_decisions_of_an_earlier_start_count_once_however_they_come(served):
    """After a restart the store must say whether each was used: several at once must not count as several clicks."""
    client = served.client()
    tokens = [decided(client, "earlier", ["only"]) for _ in range(4)]
    assert client.feedback(*tokens[0]).json == {"status": "learned"}
    assert served.stop() == 0
    served.configure({"feedback": {"window_seconds": 600.0}})  # a start may take longer than the window of the other tests
    client = served.start().client()
    for token, top in tokens:
        assert at_once(served, token, top) == [(200, {"status": "learned"})] * 8
    assert client.clicks("earlier") == {"only": 4}
