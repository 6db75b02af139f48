"""Bodies: decoding, and refusals with their messages."""

from __future__ import annotations

import asyncio
import json
import math

import pytest
from hypothesis import given, strategies as st
from serving.checking import LIMITS, refused

from swerve.service.http.bodies import feedbacks_in, ranks_in
from swerve.service.http.schemas import MANY_RANKS, read_feedback, read_list, read_rank, read_shift
from swerve.service.turns import Turns
from swerve.serving.checks import check_candidates, check_query, check_session, check_signals
from swerve.serving.messages import Asked, Event, FeedbackRequest, ListRequest, RankRequest, Refused, decode, ids_of, newest_of

INSTANT = (
    "a finite number from -62135596800 to 253402300799 (Unix seconds) or a date and time (RFC 3339, with an offset or Z), or null"
)
ENTRY = "a string or an object with the fields id, published_at, score"
RANK = "query, candidates, slots, signals, session, locale, filter, segment, unit, namespace, query_id"
EVENT = "an object with the fields kind, result, position, id, at, value"
CLICK = b'{"kind":"click","result":"a"}'


def read_ranks_together(text: bytes) -> list[Asked]:
    return decode(MANY_RANKS, text)


def read_ranks(text: bytes) -> list[Asked | Refused]:
    return asyncio.run(ranks_in(text, LIMITS, Turns()))


def read_feedbacks(text: bytes) -> list[FeedbackRequest | Refused]:
    return asyncio.run(feedbacks_in(text, LIMITS, Turns()))


def read_request(text: bytes) -> RankRequest:
    """Decode a body and its candidates."""
    asked = read_rank(text)
    parts = {"locale": asked.locale, "filter": asked.filter, "segment": asked.segment}
    return RankRequest(asked.query, asked.read(), asked.slots, asked.signals, asked.session, **parts)


def body(**changes) -> bytes:
    return json.dumps({"query": "storm", "candidates": ["a", "b"], **changes}).encode()


def status_of(act, *arguments):
    """Return the result, or the status of the refusal."""
    try:
        return act(*arguments)
    except Refused as trouble:
        return trouble.status


def test_a_full_request():
    dated = [{"id": "b", "published_at": 1.7e9}, {"id": "c", "published_at": "2024-01-01T01:00:00+01:00"}, {"id": "d"}]
    request = read_request(body(candidates=["a", *dated], signals={"news": 3}, session="s"))
    assert ids_of(request.candidates) == ["a", "b", "c", "d"]
    assert newest_of(request.candidates) == 1704067200.0
    assert request.signals == {"news": 3.0}
    assert read_request(body(signals={"news": None})).signals == {"news": None}
    check_query(request.query, LIMITS)
    check_candidates(request.candidates, LIMITS)
    check_session(request.session, LIMITS)
    check_signals(request.signals, {"news"})
    request = read_request(body(candidates=["a", {"id": "b", "score": 1}], slots=3, locale="de", filter="f", segment="s"))
    assert request.candidates[1].score == 1.0 and request.slots == 3
    assert (request.locale, request.filter, request.segment) == ("de", "f", "s")


def test_without_dates_there_is_no_newest_one():
    request = read_request(body())
    assert math.isnan(newest_of(request.candidates))
    assert request.signals is None and request.session is None and request.slots is None


def test_events_must_be_there_and_may_be_none():
    assert read_feedback(b'{"decision":"d","events":[]}') == FeedbackRequest("d", [])
    assert read_feedback(b'{"decision":"d","events":[' + CLICK + b"]}") == FeedbackRequest("d", [Event("click", "a")])
    full = b'{"decision":"d","events":[{"kind":"click","position":3,"id":"e","at":1.7e9,"value":1}],"shown":["b","a"]}'
    assert read_feedback(full) == FeedbackRequest("d", [Event("click", None, 3, "e", 1.7e9, 1.0)], ["b", "a"])
    assert "events" in refused(read_feedback, b'{"decision":"d"}').message


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"query":"\\ud800","candidates":["a"]}',
        b'{"query":"\\udc00\\ud800","candidates":["a"]}',
        b'{"query":"a","candidates":["\\ud800"]}',
        b'{"query":"\xff","candidates":["a"]}',
        b'{"query":"\xed\xa0\x80","candidates":["a"]}',
        b'{"query":"a","candidates":["a"],"signals":{"x":NaN}}',
        b'{"query":"a","candidates":["a"],"signals":{"x":Infinity}}',
        b'{"query":"a","candidates":["a"]} x',
        b"\x00",
        "{}".encode("utf-16"),
    ],
)
def test_what_is_not_json_is_400_alone_and_in_a_batch(text):
    assert refused(read_request, text).status == 400
    if text:
        assert refused(read_ranks, b"[" + text + b"]").status == 400
        # after an entry of another shape the rest is decoded one by one: the body is refused, or that entry is
        outcome = status_of(read_ranks, b"[{}," + text + b"]")
        assert outcome == 400 or [entry.status for entry in outcome] == [422, 400]


