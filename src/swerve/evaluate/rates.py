"""A reward model that learns from the log as it is read: clicks per examination of each result of a query."""

from __future__ import annotations

from swerve.evaluate.history import CURVE, MOST_QUERIES
from swerve.evaluate.lists import Shown

#: Examinations at the mean rate of the whole log with which each result begins.
PRIOR = 5.0
#: Results of a query whose rates are kept.
MOST_RESULTS = 256
#: The rate of a log without any list.
UNKNOWN = 0.1


class Rates:
    """Attractiveness of results by query, under the position-based examination curve. The rarer half is forgotten when full."""

    def __init__(self, most: int = MOST_QUERIES) -> None:
        self.most = most
        self.by_query: dict[str, dict[str, list[float]]] = {}
        self.clicks, self.examined = UNKNOWN, 1.0

    def attractive(self, query: str, results: list[str]) -> list[float]:
        """Return the attractiveness of results."""
        prior = PRIOR * self.clicks / self.examined
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

    def learn(self, entry: Shown) -> None:
        """Add a list."""
        known = self.by_query.get(entry.query)
        if known is None:
            if len(self.by_query) >= self.most:
                self._forget()
            known = self.by_query[entry.query] = {}
        for position, result in enumerate(entry.shown, entry.top):
            seen = CURVE[min(position, len(CURVE)) - 1]
            clicked = 1.0 if position in entry.clicks else 0.0
            self.clicks += clicked
            self.examined += seen
            sums = known.get(result)
            if sums is not None:
                sums[0] += clicked
                sums[1] += seen
            elif len(known) < MOST_RESULTS:
                known[result] = [clicked, seen]

    def _forget(self) -> None:
        order = sorted(self.by_query, key=lambda query: sum(sums[1] for sums in self.by_query[query].values()))
        for query in order[: len(order) // 2 or 1]:
            del self.by_query[query]
