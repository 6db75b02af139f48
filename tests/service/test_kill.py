"""kill -9 under load: no acknowledged feedback is lost and none counts twice. The test keeps its own ledger."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from service.running import Gone, Http, Running, running

QUERIES = [f"query {i}" for i in range(5)]
CANDIDATES = [f"doc{i}" for i in range(6)]


@dataclass
class Ledger:
    """The test's knowledge: acknowledged clicks, and feedback that may or may not have arrived."""

    clicks: Counter[tuple[str, str]] = field(default_factory=Counter)
    unanswered: list[tuple[str, str, str | None]] = field(default_factory=list)  # query, token, clicked
    answered: list[tuple[str, str | None, str]] = field(default_factory=list)  # token, clicked, status
    guard: threading.Lock = field(default_factory=threading.Lock)

    def send(self, client: Http, query: str, token: str, clicked: str | None) -> None:
        """Send feedback; enter it as acknowledged, or as to be sent again."""
        try:
            answer = client.feedback(token, clicked)
        except Gone:
            with self.guard:
                self.unanswered.append((query, token, clicked))
            raise
        with self.guard:
            if answer.status == 503:
                self.unanswered.append((query, token, clicked))
                return
            assert answer.status == 200, answer
            assert answer.json["status"] in ("learned", "late")
            self.answered.append((token, clicked, answer.json["status"]))
            if clicked is not None:
                self.clicks[query, clicked] += 1


def load(service: Running, ledger: Ledger, seed: int) -> None:
    """Rank and click until the service is gone: some feedback twice, some later, some without a click."""
    draw = random.Random(seed)
    client = service.client()
    kept: list[tuple[str, str, str | None]] = []
    try:
        while True:
            query = draw.choice(QUERIES)
            answer = client.rank(query, draw.sample(CANDIDATES, 5)).json
            if answer["degraded"]:
                continue
            ranking, token = answer["ranking"], answer["decision"]
            clicked = draw.choice([ranking[0], ranking[0], ranking[0], ranking[1], None])
            event = (query, token, clicked)
            if draw.random() < 0.1:
                kept.append(event)  # sent after the kill
                continue
            ledger.send(client, *event)
            if draw.random() < 0.2:
                again = client.feedback(token, clicked)
                assert again.status == 503 or again.json["status"] == next(s for t, _, s in ledger.answered[::-1] if t == token)
    except Gone:
        pass
    finally:
        with ledger.guard:
            ledger.unanswered += kept


