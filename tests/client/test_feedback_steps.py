"""The steps of feedback, without a network: waits, retries, and what counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from client.played import AWAY, LEARNED, limited, make, play

from swerve_client import ServiceAway, SwerveClientError
from swerve_client.exchange import Reply


def test_feedback_waits_longer_each_time_and_gives_up():
    sent, waits, outcome = play(make().feedback("d", "a"), AWAY, AWAY, AWAY, AWAY)
    assert len(sent) == 4 and len({step.content for step in sent}) == 1  # identical repeats, which count once
    assert [step.timeout for step in sent] == [2.0] * 4
    for attempt, wait in enumerate(waits):
        assert 0.05 * 2**attempt <= wait <= 0.1 * 2**attempt
    assert len(waits) == 3
    assert isinstance(outcome, ServiceAway) and "4 tries: away; keep it" in str(outcome)


def test_waits_differ_from_client_to_client():
    assert len({play(make().feedback("d", None), AWAY, LEARNED)[1][0] for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("2", 2.0, 2.5),
        ("0.5", 0.5, 0.625),
        ("3600", 5.0, 5.0),
        ("inf", 5.0, 5.0),
        ("0", 0.05, 0.1),
        ("nan", 0.05, 0.1),
        ("-3", 0.05, 0.1),
        ("soon", 0.05, 0.1),
        ("", 0.05, 0.1),
        (None, 0.05, 0.1),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.05, 0.1),
        ("Sun, 06 Nov 1994 08:49:37 -0000", 0.05, 0.1),
        ("Thu, 01 Jan 2099 00:00:00 GMT", 5.0, 5.0),
    ],
)
def test_retry_after_is_honoured_up_to_a_cap(header, low, high):
    _, waits, outcome = play(make().feedback("d", "a"), Reply(503, b"", header), LEARNED)
    assert outcome is True
    assert low <= waits[0] <= high


def test_retry_after_may_be_a_date():
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)
    _, waits, _ = play(make().feedback("d", "a"), Reply(503, b"", soon), LEARNED)
    assert 1.5 <= waits[0] <= 4.0


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 302, 204])
def test_what_is_the_services_fault_is_tried_again(status):
    assert play(make().feedback("d", "a"), Reply(status, b"", None), LEARNED)[2] is True


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 422])
def test_what_is_the_callers_fault_is_not(status):
    body = json.dumps({"error": {"code": "forged", "message": "no token", "field": "decision", "request_id": "r1"}}).encode()
    sent, waits, outcome = play(make().feedback("d", "a"), Reply(status, body, None))
    assert len(sent) == 1 and waits == []
    assert isinstance(outcome, SwerveClientError)
    assert (outcome.status, outcome.code, outcome.field, outcome.request_id) == (status, "forged", "decision", "r1")
    assert str(outcome) == f"HTTP {status}: no token"


def test_without_a_decision_nothing_is_sent():
    assert play(make().feedback(None, "a")) == ([], [], False)
    assert play(make().feedback_many([(None, "a"), (None, None)])) == ([], [], [False, False])
    assert play(make().rank_many([])) == ([], [], [])


def test_feedback_that_came_too_late_does_not_count():
    assert play(make().feedback("d", "a"), Reply(200, b'{"status":"expired"}', None))[2] is False
    assert play(make().feedback("d", "a"), Reply(200, b'{"status":"late"}', None))[2] is True


def test_many_feedbacks_keep_their_places():
    body = b'[{"status":"learned"},{"status":"expired"}]'
    sent, _, outcome = play(make().feedback_many([("d", "a"), (None, "b"), ("e", None)]), Reply(200, body, None))
    assert outcome == [True, False, False]
    assert json.loads(sent[0].content) == [
        {"decision": "d", "events": [{"kind": "click", "result": "a"}]},
        {"decision": "e", "events": []},
    ]
    refused = b'[{"status":"learned"},{"error":{"code":"forged","message":"no token"}}]'
    outcome = play(make().feedback_many([("d", "a"), (None, "b"), ("e", None)]), Reply(200, refused, None))[2]
    assert isinstance(outcome, SwerveClientError) and outcome.field == "[2]" and outcome.code == "forged"


def test_many_feedbacks_of_which_some_are_not_durable_are_all_sent_again():
    some = b'[{"status":"learned"},{"error":{"code":"unavailable","message":"the store cannot be written now"}}]'
    good = Reply(200, b'[{"status":"learned"},{"status":"late"}]', None)
    sent, waits, outcome = play(make().feedback_many([("d", "a"), ("e", "b")]), Reply(200, some, None), good)
    assert outcome == [True, True] and len(waits) == 1 and sent[0] == sent[1]


@pytest.mark.parametrize("body", [b"[]", b"{}", b'[{"status":"learned"}]', b'[{"status":"learned"},{"status":"lost"}]'])
def test_many_feedbacks_with_a_wrong_answer_are_tried_again(body):
    good = Reply(200, b'[{"status":"learned"},{"status":"learned"}]', None)
    assert play(make().feedback_many([("d", "a"), ("e", "b")]), Reply(200, body, None), good)[2] == [True, True]


@pytest.mark.parametrize(
    ("clicks", "events"),
    [
        (None, []),
        ([], []),
        ("a", [{"result": "a"}]),
        (2, [{"position": 2}]),
        (["b", 1], [{"result": "b"}, {"position": 1}]),
        ({"result": "b", "id": "e-1", "at": 1.7e9}, [{"result": "b", "id": "e-1", "at": 1.7e9}]),
        ((1, {"position": 3}), [{"position": 1}, {"position": 3}]),
    ],
)
def test_clicks_are_sent_as_events(clicks, events):
    expected = [{"kind": "click", **event} for event in events]
    sent, _, _ = play(make().feedback("d", clicks), LEARNED)
    assert json.loads(sent[0].content) == {"decision": "d", "events": expected}
    sent, _, _ = play(make().feedback_many([("d", clicks, ["b", "a"])]), Reply(200, b'[{"status":"learned"}]', None))
    assert json.loads(sent[0].content) == [{"decision": "d", "events": expected, "shown": ["b", "a"]}]


def test_an_observed_ranking_is_sent_once():
    given = {"query": "storm", "shown": ["a", "b"], "at": 1.7e9, "signals": {"news": 3}, "session": None, "locale": "en"}
    sent, waits, decision = play(make().observe(**given, clicks="b"), Reply(200, b'{"status":"learned","decision":"d"}', None))
    assert (decision, waits, sent[0].path) == ("d", [], "/v1/observe")
    assert json.loads(sent[0].content) == {
        "query": "storm", "shown": ["a", "b"], "at": 1.7e9, "signals": {"news": 3.0}, "locale": "en",
        "events": [{"kind": "click", "result": "b"}],
    }  # fmt: skip
    sent, _, outcome = play(make().observe(**given), AWAY)
    assert len(sent) == 1  # it has no decision yet that would count once
    assert isinstance(outcome, ServiceAway) and "may or may not" in str(outcome)


def test_feedback_above_its_rate_waits_as_long_as_the_service_asks():
    sent, (wait,), counted = play(make().feedback("d", "a"), limited("3"), LEARNED)
    assert len(sent) == 2 and counted and 3.0 <= wait <= 3.75
