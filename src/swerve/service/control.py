"""Operators' rules and the audit: set, removed and listed; durable before they are answered, in force from the next request on."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from swerve.service.availability import Availability
from swerve.service.committer import Committer
from swerve.service.config.callers import Limits
from swerve.service.metrics import Metrics
from swerve.service.namespaces import Within, may, require, require_all
from swerve.service.ranking import Ranking
from swerve.serving.control import (
    MOST_CHANGES,
    MOST_RULES,
    Change,
    ChangeList,
    Kept,
    Rule,
    RuleList,
    RuleRequest,
    check_rule,
)
from swerve.serving.messages import Refused, encode
from swerve.serving.ranker import KEY, Ranker
from swerve.serving.rulebook import RuleBook

log = logging.getLogger("swerve.service")

#: The records of the store that hold the rules and the audit.
RULES, AUDIT = "rules", "audit"


def _its_own(rule: Rule, within: Within) -> bool:
    """Return whether a caller may remove a rule: not one for all queries where its key is bound to namespaces."""
    return may(within, rule.namespace) and (within is None or rule.query is not None or rule.namespace is not None)


class Control:
    """The rules in force and what operators did."""

    def __init__(
        self,
        ranker: Ranker,
        ranking: Ranking,
        committer: Committer,
        availability: Availability,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        limits: Limits,
        kept: Mapping[str, bytes],
    ) -> None:
        self.ranker, self.ranking, self.committer, self.availability = ranker, ranking, committer, availability
        self.clock, self.limits = clock, limits
        self.changes: deque[Change] = deque(maxlen=MOST_CHANGES)
        self._rules: dict[int, Rule] = {}
        self.next = 1
        self.one_at_a_time = asyncio.Lock()
        self.published: Callable[[], Awaitable[None]] | None = None  # tells other workers what is in force
        self.noted: Callable[[Change], None] = self.add
        self.load(kept)
        committer.audit = lambda: {AUDIT: encode(list(self.changes))}
        metrics.rules.ask = lambda: float(len(self.rules()))

    def load(self, kept: Mapping[str, bytes]) -> None:
        """Take up the records of a store."""
        rules = msgspec.json.decode(kept[RULES], type=Kept) if RULES in kept else Kept(1, [])
        changes = msgspec.json.decode(kept[AUDIT], type=list[Change]) if AUDIT in kept else []
        self.changes = deque(changes, MOST_CHANGES)
        self._take(rules)

    def _take(self, kept: Kept) -> None:
        """Put rules into force."""
        self.next, self._rules = kept.next, {rule.id: rule for rule in kept.rules}
        self.ranking.rules = RuleBook(kept.rules, self.ranker.key_from) if kept.rules else None

    def rules(self) -> list[Rule]:
        """Return the rules in force."""
        now = self.clock()
        return [rule for rule in self._rules.values() if rule.holds(now)]

    def listed(self, within: Within = None) -> RuleList:
        """Return the rules in force, for the answer; those of the caller's namespaces."""
        return RuleList([rule for rule in self.rules() if may(within, rule.namespace)])

    def audit(self, limit: int, within: Within = None) -> ChangeList:
        """Return what operators did, the latest first; in the caller's namespaces."""
        return ChangeList([change for change in reversed(self.changes) if may(within, change.where)][:limit])

    # ------------------------------------------------------------------ changes
    async def set(self, request: RuleRequest, by: str | None, within: Within = None) -> Rule:
        """Set a rule and return it once it is durable. A rule of the same kind for the same query and result is replaced."""
        require(within, request.namespace)
        if request.query is None and request.namespace is None:
            require_all(within, "a rule for all queries")
        if within is not None and request.query is not None and request.query.startswith(KEY):
            message = (
                "query is a key, which may be that of another namespace; an API key that is bound to some names queries by text"
            )
            raise Refused(403, "namespace", message, "query")
        self.ranking.namespaces.known(request.namespace)
        until = check_rule(request, self.limits, self.clock())
        async with self.one_at_a_time:
            rules, now = self.rules(), self.clock()
            made = Rule(
                0, request.kind, now, by, request.result, request.position, request.up, request.query, request.locale,
                request.filter, request.segment, until, request.note, request.namespace,
            )  # fmt: skip
            before = next((rule for rule in rules if self._place(rule) == self._place(made)), None)
            if before is None and len(rules) >= MOST_RULES:
                raise Refused(422, "too_many", f"there are {len(rules)} rules; at most {MOST_RULES} are allowed: remove some")
            made.id = self.next if before is None else before.id
            rules = sorted([rule for rule in rules if rule is not before] + [made], key=lambda rule: rule.id)
            after = Kept(self.next + (before is None), rules)
            await self._put(after, Change(now, "set", by, before, made))
        return made

    async def remove(self, number: int, by: str | None, within: Within = None) -> Rule:
        """Remove a rule and return it once that is durable."""
        async with self.one_at_a_time:
            rules, now = self.rules(), self.clock()
            before = next((rule for rule in rules if rule.id == number and _its_own(rule, within)), None)
            if before is None:
                raise Refused(
                    404, "unknown_rule", f"there is no rule {number}: it was removed, it has expired, or it never was", "id"
                )
            await self._put(Kept(self.next, [rule for rule in rules if rule is not before]), Change(now, "remove", by, before))
        return before

    def _place(self, rule: Rule) -> tuple[str, str | None, bytes | None, str | None]:
        """Return what tells rules apart: kind, result, query and namespace."""
        key = None if rule.query is None else self.ranker.key_from(rule.query, rule.parts)
        return rule.kind, rule.result, key, rule.namespace

    async def write(self, records: dict[str, bytes], change: Change) -> None:
        """Write records and the audit together. Raises `Unavailable`, and nothing has changed then."""
        self.availability.require()
        life = self.ranker.life
        self.changes.append(change)
        try:
            await self.committer.put({**records, **self.committer.audit()}, life)
        except BaseException:
            if change in self.changes:
                self.changes.remove(change)
            raise

    async def _put(self, kept: Kept, change: Change) -> None:
        """Write rules and audit together, then put the rules into force."""
        await self.write({RULES: encode(kept)}, change)
        self._take(kept)
        if self.published is not None:
            await self.published()
        log.info("rule", extra={"what": change.what, "rule": (change.after or change.before or Rule(0, "off", 0.0)).id})

    def shifted(self, query: str, parts: Mapping[str, str], before: int, after: int, by: str | None) -> None:
        """Note an operator's shift. It is written with the row that the shift has changed."""
        named = query if query.startswith(KEY) else None
        known = None if named is not None or "arm" in parts or not self.ranker.settings.keep_text else query
        key = KEY + self.ranker.key_from(query, parts).hex()
        change = Change(self.clock(), "shift", by, query=known or named or key, phase_before=before, phase_after=after)
        change.namespace = parts.get("namespace")
        if known is not None:
            change.locale, change.filter, change.segment = (parts.get(part) for part in ("locale", "filter", "segment"))
        self.noted(change)

    def add(self, change: Change) -> None:
        """Add a change to the audit, which is written with the next group."""
        self.changes.append(change)
        self.committer.audited()
