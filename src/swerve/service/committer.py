"""Writing: feedback at once and in groups, what `rank` changed a little later; and what happens when the store does not answer.

One group is under way at a time. Its rows are put together on the event loop, where they change, and written by a thread; whatever
arrives meanwhile makes the next group, so that groups grow with the load. Who waits belongs to the group that holds its row, and is
answered by what becomes of that group and of no other. When a group fails, its rows and decision numbers stay pending together: a
retry of the feedback finds its number used and waits for the next attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from swerve.service.availability import Availability, Unavailable
from swerve.service.metrics import Metrics
from swerve.service.tidy import Tidy
from swerve.service.used import Used
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Misplaced
from swerve.serving.rows import Place
from swerve.store.protocol import DAY, Batch, Conflict, Row, Store, StoreError

log = logging.getLogger("swerve.service")
T = TypeVar("T")

MOST_ROWS = 64  # that `rank` changed, in one batch: putting more of them together would keep requests waiting for milliseconds
PRESSED_ROWS = 256  # the same, when memory is nearly full and only written rows can make room
FEW_ROWS = 4  # of them at least in a batch that somebody waits for; more of them as long as it stays below
SHORT = 24  # so many rows: whoever waits, waits for all of them

#: Done when a group is durable: True, or False for a row that could not be written because its page is damaged; fails with
#: `Unavailable`.
Written = asyncio.Future[bool]


async def durable(waiting: Written) -> None:
    """Wait for a group; raises `Unavailable` when it, or this row of it, could not be written."""
    if not await waiting:
        raise Unavailable


@dataclasses.dataclass(slots=True)
class Group:
    """What becomes durable together, and who waits for it."""

    used: dict[int, tuple[int, Place]] = dataclasses.field(default_factory=dict)  # decisions, with outcome and row
    rows: dict[bytes, Place] = dataclasses.field(default_factory=dict)  # of those decisions, and others that somebody waits for
    waiting: list[tuple[bytes, Written]] = dataclasses.field(default_factory=list)  # and for which row

    def wait(self, key: bytes) -> Written:
        """Done when this row, which must be in the group, is durable."""
        assert key in self.rows, "nobody may wait for a row that is not written with the group"
        waiting: Written = asyncio.get_running_loop().create_future()
        self.waiting.append((key, waiting))
        return waiting

    def fail(self) -> None:
        """Tell those who wait that the store is away; they wait no longer, and what is pending stays."""
        for _, one in self.waiting:
            if not one.done():
                one.set_exception(Unavailable())
                one.exception()  # nobody may be waiting any more
        self.waiting = []

    def done(self, lost: frozenset[bytes]) -> None:
        """Tell those who wait that the group is written, all of it but these rows."""
        for key, one in self.waiting:
            if not one.done():
                one.set_result(key not in lost)
        self.waiting = []


class Committer:
    """Owns the writing side of a store.

    `moved` is called in the writer's thread when another file lies where the store was; what it returns, once memory is empty.
    """

    def __init__(
        self,
        store: Store,
        ranker: Ranker,
        layouts: dict[int, int],
        availability: Availability,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        flush: float,
        window: float,
        idle: Callable[[], float],
        patience: float = 0.25,
        moved: Callable[[], Callable[[], None]] = lambda: lambda: None,
    ) -> None:
        self.store, self.ranker, self.layouts, self.availability = store, ranker, layouts, availability
        self.metrics, self.clock = metrics, clock
        self.flush, self.window, self.idle, self.patience, self.moved = flush, window, idle, patience, moved
        self.used = Used(ranker.life.id, window)
        self.lives: dict[int, int] = {}  # ids of earlier lives by their marks, as far as somebody has asked
        self._thread = ThreadPoolExecutor(1, "swerve-writer")
        self._next, self._flying = Group(), Group()  # the group that grows, and the one that is being written
        self._wake = asyncio.Event()
        self._stopping = False
        self._until = 0.0  # when to give up writing at the end
        self._anew = False  # whether another file was found, and is not taken up yet
        self._task: asyncio.Task[None] | None = None
        self._shared_at = 0.0
        self.tidy = Tidy(self)
        self.tidy.measure()

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
        return not self.ranker.unwritten and not self._next.rows

    # ------------------------------------------------------------------ feedback
    def durable(self, place: Place, number: int, outcome: int) -> Written:
        """A decision was used and its row changed: done when both are written."""
        self.used.put(number, outcome, self.clock())
        self._next.used[number] = (outcome, place)
        return self.now(place)

    def again(self, number: int) -> Written | None:
        """For a repeat: when the first one is durable; None when it is already."""
        for group in (self._next, self._flying):
            if number in group.used:
                return group.wait(group.used[number][1].key)
        return None

    def now(self, place: Place) -> Written:
        """Done when this row, as it is now, is durable."""
        if not self._next.waiting:
            self._wake.set()
        self._next.rows[place.key] = place
        return self._next.wait(place.key)

    def suspect(self, error: StoreError) -> None:
        """The reading side is in trouble: look at the store before the next batch."""
        if self.availability.away is None:
            log.warning("the store cannot be read (%s): %s", error.kind, error)
            self.availability.away = error.kind
            self._wake.set()

    async def ask(self, function: Callable[..., T], *args: Any) -> T:
        """Call the store in the writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

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
        """Wait for something to do, and do it; True at the end."""
        if not self._next.waiting and not self._stopping:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._until_due())
        if self.availability.away is not None and not await self._recovered():
            self._next.fail()
            if self._stopping and self.clock() > self._until:
                log.error("the store is away (%s): %d rows stay unwritten", self.availability.away, len(self.ranker.unwritten))
                return True
            await asyncio.sleep(self.patience)
            return False
        wrote = await self._write()
        await self._tidy()
        return self._stopping and not self._next.waiting and not wrote

    def _until_due(self) -> float:
        if self.availability.away is not None:
            return self.patience
        if self.tidy.pressing:
            return 0.005
        if not self.ranker.unwritten:
            return self.flush
        if self.ranker.pressed:
            return 0.002
        return min(max(self.ranker.unwritten[0][0] + self.flush - self.clock(), 0.002), self.flush)

    async def _write(self) -> bool:
        """One group; whether there was anything to write. Whatever happens, those who wait are answered."""
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
        self._behind(places, max(FEW_ROWS, SHORT - len(places)) if group.waiting else most)
        shared = self._shared()
        if not places and not shared:
            return False
        rows = [self._row(place) for place in places.values()]
        for place in places.values():
            place.pinned += 1
            place.dirty = False
        started = time.perf_counter()
        try:
            used = [(number, outcome, place.key) for number, (outcome, place) in group.used.items()]
            lost = await self.ask(self._commit_measured, rows, used, shared)
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

    def _behind(self, places: dict[bytes, Place], most: int) -> None:
        """Add rows that `rank` changed long enough ago, at most so many: those who wait for feedback should not wait for them."""
        unwritten = self.ranker.unwritten
        due = math.inf if self._stopping or self.ranker.pressed else self.clock() - self.flush
        most += len(places)
        while unwritten and len(places) < most and unwritten[0][0] <= due:
            _, place = unwritten.popleft()
            if place.dirty:
                places[place.key] = place

    def _row(self, place: Place) -> Row:
        shelf, index = place.shelf, place.index
        at = shelf.at
        if shelf.numbers[index, at["owner"]] != place.owner:
            raise Misplaced(place)  # it would be stored under the key of another query
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

    def _commit_measured(self, rows: list[Row], used: list[tuple[int, int, bytes]], shared: dict[str, bytes]) -> frozenset[bytes]:
        lost = self._commit(rows, used, shared)
        self.tidy.measure()
        return lost

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

    def _keep(self, group: Group, places: dict[bytes, Place], error: StoreError) -> None:
        """A group failed: all of it is pending again, and the store is away."""
        for place in places.values():
            if not place.dirty:
                place.dirty = True
                self.ranker.unwritten.appendleft((0.0, place))
        self._next.used = group.used | self._next.used
        self._next.rows = group.rows | self._next.rows
        self._flying = Group()
        self.ranker.learnt = True
        self.metrics.store_errors(error.kind).value += 1
        if self.availability.away is None:
            log.warning("the store cannot be written (%s): %s", error.kind, error)
        self.availability.away = error.kind
        group.fail()

    def _lose(self, place: Place) -> None:
        """A row whose page is damaged: what memory knows more than the store was acknowledged to nobody."""
        log.error("a row could not be written, its page is damaged: %s", place.key.hex())
        self.metrics.store_errors("corrupt").value += 1
        for group in (self._flying, self._next):
            for number in [number for number, (_, row) in group.used.items() if row is place]:
                self.used.put(number, 0, self.clock())
                del group.used[number]
        if self._next.rows.pop(place.key, None) is not None:  # it changed again meanwhile: that is lost with it
            for key, one in self._next.waiting:
                if key == place.key and not one.done():
                    one.set_result(False)
        place.dirty = False
        if self.ranker.rows.get(place.key) is place:
            self.ranker.rows.drop(place)

    # ------------------------------------------------------------------ trouble and housekeeping
    async def _recovered(self) -> bool:
        """Whether the store can be written again; opens it anew where that may help."""
        try:
            same = True
            if self.availability.away in ("gone", "io", "corrupt"):
                same = await self.ask(self.store.reopen)
            if same and not self._anew:
                await self.ask(self.store.probe)
            else:
                self._anew = True  # also when the next lines fail: what is in memory is about another store
                await self._begin_anew()
        except StoreError as error:
            if error.kind != self.availability.away:  # once for each kind of trouble, not for each attempt
                log.warning("the store cannot be used (%s): %s", error.kind, error)
            self.availability.away = error.kind
            return False
        log.info("the store can be written again")
        self.availability.away = None
        return True

    async def _begin_anew(self) -> None:
        """Another file lies where the store was: what memory holds is about the one before."""
        life = await self.ask(self.store.begin_life)
        take_up = await self.ask(self.moved)
        log.warning("another store lies where ours was: going on with what it holds")
        ranker = self.ranker
        self._next.fail()  # what they wait for is about the store before, and is forgotten
        self._next, self._anew = Group(), False
        ranker.rows.clear()
        ranker.unwritten.clear()
        ranker.life, ranker.issued = life, 0
        self.used, self.lives = Used(life.id, self.window), {}
        self.tidy.begin()
        take_up()

    async def _tidy(self) -> None:
        """Housekeeping, a little at a time."""
        if self.availability.away is not None or self._stopping:
            return
        try:
            await self.tidy.step()
        except StoreError as error:
            self.metrics.store_errors(error.kind).value += 1
            log.warning("the store cannot be tidied (%s): %s", error.kind, error)
            self.availability.away = error.kind
