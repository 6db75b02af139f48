"""The answers of the service about rankings, feedback, queries and pushed numbers: the service makes, and the client reads them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from swerve_client.rules import Ruled

ArmName = Annotated[
    Literal["control", "treated"] | None,
    Meta(description="The arm of the experiment; `control` has the order of `experiment.control`. Left out where none runs."),
]
GuardedWhy = Annotated[
    str | None,
    Meta(description="Why the guard of an experiment shows the control's order for this query; left out, or null, if not."),
]


class Parts(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of `GET /v1/queries/{query}` and of a shift: the parts of the query's key besides its text. `arm` names its
    record for the policy of an experiment's control arm."""

    locale: str | None = None
    filter: str | None = None
    segment: str | None = None
    namespace: str | None = None
    arm: Literal["control"] | None = None


class RankResponse(Struct, omit_defaults=True, gc=False):
    """The order to show. A degraded answer has the given order, and no decision to send feedback for."""

    decision: Annotated[str | None, Meta(description="The token to send back with the feedback.")]
    ranking: Annotated[
        list[str],
        Meta(description="All candidates that are not blocked: the slots that the policy has filled, then the rest as given."),
    ]
    propensities: Annotated[
        list[float] | None,
        Meta(description="For each slot from the top: estimate of the probability that the policy puts this result there."),
    ]
    explored: Annotated[
        int | None, Meta(description="The first position, from 1, with a result that the policy would mostly not put there.")
    ]
    phase: Annotated[
        int | None, Meta(description="Phase of the query, from 1: each alarm and each restart of the policy begins one.")
    ]
    degraded: Annotated[bool, Meta(description="The state could not be used in time, so the order is the given one.")]
    ruled: Annotated[list[Ruled] | None, Meta(description="What rules of an operator have done to it; left out if none has.")] = (
        None
    )
    swapped: Annotated[list[int] | None, Meta(description="Two positions whose results changed places at random, if any.")] = None
    shadow: Annotated[bool, Meta(description="The policy only watches: the order is the given one. Left out otherwise.")] = False
    arm: ArmName = None
    guarded: GuardedWhy = None


#: Outcome of feedback.
Status = Literal["learned", "late", "ignored", "expired"]


class FeedbackResponse(Struct, omit_defaults=True, gc=False):
    """The outcome of feedback. A repeat gets the answer of the first one and counts once.

    `learned`; `late`: counted, not learned (the policy has started over or dropped its record of that time, or the candidate is no
    longer in the query's record); `ignored`: counted, not learned (the session, or the requests without one, have used their units
    of evidence in this phase, or the click was below the slots that the policy fills); `expired`: outside the window, nothing is
    counted.
    """

    status: Status
    expired: Annotated[list[str] | None, Meta(description="Kinds of events that came after their windows, if any.")] = None


class ObserveResponse(Struct, gc=False):
    """The outcome of an observed ranking, and a decision for which further events can be sent."""

    status: Status
    decision: str


class Error(Struct, omit_defaults=True):
    """An error: a code for programs, a message for people, the path of the wrong field, the id of the request."""

    code: str
    message: str
    field: str | None = None
    request_id: str | None = None
    limit: Annotated[int | None, Meta(description="Of `too_many` candidates: how many are allowed.")] = None


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
    """The state of one query. Its text and parts are null unless `store.store_queries` is set."""

    query: str | None
    parts: Parts | None
    phase: int
    phases: int
    requests: int
    created: float
    seen: float
    testing: bool
    signals: dict[str, float | None]
    arms: list[ArmState]
    alarms: list[Alarm]
    guarded: GuardedWhy = None
    namespace: str | None = None
    control: Annotated[bool, Meta(description="It is the record for the policy of an experiment's control arm.")] = False


class QuerySummary(Struct):
    """One query of the list: its key in hexadecimal, and its text and parts if `store.store_queries` is set."""

    key: str
    query: str | None
    parts: Parts | None
    requests: int
    phase: int
    seen: float
    shifted: float | None
    testing: bool
    namespace: str | None = None
    control: Annotated[bool, Meta(description="It is the record for the policy of an experiment's control arm.")] = False


class QueryList(Struct):
    """The queries with the most traffic, or those that shifted last."""

    order: Literal["traffic", "shifted"]
    queries: list[QuerySummary]


class ShiftResponse(Struct):
    """The phase that an operator's shift began."""

    phase: int


SignalStatus = Literal["taken", "older", "stale"]


class SignalResponse(Struct, gc=False):
    """What became of a number: `taken`; `older` than the one that is kept, which stays; `stale`: past its time when it came."""

    status: SignalStatus
