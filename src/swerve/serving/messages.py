"""Requests and answers as plain structures, independent of HTTP. The client shares them."""

from __future__ import annotations

import math
import unicodedata
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from swerve.core.errors import SwerveError
from swerve.serving.shapes import explained

#: Years 1 to 9999 as unix seconds. A number outside is not a date: most likely it is in milliseconds.
FIRST_SECOND, LAST_SECOND = -62135596800.0, 253402300799.0
#: Queries that `GET /v1/queries` lists by default, and at most.
LISTED, MOST_LISTED = 20, 1000

Seconds = Annotated[float, Meta(ge=FIRST_SECOND, le=LAST_SECOND, description="Unix seconds.")]
Instant = Annotated[datetime, Meta(tz=True, description="RFC 3339, with an offset or Z.")]


class Refused(SwerveError):  # noqa: N818 - it names what happened to the request
    """A refused request: the status of the answer, a code for programs, a message for people, and the path of the wrong field."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field


# requests ------------------------------------------------------------------------------------------------------------------------


class Candidate(Struct, forbid_unknown_fields=True, gc=False):
    """One result on offer, with the time it was published."""

    id: str
    published_at: Seconds | Instant | None = None


#: The results on offer, best first as far as the caller knows.
Candidates = list[str | Candidate]


class RankRequest(Struct, forbid_unknown_fields=True, gc=False):
    """A query and the results on offer for it, best first as far as the caller knows."""

    query: str
    candidates: list[str | Candidate]
    signals: Annotated[
        dict[str, float | None] | None,
        Meta(description="Numbers of your own, by their names in the configuration. Null means missing, as if it were left out."),
    ] = None
    session: Annotated[
        str | None,
        Meta(description="Any id of the person who searches: another query of the same session soon after is a reformulation."),
    ] = None


class Asked(Struct, forbid_unknown_fields=True, gc=False):
    """A `RankRequest` whose candidates are not decoded yet: most requests repeat the bytes of the one before."""

    query: str
    candidates: Annotated[msgspec.Raw, Meta(extra={"decoded_as": Candidates})]
    signals: dict[str, float | None] | None = None
    session: str | None = None

    def read(self) -> Candidates:
        """Decode the candidates; raises `Refused`."""
        return read_candidates(self.candidates)


class FeedbackRequest(Struct, forbid_unknown_fields=True, gc=False):
    """Feedback for a decision: the id of the clicked candidate, or null for no click. `clicked` is required."""

    decision: str
    clicked: str | None


class ShiftRequest(Struct, forbid_unknown_fields=True):
    """The body of an operator's shift: an empty object. The path has the query."""


class ListRequest(Struct, forbid_unknown_fields=True):
    """The parameters of `GET /v1/queries`."""

    order: Literal["traffic", "shifted"] = "traffic"
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = LISTED


# answers -------------------------------------------------------------------------------------------------------------------------


class RankResponse(Struct, gc=False):
    """The order to show. A degraded answer has the given order, and no decision to send feedback for."""

    decision: Annotated[str | None, Meta(description="The token to send back with the feedback.")]
    ranking: Annotated[list[str], Meta(description="The chosen candidate first, the rest as given.")]
    explored: Annotated[bool, Meta(description="Whether another candidate was more likely to be chosen.")]
    probability: Annotated[
        float | None, Meta(description="Estimate of the probability with which the policy chose the first candidate.")
    ]
    phase: Annotated[
        int | None, Meta(description="Phase of the query, from 1: each alarm and each restart of the policy begins one.")
    ]
    degraded: Annotated[bool, Meta(description="The state could not be used in time, so the order is the given one.")]


#: Outcome of feedback.
Status = Literal["learned", "late", "ignored", "expired"]


class FeedbackResponse(Struct, gc=False):
    """The outcome of feedback. A repeat gets the answer of the first one and counts once.

    `learned`; `late`: counted, not learned (the policy has started over or dropped its record of that time, or the candidate is no
    longer in the query's record); `ignored`: counted, not learned (the session, or the requests without one, have used their units
    of evidence in this phase); `expired`: outside the window, nothing is counted.
    """

    status: Status


