"""Schemas: what is taken, what is refused and with which words."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import unicodedata
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.service.http import schemas
from swerve.service.http.bodies import feedbacks_in, ranks_in
from swerve.service.http.schemas import read_feedback, read_list, read_rank
from swerve.service.turns import Turns
from swerve.serving.checks import check, check_query
from swerve.serving.messages import Asked, FeedbackRequest, RankRequest, Refused, encode, normalise


@dataclass(frozen=True)
class Small:
    candidates: int = 4
    query_chars: int = 10
    id_chars: int = 5
    session_chars: int = 6
    batch: int = 3


LIMITS = Small()


def read_ranks(text: bytes) -> list[Asked | Refused]:
    return asyncio.run(ranks_in(text, LIMITS, Turns()))


def read_feedbacks(text: bytes) -> list[FeedbackRequest | Refused]:
    return asyncio.run(feedbacks_in(text, LIMITS, Turns()))


def read_request(text: bytes) -> RankRequest:
    """A body, its candidates read too."""
    return read_rank(text).request()


def body(**changes) -> bytes:
    return json.dumps({"query": "storm", "candidates": ["a", "b"], **changes}).encode()


def refused(act, *arguments) -> Refused:
    with pytest.raises(Refused) as caught:
        act(*arguments)
    return caught.value


def status_of(act, *arguments):
    """What it gives, or the status it is refused with."""
    try:
        return act(*arguments)
    except Refused as trouble:
        return trouble.status


# decoding ------------------------------------------------------------------------------------------------------------------------


def test_a_full_request():
    dated = [{"id": "b", "published_at": 1.7e9}, {"id": "c", "published_at": "2024-01-01T01:00:00+01:00"}, {"id": "d"}]
    request = read_request(body(candidates=["a", *dated], signals={"news": 3}, session="s"))
    assert request.ids() == ["a", "b", "c", "d"]
    assert request.newest() == 1704067200.0
    assert request.signals == {"news": 3.0}
    check(request, LIMITS)
    check(request, LIMITS, {"news"})


def test_without_dates_there_is_no_newest_one():
    request = read_request(body())
    assert math.isnan(request.newest())
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
    assert first.request() == third.request() == RankRequest("storm", ["a", "b"])
    assert isinstance(second, Refused) and second.field == "query"
    assert read_feedbacks(b'[{"decision":"d","clicked":null}]') == [FeedbackRequest("d", None)]
    assert read_ranks(b"[]") == []


def test_a_batch_that_is_too_long_or_no_list():
    assert refused(read_ranks, b"[" + b",".join([body()] * 4) + b"]").code == "too_many"
    assert refused(read_ranks, body()).status == 422
    assert refused(read_feedbacks, b"[").status == 400


def test_the_parameters_of_the_list():
    assert read_list({}) == schemas.ListRequest("traffic", 20)
    assert read_list({"order": "shifted", "limit": "7"}) == schemas.ListRequest("shifted", 7)
    for wrong in ({"limit": "0"}, {"limit": "1001"}, {"limit": "many"}, {"order": "name"}, {"page": "2"}):
        assert refused(read_list, wrong).status == 422
    assert refused(read_list, {"limit": "0"}).field == "limit"


# checking ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"query": ""}, "empty", "query"),
        ({"query": " \t\u3000\x1f"}, "empty", "query"),
        ({"query": "x" * 11}, "too_long", "query"),
        ({"query": "a\0b"}, "not_text", "query"),
        ({"candidates": []}, "empty", "candidates"),
        ({"candidates": list("abcde")}, "too_many", "candidates"),
        ({"candidates": ["a", "b", {"id": "a"}]}, "repeated", "candidates"),
        ({"candidates": ["a", ""]}, "empty", "candidates[1]"),
        ({"candidates": ["a", "b\0"]}, "not_text", "candidates[1]"),
        ({"candidates": ["a", {"id": "x" * 6}]}, "too_long", "candidates[1]"),
        ({"session": ""}, "empty", "session"),
        ({"session": "x" * 7}, "too_long", "session"),
        ({"session": "\0"}, "not_text", "session"),
        ({"signals": {"newz": 1}}, "unknown_signal", "signals"),
    ],
)
def test_what_is_checked(changes, code, field):
    request = read_request(body(**changes))
    trouble = refused(check, request, LIMITS, {"news", "views"})
    assert (trouble.status, trouble.code, trouble.field) == (422, code, field)


def test_what_is_just_allowed():
    longest = read_request(body(query="x" * 10, candidates=["x" * 5, "y" * 5, "z" * 5, "w"], session="s" * 6))
    for request in (longest, FeedbackRequest("d", "x" * 5), FeedbackRequest("d", None)):
        assert check(request, LIMITS) is None


def test_what_was_clicked_is_checked():
    assert refused(check, FeedbackRequest("d", "x" * 6), LIMITS).field == "clicked"
    assert refused(check, FeedbackRequest("d", "\0"), LIMITS).code == "not_text"


def test_an_unknown_signal_names_the_known_ones():
    request = read_request(body(signals={"newz": 1}))
    message = refused(check, request, LIMITS, {"news", "views"}).message
    assert "it knows news, views" in message and "did you mean 'news'?" in message
    assert "its configuration names none" in refused(check, request, LIMITS, frozenset()).message
    check(request, LIMITS)


# normalising ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("  Hurricane   SEASON\n", "hurricane season"),
        ("Straße", "strasse"),
        ("ﬁne ＡＢＣ", "fine abc"),
        ("Cafe\u0301", "caf\u00e9"),
        ("a\u00a0\u2003b", "a b"),
        ("ΣΊΣΥΦΟΣ", "σίσυφοσ"),
    ],
)
def test_texts_that_mean_the_same_are_one_query(text, query):
    assert normalise(text) == query


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    once = normalise(text)
    assert normalise(once) == once


@given(st.text(st.characters(max_codepoint=127)))
def test_the_quick_way_gives_the_same(text):
    assert normalise(text) == " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def test_every_character_is_stable_and_only_white_space_vanishes():
    for point in range(sys.maxunicode + 1):
        if not 0xD800 <= point < 0xE000:
            character = chr(point)
            query = normalise(character)
            assert normalise(query) == query
            assert (query == "") == character.isspace()  # what check_query relies on


def test_a_query_of_the_path_is_checked():
    check_query("storm", LIMITS)
    assert refused(check_query, "x" * 11, LIMITS).field == "query"


# answers -------------------------------------------------------------------------------------------------------------------------


def test_answers_as_json():
    degraded = schemas.RankResponse(None, ["a"], False, None, None, True)
    expected = {"decision": None, "ranking": ["a"], "explored": False, "probability": None, "phase": None, "degraded": True}
    assert json.loads(encode(degraded)) == expected
    trouble = schemas.Problem(schemas.Error("empty", "query is empty", "query", "r-1"))
    assert json.loads(encode([degraded, trouble]))[1] == {
        "error": {"code": "empty", "message": "query is empty", "field": "query", "request_id": "r-1"}
    }
    assert json.loads(encode(schemas.Error("gone", "m"))) == {"code": "gone", "message": "m"}


def test_an_explained_query_reads_back():
    arm = schemas.ArmState("a", 10, 3, 4, 1, 1e9, 1.1e9, 0.25)
    alarm = schemas.Alarm(1.05e9, "volume", 0.9, "true", 2)
    state = schemas.QueryState("storm", 3, 4, 10, 1e9, 1.1e9, False, {"volume": 0.1, "age": None}, [arm], [alarm])
    assert msgspec.json.decode(encode(state), type=schemas.QueryState) == state
