"""Rules of operators (pins, blocks, boosts and the kill switch) and the audit of what they did, as plain structures.

The store keeps them in two records, as JSON: `Kept`, and a list of `Change`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from swerve.core.errors import shown
from swerve.serving.checks import Limits, check_id, check_parts, check_query
from swerve.serving.messages import Filter, Instant, Locale, Namespace, Position, Refused, Seconds, Segment, key_text
from swerve.serving.ruling import Kind

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
        str | None, Meta(description="The text of the query, or `key:` and its key. Null: the rule is for all queries.")
    ] = None
    locale: Locale = None
    filter: Filter = None
    segment: Segment = None
    namespace: Annotated[
        str | None, Meta(description="The namespace of the query; without `query`, the rule is for all queries of the namespace.")
    ] = None
    until: Annotated[Seconds | Instant | None, Meta(description="When it expires. Null: it holds until it is removed.")] = None
    note: Note = None


class Rule(Struct, omit_defaults=True):
    """A rule of an operator, who set it and when."""

    id: int
    kind: Kind
    at: float
    by: Annotated[str | None, Meta(description="The name of the API key with which it was set; null where no key is needed.")] = (
        None
    )
    result: str | None = None
    position: int | None = None
    up: int | None = None
    query: str | None = None
    locale: str | None = None
    filter: str | None = None
    segment: str | None = None
    until: float | None = None
    note: str | None = None
    namespace: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """The parts of the query's key that are given."""
        found = {"locale": self.locale, "filter": self.filter, "segment": self.segment, "namespace": self.namespace}
        return {name: part for name, part in found.items() if part is not None}

    def holds(self, now: float) -> bool:
        """Return whether the rule has not expired."""
        return self.until is None or now < self.until


class RuleList(Struct):
    """The rules in force, in the order of their ids."""

    rules: list[Rule]


class Trial(Struct, omit_defaults=True):
    """An experiment: its name, the share of treated units, since when it runs, and who set the share, and why."""

    name: str
    treated: float
    since: float
    salt: str = ""  # of the hash that assigns units; empty: the name
    by: str | None = None
    note: str | None = None


class Change(Struct, omit_defaults=True):
    """Something that an operator did: who, when, what, and what was before. `before` and `after` are null where there was no rule,
    or is none now. A shift has the phase before and after it, a ramp the experiment. A deletion has only keyed hashes of what it
    deleted."""

    at: float
    what: Literal["set", "remove", "shift", "ramp", "delete"]
    by: str | None = None
    before: Rule | None = None
    after: Rule | None = None
    query: str | None = None
    locale: str | None = None
    filter: str | None = None
    segment: str | None = None
    phase_before: int | None = None
    phase_after: int | None = None
    trial_before: Trial | None = None
    trial_after: Trial | None = None
    namespace: str | None = None
    result: Annotated[str | None, Meta(description="Of a deletion: `hash:` and the keyed hash of the result's id.")] = None

    @property
    def where(self) -> str | None:
        """The namespace that it concerns."""
        rule = self.after or self.before
        return self.namespace if rule is None else rule.namespace


class ChangeList(Struct):
    """What operators did, the latest first."""

    changes: list[Change]


class AuditRequest(Struct, forbid_unknown_fields=True):
    """The parameters of `GET /v1/audit` and `GET /v1/shadow`."""

    limit: Annotated[int, Meta(ge=1, le=MOST_CHANGES)] = MOST_CHANGES


class ShadowQuery(Struct):
    """What the policy would have done for one query, by its key in hexadecimal; with the page shown last, and the policy's."""

    key: str
    rankings: int
    differs: int
    top_differs: int
    shown: list[str]
    choice: list[str]


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


def named(query: str | None, **parts: str | None) -> str | None:
    """Return the text that identifies the query of a rule; for all queries, the one of the namespace, None without one."""
    return parts.get("namespace") if query is None else key_text(query, **parts)


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
    parts = {"locale": request.locale, "filter": request.filter, "segment": request.segment}
    if request.query is not None:
        check_query(request.query, limits)
        check_parts(limits, **parts)
    else:
        for name, part in parts.items():
            if part is not None:
                raise Refused(422, "invalid", f"{name} is given without query; a rule for all queries has no {name}", name)
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


class DeleteResponse(Struct):
    """What was deleted: queries, and queries that have lost the result. Both are 0 if there was nothing (any more)."""

    queries: int
    results: int


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
