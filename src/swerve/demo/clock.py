"""Simulated time: one number in shared memory, written by the users' process and read by the service."""

from __future__ import annotations

from typing import Protocol

from swerve.service.clock import Clock

#: Simulated seconds per real second at speed 1: a day takes 24 minutes, and a second and a half at ×1000.
PACE = 60.0


class Shared(Protocol):
    """A number in shared memory."""

    value: float


class SimulatedClock(Clock):
    """The time of the simulated users. It stops while they pause, and never goes back.

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
        """Do nothing: there is no wall clock to compare with."""
