"""The last query of each session, so that a reformulation can be counted for the query before it.

Kept in memory only, bounded, under a hash: a restart loses a few reformulations.
"""

from __future__ import annotations

#: Sessions that are remembered at most; bounds the memory.
MOST = 50_000
MASK = (1 << 64) - 1


def name_of(session: str | None) -> int:
    """Return the hash of a session in this process, 0 only for None. The interpreter's hash has a random key per process."""
    return 0 if session is None else hash(session) & MASK or 1


class Sessions:
    """The last query and its time, for at least the last `most` / 2 sessions and at most `most`.

    >>> sessions = Sessions(window=60.0)
    >>> sessions.moved(1, b"jaguar", 0.0), sessions.moved(1, b"jaguar cat", 5.0)
    (None, (b'jaguar', 0.0))
    >>> sessions.moved(1, b"jaguar cat", 6.0), sessions.moved(1, b"weather", 500.0)
    (None, None)
    """

    def __init__(self, window: float, most: int = MOST) -> None:
        self.window, self.half = window, most // 2
        # The older table is dropped when the younger is full. This takes a third of the time of one ordered table.
        self._young: dict[int, tuple[bytes, float]] = {}
        self._old: dict[int, tuple[bytes, float]] = {}

    def moved(self, name: int, key: bytes, now: float) -> tuple[bytes, float] | None:
        """Note a request of the session; return its previous query and that query's time if it is another one and recent."""
        young = self._young
        before = young.get(name) or self._old.get(name)
        if len(young) >= self.half and name not in young:
            self._old, self._young = young, {}
            young = self._young
        young[name] = (key, now)
        if before is None or before[0] == key or now - before[1] > self.window:
            return None
        return before
