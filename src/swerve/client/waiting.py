"""How long a client waits: never longer than a deadline, and not at all for a service that has failed again and again."""

from __future__ import annotations

import threading
import time
from typing import Any


class Breaker:
    """After some failures in a row nothing is sent for a while; then one request at a time finds out."""

    def __init__(self, failures: int, pause: float) -> None:
        self._most, self._pause = failures, pause
        self._failures, self._until = 0, 0.0
        self._lock = threading.Lock()

    def closed(self) -> bool:
        with self._lock:
            if self._failures < self._most:
                return True
            now = time.monotonic()
            if now < self._until:
                return False
            self._until = now + self._pause
            return True

    def record(self, good: bool) -> None:
        with self._lock:
            self._failures = 0 if good else self._failures + 1
            self._until = time.monotonic() + self._pause


class Deadline(dict[str, float]):
    """Timeouts for httpx that together stay within one deadline: each phase is given what is left."""

    def __init__(self, seconds: float) -> None:
        super().__init__(pool=seconds)  # not empty: an empty one would mean no timeouts
        self._end = time.monotonic() + seconds

    def get(self, phase: str, default: Any = None) -> float:
        return max(self._end - time.monotonic(), 0.001)  # 0 would mean "do not wait at all" to a socket

    @property
    def over(self) -> bool:
        return time.monotonic() > self._end
