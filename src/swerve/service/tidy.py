"""Housekeeping of a store between two batches: what nobody can ask about any more goes, and, at the bound, what is worth least.

A little at a time, in the writer's thread, so that nobody who waits for a batch waits for it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from swerve.serving.tokens import NUMBER_BITS
from swerve.store.protocol import DAY, Size, StoreError

if TYPE_CHECKING:
    from swerve.service.committer import Committer

log = logging.getLogger("swerve.service")

LONG, LONGEST = 0.05, 0.5  # seconds for making room between two batches; and when there is none, so that the next one must wait
AGAIN = 60.0  # seconds between two log lines that say the same


class Tidy:
    """The housekeeping of a committer's store."""

    def __init__(self, committer: Committer) -> None:
        self.committer = committer
        self.size = Size()
        self._at = 0.0
        self._said: dict[str, float] = {}
        self._unsaid = 0  # rows that went since that was last said
        self.begin()

    def begin(self) -> None:
        """Another life begins, perhaps of another store."""
        committer = self.committer
        # when which decision had been issued
        self._marks: deque[tuple[float, int]] = deque([(committer.clock(), committer.ranker.life.id << NUMBER_BITS)])

    @property
    def pressing(self) -> bool:
        """Whether there is something to do that cannot wait for long."""
        return (self.size.surplus > 0 or self.size.scattered > 0) and not self.size.held

    def measure(self) -> None:
        """In the writer's thread: how large the store is. Trouble with that is trouble of the next batch."""
        try:
            self.size = self.committer.store.size()
        except StoreError:
            self.size = Size()

    async def step(self) -> None:
        """Do what is due. Raises `StoreError`."""
        metrics = self.committer.metrics
        metrics.store_bytes.value, metrics.log_bytes.value = self.size.data, self.size.log
        if self.size.held and self._may_say("held"):
            log.warning(
                "the log of the store is long, because another program reads the store and does not end: end that program (lsof)",
                extra={"megabytes": round(self.size.log / 1e6)},
            )
        if self.pressing:
            await self._make_room()
        now = self.committer.clock()
        if now >= self._at:
            await self._expire(now)

    async def _expire(self, now: float) -> None:
        """Let go of decisions whose window is over and of queries that nobody asks any more."""
        committer, window = self.committer, self.committer.window
        self._at = now + min(max(window / 30, 1.0), 60.0)
        committer.used.forget(now)
        marks = self._marks
        marks.append((now, committer.ranker.life.id << NUMBER_BITS | committer.ranker.issued))
        while len(marks) > 1 and now - marks[1][0] > window:
            marks.popleft()
        below = marks[0][1] if now - marks[0][0] > window else 0
        rows, ids = await committer.ask(committer.store.expire, int(max((now - committer.idle()) // DAY, 0.0)), below)
        committer.metrics.expired_rows.value += rows
        if rows or ids:  # there may be more: soon again
            self._at = now + 0.1
        await committer.ask(self.measure)

    async def _make_room(self) -> None:
        """Remove rows that are worth least. One that is to be written stays: it was asked just now. One that is in memory goes from
        there too, or its next change would put it back; if somebody uses it at this moment, it is written anew."""
        committer, rows = self.committer, self.committer.ranker.rows
        gone = await committer.ask(self._removed, frozenset(place.key for _, place in committer.ranker.unwritten))
        for key in gone:
            place = rows.get(key)
            if place is not None and not (place.dirty or place.pinned):
                rows.drop(place)
        committer.metrics.removed_rows.value += len(gone)
        self._unsaid += len(gone)
        if self._unsaid and self._may_say("room"):
            log.warning("the store is full (store.max_mb): queries that are worth least make room", extra={"removed": self._unsaid})
            self._unsaid = 0

    def _removed(self, unwritten: frozenset[bytes]) -> list[bytes]:
        """In the writer's thread: make room, for a while; the keys of the rows that went."""
        store, started, gone = self.committer.store, time.perf_counter(), list[bytes]()
        while self.pressing and time.perf_counter() - started < (LONGEST if self.size.over else LONG):
            if self.size.surplus:
                keys = [key for key in store.least(self.size.surplus + len(unwritten)) if key not in unwritten]
                done = store.forget(keys[: self.size.surplus])
                gone += keys[: self.size.surplus]
            else:
                done = store.gather(self.size.scattered)
            self.measure()
            if not done:  # all of them are in use: after the next batch again
                self.size = self.size._replace(surplus=0, scattered=0)
        return gone

    def _may_say(self, what: str) -> bool:
        """Whether a log line of this kind was not written for a while."""
        now = self.committer.clock()
        if now - self._said.get(what, -AGAIN) < AGAIN:
            return False
        self._said[what] = now
        return True
