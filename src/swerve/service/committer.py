"""Writing: feedback at once and in groups, what `rank` changed a little later; and what happens when the store does not answer.

One batch is under way at a time. It is put together on the event loop, where rows change, and written by a thread; whatever arrives
meanwhile makes the next one, so that groups grow with the load. An answer goes out after its batch is durable. When a batch fails,
its rows and decision numbers stay pending together: a retry of the feedback finds its number used and waits for the next attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from swerve.service.metrics import Metrics
from swerve.service.ranker import EPOCH, Ranker
from swerve.service.rows import Place
from swerve.service.used import Used
from swerve.store.protocol import Batch, Conflict, Row, Store, StoreError

log = logging.getLogger("swerve.service")

MOST_ROWS = 64  # that `rank` changed, in one batch: putting more of them together would keep requests waiting for milliseconds
PRESSED_ROWS = 256  # the same, when memory is nearly full and only written rows can make room
FEW_ROWS = 4  # of them at least in a batch that somebody waits for; more of them as long as it stays below
SHORT = 24  # so many rows: whoever waits, waits for all of them
DAY = 86_400.0

#: Done when a batch is durable: True, or False for a row that could not be written because its page is damaged. Fails with `Away`.
Written = asyncio.Future[bool]


class Away(Exception):  # noqa: N818 - what happened, not what went wrong
    """The store cannot be written; `kind` says how."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def fail(waiting: list[tuple[bytes, Written]], kind: str) -> None:
    """Tell those who wait that the store is away."""
    for _, one in waiting:
        if not one.done():
            one.set_exception(Away(kind))
            one.exception()  # nobody may be waiting any more


def done(waiting: list[tuple[bytes, Written]], lost: frozenset[bytes]) -> None:
    """Tell those who wait that the batch is written, all of it but these rows."""
    for key, one in waiting:
        if not one.done():
            one.set_result(key not in lost)


