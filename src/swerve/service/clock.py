"""The service's time: unix seconds that never go back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("swerve.service")

DAY = 86_400.0
#: Seconds by which the wall clock may differ before the log says so: normal adjustments are smaller.
JUMP = 5.0


class Clock:
    """Starts at wall-clock time and advances with the monotonic clock.

    When the wall clock jumps back, this clock goes on; when it jumps ahead (a machine that slept), this clock follows. The service
    never sees time run backwards, and after a restart time starts no earlier than `earliest`, the last time in the store.

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
        self.behind = 0.0  # seconds by which the wall clock is behind this clock
        self.doubtful = False  # whether the wall clock has jumped ahead by days: no query may expire because of that

    def now(self) -> float:
        """Return the time in unix seconds."""
        return self._ticks() + self._offset

    def check(self) -> None:
        """Compare with the wall clock and follow a jump ahead. The service calls this every few seconds."""
        behind = self.now() - self._wall()
        if behind < -JUMP:
            log.warning("the wall clock jumped ahead by %.0f s: the service follows", -behind)
            self._offset -= behind
            if -behind > DAY:
                self.doubtful = True
                log.error("the clock jumped ahead by more than a day: idle queries do not expire until the next start")
            behind = 0.0
        elif behind > JUMP and self.behind <= JUMP:
            log.warning("the wall clock is %.0f s behind: the service keeps its own time", behind)
        self.behind = behind
