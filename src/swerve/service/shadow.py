"""Shadow mode: how often, and how, the policy would have changed the given order. Counts are those of this start, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection

from swerve.service.metrics import Metrics
from swerve.serving.control import ShadowQuery, ShadowReport
from swerve.serving.messages import Parts, parts_of
from swerve.serving.requests import Decided

#: Queries that are counted one by one; rankings of further ones are in the totals only.
MOST_QUERIES = 10_000


class Shadow:
    """Counts what the policy would have done."""

    def __init__(self, metrics: Metrics, since: float) -> None:
        self.since = since
        self._same, self._below, self._top = (metrics.shadow(outcome) for outcome in ("same", "below", "top"))
        self._queries: dict[bytes, ShadowQuery] = {}

    def note(self, decided: Decided) -> None:
        """Count a ranking in the given order; one that a session is shown again is counted once."""
        choice = decided.choice
        if choice is None or decided.again:
            return
        shown = decided.ranking[: len(choice)]
        differs = choice != shown
        top = differs and choice[0] != shown[0]
        (self._top if top else self._below if differs else self._same).value += 1
        key = decided.signed.key
        line = self._queries.get(key)
        if line is None:
            if len(self._queries) >= MOST_QUERIES:
                return
            line = self._queries[key] = ShadowQuery(key.hex(), 0, 0, 0, [], [])
        line.rankings += 1
        line.differs += differs
        line.top_differs += top
        line.shown, line.choice = shown, choice

    def forget(self, keys: Collection[bytes]) -> None:
        """Forget what was counted for these queries one by one."""
        self._queries = {key: line for key, line in self._queries.items() if key not in keys}

    def report(self, limit: int, text_of: Callable[[bytes], str | None]) -> ShadowReport:
        """Return the totals, and the queries that would have changed most often; `text_of` returns the text of a key, if known."""
        same, below, top = (int(counter.value) for counter in (self._same, self._below, self._top))
        queries = sorted(self._queries.values(), key=lambda line: (-line.differs, -line.rankings))[:limit]
        for line in queries:
            line.query, parts = parts_of(text_of(bytes.fromhex(line.key)))
            line.parts = None if parts == Parts() else parts
        return ShadowReport("shadow", self.since, same + below + top, below + top, top, queries)
