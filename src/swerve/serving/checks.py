"""What a request must be like: refused is what is too long, empty, repeated, unknown or no text."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from swerve.core.errors import nearest, shown
from swerve.serving.messages import Candidates, FeedbackRequest, RankRequest, Refused, ids_of


class Limits(Protocol):
    """The part of the configuration's limits that a request is checked against."""

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
    """Refuse what is too long, empty, repeated or not text; and numbers whose names are not among `signals`, when that is given."""
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
    """Refuse candidates that are none, too many, the same, too long or no text."""
    ids = ids_of(candidates)
    if not ids:
        raise Refused(422, "empty", "candidates is empty; there must be at least one", "candidates")
    if len(ids) > limits.candidates:
        message = f"candidates has {len(ids)} entries; at most {limits.candidates} are allowed"
        raise Refused(422, "too_many", message, "candidates")
    if len(set(ids)) < len(ids):
        twice = next(name for place, name in enumerate(ids) if name in ids[:place])
        raise Refused(422, "repeated", f"candidates has {shown(twice)} twice; ids must differ", "candidates")
    # one look at all ids together: only when something is wrong is each looked at alone
    joined = "".join(ids)
    if "" in ids or "\0" in joined or len(joined) > limits.id_chars:
        for place, name in enumerate(ids):
            _text(f"candidates[{place}]", name, limits.id_chars)


def check_session(session: str, limits: Limits) -> None:
    """Refuse a session that is too long or no text."""
    _text("session", session, limits.session_chars)


def check_signals(given: Collection[str], known: Collection[str]) -> None:
    """Refuse numbers that nobody has configured."""
    for name in given:
        if name not in known:
            listed = f"it knows {', '.join(sorted(known))}" if known else "its configuration names none"
            message = f"signals has {shown(name)}, which the service does not know; {listed}{nearest(name, known)}"
            raise Refused(422, "unknown_signal", message, "signals")


def check_query(query: str, limits: Limits) -> None:
    """Refuse a query that is too long, holds a NUL, or has nothing in it."""
    _text("query", query, limits.query_chars)
    if query.isspace():  # no other text becomes empty when it is normalised
        raise Refused(422, "empty", "query is white space only; there must be something to search for", "query")


def _text(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise Refused(422, "too_long", f"{field} has {len(text)} characters; at most {most} are allowed", field)
    if not text:
        raise Refused(422, "empty", f"{field} is empty; it must have at least one character", field)
    if "\0" in text:
        raise Refused(422, "not_text", f"{field} holds a NUL character, which is not text", field)
