"""What was read from logs and what was not: every dropped line is counted by its reason, with one example."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from swerve.evaluate.lists import Shown

#: Characters of a line that an example shows.
EXAMPLE = 120
#: Queries that are told apart. Beyond this, new ones are counted as lists, and the number of queries is "at least".
MOST_NAMES = 1_000_000
#: Positions that are counted one by one; all lower ones are counted together at the last.
MOST_POSITIONS = 100


class Dropped(msgspec.Struct):
    """Lines that were dropped for one reason, and the first of them."""

    lines: int
    where: str
    example: str


class Tally:
    """Counts lines, lists, clicks and drops."""

    def __init__(self) -> None:
        self.lines = self.read = self.lists = self.clicks = 0
        self.randomised = 0  # lists with propensities
        self.apart = 0  # lists that do not begin at the top: results that are logged one by one
        self.first, self.last = math.inf, -math.inf
        self.shown_at: dict[int, int] = {}
        self.clicked_at: dict[int, int] = {}
        self.dropped: dict[str, Dropped] = {}
        self._names: set[int] = set()
        self.names_full = False

    def drop(self, reason: str, where: str, line: object, lines: int = 1) -> None:
        """Count a dropped line, or several; `where` is the file and the number of the first."""
        known = self.dropped.get(reason)
        if known is not None:
            known.lines += lines
            return
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else str(line)
        text = " ".join(text.split())
        self.dropped[reason] = Dropped(lines, where, text if len(text) <= EXAMPLE else text[:EXAMPLE] + " …")

    def count(self, entry: Shown) -> None:
        """Count a list."""
        self.lists += 1
        self.clicks += len(entry.clicks)
        self.randomised += entry.propensities is not None
        self.apart += entry.top > 1
        if entry.time == entry.time:
            self.first, self.last = min(self.first, entry.time), max(self.last, entry.time)
        for position in range(entry.top, entry.top + len(entry.shown)):
            at = position if position < MOST_POSITIONS else MOST_POSITIONS
            self.shown_at[at] = self.shown_at.get(at, 0) + 1
        for position in entry.clicks:
            at = position if position < MOST_POSITIONS else MOST_POSITIONS
            self.clicked_at[at] = self.clicked_at.get(at, 0) + 1
        if len(self._names) < MOST_NAMES:
            self._names.add(hash(entry.query))
        elif hash(entry.query) not in self._names:
            self.names_full = True

    @property
    def queries(self) -> int:
        """The number of queries; a lower bound if `names_full`."""
        return len(self._names)

    def facts(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "lines": self.lines,
            "queries": self.queries,
            "queries_at_least": self.names_full,
            "lists": self.lists,
            "lists_with_propensities": self.randomised,
            "lists_not_from_the_top": self.apart,
            "clicks": self.clicks,
            "first": None if self.first > self.last else self.first,
            "last": None if self.first > self.last else self.last,
            "shown_by_position": {str(at): self.shown_at[at] for at in sorted(self.shown_at)},
            "clicks_by_position": {str(at): self.clicked_at[at] for at in sorted(self.clicked_at)},
            "dropped": {
                reason: msgspec.to_builtins(found)
                for reason, found in sorted(self.dropped.items(), key=lambda item: -item[1].lines)
            },
        }
