"""Writing: feedback at once and in groups, changes by `rank` a little later; retries while the store does not answer.

One group is written at a time. Its rows are copied on the event loop, where they change, and committed by the writer's thread;
requests that arrive meanwhile join the next group, so groups grow with the load. A caller waits for the group that holds its row
and gets that group's result. When a group fails, its rows and decision numbers stay pending together: repeated feedback finds its
number used and waits for the next attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from swerve.service.availability import Availability, Unavailable
from swerve.service.batches import commit, row_of
from swerve.service.groups import Group, Written
from swerve.service.metrics import Metrics
from swerve.service.recording import Recording
from swerve.service.tidy import Tidy
from swerve.service.used import Used
from swerve.service.worker import Worker
from swerve.serving.ranker import Ranker
from swerve.serving.rows import Place, Shelf
from swerve.store.protocol import Batch, Life, Row, Store, StoreError

log = logging.getLogger("swerve.service")

#: Rows changed by `rank` that one batch takes: copying more would hold the event loop for milliseconds.
MOST_ROWS = 64
#: The bound while memory is nearly full: only written rows can leave it.
PRESSED_ROWS = 256
#: A batch that callers wait for is filled up to `SHORT` rows, because they wait for all of them, but with at least `FEW_ROWS` rows
#: of `rank`, so that those are written under steady feedback too.
SHORT, FEW_ROWS = 24, 4
#: Seconds until the next batch while memory is nearly full, and the least wait for any other. Never 0: requests come in between.
PRESSED_WAIT = 0.002
#: Seconds until the next housekeeping while rows must make room. Not 0, for the same reason.
ROOM_WAIT = 0.005
#: Seconds between two attempts to use a store that is away: short, because every ranking is degraded meanwhile.
PATIENCE = 0.25
#: Seconds for the last writes when the caller names none; the default of `server.drain_seconds`.
STOP_SECONDS = 10.0


class Counts(Protocol):
    """Records that are written with those that all queries share."""

    @property
    def changed(self) -> bool:
        """Whether they have changed since they were last written."""

    def record(self) -> dict[str, bytes]:
        """Return the records."""

    def failed(self) -> None:
        """The records could not be written: they have changed still."""


T = TypeVar("T")


class Committer:
    """Owns the writing side of a store.

    `moved` runs in the writer's thread when another file has replaced the store; the function that it returns runs on the event
    loop once memory is empty. `patience` is the number of seconds between two attempts to use a store that is away.
    """

    def __init__(
        self,
        store: Store,
        ranker: Ranker,
        layouts: dict[Shelf, int],
        availability: Availability,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        flush: float,
        window: float,
        idle: Callable[[], float],
        patience: float = PATIENCE,
        moved: Callable[[], Callable[[], None]] = lambda: lambda: None,
        recording: Recording | None = None,
    ) -> None:
        self.store, self.ranker, self.layouts, self.availability = store, ranker, layouts, availability
        self.metrics, self.clock, self.recording = metrics, clock, recording or Recording()
        self.flush, self.window, self.patience, self.moved = flush, window, patience, moved
        self.used = Used(ranker.life.id, window)
        self.lives: dict[int, int] = {}  # mark → id of the earlier lives that feedback has named so far
        self._writer = Worker("swerve-writer")
        self._next, self._flying = Group(), Group()  # the group that grows, and the one that is being written
        self._wake = asyncio.Event()
        self._stopping = False
        self._until, self._shared_at = 0.0, 0.0  # while stopping: when to give up; when shared records were written last
        self._replaced = False  # whether another file has replaced the store and memory still holds the old one's queries
        self._task: asyncio.Task[None] | None = None
        self._asides: list[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = []
        self.erasing = False  # whether rows are being deleted: none may be taken up from the store
        self.named: str | None = None  # a candidate that is about to be deleted; `naming` collects written rows that have it
        self.naming: set[bytes] = set()
        self.audit: Callable[[], dict[str, bytes]] = dict  # the record of what operators did
        self.counts: Counts | None = None  # the records of an experiment
        self._tidy = Tidy(store, ranker, self._writer, metrics, clock, window=window, idle=idle)

    def start(self) -> None:
        """Start to write."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="swerve-committer")

    async def stop(self, within: float = STOP_SECONDS) -> bool:
        """Write all pending changes, then end. Returns False when that takes more than `within` seconds."""
        self._stopping = True
        self._until = self.clock() + within
        self._wake.set()
        if self._task is not None:
            await self._task
        self._fail_asides()
        self._writer.stop()
        return not self.ranker.unwritten and not self._next.rows

    # ------------------------------------------------------------------ feedback
    def durable(self, place: Place, number: int, outcome: int) -> Written:
        """Note that a decision was used and changed a row. The future resolves when both are written."""
        self._next.put(number, outcome, place, self.used.get(number))
        self.used.put(number, outcome, self.clock())
        return self.now(place)

    def again(self, number: int) -> Written | None:
        """Return the future of a decision that is used but not durable yet, for a repeat; None when it is durable."""
        for group in (self._next, self._flying):
            if number in group.used:
                return group.wait(group.used[number].place.key)
        return None

    def now(self, place: Place) -> Written:
        """Write a row with the next group. The future resolves when the row's present state is durable."""
        if not self._next.waiting:
            self._wake.set()
        self._next.rows[place.key] = place
        return self._next.wait(place.key)

    def audited(self) -> None:
        """Write the audit with the next group."""
        self._next.audited = True

    async def put(self, records: dict[str, bytes], life: Life) -> None:
        """Write shared records now; durable on return. Raises `Unavailable`, also when another file has replaced the store."""
        try:
            await self._writer.ask(self.store.commit, Batch(groups=records))
        except StoreError as error:
            self.metrics.store_errors(error.kind).value += 1
            self.suspect(error, "written")
            raise Unavailable from None
        if self.ranker.life is not life:
            raise Unavailable

    async def aside(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something between two groups, while none is being written. Raises `Unavailable` if the store is away."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asides.append((work, done))
        self._wake.set()
        return await done

    async def _do_asides(self) -> None:
        while self._asides:
            work, done = self._asides.pop(0)
            try:
                made = await work()
                if not done.cancelled():
                    done.set_result(made)
            except Exception as error:
                if not done.cancelled():
                    done.set_exception(error)

    def _fail_asides(self) -> None:
        for _, done in self._asides:
            if not done.done():
                done.set_exception(Unavailable())
        self._asides = []

    async def erase(
        self, keys: Sequence[bytes], changed: Sequence[bytes], change: Callable[[Row], Row | None], groups: dict[str, bytes]
    ) -> tuple[int, dict[bytes, int]]:
        """Delete for good, see `Store.erase`; only `aside`. Rows that are read meanwhile are not taken up."""
        self.erasing = True
        try:
            return await self._writer.ask(self.store.erase, keys, changed, change, groups)
        except StoreError as error:
            self.metrics.store_errors(error.kind).value += 1
            raise
        finally:
            self.erasing = False

    def lose(self, place: Place) -> None:
        """Drop what is pending for a row that is deleted. Callers that wait for it are told to send it again."""
        for number, before in self._next.lose(place).items():
            self.used.put(number, before, self.clock())

    def suspect(self, error: StoreError, what: str = "read") -> None:
        """Mark the store as away after a failed call, so that it is probed before the next batch."""
        if self.availability.away is None:
            log.warning("the store cannot be %s (%s): %s", what, error.kind, error)
            self.availability.away = error.kind
            self._wake.set()

    # ------------------------------------------------------------------ the loop
    async def _run(self) -> None:
        while True:
            try:
                if await self._step():
                    return
            except Exception:  # without this task nothing would ever be written again
                log.exception("writing failed")
                self.availability.away = self.availability.away or "io"

    async def _step(self) -> bool:
        """Wait until a batch or housekeeping is due, and do it. Returns True when the committer has stopped."""
        if not self._next.waiting and not self._stopping and not self._asides:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._until_due())
        if self.availability.away is not None and not await self._recovered():
            self._next.fail()
            self._fail_asides()
            if self._stopping and self.clock() > self._until:
                log.error("the store is away (%s): %d rows stay unwritten", self.availability.away, len(self.ranker.unwritten))
                return True
            await asyncio.sleep(self.patience)
            return False
        await self._do_asides()
        wrote = await self._write()
        await self._tidy_up()
        return self._stopping and not self._next.waiting and not wrote

    def _until_due(self) -> float:
        """Return the seconds until the next step when no caller waits."""
        if self.availability.away is not None:
            return self.patience
        if self._tidy.pressing:
            return ROOM_WAIT
        if not self.ranker.unwritten:
            return self.flush
        if self.ranker.pressed:
            return PRESSED_WAIT
        return min(max(self.ranker.unwritten[0][0] + self.flush - self.clock(), PRESSED_WAIT), self.flush)

    # ------------------------------------------------------------------ one group
    async def _write(self) -> bool:
        """Write one group and answer all its callers. Returns whether there was anything to write."""
        group = self._flying = self._next
        self._next = Group()
        places = dict(group.rows)
        try:
            return await self._write_group(group, places)
        except StoreError as error:
            self._keep(group, places, error)
        except Exception as error:  # a defect
            log.exception("writing failed")
            self._keep(group, places, StoreError("io", str(error)))
        return True

    async def _write_group(self, group: Group, places: dict[bytes, Place]) -> bool:
        most = PRESSED_ROWS if self.ranker.pressed else MOST_ROWS
        self._add_due(places, max(FEW_ROWS, SHORT - len(places)) if group.waiting else most)
        shared = self._shared() | (self.audit() if group.audited else {})
        if not places and not shared:
            return False
        self.recording.collect(self.clock())
        rows = [row_of(place, self.layouts) for place in places.values()]
        if self.named is not None:
            self.naming |= {place.key for place in places.values() if self.named in place.arms}
        for place in places.values():
            place.pinned += 1
            place.dirty = False
        started = time.perf_counter()
        try:
            used = [(number, use.outcome, use.place.key) for number, use in group.used.items()]
            lost = await self._writer.ask(self._commit, rows, used, shared)
        finally:
            for place in places.values():
                place.pinned -= 1
        metrics = self.metrics
        metrics.commits.value += 1
        metrics.committed_rows.value += len(rows)
        metrics.commit_rows.observe(len(rows))
        metrics.commit_seconds.observe(time.perf_counter() - started)
        for row in rows:
            places[row.key].version = row.version
        for key in lost:
            self._lose(places[key])
        self._flying = Group()
        group.done(lost)
        return True

    def _add_due(self, places: dict[bytes, Place], most: int) -> None:
        """Add rows that `rank` changed at least `flush` seconds ago, at most `most` of them."""
        unwritten = self.ranker.unwritten
        due = math.inf if self._stopping or self.ranker.pressed else self.clock() - self.flush
        most += len(places)
        while unwritten and len(places) < most and unwritten[0][0] <= due:
            _, place = unwritten.popleft()
            if place.dirty:
                places[place.key] = place

    def _shared(self) -> dict[str, bytes]:
        """Return the records that all queries share when they are due, else none."""
        now, counts = self.clock(), self.counts
        counted = counts is not None and counts.changed
        if not (self.ranker.learnt or counted) or not (self._stopping or now - self._shared_at >= self.flush):
            return {}
        self._shared_at = now
        records = self.ranker.shared(now) if self.ranker.learnt else {}
        self.ranker.learnt = False
        return records | counts.record() if counts is not None and counted else records

    def _commit(self, rows: list[Row], used: list[tuple[int, int, bytes]], shared: dict[str, bytes]) -> frozenset[bytes]:
        """Record, commit and measure the store, in the writer's thread; return the keys of rows on damaged pages."""
        self.recording.sync(self.clock())
        lost = commit(self.store, rows, used, shared)
        self._tidy.measure()
        return lost

    def _keep(self, group: Group, places: dict[bytes, Place], error: StoreError) -> None:
        """Return a failed group to the pending changes, fail its callers and mark the store as away."""
        for place in places.values():
            if not place.dirty:
                place.dirty = True
                self.ranker.unwritten.appendleft((0.0, place))
        self._next.join(group)
        self._flying = Group()
        self.ranker.learnt = True
        if self.counts is not None:
            self.counts.failed()
        self.metrics.store_errors(error.kind).value += 1
        if self.availability.away is None:
            log.warning("the store cannot be written (%s): %s", error.kind, error)
        self.availability.away = error.kind
        group.fail()

    def _lose(self, place: Place) -> None:
        """Drop a row whose page is damaged, with its changes in memory: none of them has been acknowledged."""
        log.error("a row could not be written, its page is damaged: %s", place.key.hex())
        self.metrics.store_errors("corrupt").value += 1
        for group in (self._next, self._flying):
            for number, before in group.lose(place).items():
                self.used.put(number, before, self.clock())
        place.dirty = False
        if self.ranker.rows.get(place.key) is place:
            self.ranker.rows.drop(place)

    # ------------------------------------------------------------------ recovery and housekeeping
    async def _recovered(self) -> bool:
        """Probe a store that is away, reopening it where that can help. Returns whether it can be written again."""
        try:
            same = True
            if self.availability.away in ("gone", "io", "corrupt"):
                same = await self._writer.ask(self.store.reopen)
            if same and not self._replaced:
                await self._writer.ask(self.store.probe)
            else:
                self._replaced = True  # stays True when the next line fails: memory holds another store's queries
                await self._take_up_replacement()
        except StoreError as error:
            if error.kind != self.availability.away:  # one log line for each kind of trouble, not for each attempt
                log.warning("the store cannot be used (%s): %s", error.kind, error)
            self.availability.away = error.kind
            return False
        log.info("the store can be written again")
        self.availability.away = None
        return True

    async def _take_up_replacement(self) -> None:
        """Forget all queries in memory and go on with the file that has replaced the store."""
        life = await self._writer.ask(self.store.begin_life)
        take_up = await self._writer.ask(self.moved)
        log.warning("another file has replaced the store: the service goes on with its content")
        ranker = self.ranker
        self._next.fail()  # its rows belong to the old store and are forgotten
        self._next, self._replaced = Group(), False
        ranker.rows.clear()
        ranker.unwritten.clear()
        ranker.life, ranker.issued = life, 0
        self.used, self.lives = Used(life.id, self.window), {}
        self._tidy.begin()
        take_up()

    async def _tidy_up(self) -> None:
        """Do one step of housekeeping."""
        if self.availability.away is not None or self._stopping:
            return
        try:
            await self._tidy.step(self.used)
        except StoreError as error:
            self.metrics.store_errors(error.kind).value += 1
            log.warning("the housekeeping of the store failed (%s): %s", error.kind, error)
            self.availability.away = error.kind