def test_deep_nesting_is_refused():
    deep = b'{"query":"a","candidates":["a"],"signals":' + b"[" * 200_000
    assert refused(read_request, deep).status == 422
    assert refused(read_ranks, b"[" + deep + b"]").message == "the body is nested too deeply"


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"query": 3}, "query", "query is 3; it must be a string"),
        ({"query": None}, "query", "query is null; it must be a string"),
        ({"query": "x" * 3, "session": 1.5}, "session", "session is 1.5; it must be a string, or null"),
        ({"candidates": "a"}, "candidates", f'candidates is "a"; it must be a list in which each entry is {ENTRY}'),
        ({"candidates": [3]}, "candidates[0]", f"candidates[0] is 3; it must be {ENTRY}"),
        ({"candidates": ["a", ["b"]]}, "candidates[1]", f"candidates[1] is a list; it must be {ENTRY}"),
        ({"candidates": [{"id": 3}]}, "candidates[0].id", "candidates[0].id is 3; it must be a string"),
        ({"candidates": [{"published_at": 3}]}, "candidates[0].id", "candidates[0].id is missing; it must be a string"),
        (
            {"candidates": [{"id": "a", "published": 3}]},
            "candidates[0].published",
            "candidates[0].published is not a known field; "
            "the known ones are id, published_at, score; did you mean 'published_at'?",
        ),
        (
            {"candidates": [{"id": "a", "published_at": 1.7e12}]},
            "candidates[0].published_at",
            f"candidates[0].published_at is 1700000000000.0; it must be {INSTANT}",
        ),
        (
            {"candidates": [{"id": "a", "published_at": "2024-01-01T00:00:00"}]},
            "candidates[0].published_at",
            f'candidates[0].published_at is "2024-01-01T00:00:00"; it must be {INSTANT}',
        ),
        ({"signals": {"x": "3"}}, "signals.x", 'signals.x is "3"; it must be a finite number, or null'),
        ({"signals": {"w": 1, "x": True, "y": 2}}, "signals.x", "signals.x is true; it must be a finite number, or null"),
        (
            {"signals": [1]},
            "signals",
            "signals is a list; it must be an object in which each value is a finite number or null, or null",
        ),
        ({"slots": 0}, "slots", "slots is 0; it must be a whole number from 1 to 10, or null"),
        ({"slots": 2.5}, "slots", "slots is 2.5; it must be a whole number from 1 to 10, or null"),
        ({"filter": 3}, "filter", "filter is 3; it must be a string, or null"),
        ({"query": "x", "session": {}}, "session", "session is an object; it must be a string, or null"),
        (
            {"sesion": "s"},
            "sesion",
            f"sesion is not a known field; the known ones are {RANK}; did you mean 'session'?",
        ),
    ],
)
def test_another_shape_is_422_with_the_field_what_was_sent_and_what_is_allowed(changes, field, says):
    trouble = refused(read_request, body(**changes))
    assert (trouble.status, trouble.code, trouble.field, trouble.message) == (422, "invalid", field, says)


