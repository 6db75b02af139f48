"""What was read from logs and what was not: every dropped line is counted by its reason, with one example."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from swerve.evaluate.lists import Shown

#: Characters of a line that an example shows.
EXAMPLE = 120
#: Queries that are told apart. Beyond this, new ones are counted as lists, and the number of queries is "at least".
MOST_NAMES = 1_000_000
#: Columns that are listed as not used.
MOST_COLUMNS = 50
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
        self.spans: dict[tuple[int, int], int] = {}  # lists by the positions of their first and last results
        self.clicked_at: dict[int, int] = {}
        self.dropped: dict[str, Dropped] = {}
        self.columns: dict[str, list[str]] | None = None  # of a plain log: by field, the columns that it was read from
        self.others: list[str] = []  # its columns that no field was read from
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

    def found(self, fields: Iterable[tuple[str, str]], names: Iterable[str]) -> None:
        """Note the columns of a line, `names`, and the fields that were read from some of them."""
        columns = self.columns = self.columns or {}
        for field, name in fields:
            own = columns.setdefault(field, [])
            if name not in own:
                own.append(name)
        taken = {name for own in columns.values() for name in own}
        for name in names:
            if name not in taken and name not in self.others and len(self.others) < MOST_COLUMNS:
                self.others.append(name)
        self.others = [name for name in self.others if name not in taken]

    def count(self, entry: Shown) -> None:
        """Count a list."""
        self.lists += 1
        self.clicks += len(entry.clicks)
        self.randomised += entry.propensities is not None
        self.apart += entry.top > 1
        if entry.time == entry.time:
            self.first, self.last = min(self.first, entry.time), max(self.last, entry.time)
        span = entry.top, entry.top + len(entry.shown) - 1
        self.spans[span] = self.spans.get(span, 0) + 1
        for position in entry.clicks:
            at = position if position < MOST_POSITIONS else MOST_POSITIONS
            self.clicked_at[at] = self.clicked_at.get(at, 0) + 1
        self.name(entry.query)

    def name(self, query: str) -> None:
        """Count a query, unless it is known."""
        if len(self._names) < MOST_NAMES:
            self._names.add(hash(query))
        elif hash(query) not in self._names:
            self.names_full = True

    def merge(self, other: Tally) -> None:
        """Add what was counted in the next part of a log, but for its queries, see `name`, and columns, see `found`."""
        for name in ("lines", "lists", "clicks", "randomised", "apart"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        for span, count in other.spans.items():
            self.spans[span] = self.spans.get(span, 0) + count
        for at, count in other.clicked_at.items():
            self.clicked_at[at] = self.clicked_at.get(at, 0) + count
        for reason, drop in other.dropped.items():
            known = self.dropped.setdefault(reason, drop)
            if known is not drop:
                known.lines += drop.lines

    def shown_at(self) -> dict[int, int]:
        """Return how many results were shown at each position; all low positions are counted together at the last."""
        out: dict[int, int] = {}
        for (first, last), lists in self.spans.items():
            for position in range(first, min(last, MOST_POSITIONS - 1) + 1):
                out[position] = out.get(position, 0) + lists
            if last >= MOST_POSITIONS:
                out[MOST_POSITIONS] = out.get(MOST_POSITIONS, 0) + lists * (last - max(first, MOST_POSITIONS) + 1)
        return dict(sorted(out.items()))

    @property
    def queries(self) -> int:
        """The number of queries; a lower bound if `names_full`."""
        return len(self._names)

    def facts(self) -> dict[str, Any]:
        """Return everything as plain data."""
        columns = {} if self.columns is None else {"columns": self.columns, "columns_not_used": self.others}
        return {
            "lines": self.lines,
            **columns,
            "queries": self.queries,
            "queries_at_least": self.names_full,
            "lists": self.lists,
            "lists_with_propensities": self.randomised,
            "lists_not_from_the_top": self.apart,
            "clicks": self.clicks,
            "first": None if self.first > self.last else self.first,
            "last": None if self.first > self.last else self.last,
            "shown_by_position": {str(at): shown for at, shown in self.shown_at().items()},
            "clicks_by_position": {str(at): self.clicked_at[at] for at in sorted(self.clicked_at)},
            "dropped": {
                reason: msgspec.to_builtins(found)
                for reason, found in sorted(self.dropped.items(), key=lambda item: -item[1].lines)
            },
        }
