"""Rules of operators, what they did to a ranking, the audit and deletions: the answers of the service."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Kind = Literal["pin", "block", "boost", "off"]


class Ruled(Struct, omit_defaults=True, gc=False):
    """What a rule has done to a ranking."""

    kind: Kind
    rule: Annotated[int, Meta(description="The id of the rule.")]
    result: str | None = None
    position: Annotated[int | None, Meta(description="Where the result is in the ranking, from 1.")] = None


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
    control: Annotated[str | None, Meta(description="The policy of the control arm; left out where it has the given order.")] = None


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
    note: str | None = None
    result: Annotated[str | None, Meta(description="Of a deletion: `hash:` and the keyed hash of the result's id.")] = None

    @property
    def where(self) -> str | None:
        """The namespace that it concerns."""
        rule = self.after or self.before
        return self.namespace if rule is None else rule.namespace


class ChangeList(Struct):
    """What operators did, the latest first."""

    changes: list[Change]


class DeleteResponse(Struct, omit_defaults=True):
    """What was deleted: queries, and queries that have lost the result. Both are 0 if there was nothing (any more). A query with
    a second record, that of an experiment's control arm, counts twice."""

    queries: int
    results: int
    unknown_namespace: Annotated[
        bool, Meta(description="Nothing was there, and the configuration does not name the namespace. Left out otherwise.")
    ] = False