@pytest.mark.parametrize(
    ("read", "text", "field", "says"),
    [
        (read_request, b'{"query":"a"}', "candidates", f"candidates is missing; it must be a list in which each entry is {ENTRY}"),
        (read_request, b'{"candidates":["a"]}', "query", "query is missing; it must be a string"),
        (read_request, b"3", None, f"the body is 3; it must be an object with the fields {RANK}"),
        (read_feedback, b'{"decision":"d"}', "events", f"events is missing; it must be a list in which each entry is {EVENT}"),
        (read_feedback, b'{"decision":3,"events":[]}', "decision", "decision is 3; it must be a string"),
        (
            read_feedback,
            b'{"decision":"d","events":[' + CLICK + b',{"kind":3}]}',
            "events[1].kind",
            "events[1].kind is 3; it must be a string (`click`, or a kind that the configuration names (`feedback.events`))",
        ),
        (
            read_feedback,
            b'{"decision":"d","events":[{"kind":"click","position":0}]}',
            "events[0].position",
            "events[0].position is 0; it must be a whole number from 1 to 1000, or null",
        ),
        (
            read_feedback,
            b'{"decision":"d","events":[],"clicked":"a"}',
            "clicked",
            "clicked is not a known field; the known ones are decision, events, shown",
        ),
        (read_shift, b'{"at":3}', "at", "at is not a known field; no field is allowed"),
        (read_shift, b"[]", None, "the body is a list; it must be an empty object"),
        (read_ranks_together, b'[{"query":"a","candidates":[]},{"query":3}]', "[1].query", "[1].query is 3; it must be a string"),
        (
            read_ranks_together,
            b'[{"query":"a"}]',
            "[0].candidates",
            f"[0].candidates is missing; it must be a list in which each entry is {ENTRY}",
        ),
        (read_ranks, body(), None, "the body is an object; it must be a list"),
        (read_ranks, body(query="x" * 40_000), None, "the body is an object; it must be a list"),
        (read_list, {"limit": "0"}, "limit", 'limit is "0"; it must be a whole number from 1 to 1000'),
        (read_list, {"order": "name"}, "order", 'order is "name"; it must be shifted or traffic'),
        (read_list, {"page": "2"}, "page", "page is not a known field; the known ones are order, limit, namespace"),
    ],
)
def test_what_is_missing_or_of_another_type(read, text, field, says):
    trouble = refused(read, text)
    assert (trouble.status, trouble.field, trouble.message) == (422, field, says)


def test_a_long_value_is_cut_short_and_one_that_is_not_looked_for_is_named_by_its_type():
    assert refused(read_feedback, b'{"decision":' + b"7" * 5000 + b"}").message == f"decision is {'7' * 60} …; it must be a string"
    assert refused(read_feedback, b'{"decision":3,"events":@}').message == "decision is of type int; it must be a string"
    long = refused(read_feedback, b'{"decision":3,"events":"' + b"x" * 70_000 + b'"}')
    assert (long.field, long.message) == ("decision", "decision is of type int; it must be a string")
    assert len(refused(read_feedback, b'{"' + b"x" * 5000 + b'":3}').message) < 200


def test_a_body_that_ends_early():
    assert refused(read_feedback, b" ").message == "the body is empty"
    assert refused(read_feedback, b'{"decision":').message == "the body ends before its JSON is complete"


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" + b"0" * 400])
def test_a_number_that_overflows_is_422(number):
    for text in (
        b'{"query":"a","candidates":["a"],"signals":{"x":' + number + b"}}",
        b'{"query":"a","candidates":[{"id":"a","published_at":' + number + b"}]}",
    ):
        assert refused(read_request, text).status == 422


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: body(query=text)))
def test_any_bytes_are_a_request_or_refused(text):
    for read in (read_request, read_feedback):
        outcome = status_of(read, text)
        assert outcome in (400, 422) or isinstance(outcome, RankRequest | FeedbackRequest)


def test_a_batch_serves_what_is_well_formed():
    first, second, third = read_ranks(b"[" + body() + b"," + body(query=3) + b"," + body() + b"]")
    for good in (first, third):
        assert (good.query, good.read(), good.signals, good.session) == ("storm", ["a", "b"], None, None)
    assert isinstance(second, Refused) and second.field == "query"
    assert read_feedbacks(b'[{"decision":"d","events":[]}]') == [FeedbackRequest("d", [])]
    assert read_ranks(b"[]") == []


def test_a_batch_that_is_too_long_or_no_list():
    assert refused(read_ranks, b"[" + b",".join([body()] * 4) + b"]").code == "too_many"
    assert refused(read_ranks, body()).status == 422
    assert refused(read_feedbacks, b"[").status == 400


def test_the_parameters_of_the_list():
    assert read_list({}) == ListRequest("traffic", 20)
    assert read_list({"order": "shifted", "limit": "7"}) == ListRequest("shifted", 7)
    for wrong in ({"limit": "0"}, {"limit": "1001"}, {"limit": "many"}, {"order": "name"}, {"page": "2"}):
        assert refused(read_list, wrong).status == 422
    assert refused(read_list, {"limit": "0"}).field == "limit"
