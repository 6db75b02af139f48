"""Simulated time: one number that the users' process writes and the service reads."""

from __future__ import annotations

from typing import Protocol

from swerve.service.clock import Clock

#: Simulated seconds in a real one at speed 1: a day takes 24 minutes, at ×1000 a second and a half.
PACE = 60.0


class Shared(Protocol):
    """A number in shared memory."""

    value: float


class SimulatedClock(Clock):
    """The time of the simulated users. It stands while they pause, and never goes back.

    >>> class Number:
    ...     value = 100.0
    >>> time = Number()
    >>> clock = SimulatedClock(time)
    >>> time.value = 160.0
    >>> clock.now()
    160.0
    >>> time.value = 90.0
    >>> clock.now()
    160.0
    """

    def __init__(self, time: Shared) -> None:
        super().__init__(wall=lambda: time.value, ticks=lambda: 0.0)
        self._time, self._latest = time, time.value

    def now(self) -> float:
        if self._time.value > self._latest:
            self._latest = self._time.value
        return self._latest

    def check(self) -> None:
        """There is no wall clock to compare it with."""
