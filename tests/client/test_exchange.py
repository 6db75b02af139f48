"""The steps of the calls, without a network: waits, the breaker, requests, and refusals before sending."""

from __future__ import annotations

import builtins
import json
import math
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from swerve.client import exchange
from swerve.client.exchange import Exchange, Failure, Reply, Send
from swerve.client.forms import ServiceAway, SwerveClientError
from swerve.client.waiting import Breaker, Deadline

AWAY = Failure("away")
LEARNED = Reply(200, b'{"status":"learned"}', None)


def make(**changes) -> Exchange:
    options = {
        "base_url": exchange.ADDRESS, "api_key": None, "timeout": 0.1, "feedback_timeout": 2.0,
        "retries": 3, "breaker_failures": 5, "breaker_seconds": 1.0,
    }  # fmt: skip
    return Exchange(**{**options, **changes})


def play(steps, *answers):
    """Run a call on these answers; return its requests, its waits, and its result or error."""
    sent, waits, left, answer = [], [], list(answers), None
    try:
        while True:
            step = steps.send(answer)
            if isinstance(step, Send):
                sent.append(step)
                answer = left.pop(0)
            else:
                waits.append(step)
                answer = None
    except StopIteration as done:
        return sent, waits, done.value
    except (SwerveClientError, ServiceAway) as trouble:
        return sent, waits, trouble


def answered(**changes) -> Reply:
    said = {"decision": "d", "ranking": ["b", "a"], "propensities": [0.5, 0.25], "explored": 2, "phase": 2, "degraded": False}
    body = {**said, **changes}
    return Reply(200, json.dumps(body).encode(), None)


ASKED = {"query": "storm", "candidates": ["a", "b"]}


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


def test_a_refusal_by_someone_else_says_so():
    outcome = play(make().rank(ASKED), Reply(404, b"<html>nginx</html>", None))[2]
    assert isinstance(outcome, SwerveClientError) and "is base_url right?" in str(outcome)


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


def test_a_ranking_is_read():
    signals = {"news": 3, "views": None}
    sent, _, outcome = play(make().rank({**ASKED, "signals": signals, "session": "s"}), answered())
    assert outcome == exchange.Ranking("d", ["b", "a"], [0.5, 0.25], 2, 2, False, None)
    expected = {"query": "storm", "candidates": ["a", "b"], "signals": {"news": 3.0, "views": None}, "session": "s"}
    assert json.loads(sent[0].content) == expected
    assert sent[0].timeout == 0.1


def test_slots_and_the_parts_of_a_query_are_sent():
    parts = {"slots": 3, "locale": "en-US", "filter": "red", "segment": "app"}
    sent, _, _ = play(make().rank({**ASKED, **parts}), answered())
    assert json.loads(sent[0].content) == {"query": "storm", "candidates": ["a", "b"], **parts}
    sent, _, phase = play(
        make().shift("storm", {"locale": "en-US", "filter": None, "segment": "a&b"}), Reply(200, b'{"phase":3}', None)
    )
    assert (sent[0].path, phase) == ("/v1/queries/storm/shift?locale=en-US&segment=a%26b", 3)


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
    sent, waits, decision = play(make().observe(given, "b"), Reply(200, b'{"status":"learned","decision":"d"}', None))
    assert (decision, waits, sent[0].path) == ("d", [], "/v1/observe")
    assert json.loads(sent[0].content) == {
        "query": "storm", "shown": ["a", "b"], "at": 1.7e9, "signals": {"news": 3.0}, "locale": "en",
        "events": [{"kind": "click", "result": "b"}],
    }  # fmt: skip
    sent, _, outcome = play(make().observe(given, None), AWAY)
    assert len(sent) == 1  # it has no decision yet that would count once
    assert isinstance(outcome, ServiceAway) and "may or may not" in str(outcome)


