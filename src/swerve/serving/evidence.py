"""How often each session has been heard on the results of a query, so that one person cannot move what many made.

A *unit* of evidence is a show that the policy learns of, with its click if one comes. By default a session has one unit for each
result of a query in each phase: asking again and again, and clicking again and again, teaches nothing more. Session ids come from
the application and are trusted. This is kept in memory only, bounded, under a hash; a restart forgets it, so that a session may be
heard once more then.
"""

from __future__ import annotations

MOST = 50_000  # pairs of a session and a query


class Heard:
    """What one session was heard on in one phase of one query: shows and clicks by the keyed hash of the result."""

    __slots__ = ("clicks", "phase", "shows")

    def __init__(self, phase: int) -> None:
        self.phase = phase
        self.shows: list[int] = []  # a result's hash as often as it was shown; mostly one
        self.clicks: list[int] = []


class Evidence:
    """The units of the last sessions: of at least `most` / 2 pairs of a session and a query, and of at most `most`.

    `limit` is how many units a session has for a result, a query and a phase; 0: there is no limit, and nothing is kept.

    >>> evidence = Evidence(limit=1)
    >>> evidence.shown(session=7, key=b"jaguar", phase=1, result=5)
    >>> evidence.heard_on(7, b"jaguar", results=[4, 5, 6]), evidence.heard_on(8, b"jaguar", results=[4, 5, 6])
    ((1, [5]), (0, []))
    >>> [evidence.clicked(7, b"jaguar", 1, 5, shown=True) for _ in range(2)]
    [True, False]
    """

    def __init__(self, limit: int, most: int = MOST) -> None:
        self.limit, self.half = limit, most // 2
        # two tables, the older of which is let go when the younger is full
        self._young: dict[tuple[int, bytes], Heard] = {}
        self._old: dict[tuple[int, bytes], Heard] = {}

    def _find(self, session: int, key: bytes) -> Heard | None:
        return self._young.get((session, key)) or self._old.get((session, key))

    def heard_on(self, session: int, key: bytes, results: list[int]) -> tuple[int, list[int]]:
        """The results among these that the session has had its say on, and the phase of that; phase 0 for none."""
        heard = self._find(session, key)
        if heard is None:
            return 0, []
        shows, limit = heard.shows, self.limit
        return heard.phase, [result for result in results if shows.count(result) >= limit]

    def shown(self, session: int, key: bytes, phase: int, result: int) -> None:
        """A result was shown to the session, and the policy learns of it."""
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
        """Whether the session's click on a result is evidence; `shown` says whether its own show was.

        A click belongs to any unit that the session has for the result: whoever clicks at the second look has clicked.
        """
        heard = self._find(session, key)
        if heard is None or heard.phase != phase:
            return shown
        if heard.clicks.count(result) >= heard.shows.count(result):
            return False
        heard.clicks.append(result)
        return True
