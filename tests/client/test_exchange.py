"""What all calls share, without a network: the breaker, requests, and refusals before sending."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime

import pytest
from client.played import ASKED, AWAY, answered, make, play

from swerve_client import SwerveClientError
from swerve_client.exchange import Reply
from swerve_client.waiting import Breaker, Deadline


def test_after_some_failures_nothing_is_sent_for_a_while():
    one = make(breaker_failures=3, breaker_seconds=0.2)
    for _ in range(3):
        assert len(play(one.rank(**ASKED), AWAY)[0]) == 1
    sent, _, outcome = play(one.rank(**ASKED))
    assert sent == [] and outcome.degraded and "not asked" in outcome.reason
    time.sleep(0.21)
    steps = one.rank(**ASKED)
    steps.send(None)  # one request tests the service; the others are not sent meanwhile
    assert play(one.rank(**ASKED))[0] == []
    with pytest.raises(StopIteration) as done:
        steps.send(answered())
    assert not done.value.value.degraded
    assert len(play(one.rank(**ASKED), AWAY)[0]) == 1  # the breaker is closed again: one failure changes nothing
    assert len(play(one.rank(**ASKED), answered())[0]) == 1


def test_a_refusal_and_a_success_reset_the_count():
    breaker = Breaker(2, 60.0)
    for good in (False, True, False, True, False):
        breaker.record(good)
        assert breaker.closed()
    breaker.record(False)
    assert not breaker.closed()
    one = make(breaker_failures=2)
    for reply in (AWAY, Reply(422, b"", None), AWAY):
        assert len(play(one.rank(**ASKED), reply)[0]) == 1
    assert len(play(one.rank(**ASKED), answered())[0]) == 1


def test_garbage_opens_the_breaker_too():
    one = make(breaker_failures=1, breaker_seconds=60.0)
    play(one.rank(**ASKED), Reply(200, b"<html>", None))
    assert play(one.rank(**ASKED))[0] == []


# requests -------------------------------------------------------------------------------------------------------------------------


def test_phases_share_one_deadline():
    deadline = Deadline(0.1)
    first = deadline.get("connect")
    time.sleep(0.03)
    assert deadline.get("read") < first - 0.02
    assert not deadline.over
    time.sleep(0.08)
    assert deadline.over and deadline.get("read") == 0.001


def test_dates_of_candidates_are_sent():
    when = datetime(2024, 9, 26, 14, tzinfo=UTC)
    candidates = ["a", {"id": "b", "published_at": when}, {"id": "c", "published_at": 1.7e9}]
    sent, _, outcome = play(make().rank("q", candidates), answered(ranking=["c", "b", "a"]))
    assert outcome.ranking == ["c", "b", "a"]
    assert json.loads(sent[0].content)["candidates"][1]["published_at"] == "2024-09-26T14:00:00Z"


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"candidates": [1]}, "candidates[0]", "it must be an id"),
        ({"candidates": ["a", {"name": "b"}]}, "candidates[1]", "it must be an id"),
        ({"candidates": [None]}, "candidates[0]", "it must be an id"),
        ({"signals": {"x": math.nan}}, "signals", "finite"),
        ({"signals": {"x": math.inf}}, "signals", "finite"),
        ({"signals": {"x": "many"}}, "signals", "finite"),
    ],
)
def test_what_cannot_be_sent_is_said_before(changes, field, says):
    sent, _, outcome = play(make().rank(**{**ASKED, **changes}))
    assert sent == []
    assert isinstance(outcome, SwerveClientError) and outcome.status is None and outcome.field == field
    assert says in str(outcome)


@pytest.mark.parametrize(
    ("query", "path"),
    [("storm", "storm"), ("..", "%2E%2E"), ("a/b c?d#e", "a%2Fb%20c%3Fd%23e"), ("é%", "%C3%A9%25"), ("\ud800", "%3F")],
)
def test_queries_in_paths(query, path):
    sent, _, outcome = play(make().shift(query), Reply(200, b'{"phase":3}', None))
    assert (sent[0].method, sent[0].path, outcome) == ("POST", f"/v1/queries/{path}/shift", 3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"base_url": "localhost:8350"}, "base_url"),
        ({"base_url": "ftp://a"}, "base_url"),
        ({"base_url": ""}, "base_url"),
        ({"api_key": "a\nb"}, "API key"),
        ({"api_key": ""}, "API key"),
        ({"api_key": "é"}, "API key"),
        ({"timeout": 0}, "timeout"),
        ({"feedback_timeout": math.inf}, "feedback_timeout"),
        ({"retries": -1}, "retries"),
        ({"breaker_failures": 0}, "breaker_failures"),
    ],
)
def test_wrong_settings_are_refused(changes, says):
    with pytest.raises(SwerveClientError, match=says):
        make(**changes)


def test_a_client_sends_its_namespace_unless_a_call_names_another():
    one = make(namespace="toys")
    assert json.loads(play(one.rank(**ASKED), answered())[0][0].content)["namespace"] == "toys"
    assert json.loads(play(one.rank(**{**ASKED, "namespace": "books"}), answered())[0][0].content)["namespace"] == "books"
    assert play(one.queries("traffic", 5), AWAY)[0][0].path.endswith("&namespace=toys")
    assert play(one.state("storm"), AWAY)[0][0].path == "/v1/queries/storm?namespace=toys"
    assert json.loads(play(one.delete("storm", locale="de"), AWAY)[0][0].content) == {
        "query": "storm", "locale": "de", "namespace": "toys",
    }  # fmt: skip
    assert "namespace" not in json.loads(play(make().rank(**ASKED), answered())[0][0].content)