@pytest.mark.parametrize(
    "reply",
    [
        AWAY,
        Reply(500, b"oops", None),
        Reply(503, b'{"error":{"code":"stopping","message":"stopping"}}', "1"),
        Reply(200, b"<html>", None),
        Reply(200, b"", None),
        Reply(200, b"\xff", None),
        Reply(200, b"[" * 100_000, None),
        Reply(200, b'{"decision":"d"}', None),
        answered(ranking=["b"]),
        answered(ranking=["a", "a"]),
        answered(ranking=["a", "c"]),
        Reply(429, b"", None),
        Reply(301, b"", None),
    ],
)
def test_rank_gives_the_given_order_with_a_reason(reply):
    outcome = play(make().rank(ASKED), reply)[2]
    assert (outcome.decision, outcome.ranking, outcome.degraded) == (None, ["a", "b"], True)
    assert outcome.reason
    both = play(make().rank_many([ASKED, ASKED]), reply)[2]
    assert [one.ranking for one in both] == [["a", "b"]] * 2 and all(one.degraded and one.reason for one in both)


@pytest.mark.parametrize("status", [413, 422])
def test_what_a_user_typed_or_an_engine_returned_does_not_break_search(status):
    """The service refuses it, and says why; the given order is shown."""
    body = b'{"error":{"code":"repeated","message":"candidates has \'a\' twice","field":"candidates"}}'
    outcome = play(make().rank({**ASKED, "candidates": ["a", "a"]}), Reply(status, body, None))[2]
    assert outcome == exchange.Ranking(None, ["a", "a"], degraded=True, reason=f"HTTP {status}: candidates has 'a' twice")
    one, two = play(make().rank_many([{**ASKED, "candidates": []}, ASKED]), Reply(status, body, None))[2]
    assert (one.ranking, two.ranking, one.degraded, two.degraded) == ([], ["a", "b"], True, True)
    one = make(breaker_failures=1)
    assert [len(play(one.rank(ASKED), Reply(status, body, None))[0]) for _ in range(3)] == [1, 1, 1]  # the service works


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"candidates": []}, "no candidates"),
        ({"query": "a\ud800"}, "surrogate"),
        ({"candidates": ["a", "\udfff"]}, "surrogate"),
        ({"candidates": [{"id": "a", "score": object()}]}, "cannot be sent"),
    ],
)
def test_what_cannot_be_sent_does_not_break_search(changes, says):
    sent, _, outcome = play(make().rank({**ASKED, **changes}))
    given_ids = [one if isinstance(one, str) else one["id"] for one in {**ASKED, **changes}["candidates"]]
    assert sent == [] and (outcome.ranking, outcome.degraded, outcome.decision) == (given_ids, True, None)
    assert says in outcome.reason
    _, _, (_, second) = play(make().rank_many([ASKED, {**ASKED, **changes}]), Reply(200, b"[" + answered().body + b"]", None))
    assert second.ranking == given_ids and second.degraded


def test_a_service_that_is_degraded_itself():
    outcome = play(make().rank(ASKED), answered(decision=None, ranking=["a", "b"], degraded=True))[2]
    assert outcome.degraded and "in time" in outcome.reason


def test_a_refused_entry_does_not_take_the_others_with_it():
    good = json.loads(answered().body)
    body = json.dumps([good, {"error": {"code": "empty", "message": "query is empty"}}]).encode()
    first, second = play(make().rank_many([ASKED, ASKED]), Reply(200, body, None))[2]
    assert first.ranking == ["b", "a"] and not first.degraded
    assert second.ranking == ["a", "b"] and second.degraded and second.reason == "query is empty"


# the breaker ---------------------------------------------------------------------------------------------------------------------


def test_after_some_failures_nothing_is_sent_for_a_while():
    one = make(breaker_failures=3, breaker_seconds=0.2)
    for _ in range(3):
        assert len(play(one.rank(ASKED), AWAY)[0]) == 1
    sent, _, outcome = play(one.rank(ASKED))
    assert sent == [] and outcome.degraded and "not asked" in outcome.reason
    time.sleep(0.21)
    steps = one.rank(ASKED)
    steps.send(None)  # one request tests the service; the others are not sent meanwhile
    assert play(one.rank(ASKED))[0] == []
    with pytest.raises(StopIteration) as done:
        steps.send(answered())
    assert not done.value.value.degraded
    assert len(play(one.rank(ASKED), AWAY)[0]) == 1  # the breaker is closed again: one failure changes nothing
    assert len(play(one.rank(ASKED), answered())[0]) == 1


