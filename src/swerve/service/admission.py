"""Permits for rows of new queries. When permits are short, queries that several sessions ask come first."""

from __future__ import annotations

#: Queries without a row that are remembered: at most 20 MB of memory.
MOST_ASKED = 100_000
#: One session may fill this part of the remembered queries.
SESSION_PART = 10


class Doorkeeper:
    """Remembers which session first asked each query without a row, for at least the last `most` / 2 queries and at most `most`.

    One session fills a tenth of that at most, so that a flood from one session does not push out the queries of the others.

    >>> door = Doorkeeper()
    >>> door.several(b"jaguar", 1), door.several(b"jaguar", 1), door.several(b"jaguar", 2)
    (False, False, True)
    """

    __slots__ = ("_each", "_half", "_old", "_share", "_young")

    def __init__(self, most: int = MOST_ASKED) -> None:
        self._half, self._share = most // 2, most // 2 // SESSION_PART
        # The older table is dropped when the younger is full.
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._each: dict[int, int] = {}  # session → its entries in the younger table

    def several(self, key: bytes, session: int) -> bool:
        """Return whether another session has asked this query before. Remembers this session if it is the first."""
        first = self._young.get(key)
        if first is None:
            first = self._old.get(key)
        if first is not None:
            return first != session
        if len(self._young) >= self._half:
            self._old, self._young, self._each = self._young, {}, {}
        count = self._each.get(session, 0)
        if count < self._share:
            self._each[session] = count + 1
            self._young[key] = session
        return False


class NewQueries:
    """A token bucket of permits for new queries: `per_minute` flow in, and the bucket holds that many.

    Any query may take from the upper half. The lower half is reserved for queries that several sessions ask, so that a session that
    invents queries takes none of those permits. All requests without a session count as one session.

    >>> bucket = NewQueries(60, now=0.0)
    >>> sum(bucket.allow(number.to_bytes(2, "big"), 1, now=0.0) for number in range(100))
    30
    >>> bucket.allow(b"irma", 2, now=0.0), bucket.allow(b"irma", 3, now=0.0)
    (False, True)
    """

    __slots__ = ("door", "left", "per_minute", "reserve", "since")

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = float(per_minute)
        self.reserve = float(per_minute // 2)
        self.left = self.per_minute
        self.since = now
        self.door = Doorkeeper()

    def allow(self, key: bytes, session: int, now: float, *, several: bool = False) -> bool:
        """Take a permit for a query; returns whether there was one.

        `several` says that more than one session asks the query at this moment. A clock that goes back adds and removes no permits.
        """
        if now > self.since:
            self.left = min(self.per_minute, self.left + (now - self.since) * self.per_minute / 60.0)
        self.since = now
        if self.left < self.reserve + 1.0 and not several and not self.door.several(key, session):
            return False
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True
