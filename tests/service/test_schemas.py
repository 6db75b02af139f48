"""Bodies: what is decoded, what is refused and with which words."""

from __future__ import annotations

import asyncio
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.checking import LIMITS, refused

from swerve.service.http.bodies import feedbacks_in, ranks_in
from swerve.service.http.schemas import read_feedback, read_list, read_rank
from swerve.service.turns import Turns
from swerve.serving.checks import check
from swerve.serving.messages import Asked, FeedbackRequest, ListRequest, RankRequest, Refused, ids_of, newest_of


def read_ranks(text: bytes) -> list[Asked | Refused]:
    return asyncio.run(ranks_in(text, LIMITS, Turns()))


def read_feedbacks(text: bytes) -> list[FeedbackRequest | Refused]:
    return asyncio.run(feedbacks_in(text, LIMITS, Turns()))


def read_request(text: bytes) -> RankRequest:
    """A body, its candidates read too."""
    asked = read_rank(text)
    return RankRequest(asked.query, asked.read(), asked.signals, asked.session)


def body(**changes) -> bytes:
    return json.dumps({"query": "storm", "candidates": ["a", "b"], **changes}).encode()


def status_of(act, *arguments):
    """What it gives, or the status it is refused with."""
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
    check(request, LIMITS)
    check(request, LIMITS, {"news"})


def test_without_dates_there_is_no_newest_one():
    request = read_request(body())
    assert math.isnan(newest_of(request.candidates))
    assert request.signals is None and request.session is None


def test_clicked_must_be_there_and_may_be_null():
    assert read_feedback(b'{"decision":"d","clicked":null}') == FeedbackRequest("d", None)
    assert read_feedback(b'{"decision":"d","clicked":"a"}') == FeedbackRequest("d", "a")
    assert "clicked" in refused(read_feedback, b'{"decision":"d"}').message


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
        # after an entry of another shape the rest is read one by one: refused as a whole, or that entry
        outcome = status_of(read_ranks, b"[{}," + text + b"]")
        assert outcome == 400 or [entry.status for entry in outcome] == [422, 400]


def test_deep_nesting_is_refused():
    deep = b'{"query":"a","candidates":["a"],"signals":' + b"[" * 200_000
    assert refused(read_request, deep).status == 422
    assert refused(read_ranks, b"[" + deep + b"]").message == "the body is nested too deeply"


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"query": 3}, "query", "Expected `str`, got `int`"),
        ({"query": None}, "query", "Expected `str`, got `null`"),
        ({"candidates": "a"}, "candidates", "Expected `array`"),
        ({"candidates": [3]}, "candidates[0]", "got `int`"),
        ({"candidates": [{"name": "a"}]}, "candidates[0]", "unknown field `name`"),
        ({"candidates": [{"id": "a", "published_at": 1.7e12}]}, "candidates[0].published_at", "<= 253402300799"),
        ({"candidates": [{"id": "a", "published_at": "2024-01-01T00:00:00"}]}, "candidates[0].published_at", "timezone"),
        ({"candidates": [{"id": "a", "published_at": "yesterday"}]}, "candidates[0].published_at", "RFC3339"),
        ({"signals": {"x": "3"}}, "signals[...]", "Expected `float`, got `str`"),
        ({"signals": {"x": True}}, "signals[...]", "got `bool`"),
        ({"signals": [1]}, "signals", "got `array`"),
        ({"sesion": "s"}, None, "unknown field `sesion`"),
    ],
)
def test_another_shape_is_422_with_the_field(changes, field, says):
    trouble = refused(read_request, body(**changes))
    assert (trouble.status, trouble.code, trouble.field) == (422, "invalid", field)
    assert says in trouble.message
    assert field is None or trouble.message.startswith(field)


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
    assert read_feedbacks(b'[{"decision":"d","clicked":null}]') == [FeedbackRequest("d", None)]
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