def test_a_refusal_and_a_success_reset_the_count():
    breaker = Breaker(2, 60.0)
    for good in (False, True, False, True, False):
        breaker.record(good)
        assert breaker.closed()
    breaker.record(False)
    assert not breaker.closed()
    one = make(breaker_failures=2)
    for reply in (AWAY, Reply(422, b"", None), AWAY):
        assert len(play(one.rank(ASKED), reply)[0]) == 1
    assert len(play(one.rank(ASKED), answered())[0]) == 1


def test_garbage_opens_the_breaker_too():
    one = make(breaker_failures=1, breaker_seconds=60.0)
    play(one.rank(ASKED), Reply(200, b"<html>", None))
    assert play(one.rank(ASKED))[0] == []


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
    sent, _, outcome = play(make().rank({"query": "q", "candidates": candidates}), answered(ranking=["c", "b", "a"]))
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
    sent, _, outcome = play(make().rank({**ASKED, **changes}))
    assert sent == []
    assert isinstance(outcome, SwerveClientError) and outcome.status is None and outcome.field == field
    assert says in str(outcome)


@pytest.mark.parametrize(
    ("query", "path"),
    [("storm", "storm"), ("..", "%2E%2E"), ("a/b c?d#e", "a%2Fb%20c%3Fd%23e"), ("é%", "%C3%A9%25"), ("\ud800", "%3F")],
)
def test_queries_in_paths(query, path):
    sent, _, outcome = play(make().shift(query, {}), Reply(200, b'{"phase":3}', None))
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


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    real = builtins.__import__

    def without_httpx(name, *rest, **more):
        if name == "httpx":
            raise ModuleNotFoundError("No module named 'httpx'", name="httpx")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_httpx)
    with pytest.raises(ImportError, match=r"needs httpx.*swerve\[client\]"):
        make()


def limited(after: str) -> Reply:
    return Reply(429, b'{"error": {"code": "rate", "message": "too many requests"}}', after)


def test_above_its_rate_rank_waits_if_the_timeout_allows_it():
    sent, waits, ranking = play(make(timeout=5.0).rank(ASKED), limited("2"), answered())
    assert len(sent) == 2 and waits == [2.0] and not ranking.degraded
    assert sent[1].content == sent[0].content and sent[1].timeout <= 5.0
    sent, waits, ranking = play(make(timeout=5.0).rank(ASKED), limited("2"), limited("1"))  # once more, not for ever
    assert len(sent) == 2 and ranking.degraded and ranking.ranking == ["a", "b"]


@pytest.mark.parametrize("after", ["1", "5", "", "soon", "0", "-3"])
def test_above_its_rate_rank_returns_the_given_order(after):
    one = make(timeout=0.5, breaker_failures=1, breaker_seconds=60.0)
    for _ in range(3):  # the service works, so the breaker stays closed
        sent, waits, ranking = play(one.rank(ASKED), limited(after))
        assert len(sent) == 1 and waits == [] and ranking.ranking == ["a", "b"]
        assert ranking.degraded and ranking.reason == "HTTP 429: too many requests"
    assert not play(one.rank(ASKED), answered())[2].degraded


def test_feedback_above_its_rate_waits_as_long_as_the_service_asks():
    sent, (wait,), counted = play(make().feedback("d", "a"), limited("3"), LEARNED)
    assert len(sent) == 2 and counted and 3.0 <= wait <= 3.75


def test_a_client_sends_its_namespace_unless_a_call_names_another():
    one = make(namespace="toys")
    assert json.loads(play(one.rank(ASKED), answered())[0][0].content)["namespace"] == "toys"
    assert json.loads(play(one.rank({**ASKED, "namespace": "books"}), answered())[0][0].content)["namespace"] == "books"
    assert play(one.queries("traffic", 5, None), AWAY)[0][0].path.endswith("&namespace=toys")
    assert play(one.state("storm", {}), AWAY)[0][0].path == "/v1/queries/storm?namespace=toys"
    assert json.loads(play(one.delete("storm", None, {"locale": "de"}), AWAY)[0][0].content) == {
        "query": "storm", "locale": "de", "namespace": "toys",
    }  # fmt: skip
    assert "namespace" not in json.loads(play(make().rank(ASKED), answered())[0][0].content)
