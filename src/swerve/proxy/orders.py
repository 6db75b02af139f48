"""The orders of sessions' searches, kept for their further pages: in memory, bounded in bytes and in time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

#: Bytes that an order takes besides its ids and its decision.
OVERHEAD = 400
#: Bytes that an id takes besides its characters.
ID_OVERHEAD = 60


class Order(NamedTuple):
    """The order of a window: ids from the top, and the decision that clicks are reported for."""

    ids: list[str]
    decision: str | None
    hidden: frozenset[str] = frozenset()  # ids that were on offer and are not shown
    made: bool = True  # False: nothing was decided, the order is the engine's


class Orders:
    """Orders by the key of a search and its session."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self.most, self.seconds, self.clock = most, seconds, clock
        self.size = 0
        self._kept: OrderedDict[bytes, tuple[float, int, Order]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes) -> Order | None:
        """Return an order that is not too old."""
        found = self._kept.get(key)
        if found is None or self.clock() - found[0] > self.seconds:
            return None
        return found[2]

    def put(self, key: bytes, order: Order) -> None:
        """Keep an order; the oldest leave to make room."""
        self._drop(key)
        count = len(order.ids) + len(order.hidden)
        size = OVERHEAD + ID_OVERHEAD * count + len("".join(order.ids)) + len("".join(order.hidden)) + len(order.decision or "")
        now = self.clock()
        self._kept[key] = (now, size, order)
        self.size += size
        while self._kept and (self.size > self.most or now - next(iter(self._kept.values()))[0] > self.seconds):
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.size -= found[1]


def applied(order: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return the ids of a window in an earlier order: ids that are gone leave their places to new ones, so that no other moves.

    >>> applied(["c", "a", "b", "d"], ["a", "x", "c", "d"])
    ['c', 'a', 'x', 'd']
    >>> applied(["c", "a"], ["a", "b", "c"]), applied(["c", "a", "b"], ["a", "b"])
    (['c', 'a', 'b'], ['a', 'b'])
    """
    here, known = set(ids), set(order)
    new = iter([one for one in ids if one not in known])
    out: list[str] = []
    for one in order:
        if one in here:
            out.append(one)
        elif (other := next(new, None)) is not None:
            out.append(other)
    return [*out, *new]
