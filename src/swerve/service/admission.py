"""Which queries that nobody has asked before get a row of their own: those that several sessions ask come first."""

from __future__ import annotations

MOST_ASKED = 100_000  # queries without a row that are known to have been asked


class Doorkeeper:
    """Who asked a query that has no row first: of at least the last `most` / 2 of them, and of at most `most`.

    One session has a tenth of the room at most, so that a flood from one does not make the others' be forgotten.

    >>> door = Doorkeeper()
    >>> door.several(b"jaguar", 1), door.several(b"jaguar", 1), door.several(b"jaguar", 2)
    (False, False, True)
    """

    __slots__ = ("_each", "_half", "_old", "_share", "_young")

    def __init__(self, most: int = MOST_ASKED) -> None:
        self._half, self._share = most // 2, most // 20
        # two tables, the older of which is let go when the younger is full
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._each: dict[int, int] = {}  # entries of each session in the younger

    def several(self, key: bytes, session: int) -> bool:
        """Whether another session has asked this query before; notes that this one does, if nobody has."""
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
    """A bucket of permits for queries that were never seen before: `per_minute` flow in, and at most as many are kept.

    The upper half is for anybody. The lower half is for queries that several sessions ask: one that asks for new queries without
    end takes none from those. Requests without a session are one session.

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
        """Take a permit for a query if there is one; `several` sessions ask it at this very moment. A clock that goes back gives
        none, and takes none away."""
        if now > self.since:
            self.left = min(self.per_minute, self.left + (now - self.since) * self.per_minute / 60.0)
        self.since = now
        if self.left < self.reserve + 1.0 and not several and not self.door.several(key, session):
            return False
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True
