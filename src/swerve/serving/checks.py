"""Checks of requests: refuse values that are too long, empty, repeated, unknown or not text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from swerve.core.errors import nearest, shown
from swerve.serving.messages import Candidates, Event, FeedbackRequest, Refused, ids_of

#: Events of one request: more than a page has results, in several kinds.
MOST_EVENTS = 256
#: Weights of the kinds of events where nothing is configured.
PLAIN: Mapping[str, float] = {"click": 1.0}


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


class Subject(Protocol):
    """What concerns one query, or all."""

    @property
    def query(self) -> str | None: ...
    @property
    def locale(self) -> str | None: ...
    @property
    def filter(self) -> str | None: ...
    @property
    def segment(self) -> str | None: ...


def check_feedback(request: FeedbackRequest, limits: Limits, kinds: Collection[str] = PLAIN) -> None:
    """Refuse events that name no result, or two, or an unknown kind, and ids that are too long, empty, repeated or not text."""
    check_events(request.events, limits, kinds)
    if request.shown is not None:
        check_candidates(request.shown, limits, "shown")


def check_events(events: Sequence[Event], limits: Limits, kinds: Collection[str] = PLAIN) -> None:
    """Refuse too many events, unknown kinds, events that name no result, or two, and ids that are too long, empty or not text."""
    if len(events) > MOST_EVENTS:
        raise Refused(422, "too_many", f"events has {len(events)} entries; at most {MOST_EVENTS} are allowed", "events")
    for index, event in enumerate(events):
        if event.kind not in kinds:
            check_kind(event, index, kinds)
        if (event.result is None) == (event.position is None):
            found = "neither result nor position" if event.result is None else "both result and position"
            raise Refused(422, "invalid", f"events[{index}] has {found}; it must have one of them", f"events[{index}]")
        if event.result is not None:
            _text(f"events[{index}].result", event.result, limits.id_chars)
        if event.id is not None:
            _text(f"events[{index}].id", event.id, limits.id_chars)


def check_kind(event: Event, index: int, known: Collection[str]) -> None:
    """Refuse an event of a kind that is not configured."""
    if event.kind not in known:
        kind, listed = f"events[{index}].kind", ", ".join(sorted(known))
        message = f"{kind} is {shown(event.kind)}, which the service does not know; it knows {listed}{nearest(event.kind, known)}"
        raise Refused(422, "unknown_event", message, kind)


def check_id(field: str, text: str, limits: Limits) -> None:
    """Refuse the id of a result that is too long, empty or not text."""
    _text(field, text, limits.id_chars)


def check_parts(limits: Limits, **parts: str | None) -> None:
    """Refuse parts of a query's key that are too long, empty or not text."""
    for name, part in parts.items():
        if part is not None:
            _text(name, part, limits.query_chars)


def check_subject(request: Subject, limits: Limits, what: str) -> None:
    """Refuse a query, or parts of its key, that no request can have, and parts without a query."""
    parts = {"locale": request.locale, "filter": request.filter, "segment": request.segment}
    if request.query is not None:
        check_query(request.query, limits)
        check_parts(limits, **parts)
        return
    for name, part in parts.items():
        if part is not None:
            raise Refused(422, "invalid", f"{name} is given without query; a {what} for all queries has no {name}", name)


def check_candidates(candidates: Candidates | Sequence[str], limits: Limits, field: str = "candidates") -> None:
    """Refuse an empty list of candidates, too many, repeated ids, and ids that are too long or not text."""
    ids = ids_of(candidates)
    if not ids:
        raise Refused(422, "empty", f"{field} is empty; there must be at least one", field)
    if len(ids) > limits.candidates:
        message = f"{field} has {len(ids)} entries; at most {limits.candidates} are allowed"
        raise Refused(422, "too_many", message, field, limits.candidates)
    if len(set(ids)) < len(ids):
        twice = next(name for index, name in enumerate(ids) if name in ids[:index])
        raise Refused(422, "repeated", f"{field} has {shown(twice)} twice; ids must differ", field)
    # All ids are checked together first: it is much faster, and hardly any request is wrong.
    joined = "".join(ids)
    if "" in ids or "\0" in joined or len(joined) > limits.id_chars:
        for index, name in enumerate(ids):
            _text(f"{field}[{index}]", name, limits.id_chars)


def check_positions(events: Sequence[Event], results: int) -> None:
    """Refuse events on positions below the last of so many results."""
    for index, event in enumerate(events):
        if event.position is not None and event.position > results:
            field = f"events[{index}].position"
            raise Refused(
                422, "not_offered", f"{field}: there is no position {event.position}; {results} results were shown", field
            )


def check_session(session: str, limits: Limits) -> None:
    """Refuse a session that is too long, empty or not text."""
    if not 0 < len(session) <= limits.session_chars or "\0" in session:
        _text("session", session, limits.session_chars)


def check_unit(unit: str, limits: Limits) -> None:
    """Refuse the unit of an experiment that is too long, empty or not text."""
    _text("unit", unit, limits.session_chars)


def check_query_id(query_id: str, limits: Limits) -> None:
    """Refuse the id of a query that is too long, empty or not text."""
    _text("query_id", query_id, limits.session_chars)


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
