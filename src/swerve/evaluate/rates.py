"""A reward model that learns from the log as it is read: clicks per examination of each result of a query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swerve.evaluate.history import CURVE, MOST_QUERIES, Watched
from swerve.evaluate.lists import Shown

#: Examinations at the mean rate of the whole log with which each result begins.
PRIOR = 5.0
#: Results of a query whose rates are kept.
MOST_RESULTS = 256
#: The rate of a log without any list.
UNKNOWN = 0.1
CURVE_VALUES = np.array(CURVE)

Counts = NDArray[np.int64]
Values = NDArray[np.float64]


class Known:
    """What is known of the results of each query: their clicks, and the examination that they got."""

    def __init__(self) -> None:
        self.by_query: dict[str, dict[str, list[float]]] = {}

    def worth(self, query: str, results: list[str], prior: float) -> list[float]:
        """Return the attractiveness of results; `prior` has the clicks of `PRIOR` examinations at the mean rate so far."""
        known = self.by_query.get(query)
        if known is None:
            return [prior / PRIOR] * len(results)
        return [(each[0] + prior) / (each[1] + PRIOR) if (each := known.get(result)) else prior / PRIOR for result in results]

    def known(self, query: str) -> list[str]:
        """Return the results of a query that were shown so far."""
        return list(self.by_query.get(query, ()))

    def usual(self, query: str, results: list[str]) -> list[str]:
        """Return results in the order of the examination that they got so far, as many as have got any; then by their ids."""
        known = self.by_query.get(query, {})
        return sorted(results, key=lambda result: (-known[result][1] if result in known else 0.0, result))

    def add(self, entry: Shown, mean: Mean | None = None) -> None:
        """Add a list of a query, and its positions to a mean."""
        known = self.by_query[entry.query]
        for position, result in enumerate(entry.shown, entry.top):
            seen = CURVE[min(position, len(CURVE)) - 1]
            clicked = 1.0 if position in entry.clicks else 0.0
            if mean is not None:
                mean.clicks += clicked
                mean.examined += seen
            sums = known.get(result)
            if sums is not None:
                sums[0] += clicked
                sums[1] += seen
            elif len(known) < MOST_RESULTS:
                known[result] = [clicked, seen]


class Mean:
    """Clicks and examinations of the whole log so far."""

    def __init__(self) -> None:
        self.clicks, self.examined = UNKNOWN, 1.0

    def before(self, tops: Counts, sizes: Counts, clicks: Counts) -> Values:
        """Add lists, by their top positions, how many results they have and how many of these were clicked; return the prior before
        each of them. All is added from the first position to the last, so that it makes no difference how many lists come at once.
        """
        ends = np.cumsum(sizes)
        positions = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(tops - (ends - sizes), sizes)
        seen = np.cumsum(np.concatenate([[self.examined], CURVE_VALUES[np.minimum(positions, len(CURVE)) - 1]]))
        clicked = np.cumsum(np.concatenate([[self.clicks], np.ones(int(clicks.sum()))]))
        out: Values = PRIOR * clicked[np.cumsum(clicks) - clicks] / seen[ends - sizes]
        self.clicks, self.examined = float(clicked[-1]), float(seen[-1])
        return out


class Rates(Known, Mean):
    """Attractiveness of results by query, under the position-based examination curve. The rarer half is forgotten when full."""

    def __init__(self, most: int = MOST_QUERIES) -> None:
        Known.__init__(self)
        Mean.__init__(self)
        self.watched = Watched(most)

    @property
    def prior(self) -> float:
        """The clicks of `PRIOR` examinations at the mean rate of the log so far."""
        return PRIOR * self.clicks / self.examined

    def attractive(self, query: str, results: list[str]) -> list[float]:
        """Return the attractiveness of results."""
        return self.worth(query, results, self.prior)

    def learn(self, entry: Shown) -> None:
        """Add a list."""
        if self.watched.add(entry.query):
            if len(self.by_query) >= self.watched.most:
                self.by_query = self.watched.kept(self.by_query)
            self.by_query[entry.query] = {}
        self.add(entry, self)
