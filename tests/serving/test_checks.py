"""Checks of well-formed requests: refusals and their messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from serving.checking import LIMITS, refused

from swerve.serving.checks import check, check_query
from swerve.serving.messages import FeedbackRequest, RankRequest


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
    ],
)
def test_what_is_checked(changes, code, field):
    request = asked(**changes)
    trouble = refused(check, request, LIMITS, {"news", "views"})
    assert (trouble.status, trouble.code, trouble.field) == (422, code, field)


def test_what_is_just_allowed():
    longest = asked(query="x" * 10, candidates=["x" * 5, "y" * 5, "z" * 5, "w"], session="s" * 6)
    for request in (longest, FeedbackRequest("d", "x" * 5), FeedbackRequest("d", None)):
        assert check(request, LIMITS) is None


def test_what_was_clicked_is_checked():
    assert refused(check, FeedbackRequest("d", "x" * 6), LIMITS).field == "clicked"
    assert refused(check, FeedbackRequest("d", "\0"), LIMITS).code == "not_text"


def test_an_unknown_signal_names_the_known_ones():
    request = asked(signals={"newz": 1})
    message = refused(check, request, LIMITS, {"news", "views"}).message
    assert "it knows news, views" in message and "did you mean 'news'?" in message
    assert "its configuration names none" in refused(check, request, LIMITS, frozenset()).message
    check(request, LIMITS)


def test_a_query_of_the_path_is_checked():
    check_query("storm", LIMITS)
    assert refused(check_query, "x" * 11, LIMITS).field == "query"
