"""The last query of each session, so that a reformulation can be counted for the query before it, and the last order that a session
was shown, so that a reload or the next page brings no other order.

Kept in memory only, bounded, under a hash: a restart loses a few reformulations, and a reload after it may bring another order.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

import numpy as np

from swerve.core.siphash import KEY_BYTES, hash_text

if TYPE_CHECKING:
    from swerve.serving.requests import Decided, Prepared

#: Sessions that are remembered at most; bounds the memory.
MOST = 50_000
MASK = (1 << 64) - 1
#: The key of the hashes of sessions, of this process.
SECRET = np.frombuffer(os.urandom(KEY_BYTES), np.uint64)
_hash = hash_text.bind()


def name_of(session: str | None) -> int:
    """Return the hash of a session in this process, 0 only for None. The interpreter's hash has a random key per process."""
    return 0 if session is None else hash(session) & MASK or 1


def person_of(request: Prepared) -> int:
    """Return the hash of a request's session, 0 for none. A session of one namespace is not that of another."""
    session = request.session
    if session is None:
        return 0
    name = session if request.namespace is None else f"{request.namespace}\0{session}"
    return _hash(SECRET, name.encode("utf-8", "surrogatepass"))[0] or 1


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

    def moved_many(self, names: Sequence[int], keys: Sequence[bytes], now: float) -> list[tuple[bytes, float] | None]:
        """Do `moved` for requests of one time, in their order."""
        young = self._young
        if len(young) + len(names) > self.half or len(set(names)) < len(names):
            return [self.moved(name, key, now) for name, key in zip(names, keys, strict=True)]
        before = [last or older for last, older in zip(map(young.get, names), map(self._old.get, names), strict=True)]
        young.update(zip(names, zip(keys, repeat(now)), strict=False))
        return [
            None if last is None or last[0] == key or now - last[1] > self.window else last
            for last, key in zip(before, keys, strict=True)
        ]

    def forget(self, keys: Collection[bytes]) -> None:
        """Forget that sessions asked these queries."""
        self._young, self._old = (
            {name: last for name, last in table.items() if last[0] not in keys} for table in (self._young, self._old)
        )


class Shown(Protocol):
    """A ranking that was shown to a session."""

    def decided(self) -> Decided:
        """Return the ranking."""


class Steady:
    """The last ranking of each session for each query, for at least the last `most` / 2 of them and at most `most`.

    A ranking is shown again within `seconds`, while the query is in the same phase and the candidates are the same.
    """

    def __init__(self, seconds: float, most: int = MOST) -> None:
        self.seconds, self.half = seconds, most // 2
        self._young: dict[tuple[int, bytes], Shown] = {}
        self._old: dict[tuple[int, bytes], Shown] = {}

    def find(self, name: int, key: bytes) -> Decided | None:
        """Return the last ranking that the session was shown for a query."""
        pair = name, key
        found = self._young.get(pair) or self._old.get(pair)
        return found if found is None else found.decided()

    def fresh(self, pairs: Sequence[tuple[int, bytes]]) -> int:
        """Return how many pairs of a session and a query, from the first on, are new: they have no ranking, and differ."""
        if len(set(pairs)) == len(pairs) and self._young.keys().isdisjoint(pairs) and self._old.keys().isdisjoint(pairs):
            return len(pairs)
        known = set[tuple[int, bytes]]()
        for index, pair in enumerate(pairs):
            if pair in known or pair in self._young or pair in self._old:
                return index
            known.add(pair)
        return len(pairs)

    def keep_many(self, pairs: Sequence[tuple[int, bytes]], shown: Sequence[Shown]) -> None:
        """Remember rankings of different pairs."""
        if len(self._young) + len(pairs) <= self.half:
            self._young.update(zip(pairs, shown, strict=True))
            return
        for (name, key), one in zip(pairs, shown, strict=True):
            self.keep(name, key, one)

    def holds(self, decided: Decided, slots: int, now: float) -> bool:
        """Return whether a ranking was shown a short time ago, and fills so many slots."""
        return 0.0 <= now - decided.at <= self.seconds and len(decided.chances) == min(slots, len(decided.ranking))

    def keep(self, name: int, key: bytes, decided: Shown) -> None:
        """Remember a ranking."""
        young, pair = self._young, (name, key)
        if len(young) >= self.half and pair not in young:
            self._old, self._young = young, {}
            young = self._young
        young[pair] = decided

    def forget(self, keys: Collection[bytes]) -> None:
        """Forget the rankings of these queries."""
        self._young, self._old = (
            {pair: kept for pair, kept in table.items() if pair[1] not in keys} for table in (self._young, self._old)
        )
