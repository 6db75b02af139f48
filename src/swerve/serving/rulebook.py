"""The rules of operators by query: which of them concern a request, and what they leave of it to the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from swerve.serving.control import Rule
from swerve.serving.messages import ids_of
from swerve.serving.requests import Prepared
from swerve.serving.ruling import Kind, Ruling


class RuleBook:
    """The rules by query."""

    def __init__(self, rules: Iterable[Rule], key_from: Callable[[str, Mapping[str, str]], bytes]) -> None:
        self.everywhere: list[Rule] = []
        self.by_key: dict[bytes, list[Rule]] = {}
        for rule in rules:
            if rule.query is None:
                self.everywhere.append(rule)
            else:
                self.by_key.setdefault(key_from(rule.query, rule.parts), []).append(rule)

    def apply(self, prepared: Prepared, now: float) -> Prepared:
        """Return the request as the rules leave it; the same if none concerns it.

        A rule for the query goes before one for all queries; of rules for one result a block goes before a pin, and a pin before a
        boost. With the kill switch on, only blocks hold besides it.
        """
        own = self.by_key.get(prepared.key)
        if own is None and not self.everywhere:
            return prepared
        candidates = prepared.read()
        ids = ids_of(candidates)
        found: dict[Kind, dict[str | None, Rule]] = {"pin": {}, "block": {}, "boost": {}, "off": {}}
        for rule in (*self.everywhere, *(own or ())):
            elsewhere = rule.query is None and rule.namespace not in (None, prepared.namespace)
            if rule.holds(now) and not elsewhere and (rule.result is None or rule.result in ids):
                found[rule.kind][rule.result] = rule
        off, blocks = found["off"].get(None), found["block"]
        pins, boosts = ({}, {}) if off is not None else (found["pin"], found["boost"])
        if off is None and not blocks and not pins and not boosts:
            return prepared
        pinned = sorted((rule.position or 1, rule.id, str(result)) for result, rule in pins.items() if result not in blocks)
        taken = {*blocks, *(result for _, _, result in pinned)}
        free = [candidate for candidate, result in zip(candidates, ids, strict=True) if result not in taken]
        ruling = Ruling(
            prepared.slots,
            tuple((result, position, rule) for position, rule, result in pinned),
            tuple((str(result), rule.up or 1, rule.id) for result, rule in boosts.items() if result not in taken),
            tuple((str(result), rule.id) for result, rule in blocks.items()),
            off.id if off is not None else 0,
        )
        left = ruling.arrange(ids_of(free))[: prepared.slots]
        fill = max(len(left) - sum(result in taken for result in left), 1)
        return Prepared(
            prepared.key, prepared.text, free, None, prepared.signals, prepared.session, min(fill, prepared.slots), ruling=ruling,
            namespace=prepared.namespace,
        )  # fmt: skip
