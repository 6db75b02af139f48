"""Units of evidence per session, so that one person cannot outweigh many.

A *unit* of evidence is a page that the policy learns from, with its clicks if any come. By default a session has one unit for each
result on top of a query's page in each phase: repeated requests and repeated clicks teach nothing more. Session ids come from the
application and are trusted. The units are kept in memory only, bounded, under a hash; after a restart each session has its units
again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct

#: Pairs of a session and a query that are remembered at most; bounds the memory.
MOST = 50_000


class Spent(Struct, gc=False):
    """What one session has taught about one query in one phase, by the keyed hash of each result."""

    phase: int
    shows: list[int]  # each result's hash as often as its show was evidence; mostly once
    clicks: tuple[int, ...] = ()
    results: tuple[int, ...] = ()  # those that were on top, on which the session has no units left

    def spent(self, limit: int) -> Spent:
        """Return itself: what one page has taught is also kept in another form, see `swerve.serving.bulk`."""
        return self

    def use(self, top: int, limit: int) -> None:
        """Note that this result was on top."""
        if (limit == 1 or self.shows.count(top) >= limit) and top not in self.results:
            self.results += (top,)


class Taught(Protocol):
    """What a session has taught about a query."""

    def spent(self, limit: int) -> Spent:
        """Return it, for so many units of a session."""


class Evidence:
    """The units of the last sessions, for at least the last `most` / 2 pairs of a session and a query and at most `most`.

    `limit` is the number of units that a session has for each result of a query in a phase; 0: no limit, and nothing is kept.

    >>> evidence = Evidence(limit=1)
    >>> evidence.shown(session=7, key=b"jaguar", phase=1, results=[5, 6])
    >>> evidence.spent_by(7, b"jaguar").results, evidence.spent_by(8, b"jaguar")
    ((5,), None)
    >>> [evidence.clicked(7, b"jaguar", 1, 5, shown=True) for _ in range(2)]
    [True, False]
    """

    def __init__(self, limit: int, most: int = MOST) -> None:
        self.limit, self.half = limit, most // 2
        # The older table is dropped when the younger is full.
        self._young: dict[tuple[int, bytes], Taught] = {}
        self._old: dict[tuple[int, bytes], Taught] = {}

    def spent_by(self, session: int, key: bytes) -> Spent | None:
        """Return what the session has taught about a query, in the last phase in which it did."""
        pair = session, key
        for table in (self._young, self._old):
            found = table.get(pair)
            if found is not None:
                spent = table[pair] = found.spent(self.limit)
                return spent
        return None

    def any_of(self, pairs: Sequence[tuple[int, bytes]]) -> bool:
        """Return whether a session has taught anything about its query, for any of these pairs."""
        return not (self._young.keys().isdisjoint(pairs) and self._old.keys().isdisjoint(pairs))

    def shown_many(self, pairs: Sequence[tuple[int, bytes]], shown: Sequence[Taught]) -> None:
        """Do `shown` for different pairs."""
        if len(self._young) + len(pairs) <= self.half and not self.any_of(pairs):
            self._young.update(zip(pairs, shown, strict=True))
            return
        for (session, key), one in zip(pairs, shown, strict=True):
            spent = one.spent(self.limit)
            self.shown(session, key, spent.phase, spent.shows)

    def shown(self, session: int, key: bytes, phase: int, results: list[int]) -> None:
        """Note that a page of results was shown to the session and that the policy learns from it; the first is on top."""
        young, pair = self._young, (session, key)
        spent = self.spent_by(session, key)
        if pair not in young and len(young) >= self.half:
            self._old, self._young = young, {}
            young = self._young
        if spent is None or spent.phase != phase:
            spent = young[pair] = Spent(phase, results)
        else:
            young[pair] = spent
            spent.shows += results
        spent.use(results[0], self.limit)

    def shown_instead(self, session: int, key: bytes, phase: int, results: list[int]) -> None:
        """Note that these results were really shown on a page that the policy learns from: clicks on them are evidence too."""
        spent = self.spent_by(session, key)
        if spent is not None and spent.phase == phase:
            spent.shows += [result for result in results if spent.shows.count(result) < self.limit]

    def clicked(self, session: int, key: bytes, phase: int, result: int, *, shown: bool) -> bool:
        """Return whether a click of the session is evidence; `shown` says whether the show of its own ranking was.

        A click counts for any unit that the session has for the result, also when it comes at a later show.
        """
        spent = self.spent_by(session, key)
        if spent is None or spent.phase != phase:
            return shown
        if spent.clicks.count(result) >= spent.shows.count(result):
            return False
        spent.clicks += (result,)
        return True

    def forget(self, keys: Collection[bytes]) -> None:
        """Forget what sessions have taught about these queries."""
        self._young, self._old = (
            {pair: spent for pair, spent in table.items() if pair[1] not in keys} for table in (self._young, self._old)
        )
