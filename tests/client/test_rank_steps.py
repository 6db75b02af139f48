"""The steps of rankings, without a network: what is sent and read, and what is shown when something fails."""

from __future__ import annotations

import json

import pytest
from client.played import ASKED, AWAY, answered, limited, make, play

from swerve_client import Ranking, SwerveClientError
from swerve_client.exchange import Reply


def test_a_refusal_by_someone_else_says_so():
    outcome = play(make().rank(**ASKED), Reply(404, b"<html>nginx</html>", None))[2]
    assert isinstance(outcome, SwerveClientError) and "is base_url right?" in str(outcome)


def test_a_ranking_is_read():
    signals = {"news": 3, "views": None}
    sent, _, outcome = play(make().rank(**{**ASKED, "signals": signals, "session": "s"}), answered())
    assert outcome == Ranking("d", ["b", "a"], [0.5, 0.25], 2, 2, False, None)
    expected = {"query": "storm", "candidates": ["a", "b"], "signals": {"news": 3.0, "views": None}, "session": "s"}
    assert json.loads(sent[0].content) == expected
    assert sent[0].timeout == 0.1


def test_slots_and_the_parts_of_a_query_are_sent():
    parts = {"slots": 3, "locale": "en-US", "filter": "red", "segment": "app"}
    sent, _, _ = play(make().rank(**{**ASKED, **parts}), answered())
    assert json.loads(sent[0].content) == {"query": "storm", "candidates": ["a", "b"], **parts}
    sent, _, phase = play(make().shift("storm", locale="en-US", filter=None, segment="a&b"), Reply(200, b'{"phase":3}', None))
    assert (sent[0].path, phase) == ("/v1/queries/storm/shift?locale=en-US&segment=a%26b", 3)


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
    outcome = play(make().rank(**ASKED), reply)[2]
    assert (outcome.decision, outcome.ranking, outcome.degraded) == (None, ["a", "b"], True)
    assert outcome.reason
    both = play(make().rank_many([ASKED, ASKED]), reply)[2]
    assert [one.ranking for one in both] == [["a", "b"]] * 2 and all(one.degraded and one.reason for one in both)


@pytest.mark.parametrize("status", [413, 422])
def test_what_a_user_typed_or_an_engine_returned_does_not_break_search(status):
    """The service refuses it, and says why; the given order is shown."""
    body = b'{"error":{"code":"repeated","message":"candidates has \'a\' twice","field":"candidates"}}'
    outcome = play(make().rank(**{**ASKED, "candidates": ["a", "a"]}), Reply(status, body, None))[2]
    assert outcome == Ranking(None, ["a", "a"], degraded=True, reason=f"HTTP {status}: candidates has 'a' twice")
    one, two = play(make().rank_many([{**ASKED, "candidates": []}, ASKED]), Reply(status, body, None))[2]
    assert (one.ranking, two.ranking, one.degraded, two.degraded) == ([], ["a", "b"], True, True)
    one = make(breaker_failures=1)
    assert [len(play(one.rank(**ASKED), Reply(status, body, None))[0]) for _ in range(3)] == [1, 1, 1]  # the service works


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
    sent, _, outcome = play(make().rank(**{**ASKED, **changes}))
    given_ids = [one if isinstance(one, str) else one["id"] for one in {**ASKED, **changes}["candidates"]]
    assert sent == [] and (outcome.ranking, outcome.degraded, outcome.decision) == (given_ids, True, None)
    assert says in outcome.reason
    _, _, (_, second) = play(make().rank_many([ASKED, {**ASKED, **changes}]), Reply(200, b"[" + answered().body + b"]", None))
    assert second.ranking == given_ids and second.degraded


def test_a_service_that_is_degraded_itself():
    outcome = play(make().rank(**ASKED), answered(decision=None, ranking=["a", "b"], degraded=True))[2]
    assert outcome.degraded and "in time" in outcome.reason


def test_a_refused_entry_does_not_take_the_others_with_it():
    good = json.loads(answered().body)
    body = json.dumps([good, {"error": {"code": "empty", "message": "query is empty"}}]).encode()
    first, second = play(make().rank_many([ASKED, ASKED]), Reply(200, body, None))[2]
    assert first.ranking == ["b", "a"] and not first.degraded
    assert second.ranking == ["a", "b"] and second.degraded and second.reason == "query is empty"


def test_above_its_rate_rank_waits_if_the_timeout_allows_it():
    sent, waits, ranking = play(make(timeout=5.0).rank(**ASKED), limited("2"), answered())
    assert len(sent) == 2 and waits == [2.0] and not ranking.degraded
    assert sent[1].content == sent[0].content and sent[1].timeout <= 5.0
    sent, waits, ranking = play(make(timeout=5.0).rank(**ASKED), limited("2"), limited("1"))  # once more, not for ever
    assert len(sent) == 2 and ranking.degraded and ranking.ranking == ["a", "b"]


@pytest.mark.parametrize("after", ["1", "5", "", "soon", "0", "-3"])
def test_above_its_rate_rank_returns_the_given_order(after):
    one = make(timeout=0.5, breaker_failures=1, breaker_seconds=60.0)
    for _ in range(3):  # the service works, so the breaker stays closed
        sent, waits, ranking = play(one.rank(**ASKED), limited(after))
        assert len(sent) == 1 and waits == [] and ranking.ranking == ["a", "b"]
        assert ranking.degraded and ranking.reason == "HTTP 429: too many requests"
    assert not play(one.rank(**ASKED), answered())[2].degraded
