"""Which queries that nobody has asked before get a row of their own."""

from __future__ import annotations


class NewQueries:
    """A bucket of permits for queries that were never seen before: `per_minute` flow in, and at most as many are kept.

    >>> bucket = NewQueries(60, now=0.0)
    >>> sum(bucket.allow(now=0.0) for _ in range(100))
    60
    >>> bucket.allow(now=0.5), bucket.allow(now=1.0), bucket.allow(now=1.0)
    (False, True, False)
    """

    __slots__ = ("left", "per_minute", "since")

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = float(per_minute)
        self.left = self.per_minute
        self.since = now

    def allow(self, now: float) -> bool:
        """Take a permit if there is one. A clock that goes back gives none, and takes none away."""
        if now > self.since:
            self.left = min(self.per_minute, self.left + (now - self.since) * self.per_minute / 60.0)
        self.since = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def wait(self) -> float:
        """Seconds until there is a permit again: what Retry-After says."""
        return max(0.0, (1.0 - self.left) * 60.0 / self.per_minute)
