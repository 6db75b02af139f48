"""Units of evidence per session, so that one person cannot outweigh many.

A *unit* of evidence is a show that the policy learns from, with its click if one comes. By default a session has one unit for each
result of a query in each phase: repeated requests and repeated clicks teach nothing more. Session ids come from the application and
are trusted. The units are kept in memory only, bounded, under a hash; after a restart each session has its units again.
"""

from __future__ import annotations

#: Pairs of a session and a query that are remembered at most; bounds the memory.
MOST = 50_000


class Heard:
    """The units of one session in one phase of one query: shows and clicks by the keyed hash of the result."""

    __slots__ = ("clicks", "phase", "shows")

    def __init__(self, phase: int) -> None:
        self.phase = phase
        self.shows: list[int] = []  # the hash of a result, once for each unit; mostly one
        self.clicks: list[int] = []


class Evidence:
    """The units of the last sessions, for at least the last `most` / 2 pairs of a session and a query and at most `most`.

    `limit` is the number of units that a session has for each result of a query in a phase; 0: no limit, and nothing is kept.

    >>> evidence = Evidence(limit=1)
    >>> evidence.shown(session=7, key=b"jaguar", phase=1, result=5)
    >>> evidence.heard_on(7, b"jaguar", results=[4, 5, 6]), evidence.heard_on(8, b"jaguar", results=[4, 5, 6])
    ((1, [5]), (0, []))
    >>> [evidence.clicked(7, b"jaguar", 1, 5, shown=True) for _ in range(2)]
    [True, False]
    """

    def __init__(self, limit: int, most: int = MOST) -> None:
        self.limit, self.half = limit, most // 2
        # The older table is dropped when the younger is full.
        self._young: dict[tuple[int, bytes], Heard] = {}
        self._old: dict[tuple[int, bytes], Heard] = {}

    def _find(self, session: int, key: bytes) -> Heard | None:
        return self._young.get((session, key)) or self._old.get((session, key))

    def heard_on(self, session: int, key: bytes, results: list[int]) -> tuple[int, list[int]]:
        """Return the phase of the session's units (0: it has none) and those of `results` for which all its units are used."""
        heard = self._find(session, key)
        if heard is None:
            return 0, []
        shows, limit = heard.shows, self.limit
        return heard.phase, [result for result in results if shows.count(result) >= limit]

    def shown(self, session: int, key: bytes, phase: int, result: int) -> None:
        """Note that a result was shown to the session and that the policy learns from it."""
        young = self._young
        heard = young.get((session, key))
        if heard is None:
            heard = self._old.get((session, key)) or Heard(phase)
            if len(young) >= self.half:
                self._old, self._young = young, {}
                young = self._young
            young[session, key] = heard
        if heard.phase != phase:
            heard.phase, heard.shows, heard.clicks = phase, [], []
        heard.shows.append(result)

    def clicked(self, session: int, key: bytes, phase: int, result: int, *, shown: bool) -> bool:
        """Return whether a click of the session is evidence; `shown` says whether the show of its own ranking was.

        A click counts for any unit that the session has for the result, also when it comes at a later show.
        """
        heard = self._find(session, key)
        if heard is None or heard.phase != phase:
            return shown
        if heard.clicks.count(result) >= heard.shows.count(result):
            return False
        heard.clicks.append(result)
        return True
