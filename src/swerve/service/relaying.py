"""An experiment that worker 0 counts: searches and feedback of this worker, which wait in their order to be sent there."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from swerve.serving.holdout import Unit
from swerve.serving.lift import Lift, Tracked

#: Events that may wait to be sent; further ones are not counted.
MOST_WAITING = 500_000
#: A decision's number has fewer bits; a worker's number is put above them.
WORKER_BITS = 80


class Relayed(msgspec.Struct, array_like=True, gc=False):
    """A search (with its unit and its share of treated units), or feedback (with clicks and rewards, before and now)."""

    since: float  # when the experiment began
    arm: int
    number: int
    unit: Unit | None = None
    share: float = 0.0
    names: tuple[str, ...] = ()
    at: float = 0.0
    clicks: tuple[int, int] | None = None
    rewards: tuple[float, float] = (0.0, 0.0)


class Relay:
    """Takes the place of `Lift` on workers that do not count."""

    counted = None  # worker 0 has the totals
    changed = False  # nothing is written here

    def __init__(self, since: float) -> None:
        self.since = since
        self.guarded: dict[bytes, Tracked] = {}
        self._waiting: list[Relayed] = []

    def told(self) -> list[Relayed]:
        """Return the events that wait, and forget them."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def forget_open(self) -> None:
        """Do nothing: worker 0 has the open visits."""

    def searched(self, unit: Unit | None, arm: int, share: float, number: int, names: tuple[str, ...], now: float) -> None:
        """Note a search."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(Relayed(self.since, arm, number, unit, share, names, now))

    def clicked(self, arm: int, number: int, clicks_before: int, clicks: int, reward_before: float, reward: float) -> None:
        """Note feedback."""
        if len(self._waiting) < MOST_WAITING:
            told = (clicks_before, clicks), (reward_before, reward)
            self._waiting.append(Relayed(self.since, arm, number, clicks=told[0], rewards=told[1]))

    def on_guard(self, key: bytes, now: float) -> Tracked | None:
        """Return the line of a query that is shown in its given order."""
        line = self.guarded.get(key)
        return None if line is None or now >= line.until else line

    def forget(self, key: bytes) -> None:
        """Drop a query that is deleted."""
        self.guarded.pop(key, None)


def replay(lift: Lift, worker: int, events: Iterable[Relayed]) -> None:
    """Count the events of a worker that belong to this experiment."""
    above = (worker + 1) << WORKER_BITS  # decisions of different workers may have the same number
    for event in events:
        if event.since != lift.counted.since:
            continue
        number = event.number | above
        if event.clicks is None:
            lift.searched(event.unit, event.arm, event.share, number, event.names, event.at)
        else:
            lift.clicked(event.arm, number, *event.clicks, *event.rewards)
