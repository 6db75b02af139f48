"""The service's time: unix seconds that never go back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("swerve.service")

DAY = 86_400.0
JUMP = 5.0  # seconds by which the wall clock may differ before somebody is told


class Clock:
    """Wall-clock time at the start, the monotonic clock from there on.

    When the wall clock jumps back, this one goes on; when it jumps ahead (a machine that slept), this one follows. Nothing in the
    service sees time run backwards, and a restart begins no earlier than the last time in the store.

    >>> wall, ticks = [1000.0], [0.0]
    >>> clock = Clock(wall=lambda: wall[0], ticks=lambda: ticks[0])
    >>> wall[0] -= 3600; ticks[0] += 1; clock.now()
    1001.0
    """

    def __init__(
        self, earliest: float = 0.0, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._ticks = wall, ticks
        self._offset = max(wall(), earliest) - ticks()
        self.behind = 0.0  # by how much the wall clock is behind this one
        self.doubtful = False  # whether it has jumped by days: nothing is to be forgotten because of that

    def now(self) -> float:
        """The time."""
        return self._ticks() + self._offset

    def check(self) -> None:
        """Compare with the wall clock; called now and then."""
        behind = self.now() - self._wall()
        if behind < -JUMP:
            log.warning("the wall clock jumped ahead by %.0f s: following", -behind)
            self._offset -= behind
            if -behind > DAY:
                self.doubtful = True
                log.error("the clock jumped ahead by days: idle queries do not expire until the service is started again")
            behind = 0.0
        elif behind > JUMP and self.behind <= JUMP:
            log.warning("the wall clock is %.0f s behind: time goes on as before", behind)
        self.behind = behind
