"""Lists whose clicks are still to come: the last ones are kept, and leave in the order in which they were shown."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from swerve.evaluate.lists import Shown

#: Lists that wait for their clicks; bounds the memory. A click for an older one is dropped and counted.
MOST_OPEN = 200_000


class Opened:
    """Lists by their ids, oldest first."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self.most = most
        self._waiting: dict[Hashable, Shown] = {}

    def add(self, name: Hashable, entry: Shown) -> Iterator[Shown]:
        """Add a list; yield the oldest if there are too many now."""
        old = self._waiting.pop(name, None)
        if old is not None:
            yield old
        self._waiting[name] = entry
        if len(self._waiting) > self.most:
            yield self._waiting.pop(next(iter(self._waiting)))

    def get(self, name: Hashable) -> Shown | None:
        """Return a list that still waits."""
        return self._waiting.get(name)

    def rest(self) -> Iterator[Shown]:
        """Yield all that still wait."""
        while self._waiting:
            yield self._waiting.pop(next(iter(self._waiting)))


def click(entry: Shown, position: int) -> bool:
    """Add a click at a position; return whether it is on the list and was not counted before."""
    if not entry.top <= position < entry.top + len(entry.shown):
        return False
    if position not in entry.clicks:
        entry.clicks.append(position)
        entry.clicks.sort()
    return True
