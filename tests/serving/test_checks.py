"""Checks of well-formed requests: refusals and their messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from serving.checking import LIMITS, refused

from swerve.serving.checks import (
    MOST_EVENTS,
    check_candidates,
    check_feedback,
    check_parts,
    check_query,
    check_session,
    check_signals,
)
from swerve.serving.messages import Event, FeedbackRequest, RankRequest, Refused

KNOWN = {"news", "views"}


def check(request: RankRequest) -> None:
    """All checks of a ranking, in the order of the service."""
    check_query(request.query, LIMITS)
    check_parts(LIMITS, locale=request.locale, filter=request.filter, segment=request.segment)
    check_candidates(request.candidates, LIMITS)
    if request.session is not None:
        check_session(request.session, LIMITS)
    check_signals(request.signals or {}, KNOWN)


def asked(**changes: Any) -> RankRequest:
    return msgspec.convert({"query": "storm", "candidates": ["a", "b"], **changes}, RankRequest)


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
        ({"locale": ""}, "empty", "locale"),
        ({"filter": "x" * 11}, "too_long", "filter"),
        ({"segment": "a\0b"}, "not_text", "segment"),
    ],
)
def test_what_is_checked(changes, code, field):
    trouble = refused(check, asked(**changes))
    assert (trouble.status, trouble.code, trouble.field) == (422, code, field)


def test_what_is_just_allowed():
    longest = asked(query="x" * 10, candidates=["x" * 5, "y" * 5, "z" * 5, "w"], session="s" * 6, locale="l" * 10, filter="f" * 10)
    refusals = []
    for request in (longest, asked(segment="s" * 10, signals={"news": 1})):
        try:
            check(request)
        except Refused as found:
            refusals.append(found.code)
    assert refusals == []


@pytest.mark.parametrize(
    ("said", "code", "field"),
    [
        ({"events": [{"kind": "click"}]}, "invalid", "events[0]"),
        ({"events": [{"kind": "click", "result": "a"}, {"kind": "click", "result": "a", "position": 1}]}, "invalid", "events[1]"),
        ({"events": [{"kind": "click", "result": "x" * 6}]}, "too_long", "events[0].result"),
        ({"events": [{"kind": "click", "result": ""}]}, "empty", "events[0].result"),
        ({"events": [{"kind": "click", "result": "\0"}]}, "not_text", "events[0].result"),
        ({"events": [{"kind": "click", "position": 1, "id": "x" * 6}]}, "too_long", "events[0].id"),
        ({"events": [{"kind": "click", "position": 1}] * (MOST_EVENTS + 1)}, "too_many", "events"),
        ({"events": [{"kind": "click", "position": 1}, {"kind": "view", "position": 1}]}, "unknown_event", "events[1].kind"),
        ({"events": [], "shown": []}, "empty", "shown"),
        ({"events": [], "shown": ["a", "a"]}, "repeated", "shown"),
        ({"events": [], "shown": ["a", "x" * 6]}, "too_long", "shown[1]"),
        ({"events": [], "shown": list("abcde")}, "too_many", "shown"),
    ],
)
def test_what_is_checked_of_feedback(said, code, field):
    request = msgspec.convert({"decision": "d", **said}, FeedbackRequest)
    trouble = refused(check_feedback, request, LIMITS)
    assert (trouble.status, trouble.code, trouble.field) == (422, code, field)


def test_what_is_just_allowed_of_feedback():
    click = Event("click", "x" * 5, id="e" * 5, at=1e9)
    for request in (
        FeedbackRequest("d", []),
        FeedbackRequest("d", [click, Event("click", position=1000)], ["x" * 5, "b", "c", "d"]),
        FeedbackRequest("d", [click] * MOST_EVENTS),
    ):
        check_feedback(request, LIMITS)


@pytest.mark.parametrize(
    "wrong", [{"position": 0}, {"position": 1001}, {"result": "a", "value": 1.01}, {"result": "a", "value": -0.01}, {"kind": 3}]
)
def test_an_event_has_bounds(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": "click", **wrong}, Event)


def test_an_unknown_kind_names_the_known_ones():
    request = FeedbackRequest("d", [Event("card", "a")])
    message = refused(check_feedback, request, LIMITS, {"cart", "click"}).message
    assert "it knows cart, click" in message and "did you mean 'cart'?" in message


def test_an_unknown_signal_names_the_known_ones():
    message = refused(check_signals, {"newz": 1}, KNOWN).message
    assert "it knows news, views" in message and "did you mean 'news'?" in message
    assert "its configuration names none" in refused(check_signals, {"newz": 1}, frozenset()).message


def test_a_query_of_the_path_is_checked():
    check_query("storm", LIMITS)
    assert refused(check_query, "x" * 11, LIMITS).field == "query"
