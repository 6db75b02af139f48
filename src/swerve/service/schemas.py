"""What goes over the wire: the requests and the answers of the service, and what a request must be like.

A request is refused in two steps. The decoder refuses what is not JSON (400) and what has another shape (422); `check` refuses
what is too long, empty, repeated or not text (422). Numbers are finite after that: JSON has no NaN, and the decoder refuses what
overflows.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from swerve.core.errors import SwerveError, nearest, shown

#: Years 1 to 9999 as unix seconds: what lies outside is no date (milliseconds, most likely).
FIRST_SECOND, LAST_SECOND = -62135596800.0, 253402300799.0
#: The most lines that `GET /v1/queries` gives.
MOST_LISTED = 1000

Shape = TypeVar("Shape")
Seconds = Annotated[float, Meta(ge=FIRST_SECOND, le=LAST_SECOND, description="Unix seconds.")]
Instant = Annotated[datetime, Meta(tz=True, description="RFC 3339, with an offset or Z.")]


class Refused(SwerveError):  # noqa: N818 - it names what happened to the request
    """A request that the service does not take: the status to answer with, a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field


# requests ------------------------------------------------------------------------------------------------------------------------


class Candidate(Struct, forbid_unknown_fields=True, gc=False):
    """One result on offer, with the time it was published."""

    id: str
    published_at: Seconds | Instant | None = None


class RankRequest(Struct, forbid_unknown_fields=True, gc=False):
    """A query and the results on offer for it, best first as far as the caller knows."""

    query: str
    candidates: list[str | Candidate]
    signals: Annotated[dict[str, float] | None, Meta(description="Numbers of your own, under the names of the configuration.")] = (
        None
    )
    session: Annotated[
        str | None, Meta(description="Who searches, by any id: the next query of the same session tells a reformulation.")
    ] = None

    def ids(self) -> list[str]:
        """The candidates' ids, in the given order."""
        return [c if type(c) is str else c.id for c in self.candidates]  # type: ignore[union-attr]

    def newest(self) -> float:
        """When the newest candidate was published, in unix seconds; NaN when none says."""
        latest = -math.inf
        for c in self.candidates:
            if type(c) is not str and (at := c.published_at) is not None:  # type: ignore[union-attr]
                seconds = at.timestamp() if isinstance(at, datetime) else at
                latest = max(latest, seconds)
        return latest if latest > -math.inf else math.nan


class Asked(Struct, forbid_unknown_fields=True, gc=False):
    """A `RankRequest` as it came, its candidates not read yet: most are those of the request before, which is seen at a glance."""

    query: str
    candidates: msgspec.Raw
    signals: dict[str, float] | None = None
    session: str | None = None

    def request(self) -> RankRequest:
        """The request with its candidates read; raises `Refused`."""
        try:
            return RankRequest(self.query, _candidates.decode(self.candidates), self.signals, self.session)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
            raise _misshapen(trouble, "candidates") from None


class FeedbackRequest(Struct, forbid_unknown_fields=True, gc=False):
    """What became of a decision: the id of the candidate that was clicked, or null when none was. `clicked` must be there."""

    decision: str
    clicked: str | None


class ShiftRequest(Struct, forbid_unknown_fields=True):
    """What an operator's shift says beside its path: nothing."""


class ListRequest(Struct, forbid_unknown_fields=True):
    """Which queries `GET /v1/queries` shows."""

    order: Literal["traffic", "shifted"] = "traffic"
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 20


# answers -------------------------------------------------------------------------------------------------------------------------


class RankResponse(Struct, gc=False):
    """The order to show. Degraded: the given order, without a decision to send feedback for."""

    decision: Annotated[str | None, Meta(description="Send it back with the feedback.")]
    ranking: Annotated[list[str], Meta(description="The chosen candidate first, the rest as given.")]
    explored: Annotated[
        bool, Meta(description="Whether the first one was chosen to learn about it rather than as the best one known.")
    ]
    probability: Annotated[float | None, Meta(description="Estimate of the chance that this candidate was to be chosen.")]
    phase: Annotated[int | None, Meta(description="Phase of the query, from 1: each alarm and each restart begins one.")]
    degraded: Annotated[bool, Meta(description="The state could not be used in time: the order is the given one.")]


#: What feedback comes to.
Status = Literal["learned", "late", "ignored", "expired"]


class FeedbackResponse(Struct, gc=False):
    """What was done with the feedback. A repeat is answered like the first one, and counts once.

    `learned`; `late`: counted, not learned (the policy has begun anew or dropped what it knew of that time, or the candidate has
    gone); `ignored`: counted, not learned (the session has been heard on this result in this phase, or requests without a session
    have had their share); `expired`: outside the window, nothing is counted.
    """

    status: Status


class Error(Struct, omit_defaults=True):
    """What was wrong: a code for programs, a message for people, the field and the request it was in."""

    code: str
    message: str
    field: str | None = None
    request_id: str | None = None


class Problem(Struct):
    """The answer to a request that was refused, or that could not be served."""

    error: Error


class ArmState(Struct):
    """One candidate of a query: lifetime totals, and those of the current phase beside them."""

    id: str
    plays: int
    clicks: int
    phase_plays: int
    phase_clicks: int
    first_seen: float
    last_offered: float
    estimate: float | None = None


class Alarm(Struct):
    """One alarm, and the signal that raised it: `operator` when a person did, `clicks` when it was seen in the clicks alone.

    What the test concluded: `open` (it runs), `true` (the intent had shifted), `false` (it had not), `none` (there was no test, or
    it was cut short by the next alarm).
    """

    at: float
    signal: str
    value: float | None
    verdict: Literal["open", "true", "false", "none"]
    phase: int


