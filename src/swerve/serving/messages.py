"""Requests and answers as plain structures, independent of HTTP. The answers are those of `swerve_client`, which reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from swerve.core.errors import SwerveError
from swerve.core.examination import SLOTS
from swerve.serving.holdout import UnitName
from swerve.serving.shapes import explained
from swerve_client.answers import (
    Alarm as Alarm,
    ArmState as ArmState,
    Error as Error,
    FeedbackResponse as FeedbackResponse,
    ObserveResponse as ObserveResponse,
    Parts as Parts,
    Problem as Problem,
    QueryList as QueryList,
    QueryState as QueryState,
    QuerySummary as QuerySummary,
    RankResponse as RankResponse,
    ShiftResponse as ShiftResponse,
    Status as Status,
)
from swerve_client.naming import SEPARATOR, key_text as key_text, normalise as normalise

#: Years 1 to 9999 as unix seconds. A number outside is not a date: most likely it is in milliseconds.
FIRST_SECOND, LAST_SECOND = -62135596800.0, 253402300799.0
#: Queries that `GET /v1/queries` lists by default, and at most.
LISTED, MOST_LISTED = 20, 1000
#: The last position that an event may name: more results than any page shows.
MOST_POSITION = 1000

Shape = TypeVar("Shape")
Seconds = Annotated[float, Meta(ge=FIRST_SECOND, le=LAST_SECOND, description="Unix seconds.")]
Instant = Annotated[datetime, Meta(tz=True, description="RFC 3339, with an offset or Z.")]


class Refused(SwerveError):  # noqa: N818 - it names what happened to the request
    """A refused request: the status of the answer, a code for programs, a message for people, and the path of the wrong field.

    `limit` is how many there may be, where there were too many.
    """

    def __init__(self, status: int, code: str, message: str, field: str | None = None, limit: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field, self.limit = status, code, message, field, limit

    @property
    def error(self) -> Error:
        """The refusal as answers have it."""
        return Error(self.code, self.message, self.field, limit=self.limit)

    def moved(self, by: int) -> Refused:
        """Return the refusal with the offset in its message raised by `by`, so that it counts from the beginning of the body."""
        message = OFFSET.sub(lambda found: f"(byte {int(found[1]) + by})", self.message)
        return Refused(self.status, self.code, message, self.field, self.limit)


# requests ------------------------------------------------------------------------------------------------------------------------


class Candidate(Struct, forbid_unknown_fields=True, gc=False):
    """One result on offer, with the time it was published and the search engine's score."""

    id: str
    published_at: Seconds | Instant | None = None
    score: Annotated[float | None, Meta(description="The search engine's score: the higher, the better.")] = None


#: The results on offer, best first as far as the caller knows.
Candidates = list[str | Candidate]

Slots = Annotated[int, Meta(ge=1, le=SLOTS)]
Position = Annotated[int, Meta(ge=1, le=MOST_POSITION)]
Locale = Annotated[
    str | None, Meta(description="Language or region of the search, such as `en-US`: another locale is another query.")
]
Filter = Annotated[str | None, Meta(description="The filter that is set, in any form: another filter is another query.")]
Segment = Annotated[str | None, Meta(description="The kind of user or application: another segment is another query.")]
Namespace = Annotated[
    str | None,
    Meta(description="The index, locale or tenant, a name in `[namespaces]` of the configuration: its queries are its own."),
]


class RankRequest(Struct, forbid_unknown_fields=True, gc=False):
    """A query and the results on offer for it, best first as far as the caller knows."""

    query: str
    candidates: list[str | Candidate]
    slots: Annotated[
        Slots | None, Meta(description="Positions to fill, from the top; the rest is as given. Default: `policy.slots`.")
    ] = None
    signals: Annotated[
        dict[str, float | None] | None,
        Meta(description="Numbers of your own, by their names in the configuration. Null means missing, as if it were left out."),
    ] = None
    session: Annotated[
        str | None,
        Meta(description="Any id of the person who searches: another query of the same session soon after is a reformulation."),
    ] = None
    locale: Locale = None
    filter: Filter = None
    segment: Segment = None
    unit: UnitName = None
    namespace: Namespace = None
    query_id: Annotated[
        str | None, Meta(description="The `query_id` of User Behavior Insights: its events find the decision by it (`[ubi]`).")
    ] = None


