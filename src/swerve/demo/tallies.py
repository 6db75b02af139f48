"""What a scenario came to so far: clicks, regret, events and how soon they were followed, alarms for nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swerve.demo.intents import Event

#: Followed: of so many impressions in a row, so many show a top that is nearly as good as the best, by this factor.
WINDOW, ENOUGH, NEARLY = 50, 40, 0.9
#: A phase is an answer to what happened within the last so many impressions of the query, or within the last so many seconds.
RECENT, LATELY = 200, 12 * 3600.0
#: What people want has moved when so large a share of them wants something else.
MOVED = 0.1


@dataclass
class Shift:
    """An event, and how many impressions of its query it took the service to follow; None as long as it has not."""

    event: Event
    impression: int  # of the query, at the time
    impressions: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The event as the page has it: from one meaning to another, and the documents that are best for them."""
        query, at, before, after = self.event
        ids = {"from_id": before.id, "to_id": after.id}
        return {"query": query, "at": at, "from": before.meaning, "to": after.meaning, **ids}


@dataclass
class Line:
    """One policy's sums."""

    clicks: int = 0  # on anything
    tops: int = 0  # on the result on top
    regret: float = 0.0


@dataclass
class Query:
    """What is watched of one query."""

    impressions: int = 0
    phase: int | None = None
    good: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    last: Shift | None = None
    known: Mapping[str, float] | None = None  # what people wanted when the service last had a reason to open a phase
    reason: tuple[int, float] | None = None  # the impression and the time of that phase


def distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The share of people who want something else.

    >>> round(distance({"car": 0.5, "cat": 0.5}, {"car": 0.7, "cat": 0.3}), 9)
    0.2
    """
    return sum(abs(share - other.get(meaning, 0.0)) for meaning, share in one.items()) / 2.0


class Tallies:
    """The sums of all policies, and the live service's phases and events."""

    def __init__(self, names: list[str]) -> None:
        self.lines = {name: Line() for name in names}
        self.impressions = 0
        self.degraded = 0
        self.alarms = 0  # phases that the service opened
        self.off_events = 0  # of these, with no event of late
        self.false_alarms = 0  # of these, with nothing that had moved either
        self.shifts: list[Shift] = []
        self._queries: dict[str, Query] = {}

    def count(self, name: str, place: int, regret: float) -> None:
        """One impression under a policy: the place that was clicked (−1: none), and what the top lost against the best."""
        line = self.lines[name]
        line.clicks += place >= 0
        line.tops += place == 0
        line.regret += regret

    def shifted(self, event: Event) -> None:
        """Another document is best for a query."""
        seen = self._query(event.query)
        seen.last = Shift(event, seen.impressions)
        seen.good.clear()
        self.shifts.append(seen.last)

    def served(self, query: str, now: float, phase: int | None, share: float, wanted: Mapping[str, float]) -> None:
        """One answer of the live service: its phase, None when degraded; the top's chance of a click ÷ the best one's; and what
        people want, as shares of the meanings."""
        seen = self._query(query)
        self.impressions += 1
        if seen.known is None:
            seen.known = wanted
        if phase is None:
            self.degraded += 1
        else:
            if seen.phase is not None and phase > seen.phase:
                self._opened(seen, phase - seen.phase, now, wanted)
            seen.phase = phase
        seen.impressions += 1
        shift = seen.last
        if shift is not None and shift.impressions is None:
            seen.good.append(share >= NEARLY)
            if len(seen.good) == WINDOW and sum(seen.good) >= ENOUGH:
                shift.impressions = seen.impressions - shift.impression - WINDOW

    def carry(self, phases: dict[str, int]) -> None:
        """Take up the phases that the service was in when another scenario ended."""
        for query, phase in phases.items():
            self._query(query).phase = phase

    def phases(self) -> dict[str, int]:
        """The phase of each query that was served."""
        return {query: seen.phase for query, seen in self._queries.items() if seen.phase is not None}

    def _opened(self, seen: Query, phases: int, now: float, wanted: Mapping[str, float]) -> None:
        """The service opened phases. It had reason to if there was an event of late, or if what people want has moved since it last
        had reason to: intent may shift for days before another document is best."""

        def lately(since: tuple[int, float] | None) -> bool:
            return since is not None and (seen.impressions - since[0] <= RECENT or now - since[1] <= LATELY)

        self.alarms += phases
        event = lately((seen.last.impression, seen.last.event.at) if seen.last is not None else None)
        moved = seen.known is not None and distance(seen.known, wanted) >= MOVED
        if moved:
            seen.known, seen.reason = wanted, (seen.impressions, now)
        self.off_events += 0 if event else phases
        self.false_alarms += 0 if event or moved or lately(seen.reason) else phases

    def _query(self, query: str) -> Query:
        return self._queries.setdefault(query, Query())
