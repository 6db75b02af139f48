"""Rules of operators (pins, blocks, boosts and the kill switch) and the audit of what they did, as plain structures.

The store keeps them in two records, as JSON: `Kept`, and a list of `Change`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from swerve.core.errors import shown
from swerve.serving.checks import Limits, check_id, check_parts, check_query, check_subject
from swerve.serving.messages import Filter, Instant, Locale, Namespace, Parts, Position, Refused, Seconds, Segment
from swerve_client.naming import named as named
from swerve_client.rules import (
    Change as Change,
    ChangeList as ChangeList,
    DeleteResponse as DeleteResponse,
    Kind as Kind,
    Rule as Rule,
    RuleList as RuleList,
    Trial as Trial,
)

#: Rules that are kept at most, and changes that the audit keeps: the oldest are dropped.
MOST_RULES, MOST_CHANGES = 1000, 1000
#: Characters of a note.
MOST_NOTE = 500

Note = Annotated[str | None, Meta(description=f"Why, for people: up to {MOST_NOTE} characters.")]


class RuleRequest(Struct, forbid_unknown_fields=True):
    """A rule to set. A rule of the same kind for the same query and result takes its place and keeps its id."""

    kind: Annotated[
        Kind,
        Meta(
            description="`pin`: the result is shown at `position`. `block`: it is not shown. `boost`: it is shown `up` positions "
            "above the place that the policy gives it. `off`: the given order, without the policy."
        ),
    ]
    result: Annotated[str | None, Meta(description="The id of the result; for every kind but `off`.")] = None
    position: Annotated[Position | None, Meta(description="For `pin`: from 1.")] = None
    up: Annotated[Position | None, Meta(description="For `boost`: positions to move up.")] = None
    query: Annotated[
        str | None,
        Meta(
            description="The text of the query, or `key:` and its key. Null: the rule is for all queries. With a text it holds for "
            "exactly this text and these parts: with another `locale`, `filter`, `segment` or `namespace` it is another query."
        ),
    ] = None
    locale: Locale = None
    filter: Filter = None
    segment: Segment = None
    namespace: Annotated[
        str | None, Meta(description="The namespace of the query; without `query`, the rule is for all queries of the namespace.")
    ] = None
    until: Annotated[Seconds | Instant | None, Meta(description="When it expires. Null: it holds until it is removed.")] = None
    note: Note = None


class AuditRequest(Struct, forbid_unknown_fields=True):
    """The parameters of `GET /v1/audit` and `GET /v1/shadow`."""

    limit: Annotated[int, Meta(ge=1, le=MOST_CHANGES)] = MOST_CHANGES


class ShadowQuery(Struct, omit_defaults=True):
    """What the policy would have done for one query, by its key in hexadecimal; with the page shown last, and the policy's. Its
    text and parts are left out unless `store.store_queries` keeps them and the query is in memory."""

    key: str
    rankings: int
    differs: int
    top_differs: int
    shown: list[str]
    choice: list[str]
    query: str | None = None
    parts: Parts | None = None


class ShadowReport(Struct):
    """How often the policy would have shown another page, and another top, in shadow mode, since the start of the service."""

    mode: Literal["serve", "shadow"]
    since: float | None
    rankings: int
    differs: int
    top_differs: int
    queries: list[ShadowQuery]


class Kept(Struct):
    """The record of the rules in the store."""

    next: int  # the id of the next rule
    rules: list[Rule]


#: The fields that each kind of rule must have; it may have no other of these.
NEEDS: dict[Kind, tuple[str, ...]] = {"pin": ("result", "position"), "block": ("result",), "boost": ("result", "up"), "off": ()}


def check_rule(request: RuleRequest, limits: Limits, now: float) -> float | None:
    """Refuse a rule that lacks a field, has one too many or has expired already; return its expiry in unix seconds."""
    needed = NEEDS[request.kind]
    for field in ("result", "position", "up"):
        value = getattr(request, field)
        if (value is None) == (field in needed):
            must = "must have" if field in needed else "may not have"
            raise Refused(
                422, "invalid", f"{field} = {shown(value)} is not allowed; a rule of the kind {request.kind} {must} it", field
            )
    if request.result is not None:
        check_id("result", request.result, limits)
    check_subject(request, limits, "rule")
    if request.note is not None and len(request.note) > MOST_NOTE:
        raise Refused(422, "too_long", f"note has {len(request.note)} characters; at most {MOST_NOTE} are allowed", "note")
    until = request.until.timestamp() if isinstance(request.until, datetime) else request.until
    if until is not None and until <= now:
        raise Refused(422, "in_the_past", f"until is {now - until:.0f} seconds ago; a rule must expire in the future", "until")
    return until


class ExportRequest(Struct, forbid_unknown_fields=True):
    """The parameters of `GET /v1/export`: one namespace only; without the policy's own numbers."""

    namespace: str | None = None
    brief: bool = False


class DeleteRequest(Struct, forbid_unknown_fields=True):
    """What to delete for good: a query; a result in one query; or, without `query`, a result in all queries."""

    query: Annotated[str | None, Meta(description="The text of the query, or `key:` and its key.")] = None
    result: Annotated[str | None, Meta(description="The id of a result; null: everything about the query.")] = None
    locale: Locale = None
    filter: Filter = None
    segment: Segment = None
    namespace: Namespace = None

    @property
    def parts(self) -> dict[str, str]:
        """The parts of the query's key that are given."""
        found = {"locale": self.locale, "filter": self.filter, "segment": self.segment, "namespace": self.namespace}
        return {name: part for name, part in found.items() if part is not None}


def check_delete(request: DeleteRequest, limits: Limits) -> None:
    """Refuse a request that names nothing, or something that cannot be."""
    if request.query is None and request.result is None:
        raise Refused(422, "invalid", "neither query nor result is given; name what to delete", "query")
    parts = {"locale": request.locale, "filter": request.filter, "segment": request.segment}
    if request.query is None:
        for name, part in parts.items():
            if part is not None:
                raise Refused(422, "invalid", f"{name} is given without query; only a query has a {name}", name)
    else:
        check_query(request.query, limits)
        check_parts(limits, **parts)
    if request.namespace is not None:
        check_parts(limits, namespace=request.namespace)
    if request.result is not None:
        check_id("result", request.result, limits)
