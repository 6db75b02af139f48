"""What a log says of each query over time, in bounded memory: bins of searches with a click, merged in pairs as they fill.

A bin has an equal number of searches with a click. For each result it has the searches that clicked it, the lists that had it, the
examination that it got and the sum of its positions. A query has at most `BINS` bins: when they are full, neighbours are merged and
new bins are twice as wide. So a split between two bins is at most 1/32 of the query's clicks away from any point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import EXAMINATION, PBM, SLOTS
from swerve.evaluate.lists import Shown

BINS = 64
#: Results of a query that are told apart, the first ones of the log; clicks on further ones count in the totals only.
MOST_RESULTS = 64
#: Queries that are watched. When there are more, the rarer half of them is forgotten, and counted. A query takes up to 30 kB with
#: ten results, 90 kB with 64.
MOST_QUERIES = 20_000
#: Signals of a query that are averaged.
MOST_SIGNALS = 16
CLICKED, LISTED, EXAMINED, POSITIONS = range(4)
COLUMNS = 4

#: How likely a person looks at a position, from the top, whatever is clicked; the last value holds below.
CURVE: tuple[float, ...] = tuple(float(EXAMINATION[PBM, slot, 0]) for slot in range(SLOTS))

Table = NDArray[np.float32]


def examination(position: int) -> float:
    """Return how likely a position, from 1, is looked at.

    >>> examination(1), examination(4), examination(99)
    (1.0, 0.5, 0.09)
    """
    return CURVE[min(position, SLOTS) - 1]


class Bin:
    """Some successive lists of a query."""

    __slots__ = ("clicked", "first", "last", "lists", "signals", "sums")

    def __init__(self) -> None:
        self.first, self.last = math.inf, -math.inf
        self.lists = self.clicked = 0  # all lists, and those with a click
        self.sums: list[float] | Table = []  # COLUMNS for each result, in the order of the query's names
        self.signals: dict[str, list[float]] = {}  # sum and count

    def merge(self, other: Bin) -> None:
        """Add the bin that follows."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.lists += other.lists
        self.clicked += other.clicked
        mine, theirs = np.asarray(self.sums, np.float32), np.asarray(other.sums, np.float32)
        size = max(len(mine), len(theirs))
        self.sums = np.pad(mine, (0, size - len(mine))) + np.pad(theirs, (0, size - len(theirs)))
        for name, (total, count) in other.signals.items():
            known = self.signals.setdefault(name, [0.0, 0.0])
            known[0] += total
            known[1] += count

    def plain(self) -> tuple[Any, ...]:
        """Return all of it as plain data."""
        sums = self.sums if isinstance(self.sums, list) else self.sums.tobytes()
        return self.first, self.last, self.lists, self.clicked, sums, self.signals

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Bin:
        """Return the bin of plain data."""
        out = cls()
        out.first, out.last, out.lists, out.clicked, sums, out.signals = plain
        out.sums = sums if isinstance(sums, list) else np.frombuffer(sums, np.float32)
        return out


