"""The report of an experiment: the answer of the service."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Verdict = Literal["helps", "hurts", "undecided"]
QueryText = Annotated[
    str | None, Meta(description="The text of the query, where `store.store_queries` keeps it and it is in memory.")
]


class ArmTotals(Struct):
    """What was counted in one arm. `searches` to `reward` count at once; `visits` to `abandoned` when a visit is judged."""

    searches: int = 0
    clicked: Annotated[int, Meta(description="Searches with a click.")] = 0
    clicks: int = 0
    reward: float = 0.0
    visits: Annotated[int, Meta(description="Visits that were judged: a unit's searches, from its first on.")] = 0
    judged: Annotated[int, Meta(description="Searches of those visits.")] = 0
    abandoned: Annotated[int, Meta(description="Those of them without a click.")] = 0


class Effect(Struct):
    """The difference that the treatment makes to an outcome per search, with an interval that holds at all times together.

    `difference` weighs all visits as the experiment could compare them, so that a ramp does not distort it; it need not equal the
    difference of the two plain means.
    """

    verdict: Verdict
    treated: Annotated[float | None, Meta(description="Plain mean of the arm.")]
    control: float | None
    difference: float | None
    low: float | None
    high: float | None
    relative: Annotated[float | None, Meta(description="`difference` as a share of the control's mean.")]
    visits: int
    more_visits: Annotated[int | None, Meta(description="How many more decide it if the difference stays as it is; null: unknown.")]


class Line(Struct):
    """The effect on the reward for one segment or one query."""

    name: Annotated[str, Meta(description="`locale=…`, `segment=…`, or `key:` and the key of a query.")]
    effect: Effect
    query: QueryText = None


class Guarded(Struct):
    """A query that went back to its given order because the sequence says that the policy's order is worse."""

    name: str
    since: float
    until: Annotated[float, Meta(description="When the policy is tried again, with a fresh look.")]
    look: Annotated[int, Meta(description="Which look it was, from 1; each has less error to spend than the one before.")]
    why: str
    query: QueryText = None


class Outcomes(Struct):
    """The effects on each outcome per search."""

    reward: Effect
    clicks: Effect
    abandonment: Effect


class Arms(Struct):
    """The totals of both arms."""

    treated: ArmTotals
    control: ArmTotals


class Report(Struct, omit_defaults=True):
    """The experiment that runs, what was counted, and what it says. Without an experiment only `running` is there."""

    running: bool
    name: str | None = None
    treated: float | None = None
    since: float | None = None
    by: str | None = None
    note: str | None = None
    verdict: Verdict | None = None
    more_searches: Annotated[int | None, Meta(description="How many more searches decide it if the difference stays as it is.")] = (
        None
    )
    open: Annotated[int | None, Meta(description="Visits that are not judged yet.")] = None
    by_query: Annotated[
        int | None, Meta(description="Searches without a unit and a session: in the totals, and in no comparison.")
    ] = None
    arms: Arms | None = None
    outcomes: Outcomes | None = None
    segments: list[Line] | None = None
    queries: list[Line] | None = None
    guarded: list[Guarded] | None = None
    judged_at: Annotated[float | None, Meta(description="When the first of the open visits is judged; left out where none is.")] = (
        None
    )
    judged_after: Annotated[float | None, Meta(description="Seconds from a visit's first search until it is judged.")] = None
    control: Annotated[str | None, Meta(description="The policy of the control arm; left out where it has the given order.")] = None
