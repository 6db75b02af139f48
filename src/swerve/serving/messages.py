"""What goes in and what comes out: requests and answers, as plain structures. Nothing here knows how they travel."""

from __future__ import annotations

import math
import unicodedata
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from swerve.core.errors import SwerveError
from swerve.serving.shapes import explained

#: Years 1 to 9999 as unix seconds: what lies outside is no date (milliseconds, most likely).
FIRST_SECOND, LAST_SECOND = -62135596800.0, 253402300799.0
#: The most lines that `GET /v1/queries` gives.
MOST_LISTED = 1000

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


#: The results on offer, best first as far as the caller knows.
Candidates = list[str | Candidate]


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


class Asked(Struct, forbid_unknown_fields=True, gc=False):
    """A `RankRequest` as it came, its candidates not read yet: most are those of the request before, which is seen at a glance."""

    query: str
    candidates: Annotated[msgspec.Raw, Meta(extra={"decoded_as": Candidates})]
    signals: dict[str, float] | None = None
    session: str | None = None

    def read(self) -> Candidates:
        """The candidates; raises `Refused`."""
        return read_candidates(self.candidates)


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
    compiling: Annotated[
        list[int] | None, Meta(description="Capacities that are still compiled: queries with more candidates have the given order.")
    ] = None


_candidates = msgspec.json.Decoder(Candidates)


def read_candidates(raw: msgspec.Raw) -> Candidates:
    """Candidates as they were sent; raises `Refused`."""
    try:
        return _candidates.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
        raise misshapen(trouble, Candidates, bytes(raw), "candidates") from None


def ids_of(candidates: Candidates) -> list[str]:
    """The candidates' ids, in the given order."""
    return [c if type(c) is str else c.id for c in candidates]  # type: ignore[union-attr]


def newest_of(candidates: Candidates) -> float:
    """When the newest candidate was published, in unix seconds; NaN when none says."""
    latest = -math.inf
    for c in candidates:
        if type(c) is not str and (at := c.published_at) is not None:  # type: ignore[union-attr]
            seconds = at.timestamp() if isinstance(at, datetime) else at
            latest = max(latest, seconds)
    return latest if latest > -math.inf else math.nan


#: Any answer, or list of answers, as JSON.
encode = msgspec.json.Encoder().encode


def normalise(text: str) -> str:
    """The query that a text stands for: compatibility forms, case and white space make no difference.

    >>> normalise("  Café\\tＮＯＩＲ ")
    'café noir'
    """
    if text.isascii():
        return " ".join(text.lower().split())  # the same, quickly
    # folding can undo the composed form (ΐ becomes three characters): compose again, so that normalising twice changes nothing
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
