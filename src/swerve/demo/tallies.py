"""Running totals of a scenario: clicks, regret, events and how soon the service followed them, false alarms."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swerve.demo.intents import RESULTS, Event

#: An event counts as followed when `FOLLOWED_ENOUGH` of `FOLLOWED_WINDOW` consecutive impressions show a first result whose click
#: probability is at least `FOLLOWED_SHARE` of the best one's.
FOLLOWED_WINDOW, FOLLOWED_ENOUGH, FOLLOWED_SHARE = 50, 40, 0.9
#: A new phase is explained by an event within this many impressions of the query, or within this many seconds.
RECENT_IMPRESSIONS, RECENT_SECONDS = 200, 12 * 3600.0
#: Intent has moved when this share of the users wants another meaning.
MOVED_SHARE = 0.1


@dataclass
class Shift:
    """An event, and the impressions of its query until the service followed it; None until then."""

    event: Event
    impression: int  # number of the query's impression at the event
    impressions: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the event for the page: the old and the new meaning, and the best documents for them."""
        query, at, before, after = self.event
        ids = {"from_id": before.id, "to_id": after.id}
        return {"query": query, "at": at, "from": before.meaning, "to": after.meaning, **ids}


@dataclass
class Line:
    """One policy's totals: searches with a click, clicks by slot from the first result on, and clicks lost to the best pages."""

    clicks: int = 0
    slots: list[int] = field(default_factory=lambda: [0] * RESULTS)
    regret: float = 0.0

    @property
    def tops(self) -> int:
        """Clicks on the first result."""
        return self.slots[0]

    def count(self, index: int, regret: float) -> None:
        """Count one page: the index of the clicked result, −1 for none, and the page's loss to the best one."""
        if index >= 0:
            self.clicks += 1
            self.slots[index] += 1
        self.regret += regret


class Part:
    """The totals of a part of the traffic: the famous queries, or the tail."""

    def __init__(self, names: list[str]) -> None:
        self.impressions = 0
        self.lines = {name: Line() for name in names}


@dataclass
class Query:
    """The state of one query."""

    impressions: int = 0
    phase: int | None = None
    good: deque[bool] = field(default_factory=lambda: deque(maxlen=FOLLOWED_WINDOW))
    last: Shift | None = None
    known: Mapping[str, float] | None = None  # shares of the meanings when the service last had a reason to open a phase
    reason: tuple[int, float] | None = None  # impression and time of that phase


def distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return the share of users who want another meaning.

    >>> round(distance({"car": 0.5, "cat": 0.5}, {"car": 0.7, "cat": 0.3}), 9)
    0.2
    """
    return sum(abs(share - other.get(meaning, 0.0)) for meaning, share in one.items()) / 2.0


class Tallies:
    """The totals of all policies, and the live service's phases and events."""

    def __init__(self, names: list[str]) -> None:
        self.lines = {name: Line() for name in names}
        self.head, self.tail = Part(names), Part(names)
        self.impressions = 0  # without those that were held out
        self.held = 0  # impressions that an experiment held out
        self.pinned = 0  # impressions on which a rule has pinned a result
        self.degraded = 0
        self.alarms = 0  # phases that the service opened
        self.off_events = 0  # phases without a recent event
        self.false_alarms = 0  # phases without a recent event or a recent move of intent
        self.shifts: list[Shift] = []
        self._queries: dict[str, Query] = {}

    def count(self, name: str, index: int, regret: float, tail: bool = False) -> None:
        """Count one impression of a policy: the index of the clicked result (−1: none), the page's loss to the best one, and
        whether the query is one of the tail."""
        self.lines[name].count(index, regret)
        (self.tail if tail else self.head).lines[name].count(index, regret)

    def shifted(self, event: Event) -> None:
        """Record that another document has become best for a query."""
        seen = self._query(event.query)
        seen.last = Shift(event, seen.impressions)
        seen.good.clear()
        self.shifts.append(seen.last)

    def served(
        self,
        query: str,
        now: float,
        phase: int | None,
        share: float,
        wanted: Mapping[str, float],
        tail: bool = False,
        held: bool = False,
    ) -> None:
        """Count one answer of the live service: its phase (None if degraded), the first result's probability of a click ÷ the best
        one's, the shares of the meanings, whether the query is one of the tail, and whether an experiment held it out."""
        seen = self._query(query)
        if held:
            self.held += 1
        else:
            self.impressions += 1
            (self.tail if tail else self.head).impressions += 1
        if seen.known is None:
            seen.known = wanted
        if phase is None:
            self.degraded += 1
        else:
            if seen.phase is not None and phase > seen.phase:
                self._opened(seen, phase - seen.phase, now, wanted)
            seen.phase = phase
        if held:
            return
        seen.impressions += 1
        shift = seen.last
        if shift is not None and shift.impressions is None:
            seen.good.append(share >= FOLLOWED_SHARE)
            if len(seen.good) == FOLLOWED_WINDOW and sum(seen.good) >= FOLLOWED_ENOUGH:
                shift.impressions = seen.impressions - shift.impression - FOLLOWED_WINDOW

    def carry(self, phases: dict[str, int]) -> None:
        """Set the phases that the queries were in when the previous scenario ended."""
        for query, phase in phases.items():
            self._query(query).phase = phase

    def phases(self) -> dict[str, int]:
        """Return the phase of each query that was served."""
        return {query: seen.phase for query, seen in self._queries.items() if seen.phase is not None}

    def _opened(self, seen: Query, phases: int, now: float, wanted: Mapping[str, float]) -> None:
        """Count new phases. The service had a reason if there was a recent event, or if intent has moved since its last reason:
        intent may shift for days before another document becomes best."""

        def lately(since: tuple[int, float] | None) -> bool:
            return since is not None and (seen.impressions - since[0] <= RECENT_IMPRESSIONS or now - since[1] <= RECENT_SECONDS)

        self.alarms += phases
        event = lately((seen.last.impression, seen.last.event.at) if seen.last is not None else None)
        moved = seen.known is not None and distance(seen.known, wanted) >= MOVED_SHARE
        if moved:
            seen.known, seen.reason = wanted, (seen.impressions, now)
        self.off_events += 0 if event else phases
        self.false_alarms += 0 if event or moved or lately(seen.reason) else phases

    def _query(self, query: str) -> Query:
        return self._queries.setdefault(query, Query())