def under_load(service: Running, ledger: Ledger, seconds: float, seed: int, workers: int = 4) -> None:
    """Kill the service under load from several threads."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            load(service, ledger, seed * 100 + number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    service.kill()
    for thread in threads:
        thread.join()
    assert not failures, failures


def settle(service: Running, ledger: Ledger, draw: random.Random) -> None:
    """Restart; send unanswered feedback again, and some of the answered feedback."""
    client = service.client()
    waiting, ledger.unanswered = ledger.unanswered, []
    for event in waiting:
        ledger.send(client, *event)
    assert not ledger.unanswered
    for token, clicked, status in draw.sample(ledger.answered, min(20, len(ledger.answered))):
        again = client.feedback(token, clicked)
        assert (again.status, again.json) == (200, {"status": status})  # the first answer has survived the kill
    counted = {(query, name): clicks for query in QUERIES for name, clicks in client.clicks(query).items()}
    assert counted == dict(ledger.clicks)


def kills(service: Running, times: int, seed: int) -> Ledger:
    ledger, draw = Ledger(), random.Random(seed)
    for number in range(times):
        under_load(service, ledger, draw.uniform(0.15, 0.6), number)
        service.start()
        settle(service, ledger, draw)
    return ledger


def test_three_kills_under_load_lose_nothing_and_count_nothing_twice(tmp_path):
    with running(tmp_path) as service:
        ledger = kills(service, 3, seed=1)
    assert sum(ledger.clicks.values()) > 100


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["ts", "swerve"])
def test_twenty_kills_under_load_lose_nothing_and_count_nothing_twice(tmp_path, policy):
    with running(tmp_path, {"policy": {"spec": policy}}) as service:
        ledger = kills(service, 20, seed=2)
    print(f"{len(ledger.answered)} feedbacks acknowledged, {sum(ledger.clicks.values())} clicks")
    assert sum(ledger.clicks.values()) > 1000


@pytest.fixture(scope="module")
def late_writer(tmp_path_factory):
    """A service that writes changes by `rank` only after a minute: a kill loses every show that was not written with feedback."""
    with running(tmp_path_factory.mktemp("late"), {"store": {"flush_seconds": 60.0}, "policy": {"arms": 16}}) as service:
        yield service


def shown_on_top(client: Http, query: str, candidates: list[str], wanted: set[str], count: int) -> list[tuple[str, str]]:
    """Return decisions with one of `wanted` on top."""
    found: list[tuple[str, str]] = []
    for _ in range(5000):
        answer = client.rank(query, candidates).json
        if answer["ranking"][0] in wanted:
            found.append((answer["decision"], answer["ranking"][0]))
            if len(found) == count:
                return found
    raise AssertionError(f"{wanted} did not come up")


def test_clicks_for_shows_that_a_kill_lost_are_counted_and_do_not_mislead(late_writer):
    """More clicks than shows would be a click rate above 1: the policy must not see them."""
    client = late_writer.client()
    first, top = shown_on_top(client, "q", ["a", "b", "c"], {"a", "b", "c"}, 1)[0]
    assert client.feedback(first, top).json == {"status": "learned"}
    lost = shown_on_top(client, "q", ["a", "b", "c"], {top}, 10)
    late_writer.kill()
    client = late_writer.start().client()
    said = Counter(client.feedback(token, top).json["status"] for token, _ in lost)
    assert client.clicks("q") == {top: 11}
    # the first feedback wrote one show and its click
    assert said == {"late": 10}
    state = client.query("q").json
    assert all(arm["phase_clicks"] <= arm["phase_plays"] and arm["clicks"] <= arm["plays"] for arm in state["arms"])
    answer = client.rank("q", ["a", "b", "c"])
    assert answer.status == 200 and not answer.json["degraded"]


def test_a_query_that_a_kill_lost_whole_still_gets_its_clicks(late_writer):
    client = late_writer.client()
    token, top = shown_on_top(client, "lost", ["a", "b", "c"], {"b", "c"}, 1)[0]
    late_writer.kill()
    client = late_writer.start().client()
    assert client.query("lost").status == 404
    assert client.feedback(token, top).json == {"status": "late"}
    assert client.feedback(token, top).json == {"status": "late"}
    assert client.clicks("lost") == {top: 1}


def test_a_larger_record_that_a_kill_lost_still_gets_its_clicks(late_writer):
    """The record had grown from 8 arms to 16, and only the click's token shows it."""
    client = late_writer.client()
    few, many = [f"d{i}" for i in range(8)], [f"d{i}" for i in range(12)]
    token, top = shown_on_top(client, "grown", few, set(few), 1)[0]
    assert client.feedback(token, top).json == {"status": "learned"}
    token, newer = shown_on_top(client, "grown", many, set(many) - set(few), 1)[0]
    late_writer.kill()
    client = late_writer.start().client()
    assert len(client.query("grown").json["arms"]) == 8
    assert client.feedback(token, newer).json == {"status": "late"}
    assert client.clicks("grown") == {top: 1, newer: 1}
    assert not client.rank("grown", many).json["degraded"]


def test_decision_numbers_are_never_given_twice(late_writer):
    """A row that was rolled back must not give a decision number again: its use would count as a repeat of the first."""
    client = late_writer.client()
    before = [client.rank("numbers", ["a"]).json["decision"] for _ in range(3)]
    assert client.feedback(before[0], "a").status == 200
    late_writer.kill()
    client = late_writer.start().client()
    after = [client.rank("numbers", ["a"]).json["decision"] for _ in range(3)]
    for token in (*after, *before, *after):
        assert client.feedback(token, "a").status == 200
    assert client.clicks("numbers") == {"a": 6}