class QueryState(Struct):
    """What the service knows of one query. Its text is null unless the operator chose to store queries."""

    query: str | None
    phase: int
    phases: int
    requests: int
    created: float
    seen: float
    testing: bool
    signals: dict[str, float | None]
    arms: list[ArmState]
    alarms: list[Alarm]


class QuerySummary(Struct):
    """One line of the list of queries: its key in hex, and its text when queries are stored."""

    key: str
    query: str | None
    requests: int
    phase: int
    seen: float
    shifted: float | None
    testing: bool


class QueryList(Struct):
    """Queries with the most traffic, or those that shifted last."""

    order: Literal["traffic", "shifted"]
    queries: list[QuerySummary]


class ShiftResponse(Struct):
    """The phase that an operator's shift began."""

    phase: int


class Health(Struct, omit_defaults=True):
    """Whether the service is alive, or ready; and if it is not, why."""

    status: Literal["ok", "starting", "stopping", "unavailable"]
    reason: str | None = None


# the door ------------------------------------------------------------------------------------------------------------------------


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


_candidates = msgspec.json.Decoder(list[str | Candidate])
ONE_RANK = msgspec.json.Decoder(Asked)
MANY_RANKS = msgspec.json.Decoder(list[Asked])
ONE_FEEDBACK = msgspec.json.Decoder(FeedbackRequest)
MANY_FEEDBACKS = msgspec.json.Decoder(list[FeedbackRequest])
_shift = msgspec.json.Decoder(ShiftRequest)
RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_encoder = msgspec.json.Encoder()

#: Any answer, or list of answers, as JSON.
encode = _encoder.encode


def read_rank(body: bytes) -> Asked:
    """The request in a body of `POST /v1/rank`."""
    return decode(ONE_RANK, body)


def read_feedback(body: bytes) -> FeedbackRequest:
    """The request in a body of `POST /v1/feedback`."""
    return decode(ONE_FEEDBACK, body)


def read_ranks(body: bytes) -> list[Asked]:
    """The requests in a body of `POST /v1/rank/batch`, if all of them have their shape; `swerve.service.turns` reads the others."""
    return decode(MANY_RANKS, body)


def read_shift(body: bytes) -> None:
    """The body of an operator's shift: none, or an empty object."""
    if body:
        decode(_shift, body)


def read_list(parameters: Mapping[str, str]) -> ListRequest:
    """The parameters of `GET /v1/queries`."""
    try:
        return msgspec.convert(dict(parameters), ListRequest, strict=False)
    except msgspec.ValidationError as trouble:
        raise _misshapen(trouble) from None


def normalise(text: str) -> str:
    """The query that a text stands for: compatibility forms, case and white space make no difference.

    >>> normalise("  Café\\tＮＯＩＲ ")
    'café noir'
    """
    if text.isascii():
        return " ".join(text.lower().split())  # the same, quickly
    # folding can undo the composed form (ΐ becomes three characters): compose again, so that normalising twice changes nothing
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def check(request: RankRequest | FeedbackRequest, limits: Limits, signals: Collection[str] | None = None) -> None:
    """Refuse what is too long, empty, repeated or not text; and numbers whose names are not among `signals`, when that is given."""
    if type(request) is FeedbackRequest:
        if request.clicked is not None:
            _text("clicked", request.clicked, limits.id_chars)
        return
    assert type(request) is RankRequest
    check_query(request.query, limits)
    check_candidates(request, limits)
    check_rest(request, limits, signals)


def check_candidates(request: RankRequest, limits: Limits) -> None:
    """Refuse candidates that are none, too many, the same, too long or no text."""
    ids = request.ids()
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


def check_rest(request: RankRequest, limits: Limits, signals: Collection[str] | None = None) -> None:
    """Refuse a session that is too long or no text, and numbers that nobody has configured."""
    if request.session is not None:
        _text("session", request.session, limits.session_chars)
    if request.signals and signals is not None:
        for name in request.signals:
            if name not in signals:
                listed = f"it knows {', '.join(sorted(signals))}" if signals else "its configuration names none"
                message = f"signals has {shown(name)}, which the service does not know; {listed}{nearest(name, signals)}"
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


def one_limit(limits: Limits) -> int:
    """Bytes that one request needs at most: twelve for a character, as half pairs are escaped, and room for the rest.

    More would take milliseconds to read, for nothing.
    """
    return 65_536 + 12 * (limits.query_chars + limits.session_chars + limits.candidates * limits.id_chars)


def decode(decoder: msgspec.json.Decoder[Shape], body: bytes) -> Shape:
    """What a body holds; raises `Refused`."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
        raise _misshapen(trouble) from None


def _misshapen(trouble: Exception, inside: str = "") -> Refused:
    """The decoder's complaint, in our words where its own are not plain; `inside` is the field that was read by itself."""
    if isinstance(trouble, msgspec.ValidationError):
        message, _, where = str(trouble).partition(" - at `$")
        field = inside + where.rstrip("`") if inside else where.rstrip("`").lstrip(".") or None
        return Refused(422, "invalid", f"{field}: {message}" if field else message, field)
    if isinstance(trouble, UnicodeDecodeError):
        return Refused(400, "not_json", f"the body is not UTF-8: {trouble.reason}")
    if isinstance(trouble, RecursionError):
        return Refused(400, "not_json", "the body is nested too deeply")
    return Refused(400, "not_json", str(trouble))
