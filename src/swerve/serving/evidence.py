"""How often each session has been heard on the results of a query, so that one person cannot move what many made.

A *unit* of evidence is a show that the policy learns of, with its click if one comes. By default a session has one unit for each
result of a query in each phase: asking again and again, and clicking again and again, teaches nothing more. Session ids come from
the application and are trusted. This is kept in memory only, bounded, under a hash; a restart forgets it, so that a session may be
heard once more then.
"""

from __future__ import annotations

MOST = 50_000  # pairs of a session and a query


class Heard:
    """What one session has taught about one query in one phase, by the keyed hash of each result."""

    __slots__ = ("clicks", "phase", "results", "shows")

    def __init__(self, phase: int) -> None:
        self.begin(phase)

    def begin(self, phase: int) -> None:
        """Start over in a new phase."""
        self.phase = phase
        self.shows: list[int] = []  # each result's hash as often as its show was evidence; mostly once
        self.clicks: list[int] = []
        self.results: list[int] = []  # on which the session has no units left


class Evidence:
    """The units of the last sessions: of at least `most` / 2 pairs of a session and a query, and of at most `most`.

    `limit` is how many units a session has for a result, a query and a phase; 0: there is no limit, and nothing is kept.

    >>> evidence = Evidence(limit=1)
    >>> evidence.shown(session=7, key=b"jaguar", phase=1, result=5)
    >>> evidence.spent_by(7, b"jaguar").results, evidence.spent_by(8, b"jaguar")
    ([5], None)
    >>> [evidence.clicked(7, b"jaguar", 1, 5, shown=True) for _ in range(2)]
    [True, False]
    """

    def __init__(self, limit: int, most: int = MOST) -> None:
        self.limit, self.half = limit, most // 2
        # two tables, the older of which is let go when the younger is full
        self._young: dict[tuple[int, bytes], Heard] = {}
        self._old: dict[tuple[int, bytes], Heard] = {}

    def spent_by(self, session: int, key: bytes) -> Heard | None:
        """Return what the session has taught about a query, in the last phase in which it did."""
        pair = session, key
        return self._young.get(pair) or self._old.get(pair)

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
            heard.begin(phase)
        heard.shows.append(result)
        if heard.shows.count(result) == self.limit:
            heard.results.append(result)

    def clicked(self, session: int, key: bytes, phase: int, result: int, *, shown: bool) -> bool:
        """Whether the session's click on a result is evidence; `shown` says whether its own show was.

        A click belongs to any unit that the session has for the result: whoever clicks at the second look has clicked.
        """
        heard = self.spent_by(session, key)
        if heard is None or heard.phase != phase:
            return shown
        if heard.clicks.count(result) >= heard.shows.count(result):
            return False
        heard.clicks.append(result)
        return True
