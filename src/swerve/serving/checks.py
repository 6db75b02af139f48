"""Checks of requests: refuse values that are too long, empty, repeated, unknown or not text."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from swerve.core.errors import nearest, shown
from swerve.serving.messages import Candidates, FeedbackRequest, RankRequest, Refused, ids_of


class Limits(Protocol):
    """The configured limits that requests are checked against."""

    @property
    def candidates(self) -> int: ...
    @property
    def query_chars(self) -> int: ...
    @property
    def id_chars(self) -> int: ...
    @property
    def session_chars(self) -> int: ...
    @property
    def batch(self) -> int: ...


def check(request: RankRequest | FeedbackRequest, limits: Limits, signals: Collection[str] | None = None) -> None:
    """Refuse values that are too long, empty, repeated or not text and, where `signals` is given, numbers of other names."""
    if type(request) is FeedbackRequest:
        if request.clicked is not None:
            _text("clicked", request.clicked, limits.id_chars)
        return
    assert type(request) is RankRequest
    check_query(request.query, limits)
    check_candidates(request.candidates, limits)
    if request.session is not None:
        check_session(request.session, limits)
    if request.signals and signals is not None:
        check_signals(request.signals, signals)


def check_candidates(candidates: Candidates, limits: Limits) -> None:
    """Refuse an empty list of candidates, too many, repeated ids, and ids that are too long or not text."""
    ids = ids_of(candidates)
    if not ids:
        raise Refused(422, "empty", "candidates is empty; there must be at least one", "candidates")
    if len(ids) > limits.candidates:
        message = f"candidates has {len(ids)} entries; at most {limits.candidates} are allowed"
        raise Refused(422, "too_many", message, "candidates")
    if len(set(ids)) < len(ids):
        twice = next(name for index, name in enumerate(ids) if name in ids[:index])
        raise Refused(422, "repeated", f"candidates has {shown(twice)} twice; ids must differ", "candidates")
    # All ids are checked together first: it is much faster, and hardly any request is wrong.
    joined = "".join(ids)
    if "" in ids or "\0" in joined or len(joined) > limits.id_chars:
        for index, name in enumerate(ids):
            _text(f"candidates[{index}]", name, limits.id_chars)


def check_session(session: str, limits: Limits) -> None:
    """Refuse a session that is too long, empty or not text."""
    _text("session", session, limits.session_chars)


def check_signals(given: Collection[str], known: Collection[str]) -> None:
    """Refuse numbers whose names are not configured."""
    for name in given:
        if name not in known:
            listed = f"it knows {', '.join(sorted(known))}" if known else "its configuration names none"
            message = f"signals has {shown(name)}, which the service does not know; {listed}{nearest(name, known)}"
            raise Refused(422, "unknown_signal", message, "signals")


def check_query(query: str, limits: Limits) -> None:
    """Refuse a query that is too long, contains a NUL, or is empty."""
    _text("query", query, limits.query_chars)
    if query.isspace():  # only such a text becomes empty when it is normalised
        raise Refused(422, "empty", "query is white space only; there must be something to search for", "query")


def _text(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise Refused(422, "too_long", f"{field} has {len(text)} characters; at most {most} are allowed", field)
    if not text:
        raise Refused(422, "empty", f"{field} is empty; it must have at least one character", field)
    if "\0" in text:
        raise Refused(422, "not_text", f"{field} contains a NUL character, which is not text", field)