class Committer:
    """Owns the writing side of a store.

    `moved` is called in the writer's thread when another file lies where the store was; what it returns, once memory is empty.
    """

    def __init__(
        self,
        store: Store,
        ranker: Ranker,
        layouts: dict[int, int],
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        flush: float,
        window: float,
        idle: Callable[[], float],
        patience: float = 0.25,
        moved: Callable[[], Callable[[], None]] = lambda: lambda: None,
    ) -> None:
        self.store, self.ranker, self.layouts, self.metrics, self.clock = store, ranker, layouts, metrics, clock
        self.flush, self.window, self.idle, self.patience, self.moved = flush, window, idle, patience, moved
        self.used = Used(ranker.epoch, window, EPOCH)
        self.away: str | None = None  # the kind of trouble, while there is some
        self._thread = ThreadPoolExecutor(1, "swerve-writer")
        self._fresh: dict[int, tuple[int, Place]] = {}  # used decisions that no batch has taken yet, with outcome and row
        self._flying: dict[int, tuple[int, Place]] = {}  # those of the batch under way
        self._urgent: dict[bytes, Place] = {}  # rows that somebody waits for, beside those of used decisions
        self._waiting: list[tuple[bytes, Written]] = []  # who waits for the batch after the one under way, and for which row
        self._wake = asyncio.Event()
        self._stopping = False
        self._until = 0.0  # when to give up writing at the end
        self._anew = False  # whether another file was found, and is not taken up yet
        self._task: asyncio.Task[None] | None = None
        self._shared_at = 0.0
        self._tidy_at = 0.0
        self._marks: deque[tuple[float, int]] = deque([(clock(), ranker.epoch << EPOCH)])  # when which decision had been issued

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="swerve-committer")

    async def stop(self, within: float = 10.0) -> bool:
        """Write what is left, then end; False when that could not be done in so many seconds."""
        self._stopping = True
        self._until = self.clock() + within
        self._wake.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown(wait=False, cancel_futures=True)
        return not self.ranker.unwritten and not self._fresh

    # ------------------------------------------------------------------ feedback
    def durable(self, place: Place, number: int, outcome: int) -> Written:
        """A decision was used and its row changed: done when both are written."""
        self.used.put(number, outcome, self.clock())
        self._fresh[number] = (outcome, place)
        return self._after_next(place.key)

    def again(self, number: int) -> Written | None:
        """For a repeat: when the first one is durable; None when it is already."""
        pending = self._fresh.get(number) or self._flying.get(number)
        return self._after_next(pending[1].key) if pending else None

    def now(self, place: Place) -> Written:
        """Done when this row, as it is now, is durable."""
        self._urgent[place.key] = place
        return self._after_next(place.key)

    def suspect(self, error: StoreError) -> None:
        """The reading side is in trouble: look at the store before the next batch."""
        if self.away is None:
            log.warning("the store cannot be read (%s): %s", error.kind, error)
            self.away = error.kind
            self._wake.set()

    def _after_next(self, key: bytes) -> Written:
        waiting: Written = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._wake.set()
        self._waiting.append((key, waiting))
        return waiting

    # ------------------------------------------------------------------ the loop
    async def _run(self) -> None:
        while True:
            try:
                if await self._step():
                    return
            except Exception:  # without this task nothing would ever be written again
                log.exception("writing failed")
                self.away = self.away or "io"

    async def _step(self) -> bool:
        """Wait for something to do, and do it; True at the end."""
        if not self._waiting and not self._stopping:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._until_due())
        if self.away is not None and not await self._recovered():
            fail(self._waiting, self.away)
            self._waiting = []
            if self._stopping and self.clock() > self._until:
                log.error("the store is away (%s): %d rows stay unwritten", self.away, len(self.ranker.unwritten))
                return True
            await asyncio.sleep(self.patience)
            return False
        wrote = await self._write()
        await self._tidy()
        return self._stopping and not self._waiting and not wrote

    def _until_due(self) -> float:
        if self.away is not None:
            return self.patience
        if not self.ranker.unwritten:
            return self.flush
        if self.ranker.pressed:
            return 0.002
        return min(max(self.ranker.unwritten[0][0] + self.flush - self.clock(), 0.002), self.flush)

    async def _write(self) -> bool:
        """One batch; whether there was anything to write."""
        waiting, self._waiting = self._waiting, []
        self._flying, self._fresh = self._fresh, {}
        urgent = self._urgent | {place.key: place for _, place in self._flying.values()}
        self._urgent = {}
        most = PRESSED_ROWS if self.ranker.pressed else MOST_ROWS
        places = urgent | self._behind(urgent, max(FEW_ROWS, SHORT - len(urgent)) if waiting else most)
        shared = self._shared()
        if not places and not shared:
            done(waiting, frozenset())
            return False
        rows = [self._row(place) for place in places.values()]
        for place in places.values():
            place.pinned += 1
            place.dirty = False
        used = [(number, outcome, place.key) for number, (outcome, place) in self._flying.items()]
        started = time.perf_counter()
        failed: StoreError | None = None
        lost: frozenset[bytes] = frozenset()
        try:
            lost = await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, rows, used, shared)
        except StoreError as error:
            failed = error
        except Exception as error:  # a defect; but those who wait must be answered
            log.exception("writing failed")
            failed = StoreError("io", str(error))
        for place in places.values():
            place.pinned -= 1
        if failed is not None:
            self._keep(places, failed, waiting)
            return True
        metrics = self.metrics
        metrics.commits.value += 1
        metrics.committed_rows.value += len(rows)
        metrics.commit_rows.observe(len(rows))
        metrics.commit_seconds.observe(time.perf_counter() - started)
        for row in rows:
            places[row.key].version = row.version
        for key in lost:
            self._lose(places[key])
        self._flying = {}
        done(waiting, lost)
        return True

    def _behind(self, urgent: dict[bytes, Place], most: int) -> dict[bytes, Place]:
        """Rows that `rank` changed long enough ago, at most so many: those who wait for feedback should not wait for them."""
        unwritten = self.ranker.unwritten
        due = math.inf if self._stopping or self.ranker.pressed else self.clock() - self.flush
        taken: dict[bytes, Place] = {}
        while unwritten and len(taken) < most and unwritten[0][0] <= due:
            _, place = unwritten.popleft()
            if place.dirty and place.key not in urgent:
                taken[place.key] = place
        return taken

    def _row(self, place: Place) -> Row:
        shelf, index = place.shelf, place.index
        at = shelf.at
        return Row(
            place.key,
            place.version + 1,
            self.layouts[shelf.arms],
            int(shelf.floats[index, at["seen"]] // DAY),
            (int(shelf.numbers[index, at["requests"]]) + 1).bit_length() - 1,
            float(shelf.floats[index, at["shifted"]]),
            shelf.words[index].tobytes(),
            place.names(),
        )

    def _shared(self) -> dict[str, bytes]:
        """What all queries have learnt together, when it is due."""
        now = self.clock()
        if not self.ranker.learnt or not (self._stopping or now - self._shared_at >= self.flush):
            return {}
        self.ranker.learnt, self._shared_at = False, now
        return self.ranker.shared(now)

    def _commit(self, rows: list[Row], used: list[tuple[int, int, bytes]], shared: dict[str, bytes]) -> frozenset[bytes]:
        """In the writer's thread; the keys of rows that cannot be written because their page is damaged.

        Such rows must not keep the others from being written: if nobody can say which they are, each goes by itself.
        """
        lost: set[bytes] = set()
        while True:
            good = [row for row in rows if row.key not in lost]
            try:
                self._insist(Batch(good, [(number, outcome) for number, outcome, key in used if key not in lost], shared))
                return frozenset(lost)
            except StoreError as error:
                if error.kind != "corrupt" or not good:
                    raise
                blamed = set(error.keys) & {row.key for row in good}
                if not blamed:
                    break
                lost |= blamed
        for row in good:
            try:
                self._insist(Batch([row], [(number, outcome) for number, outcome, key in used if key == row.key], {}))
            except StoreError as error:
                if error.kind != "corrupt":
                    raise
                self.store.probe()  # raises when it is not this row but the store
                lost.add(row.key)
        return frozenset(lost)

    def _insist(self, batch: Batch) -> None:
        """Commit. This process owns the store, so memory is right where they differ: a row that has expired meanwhile, or a batch
        that was written although its commit ended in an error."""
        for _ in range(3):
            try:
                return self.store.commit(batch)
            except Conflict as conflict:
                for row in batch.rows:
                    if row.key in conflict.versions:
                        row.version = conflict.versions[row.key] + 1
                batch.used = [(number, outcome) for number, outcome in batch.used if number not in conflict.used]
        self.store.commit(batch)

    def _keep(self, places: dict[bytes, Place], error: StoreError, waiting: list[tuple[bytes, Written]]) -> None:
        """A batch failed: all of it is pending again, and the store is away."""
        for place in places.values():
            if not place.dirty:
                place.dirty = True
                self.ranker.unwritten.appendleft((0.0, place))
        self._fresh = self._flying | self._fresh
        self._flying = {}
        self.ranker.learnt = True
        self.metrics.store_errors(error.kind).value += 1
        if self.away is None:
            log.warning("the store cannot be written (%s): %s", error.kind, error)
        self.away = error.kind
        fail(waiting, error.kind)

    def _lose(self, place: Place) -> None:
        """A row whose page is damaged: what memory knows more than the store was acknowledged to nobody."""
        log.error("a row could not be written, its page is damaged: %s", place.key.hex())
        self.metrics.store_errors("corrupt").value += 1
        for number in [number for number, (_, row) in (self._flying | self._fresh).items() if row is place]:
            self.used.put(number, 0, self.clock())
            self._fresh.pop(number, None)
        self._urgent.pop(place.key, None)
        place.dirty = False
        if self.ranker.rows.get(place.key) is place:
            self.ranker.rows.drop(place)

    # ------------------------------------------------------------------ trouble and housekeeping
    async def _recovered(self) -> bool:
        """Whether the store can be written again; opens it anew where that may help."""
        loop = asyncio.get_running_loop()
        try:
            same = True
            if self.away in ("gone", "io", "corrupt"):
                same = await loop.run_in_executor(self._thread, self.store.reopen)
            if same and not self._anew:
                await loop.run_in_executor(self._thread, self.store.probe)
            else:
                self._anew = True  # also when the next lines fail: what is in memory is about another store
                await self._begin_anew()
        except StoreError as error:
            self.away = error.kind
            return False
        log.info("the store can be written again")
        self.away = None
        return True

    async def _begin_anew(self) -> None:
        """Another file lies where the store was: what memory holds is about the one before."""
        loop = asyncio.get_running_loop()
        epoch = await loop.run_in_executor(self._thread, self.store.begin_epoch, self.ranker.epoch)
        take_up = await loop.run_in_executor(self._thread, self.moved)
        log.warning("another store lies where ours was: going on with what it holds")
        ranker = self.ranker
        ranker.rows.clear()
        ranker.unwritten.clear()
        self._fresh, self._urgent, self._anew = {}, {}, False
        ranker.epoch, ranker.issued = epoch, 0
        self.used = Used(epoch, self.window, EPOCH)
        take_up()

    async def _tidy(self) -> None:
        """Let go of decisions whose window is over and of queries that nobody asks any more, a few at a time."""
        now = self.clock()
        if now < self._tidy_at or self.away is not None or self._stopping:
            return
        self._tidy_at = now + min(max(self.window / 30, 1.0), 60.0)
        self.used.forget(now)
        self._marks.append((now, self.ranker.epoch << EPOCH | self.ranker.issued))
        while len(self._marks) > 1 and now - self._marks[1][0] > self.window:
            self._marks.popleft()
        below = self._marks[0][1] if now - self._marks[0][0] > self.window else 0
        try:
            rows, ids = await asyncio.get_running_loop().run_in_executor(
                self._thread, self.store.expire, int(max((now - self.idle()) // DAY, 0.0)), below
            )
        except StoreError as error:
            self.metrics.store_errors(error.kind).value += 1
            self.away = error.kind
            return
        self.metrics.expired_rows.value += rows
        if rows or ids:  # there may be more: soon again
            self._tidy_at = now + 0.1