class Asked(Struct, forbid_unknown_fields=True, gc=False):
    """A `RankRequest` whose candidates are not decoded yet: most requests repeat the bytes of the one before."""

    query: str
    candidates: Annotated[msgspec.Raw, Meta(extra={"decoded_as": Candidates})]
    slots: Slots | None = None
    signals: dict[str, float | None] | None = None
    session: str | None = None
    locale: str | None = None
    filter: str | None = None
    segment: str | None = None
    unit: str | None = None
    namespace: str | None = None
    query_id: str | None = None

    def read(self) -> Candidates:
        """Decode the candidates; raises `Refused`."""
        return read_candidates(self.candidates)


class Event(Struct, forbid_unknown_fields=True, gc=False):
    """Something that a user did on a ranking. It names a result, by its id or by its position."""

    kind: Annotated[str, Meta(description="`click`, or a kind that the configuration names (`feedback.events`).")]
    result: Annotated[str | None, Meta(description="The id of the result.")] = None
    position: Annotated[
        Position | None, Meta(description="Instead of `result`: its position, from 1, in `shown`, else in the ranking.")
    ] = None
    id: Annotated[str | None, Meta(description="Any id: it counts once. Without one a kind counts once for a result.")] = None
    at: Annotated[Seconds | Instant | None, Meta(description="When it happened; kept in recordings.")] = None
    value: Annotated[float, Meta(ge=0, le=1, description="The share of its kind's weight that the event is worth.")] = 1.0


class FeedbackRequest(Struct, forbid_unknown_fields=True, gc=False):
    """Events on a ranking; an empty list says that nobody clicked. Any number of requests may follow each other for a decision."""

    decision: str
    events: list[Event]
    shown: Annotated[
        list[str] | None,
        Meta(description="The results that were really shown, from the top, where they differ from the ranking."),
    ] = None


class ObserveRequest(Struct, forbid_unknown_fields=True, gc=False):
    """A ranking that Swerve did not make, with its events: it teaches like one that Swerve made."""

    query: str
    shown: Annotated[list[str | Candidate], Meta(description="The results that were shown, from the top.")]
    events: list[Event]
    at: Annotated[Seconds | Instant | None, Meta(description="When it was shown: within the feedback window. Default: now.")] = None
    signals: dict[str, float | None] | None = None
    session: str | None = None
    locale: Locale = None
    filter: Filter = None
    segment: Segment = None
    namespace: Namespace = None


class ShiftRequest(Struct, forbid_unknown_fields=True):
    """The body of an operator's shift: an empty object. The path has the query."""


class ListRequest(Struct, forbid_unknown_fields=True):
    """The parameters of `GET /v1/queries`."""

    order: Literal["traffic", "shifted"] = "traffic"
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = LISTED
    namespace: str | None = None


# answers -------------------------------------------------------------------------------------------------------------------------


class Health(Struct, omit_defaults=True):
    """Whether the service is alive, or ready; the reason if it is not."""

    status: Literal["ok", "starting", "stopping", "unavailable"]
    reason: str | None = None
    compiling: Annotated[
        list[int] | None, Meta(description="Capacities that are not compiled yet: queries that need them get the given order.")
    ] = None
    away: Annotated[list[int] | None, Meta(description="Workers that do not answer: their queries get the given order.")] = None


_candidates = msgspec.json.Decoder(Candidates)
_asked = msgspec.json.Decoder(Asked)
#: An offset in an error message of the decoder.
OFFSET = re.compile(r"\(byte (\d+)\)")


def read_candidates(raw: msgspec.Raw) -> Candidates:
    """Decode candidates; raises `Refused`."""
    try:
        return _candidates.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
        raise misshapen(trouble, Candidates, bytes(raw), "candidates") from None


def read_asked(body: bytes) -> Asked:
    """Decode a request; raises `Refused`."""
    return decode(_asked, body)


def decode(decoder: msgspec.json.Decoder[Shape], body: bytes) -> Shape:
    """Decode a body; raises `Refused`."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
        raise misshapen(trouble, decoder.type, body) from None


def ids_of(candidates: Sequence[str | Candidate]) -> list[str]:
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


def parts_of(text: str | None) -> tuple[str | None, Parts | None]:
    """Return the query and the parts in a text of `key_text`.

    >>> parts_of("boots\\0locale=en-us")
    ('boots', Parts(locale='en-us', filter=None, segment=None, namespace=None, arm=None))
    """
    if text is None:
        return None, None
    query, *parts = text.split(SEPARATOR)
    given: dict[str, Any] = dict(part.split("=", 1) for part in parts)
    return query, Parts(**given)


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