class History:
    """The lists of one query."""

    __slots__ = ("bins", "clicks", "lists", "names", "open", "width")

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.bins: list[Bin] = []
        self.open = Bin()
        self.width = 1
        self.lists = self.clicks = 0

    def plain(self) -> tuple[Any, ...]:
        """Return all of it as plain data: for a task on a cluster."""
        return [*self.names], self.width, self.lists, self.clicks, self.open.plain(), [each.plain() for each in self.bins]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> History:
        """Return the history of plain data."""
        out = cls()
        names, out.width, out.lists, out.clicks, now, bins = plain
        out.names = {name: index for index, name in enumerate(names)}
        out.open, out.bins = Bin.of(now), [Bin.of(each) for each in bins]
        return out

    def add(self, entry: Shown) -> None:
        """Add a list."""
        now, names = self.open, self.names
        self.lists += 1
        self.clicks += len(entry.clicks)
        now.lists += 1
        if entry.time == entry.time:
            now.first, now.last = min(now.first, entry.time), max(now.last, entry.time)
        sums = now.sums
        for position, result in enumerate(entry.shown, entry.top):
            index = names.get(result)
            if index is None:
                if len(names) == MOST_RESULTS:
                    continue
                index = names[result] = len(names)
            at = index * COLUMNS
            if at >= len(sums):
                sums.extend([0.0] * (at + COLUMNS - len(sums)))  # type: ignore[union-attr]
            sums[at + LISTED] += 1.0
            sums[at + EXAMINED] += CURVE[position - 1] if position <= SLOTS else CURVE[-1]
            sums[at + POSITIONS] += position
            if position in entry.clicks:
                sums[at + CLICKED] += 1.0
        if entry.signals:
            for signal, value in entry.signals.items():
                if signal in now.signals or len(now.signals) < MOST_SIGNALS:
                    known = now.signals.setdefault(signal, [0.0, 0.0])
                    known[0] += value
                    known[1] += 1.0
        if entry.clicks:
            now.clicked += 1
            if now.clicked >= self.width:
                self.close()

    def close(self) -> None:
        """Close the open bin; merge bins in pairs if there are too many."""
        self.open.sums = np.asarray(self.open.sums, np.float32)
        self.bins.append(self.open)
        self.open = Bin()
        if len(self.bins) == BINS:
            for left, right in zip(self.bins[::2], self.bins[1::2], strict=True):
                left.merge(right)
            self.bins = self.bins[::2]
            self.width *= 2

    def all_bins(self) -> list[Bin]:
        """Return all bins; the last one may be narrower."""
        return [*self.bins, self.open] if self.open.lists else self.bins

    def table(self) -> NDArray[np.float64]:
        """Return all sums: bin × result × column."""
        bins = self.all_bins()
        out = np.zeros((len(bins), len(self.names) * COLUMNS))
        for index, each in enumerate(bins):
            out[index, : len(each.sums)] = each.sums
        return out.reshape(len(bins), len(self.names), COLUMNS)


class Watched:
    """Which queries of a log are watched, and how many lists each has had. Of too many, the half with the fewest lists is
    forgotten; a query that comes again begins anew."""

    def __init__(self, most: int = MOST_QUERIES) -> None:
        self.most = most
        self.lists: dict[str, int] = {}
        self.forgotten = 0  # times that a query was forgotten

    def add(self, query: str) -> bool:
        """Count a list of a query; return whether the query begins with it."""
        lists = self.lists
        if query in lists:
            lists[query] += 1
            return False
        if len(lists) >= self.most:
            self._forget()
        lists[query] = 1
        return True

    def add_all(self, queries: Sequence[str], codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Count lists, whose queries are `queries[code]`, in the order in which they come first; return of each what `add` does."""
        lists, begins = self.lists, np.zeros(len(codes), bool)
        if sum(query not in lists for query in queries) + len(lists) > self.most:
            for index, code in enumerate(codes.tolist()):
                begins[index] = self.add(queries[code])
            return begins
        counts, firsts = np.bincount(codes, minlength=len(queries)).tolist(), np.unique(codes, return_index=True)[1].tolist()
        for query, count, first in zip(queries, counts, firsts, strict=True):
            begins[first] = query not in lists
            lists[query] = lists.get(query, 0) + count
        return begins

    def _forget(self) -> None:
        rarest = sorted(self.lists, key=self.lists.__getitem__)
        for query in rarest[: len(rarest) // 2 or 1]:
            del self.lists[query]
            self.forgotten += 1

    def kept(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return what belongs to the queries that are watched."""
        return {query: each for query, each in found.items() if query in self.lists}


class Histories:
    """The histories of all queries that are watched."""

    def __init__(self, most: int = MOST_QUERIES) -> None:
        self.watched = Watched(most)
        self.by_query: dict[str, History] = {}

    @property
    def forgotten(self) -> int:
        """Times that a rare query was forgotten."""
        return self.watched.forgotten

    def add(self, entry: Shown) -> None:
        """Add a list."""
        if self.watched.add(entry.query):
            if len(self.by_query) >= self.watched.most:
                self.by_query = self.watched.kept(self.by_query)
            self.by_query[entry.query] = History()
        self.by_query[entry.query].add(entry)

    def __iter__(self) -> Iterator[tuple[str, History]]:
        return iter(self.by_query.items())

    def __len__(self) -> int:
        return len(self.by_query)
