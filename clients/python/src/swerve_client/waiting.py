"""The deadline of a request, how long to wait before the next, and the breaker that stops requests to a failing service."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

LEAST_TIMEOUT = 0.001  # seconds; a timeout of 0 means "do not wait at all" to a socket


class Breaker:
    """Stops requests after several failures in a row; after each pause it lets one request through to test the service."""

    def __init__(self, failures: int, pause: float) -> None:
        self._most, self._pause = failures, pause
        self._failures, self._until = 0, 0.0
        self._lock = threading.Lock()

    def closed(self) -> bool:
        """Return whether a request may be sent now."""
        with self._lock:
            if self._failures < self._most:
                return True
            now = time.monotonic()
            if now < self._until:
                return False
            self._until = now + self._pause
            return True

    def record(self, good: bool) -> None:
        """Count the outcome of a request."""
        with self._lock:
            self._failures = 0 if good else self._failures + 1
            self._until = time.monotonic() + self._pause


class Deadline(dict[str, float]):
    """Timeouts for httpx that together keep one deadline: each step of a request gets the remaining time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(pool=seconds)  # must not be empty: an empty mapping means no timeouts
        self._end = time.monotonic() + seconds

    def get(self, phase: str, default: Any = None) -> float:
        """Return the remaining seconds, for any step of a request."""
        return max(self._end - time.monotonic(), LEAST_TIMEOUT)

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self._end


def seconds_of(header: str | None) -> float:
    """Return the seconds of a Retry-After header, a number or a date; 0 if it is neither."""
    try:
        return max(float(header or 0), 0.0)
    except ValueError:
        pass
    try:
        return max((parsedate_to_datetime(header or "") - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):  # a date without a time zone cannot be subtracted
        return 0.0
