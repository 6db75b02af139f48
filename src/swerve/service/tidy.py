"""Housekeeping of a store between two batches: removes expired decisions, idle queries and, at `store.max_mb`, the least valuable.

Each step is short and runs in the writer's thread, so that callers who wait for a batch do not wait for the housekeeping.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from swerve.service.metrics import Metrics
from swerve.service.used import Used
from swerve.service.worker import Worker
from swerve.serving.ranker import Ranker
from swerve.serving.tokens import NUMBER_BITS
from swerve.store.protocol import DAY, Size, Store, StoreError

log = logging.getLogger("swerve.service")

#: Seconds for making room between two batches. While the store is over its bound the next batch would fail, so it waits longer.
ROOM_SECONDS, ROOM_SECONDS_OVER = 0.05, 0.5
#: Seconds between two log lines of the same kind.
LOG_EVERY = 60.0
#: Expiry runs this many times in a feedback window, at least once a minute and at most once a second.
EXPIRIES_PER_WINDOW, EXPIRY_AT_LEAST, EXPIRY_AT_MOST = 30, 1.0, 60.0
#: Seconds until the next expiry when the last one removed something: the store removes a bounded number at a time.
EXPIRY_AGAIN = 0.1


class Tidy:
    """Removes expired and surplus rows of a store. `idle` returns the seconds after which a query without requests is removed."""

    def __init__(
        self,
        store: Store,
        ranker: Ranker,
        writer: Worker,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        window: float,
        idle: Callable[[], float],
    ) -> None:
        self.store, self.ranker, self.writer, self.metrics, self.clock = store, ranker, writer, metrics, clock
        self.window, self.idle = window, idle
        self.size = Size()
        self._expire_at = 0.0
        self._logged: dict[str, float] = {}  # kind of log line → when it was last written
        self._removed_since = 0  # rows removed since the last log line about that
        self.begin()
        self.measure()

    def begin(self) -> None:
        """Start over with the ranker's current life."""
        # Times, and the first decision number that had not been issued then.
        self._marks: deque[tuple[float, int]] = deque([(self.clock(), self.ranker.life.id << NUMBER_BITS)])

    @property
    def pressing(self) -> bool:
        """Whether rows must be removed or moved soon."""
        return (self.size.surplus > 0 or self.size.scattered > 0) and not self.size.held

    def measure(self) -> None:
        """Ask the store for its size, in the writer's thread. An error is left to the next batch, which meets it too."""
        try:
            self.size = self.store.size()
        except StoreError:
            self.size = Size()

    async def step(self, used: Used) -> None:
        """Do the housekeeping that is due; `used` drops its expired decisions too. Raises `StoreError`."""
        self.metrics.store_bytes.value, self.metrics.log_bytes.value = self.size.data, self.size.log
        if self.size.held and self.may_log("held"):
            log.warning(
                "the log of the store is long because another program holds a read transaction: end that program (lsof)",
                extra={"megabytes": round(self.size.log / 1e6)},
            )
        if self.pressing:
            await self._make_room()
        now = self.clock()
        if now >= self._expire_at:
            await self._expire(used, now)

    async def _expire(self, used: Used, now: float) -> None:
        """Remove decisions whose window is over and queries that have been idle for too long."""
        self._expire_at = now + min(max(self.window / EXPIRIES_PER_WINDOW, EXPIRY_AT_LEAST), EXPIRY_AT_MOST)
        used.forget(now)
        marks = self._marks
        marks.append((now, self.ranker.life.id << NUMBER_BITS | self.ranker.issued))
        while len(marks) > 1 and now - marks[1][0] > self.window:
            marks.popleft()
        below = marks[0][1] if now - marks[0][0] > self.window else 0
        rows, ids = await self.writer.ask(self.store.expire, int(max((now - self.idle()) // DAY, 0.0)), below)
        self.metrics.expired_rows.value += rows
        if rows or ids:
            self._expire_at = now + EXPIRY_AGAIN
        await self.writer.ask(self.measure)

    async def _make_room(self) -> None:
        """Remove the least valuable rows.

        A row with unwritten changes stays: it was asked just now. A removed row leaves memory too, or its next change would store
        it again; a row that is in use at this moment stays in memory and is written again.
        """
        rows = self.ranker.rows
        gone = await self.writer.ask(self._remove, frozenset(place.key for _, place in self.ranker.unwritten))
        for key in gone:
            place = rows.get(key)
            if place is not None and not (place.dirty or place.pinned):
                rows.drop(place)
        self.metrics.removed_rows.value += len(gone)
        self._removed_since += len(gone)
        if self._removed_since and self.may_log("room"):
            log.warning(
                "the store is full (store.max_mb): the least valuable queries are removed", extra={"removed": self._removed_since}
            )
            self._removed_since = 0

    def _remove(self, unwritten: frozenset[bytes]) -> list[bytes]:
        """Make room for a while, in the writer's thread; return the keys of the removed rows."""
        started, gone = time.perf_counter(), list[bytes]()
        while self.pressing and time.perf_counter() - started < (ROOM_SECONDS_OVER if self.size.over else ROOM_SECONDS):
            if self.size.surplus:
                keys = [key for key in self.store.least(self.size.surplus + len(unwritten)) if key not in unwritten]
                done = self.store.forget(keys[: self.size.surplus])
                gone += keys[: self.size.surplus]
            else:
                done = self.store.gather(self.size.scattered)
            self.measure()
            if not done:  # all candidates for removal are in use: try again after the next batch
                self.size = self.size._replace(surplus=0, scattered=0)
        return gone

    def may_log(self, kind: str) -> bool:
        """Return whether the last log line of this kind is at least `LOG_EVERY` seconds old, and note the time of a new one."""
        now = self.clock()
        if now - self._logged.get(kind, -LOG_EVERY) < LOG_EVERY:
            return False
        self._logged[kind] = now
        return True
