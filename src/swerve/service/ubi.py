"""What a collector of User Behavior Insights sends: clicks become feedback, all else is counted.

An event finds its decision by `query_id`, which a request to `rank` has named, or carries it. Both are known only to who was shown
the page, so that they are its permission, as for a beacon. What is dropped is counted by its reason.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from swerve.service.beacons import Beacons
from swerve.service.forwarding import Forwarder
from swerve.service.metrics import Metrics
from swerve.serving.loose import text_of
from swerve.serving.messages import FIRST_SECOND, LAST_SECOND, MOST_POSITION, Event, FeedbackRequest
from swerve.serving.times import seconds
from swerve.serving.tokens import Forged, Tokens
from swerve.serving.ubi import DECISION, OBJECT, ORDINAL, QueryIds, action_of, first_number, first_text

log = logging.getLogger("swerve.service")

#: Fields of a dropped entry that the log names, and characters of each.
MOST_FIELDS, MOST_CHARS = 20, 40


class Ubi:
    """The side of a service that collectors call. `kinds` are the kinds of user events, `first` is the position of the top."""

    def __init__(
        self,
        beacons: Beacons,
        tokens: Tokens,
        known: QueryIds,
        metrics: Metrics,
        *,
        clicks: Collection[str],
        kinds: Collection[str],
        first: int,
        forwarder: Forwarder | None = None,
    ) -> None:
        self.beacons, self.tokens, self.known, self.metrics = beacons, tokens, known, metrics
        self.forwarder = forwarder
        self.elsewhere: Callable[[list[str]], Awaitable[dict[str, str]]] | None = None  # asks other workers for decisions
        self.clicks, self.kinds, self.first = frozenset(action.lower() for action in clicks), kinds, first

    async def events(self, lines: Sequence[Any]) -> None:
        """Count clicks and other user events; return once they are durable. Raises `Unavailable` if none could be made so."""
        self._forward("ubi_events", lines)
        if self.elsewhere is not None:
            names = {text_of(line.get("query_id")) for line in map(unwrapped, lines) if isinstance(line, dict)}
            if missing := [name for name in names if name is not None and self.known.get(name) is None]:
                for name, decision in (await self.elsewhere(missing)).items():
                    self.known.put(name, decision)
        read: list[FeedbackRequest] = []
        for line in map(unwrapped, lines):
            found = self._feedback(line)
            if isinstance(found, str):
                self._dropped("ubi_events", found, line)
            else:
                read.append(found)
        if read:
            await self.beacons.take(read, "ubi_events")

    def decisions(self, names: Sequence[str]) -> dict[str, str]:
        """Return the decisions of those of these query ids that are known here."""
        return {name: decision for name in names if (decision := self.known.get(name)) is not None}

    def queries(self, lines: Sequence[Any]) -> None:
        """Remember the decisions that queries carry; count the rest."""
        self._forward("ubi_queries", lines)
        for line in map(unwrapped, lines):
            self._dropped("ubi_queries", self._query(line), line)

    def _forward(self, index: str, lines: Sequence[Any]) -> None:
        """Pass all documents on to the search engine, those that are dropped here included."""
        if self.forwarder is not None:
            self.forwarder.put(index, [line for line in map(unwrapped, lines) if isinstance(line, dict)])

    def _feedback(self, line: Any) -> FeedbackRequest | str:
        """Return an event as feedback, or the reason why it is dropped."""
        if not isinstance(line, dict):
            return "no_object"
        if "action_name" not in line:
            return "no_action"
        action = action_of(line)
        kind = "click" if action in self.clicks else action if action in self.kinds else None
        if kind is None:
            return "other_action"
        decision = first_text(line, DECISION) or self.known.get(text_of(line.get("query_id")))
        if decision is None:
            return "unknown_query" if text_of(line.get("query_id")) is not None else "no_query"
        result, ordinal, at = first_text(line, OBJECT), first_number(line, ORDINAL), seconds(line.get("timestamp"))
        event = Event(kind, at=at if FIRST_SECOND <= at <= LAST_SECOND else None)
        if result is not None:
            event.result = result
        elif ordinal == ordinal and ordinal.is_integer() and 1 <= ordinal + 1 - self.first <= MOST_POSITION:
            event.position = int(ordinal) + 1 - self.first
        else:
            return "no_position" if ordinal == ordinal else "no_result"
        return FeedbackRequest(decision, [event])

    def _query(self, line: Any) -> str:
        if not isinstance(line, dict):
            return "no_object"
        name, decision = text_of(line.get("query_id")), first_text(line, DECISION)
        if name is None:
            return "no_query"
        if self.known.get(name) is not None:
            return "known"  # the first one stays: it is that of who was asked
        if decision is None:
            return "no_decision"
        try:
            self.tokens.read(decision)
        except Forged:
            return "forged"
        self.known.put(name, decision)
        return "taken"

    def _dropped(self, route: str, reason: str, line: Any) -> None:
        """Count an entry by what became of it. The log has the names of its fields and its action, never a text of a user."""
        self.metrics.beacons(route, reason).value += 1
        if reason not in ("taken", "known") and log.isEnabledFor(logging.DEBUG):
            fields = (
                [str(name)[:MOST_CHARS] for name in list(line)[:MOST_FIELDS]] if isinstance(line, dict) else type(line).__name__
            )
            action = action_of(line)[:MOST_CHARS] if isinstance(line, dict) else None
            log.debug("an entry of UBI was dropped", extra={"route": route, "reason": reason, "fields": fields, "action": action})


def unwrapped(line: Any) -> Any:
    """Return a document of a search engine without its envelope."""
    return line["_source"] if isinstance(line, dict) and isinstance(line.get("_source"), dict) else line
