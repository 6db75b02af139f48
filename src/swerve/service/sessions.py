"""Which query each session asked last, so that "asked something else shortly after" can be told to the query before.

Kept in memory only, bounded, under a hash: a restart forgets it, which costs a few reformulations and no privacy.
"""

from __future__ import annotations

from collections import OrderedDict

MOST = 50_000


class Sessions:
    """The last query and its time, per session.

    >>> sessions = Sessions(window=60.0)
    >>> sessions.moved("s", b"jaguar", 0.0), sessions.moved("s", b"jaguar cat", 5.0)
    (None, (b'jaguar', 0.0))
    >>> sessions.moved("s", b"jaguar cat", 6.0), sessions.moved("s", b"weather", 500.0)
    (None, None)
    """

    def __init__(self, window: float, most: int = MOST) -> None:
        self.window, self.most = window, most
        # in the order of the last request; of a plain dictionary the first entry is found in linear time once many have gone
        self._last: OrderedDict[int, tuple[bytes, float]] = OrderedDict()

    def moved(self, session: str, key: bytes, now: float) -> tuple[bytes, float] | None:
        """Note the session's request; the query it came from, and when that was asked, if it is another one and recent."""
        name = hash(session)
        before = self._last.pop(name, None)
        self._last[name] = (key, now)
        if len(self._last) > self.most:
            self._last.popitem(last=False)
        if before is None or before[0] == key or now - before[1] > self.window:
            return None
        return before
