"""Checkpoints: rows, outcomes and shared records are written to the store after the log, so that a start has little of it to play.

Rows are copied on the event loop, where they change. They are written once the log is durable up to their last change: the store is
never ahead of the log. A *generation* of the log has each row whole before its first change in it. When every row that had changed
before a generation began is written, a start plays the log from that generation on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from swerve.service.availability import Unavailable
from swerve.service.batches import commit, row_of
from swerve.service.groups import durable
from swerve.service.tidy import Tidy
from swerve.service.worker import Worker
from swerve.serving.entries import begins
from swerve.serving.place import Place
from swerve.serving.rows import Shelf
from swerve.store.protocol import Batch, Row, StoreError

if TYPE_CHECKING:
    from swerve.service.committer import Committer

log = logging.getLogger("swerve.service")

#: Rows of one checkpoint: copying more would hold the event loop for milliseconds. A checkpoint takes the second number while
#: memory is nearly full (only written rows can leave it), or more than the third number of rows wait.
MOST_ROWS, PRESSED_ROWS, MANY_WAIT = 64, 256, 4096
#: Seconds until the next checkpoint while memory is nearly full, and at least for any other. Never 0: requests get their turn in
#: between.
PRESSED_WAIT = 0.002
#: Seconds until the next housekeeping while rows must make room. Not 0, for the same reason.
ROOM_WAIT = 0.005
#: Another generation begins after so many entries or bytes, which bounds what a start plays; or after so many seconds.
GENERATION_ENTRIES, GENERATION_BYTES, GENERATION_SECONDS = 3_000_000, 1 << 30, 3600.0
#: Seconds between two looks for old parts of the log to compress or drop: each look reads segments.
SHRINK_SECONDS = 60.0

T = TypeVar("T")


class Counts(Protocol):
    """Records that are written together with those that all queries share."""

    @property
    def changed(self) -> bool:
        """Whether they have changed since they were last written."""

    def record(self) -> dict[str, bytes]:
        """Return the records."""

    def failed(self) -> None:
        """Called when the records could not be written: `changed` stays true."""


class Checkpoints:
    """Writes the rows of a ranker behind its log. `keep` is the number of seconds for which the log is kept beyond what a start
    needs."""

    def __init__(
        self, committer: Committer, writer: Worker, layouts: dict[Shelf, int], *, idle: Callable[[], float], keep: float
    ) -> None:
        self.committer, self.layouts, self.keep = committer, layouts, keep
        self.store, self.ranker, self.metrics = committer.store, committer.ranker, committer.metrics
        self.clock, self.flush, self._writer = committer.clock, committer.flush, writer
        self.used: dict[int, int] = {}  # outcomes that are not written yet
        self.records: dict[str, bytes] = {}  # those of operators that are not written yet
        self.counts: Counts | None = None
        self.stranded: dict[bytes, Place] = {}  # rows that cannot be written: the log has them whole
        self.erasing = False  # whether rows are being deleted: none may be taken up from the store
        self.named: str | None = None  # a candidate that is about to be deleted; `naming` collects written rows that have it
        self.naming: set[bytes] = set()
        self._cut: tuple[int, float] | None = None  # the begin of a generation and when it began, until the store has that begin
        self._begun = (0, 0, 0.0)  # entries, bytes and time at the begin of the last generation
        self._shared_at = self._shrink_at = 0.0
        self._asides: list[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = []
        self._wake, self._stopping = asyncio.Event(), False
        self._task: asyncio.Task[None] | None = None
        self._tidy = Tidy(self.store, self.ranker, writer, self.metrics, self.clock, window=committer.window, idle=idle)

    def begin(self) -> None:
        """Note that a generation has begun: the log can be played from it once all rows that changed earlier are written."""
        committer, now = self.committer, self.clock()
        self._cut = (committer.store.end, now)
        self._begun = (committer.position, committer.size, now)

    def start(self) -> None:
        """Start to write."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="swerve-checkpoints")

    async def stop(self, until: float) -> None:
        """Write everything, then end; at `until` at the latest: nothing is lost then, because the log has everything."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        while self.clock() < until:
            try:
                await self.write_all(until)
                if not self.stranded:
                    await self._end()
                break
            except (Unavailable, StoreError):
                await asyncio.sleep(self.committer.patience)
        else:
            log.warning("the store cannot be written: the next start plays the log", extra={"rows": len(self.ranker.unwritten)})
        self.fail()

    async def _end(self) -> None:
        """Write the last checkpoint, after which a start has nothing to play."""
        await durable(self.committer.now())
        shared = self.ranker.shared(self.clock()) | (self.counts.record() if self.counts is not None else {})
        epoch = self.store.epoch
        await self._writer.ask(self.store.checkpoint, Batch(groups=shared, begin=self.committer.position, epoch=epoch))

    def renew(self) -> None:
        """Forget what was to be written: another store has replaced this one."""
        self.used, self.records, self.stranded, self._cut = {}, {}, {}, None
        self._tidy.begin()

    # ------------------------------------------------------------------ asides
    async def aside(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something between two checkpoints, while none is being written. Raises `Unavailable` if the store is away."""
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

    def fail(self) -> None:
        """Fail all callers of `aside` that wait."""
        for _, done in self._asides:
            if not done.done():
                done.set_exception(Unavailable())
        self._asides = []

    # ------------------------------------------------------------------ the loop
    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._step()
            except (Unavailable, StoreError):  # logged already
                await asyncio.sleep(self.committer.patience)
            except Exception:  # without this task no row would ever be written again
                log.exception("a checkpoint failed")
                await asyncio.sleep(self.committer.patience)

    async def _step(self) -> None:
        """Wait until a checkpoint or housekeeping is due, and do it."""
        if not self._asides and not self._stopping:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._until_due())
        if self.committer.availability.away is not None:
            await asyncio.sleep(self.committer.patience)
            return
        if self._stopping:
            return
        await self._do_asides()
        if self._cut is None and self._due():
            self.begin_generation()
        await self._write(self.clock() - self.flush)
        await self._tidy_up()

    def _until_due(self) -> float:
        """Return the seconds until the next step."""
        if self._tidy.pressing:
            return ROOM_WAIT
        if not self.ranker.unwritten:
            return self.flush
        if self.ranker.pressed:
            return PRESSED_WAIT
        return min(max(self.ranker.unwritten[0][0] + self.flush - self.clock(), PRESSED_WAIT), self.flush)

    def _due(self) -> bool:
        """Return whether another generation is due."""
        entries, size, at = self._begun
        committer = self.committer
        more = committer.position - entries
        return more >= GENERATION_ENTRIES or committer.size - size >= GENERATION_BYTES or (
            more > 0 and self.clock() - at >= GENERATION_SECONDS
        )  # fmt: skip

    def begin_generation(self) -> None:
        """Begin another generation of the log. Rows that could not be written are tried again."""
        begin = self.committer.begin_generation()
        now = self.clock()
        self._cut = (begin, now)
        self._begun = (self.committer.position, self.committer.size, now)
        for place in self.stranded.values():
            place.pinned -= 1
            if not place.gone:
                self.ranker.unwritten.append((now, place))
        self.stranded = {}

    # ------------------------------------------------------------------ one checkpoint
    async def write_all(self, until: float = math.inf) -> None:
        """Write everything that has changed up to now, so that the log is played from the last generation on. Raises `Unavailable`
        or `StoreError`."""
        unwritten, now = self.ranker.unwritten, self.clock()
        first = True
        while first or self._cut is not None or (unwritten and unwritten[0][0] <= now):
            if self.clock() > until:
                raise Unavailable
            await self._write(now, all_of_it=True)
            first = False

    async def _write(self, due: float, all_of_it: bool = False) -> None:
        """Write one checkpoint: rows that have changed before a time, and other records that are due (all with `all_of_it`)."""
        pressed = self.ranker.pressed or all_of_it or len(self.ranker.unwritten) > MANY_WAIT
        places = self._taken(math.inf if self.ranker.pressed else due, PRESSED_ROWS if pressed else MOST_ROWS)
        used, self.used = self.used, {}
        records, self.records = self.records, {}
        shared = self._shared(all_of_it)
        begin = None
        if self._cut is not None and not (self.ranker.unwritten and self.ranker.unwritten[0][0] <= self._cut[1]):
            begin = self._cut[0]
        for place in places:
            place.pinned += 1
            place.dirty = False
        lost: frozenset[bytes] = frozenset()
        started, epoch = time.perf_counter(), self.store.epoch
        try:
            if not places and not used and not records and not shared and begin is None:
                return
            rows = [row_of(place, self.layouts, epoch) for place in places]
            if self.named is not None:
                self.naming |= {place.key for place in places if self.named in place.arms}
            await durable(self.committer.now())  # the log comes first
            lost = await self._writer.ask(self._commit, Batch(rows, list(used.items()), shared | records, begin, epoch))
        except BaseException as error:
            self._keep(places, used, records)
            if isinstance(error, StoreError):
                self._failed(error)
            raise
        finally:
            for place in places:
                place.pinned -= 1
        metrics = self.metrics
        metrics.checkpoints.value += 1
        metrics.committed_rows.value += len(rows)
        metrics.commit_rows.observe(len(rows))
        metrics.checkpoint_seconds.observe(time.perf_counter() - started)
        for place in places:
            if place.key not in lost:
                place.version = epoch
        if lost:
            self._strand([place for place in places if place.key in lost])
        elif begin is not None:
            self._cut = None

    def _taken(self, due: float, most: int) -> list[Place]:
        """Take rows that have changed before a time, at most `most` of them."""
        unwritten, taken = self.ranker.unwritten, dict[bytes, Place]()
        while unwritten and len(taken) < most and unwritten[0][0] <= due:
            _, place = unwritten.popleft()
            if place.dirty and not place.gone:
                taken[place.key] = place
        return list(taken.values())

    def _shared(self, now: bool) -> dict[str, bytes]:
        """Return the records that all queries share when they are due, else none."""
        at, counts = self.clock(), self.counts
        counted = counts is not None and counts.changed
        if not (self.ranker.learnt or counted) or not (now or at - self._shared_at >= self.flush):
            return {}
        self._shared_at = at
        records = self.ranker.shared(at) if self.ranker.learnt else {}
        self.ranker.learnt = False
        return records | counts.record() if counts is not None and counted else records

    def _commit(self, batch: Batch) -> frozenset[bytes]:
        """Write a checkpoint and measure the store, in the writer's thread; return the keys of rows on damaged pages."""
        lost = commit(self.store, batch)
        self._tidy.measure()
        return lost

    def _keep(self, places: Iterable[Place], used: dict[int, int], records: dict[str, bytes]) -> None:
        """Put back what could not be written."""
        for place in places:
            if not place.gone:
                place.dirty = True
                self.ranker.unwritten.appendleft((0.0, place))
        self.used, self.records = used | self.used, records | self.records
        self.ranker.learnt = True
        if self.counts is not None:
            self.counts.failed()

    def _failed(self, error: StoreError) -> None:
        """Count and log that rows could not be written. Clicks are still taken, into the log, unless the store must be opened
        again."""
        if error.kind in ("locked", "full", "slow"):
            self.metrics.store_errors(error.kind).value += 1
            if self._tidy.may_log(error.kind):
                log.warning("rows cannot be written (%s), and wait in the log: %s", error.kind, error)
        else:
            self.committer.failed(error)

    def _strand(self, places: list[Place]) -> None:
        """Keep rows whose pages are damaged in memory, and whole in this generation of the log."""
        for place in places:
            log.error("a row cannot be written, its page is damaged; the log has it: %s", place.key.hex())
            self.metrics.store_errors("corrupt").value += 1
            if not place.gone:
                place.dirty = True
                place.pinned += 1
                self.stranded[place.key] = place
        self.committer.write_whole(place for place in self.stranded.values() if not place.gone)

    # ------------------------------------------------------------------ housekeeping
    async def _tidy_up(self) -> None:
        """Do one step of housekeeping."""
        now = self.clock()
        try:
            await self._tidy.step(self.committer.used)
            if now >= self._shrink_at:
                self._shrink_at = now + SHRINK_SECONDS
                await asyncio.to_thread(self.store.shrink, now - self.keep, begins)
        except StoreError as error:
            self._failed(error)
            raise

    async def erase(
        self, keys: list[bytes], changed: list[bytes], change: Callable[[Row], Row | None], groups: dict[str, bytes]
    ) -> tuple[int, dict[bytes, int]]:
        """Delete for good, see `Store.erase`. Must run in `aside`. Rows that are read meanwhile are not taken into memory."""
        self.erasing = True
        try:
            await durable(self.committer.now())  # the log comes first, as for every write
            return await self._writer.ask(self.store.erase, keys, changed, change, groups)
        except StoreError as error:
            self.metrics.store_errors(error.kind).value += 1
            raise
        finally:
            self.erasing = False
