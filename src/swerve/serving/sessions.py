"""Which query each session asked last, so that "asked something else shortly after" can be told to the query before.

Kept in memory only, bounded, under a hash: a restart forgets it, which costs a few reformulations and no privacy.
"""

from __future__ import annotations

MOST = 50_000
MASK = (1 << 64) - 1


def name_of(session: str | None) -> int:
    """A session's number in this process, never 0; 0 for none. The interpreter's hash has a random key in each process."""
    return 0 if session is None else hash(session) & MASK or 1


class Sessions:
    """The last query and its time, per session; of at least the last `most` / 2 sessions, and of at most `most`.

    >>> sessions = Sessions(window=60.0)
    >>> sessions.moved(1, b"jaguar", 0.0), sessions.moved(1, b"jaguar cat", 5.0)
    (None, (b'jaguar', 0.0))
    >>> sessions.moved(1, b"jaguar cat", 6.0), sessions.moved(1, b"weather", 500.0)
    (None, None)
    """

    def __init__(self, window: float, most: int = MOST) -> None:
        self.window, self.half = window, most // 2
        # two tables, the older of which is let go when the younger is full: a third of the time of one in order
        self._young: dict[int, tuple[bytes, float]] = {}
        self._old: dict[int, tuple[bytes, float]] = {}

    def moved(self, name: int, key: bytes, now: float) -> tuple[bytes, float] | None:
        """Note the session's request; the query it came from, and when that was asked, if it is another one and recent."""
        young = self._young
        before = young.get(name) or self._old.get(name)
        if len(young) >= self.half and name not in young:
            self._old, self._young = young, {}
            young = self._young
        young[name] = (key, now)
        if before is None or before[0] == key or now - before[1] > self.window:
            return None
        return before