class Error(Struct, omit_defaults=True):
    """An error: a code for programs, a message for people, the path of the wrong field, the id of the request."""

    code: str
    message: str
    field: str | None = None
    request_id: str | None = None


class Problem(Struct):
    """The answer to a request that was refused, or that could not be served."""

    error: Error


class ArmState(Struct):
    """One candidate of a query: its counts over its lifetime and in the current phase."""

    id: str
    plays: int
    clicks: int
    phase_plays: int
    phase_clicks: int
    first_seen: float
    last_offered: float
    estimate: float | None = None


class Alarm(Struct):
    """One alarm and the signal that raised it: `operator` for a person, `clicks` when the change was seen in the clicks alone.

    Verdicts of its test: `open` (it runs), `true` (the intent had shifted), `false` (it had not), `none` (there was no test, or the
    next alarm ended it).
    """

    at: float
    signal: str
    value: float | None
    verdict: Literal["open", "true", "false", "none"]
    phase: int


class QueryState(Struct):
    """The state of one query. Its text is null unless `store.store_queries` is set."""

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
    """One query of the list: its key in hexadecimal, and its text if `store.store_queries` is set."""

    key: str
    query: str | None
    requests: int
    phase: int
    seen: float
    shifted: float | None
    testing: bool


class QueryList(Struct):
    """The queries with the most traffic, or those that shifted last."""

    order: Literal["traffic", "shifted"]
    queries: list[QuerySummary]


class ShiftResponse(Struct):
    """The phase that an operator's shift began."""

    phase: int


class Health(Struct, omit_defaults=True):
    """Whether the service is alive, or ready; the reason if it is not."""

    status: Literal["ok", "starting", "stopping", "unavailable"]
    reason: str | None = None
    compiling: Annotated[
        list[int] | None, Meta(description="Capacities that are not compiled yet: queries that need them get the given order.")
    ] = None


_candidates = msgspec.json.Decoder(Candidates)


def read_candidates(raw: msgspec.Raw) -> Candidates:
    """Decode candidates; raises `Refused`."""
    try:
        return _candidates.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
        raise misshapen(trouble, Candidates, bytes(raw), "candidates") from None


def ids_of(candidates: Candidates) -> list[str]:
    """Return the candidates' ids, in the given order."""
    return [c if type(c) is str else c.id for c in candidates]  # type: ignore[union-attr]


def newest_of(candidates: Candidates) -> float:
    """Return when the newest candidate was published, in unix seconds; NaN when none has a date."""
    latest = -math.inf
    for c in candidates:
        if type(c) is not str and (at := c.published_at) is not None:  # type: ignore[union-attr]
            seconds = at.timestamp() if isinstance(at, datetime) else at
            latest = max(latest, seconds)
    return latest if latest > -math.inf else math.nan


#: Encodes an answer, or a list of answers, as JSON.
encode = msgspec.json.Encoder().encode


def normalise(text: str) -> str:
    """Return the normal form of a query: NFKC, case folded, single spaces.

    >>> normalise("  Café\\tＮＯＩＲ ")
    'café noir'
    """
    if text.isascii():
        return " ".join(text.lower().split())  # equal for ASCII, and faster
    # Folding can decompose (ΐ becomes three characters): composing again makes the normal form stable.
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def misshapen(trouble: Exception, shape: Any, body: bytes, inside: str = "") -> Refused:
    """Return the refusal of a `body` that the decoder could not read as the type `shape`.

    `inside` is the path of `body` within the request, for a field that is decoded by itself.
    """
    if isinstance(trouble, msgspec.ValidationError):
        message, field = explained(trouble, shape, body, inside)
        return Refused(422, "invalid", message, field)
    if isinstance(trouble, UnicodeDecodeError):
        return Refused(400, "not_json", f"the body is not UTF-8: {trouble.reason}")
    if isinstance(trouble, RecursionError):
        return Refused(400, "not_json", "the body is nested too deeply")
    if str(trouble) == "Input data was truncated":
        return Refused(400, "not_json", "the body ends before its JSON is complete" if body.strip() else "the body is empty")
    return Refused(400, "not_json", str(trouble))
