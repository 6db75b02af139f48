"""Writes the log: entries are appended in groups, and again while the store cannot be written.

One group is appended at a time, by a thread of its own. What happens meanwhile joins the next group, so groups grow with the load.
A caller waits for the group that contains its entries, and gets that group's result. When a group fails, its entries stay pending,
in their order; repeated feedback finds its decision used, and waits for the next attempt. Rows are written later than the log, by
`swerve.service.checkpoints`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from swerve.service.availability import Availability, Unavailable
from swerve.service.checkpoints import Checkpoints, Counts
from swerve.service.groups import Group, Written, durable
from swerve.service.metrics import Metrics
from swerve.service.used import Used
from swerve.service.worker import Worker
from swerve.serving.notes import Notes, write_again, write_down
from swerve.serving.place import Place
from swerve.serving.ranker import Ranker
from swerve.serving.rows import Shelf
from swerve.store.protocol import Entries, Life, Store, StoreError

log = logging.getLogger("swerve.service")

#: Seconds between two attempts to use a store that fails: few, because every ranking is degraded meanwhile.
PATIENCE = 0.25
#: Seconds for the last writes when the caller names none; the default of `server.drain_seconds`.
STOP_SECONDS = 10.0
#: Kinds of errors after which the store is opened again.
OPEN_AGAIN = ("gone", "io", "corrupt", "conflict")

T = TypeVar("T")


class Committer:
    """Owns the writing side of a store.

    `config` are the tables of the configuration, which are written to the log; `texts` says whether the log contains the texts of
    queries. `moved` runs in the writer's thread when another file has replaced the store; the function that it returns runs on the
    event loop once memory is empty. `patience` is the number of seconds between two attempts to use a store that fails.
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
        config: Mapping[str, Any] | None = None,
        texts: bool = False,
        keep: float = 0.0,
        patience: float = PATIENCE,
        moved: Callable[[], Callable[[], None]] = lambda: lambda: None,
    ) -> None:
        self.store, self.ranker, self.availability = store, ranker, availability
        self.metrics, self.clock, self.flush, self.window = metrics, clock, flush, window
        self.config, self.texts, self.patience, self.moved = dict(config or {}), texts, patience, moved
        self.used = Used(ranker.life.id, window)
        self.lives: dict[int, int] = {}  # mark → id of the earlier lives that feedback has named so far
        self.kept: dict[str, bytes] = {}  # the records that operators have set
        self.audit: Callable[[], dict[str, bytes]] = dict  # the record of what operators did
        self._log, self._writer = Worker("swerve-log"), Worker("swerve-writer")
        self._next, self._flying = Group(), Group()  # the group that grows, and the one that is being written
        self._entries: list[Entries] = []  # those that were not handed to the store yet
        self.position = 0  # the number of the next entry
        self.size = 0  # bytes of entries so far
        self._wake = asyncio.Event()
        self.begun = self._stopping = False  # whether what the ranker does is written down
        self._until = self._written_at = 0.0  # while stopping: when to give up; when a group was written last
        self._replaced = False  # whether another file has replaced the store and memory still holds the old one's queries
        self._task: asyncio.Task[None] | None = None
        self.rows = Checkpoints(self, self._writer, layouts, idle=idle, keep=keep)

    @property
    def notes(self) -> Notes:
        """The writer of the ranker's entries."""
        assert self.ranker.notes is not None, "see `begin`"
        return self.ranker.notes

    @property
    def counts(self) -> Counts | None:
        """The records of an experiment."""
        return self.rows.counts

    @counts.setter
    def counts(self, counts: Counts) -> None:
        self.rows.counts = counts

    def begin(self) -> None:
        """Begin to write down what the ranker does: a generation of the log, at its end."""
        self.position, self._entries = self.store.end, []
        if self.ranker.notes is not None:
            self.ranker.notes.take()  # drops entries for another store
        write_down(self.ranker, self.config, self.clock(), self.texts)
        self._collect(anew=True)
        self.rows.begin()
        self.begun = True

    def start(self) -> None:
        """Start to write."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name="swerve-committer")
        self.rows.start()

    async def stop(self, within: float = STOP_SECONDS) -> bool:
        """Write all pending changes, then end. Returns False when that takes more than `within` seconds."""
        self._until = self.clock() + within
        if self._task is None:
            return True
        await self.rows.stop(self._until)
        self._stopping = True
        self._wake.set()
        await self._task
        self._log.stop()
        self._writer.stop()
        return not self._entries and self.availability.away is None

    # ------------------------------------------------------------------ what happens
    def durable(self, number: int, outcome: int) -> Written:
        """Note that a decision was used. The future resolves when that is durable, with everything before it."""
        self._next.numbers.add(number)
        self.used.put(number, outcome, self.clock())
        self.rows.used[number] = outcome
        return self.now()

    def again(self, number: int) -> Written | None:
        """Return the future of a decision that is used but not durable yet, for a repeat; None when it is durable."""
        if number in self._next.numbers:
            return self.now()
        return self._flying.wait() if number in self._flying.numbers else None

    def now(self) -> Written:
        """Write what has happened so far with the next group. The future resolves when it is durable."""
        if not self._next.waiting:
            self._wake.set()
        return self._next.wait()

    def audited(self) -> None:
        """Write the audit with the next group."""
        self._next.audited = True

    async def put(self, records: dict[str, bytes], life: Life) -> None:
        """Write records that operators have set; durable on return. Raises `Unavailable`, also when another file has replaced the
        store."""
        self.notes.kept(records, self.clock())
        try:
            await durable(self.now())
        except BaseException:
            if self.ranker.life is life:  # the entry stays pending, and will be written: another one behind it takes it back
                self.notes.kept({name: self.kept.get(name, b"") for name in records}, self.clock())
            raise
        if self.ranker.life is not life:
            raise Unavailable
        self.keep(records)

    def keep(self, records: Mapping[str, bytes]) -> None:
        """Note that operators have set these records."""
        self.kept |= records
        self.rows.records |= records

    async def aside(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something between two checkpoints, while none is being written. Raises `Unavailable` if the store is away."""
        return await self.rows.aside(work)

    def suspect(self, error: StoreError, what: str = "read") -> None:
        """Mark the store as unusable after a failed call, so that it is probed before the next group."""
        if self.availability.away is None:
            log.warning("the store cannot be %s (%s): %s", what, error.kind, error)
            self.availability.away = error.kind
            self._wake.set()

    def failed(self, error: StoreError, what: str = "written") -> None:
        """Count an error of the store, and suspect it."""
        self.metrics.store_errors(error.kind).value += 1
        self.suspect(error, what)

    # ------------------------------------------------------------------ generations
    def _collect(self, anew: bool = False) -> None:
        """Take the ranker's new entries."""
        content, count = self.notes.take()
        if count:
            self._entries.append(Entries(content, count, anew))
            self.position += count
            self.size += len(content)

    def begin_generation(self) -> int:
        """Begin another generation of the log, from which it can be played; return the number of its first entry."""
        self._collect()
        begin = self.position
        write_again(self.ranker, self.config, self.clock())
        self._collect(anew=True)
        return begin

    def write_whole(self, places: Iterable[Place]) -> None:
        """Write whole rows to the log: those that cannot be written to the store."""
        for place in places:
            self.notes.loaded(place)

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
        """Wait until a group is due, and write it. Returns True when the committer has stopped."""
        if not self._next.waiting and not self._stopping:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._until_due())
        if self.availability.away is not None and not await self._recovered():
            self._next.fail()
            self.rows.fail()
            if self.clock() > self._until > 0.0:
                log.error("the store is away (%s): changes stay unwritten", self.availability.away)
                return self._stopping
            await asyncio.sleep(self.patience)
            return False
        due = self._next.waiting or self._stopping or self.clock() - self._written_at >= self.flush
        wrote = await self._write() if due else False
        return self._stopping and not self._next.waiting and not wrote

    def _until_due(self) -> float:
        """Return the seconds until the next group when no caller waits."""
        if self.availability.away is not None:
            return self.patience
        return min(max(self._written_at + self.flush - self.clock(), 0.0), self.flush) + 0.001

    async def _write(self) -> bool:
        """Append one group and answer all its callers. Returns whether there was anything to write."""
        group = self._flying = self._next
        self._next = Group()
        self._written_at = self.clock()
        try:
            return await self._append(group)
        except StoreError as error:
            self._keep(group, error)
        except Exception as error:  # a defect
            log.exception("writing failed")
            self._keep(group, StoreError("io", str(error)))
        return True

    async def _append(self, group: Group) -> bool:
        if group.audited:
            records = self.audit()
            self.notes.kept(records, self.clock())
            self.keep(records)
        self._collect()
        entries, self._entries = self._entries, []
        if not entries and not group.waiting and not group.numbers:
            self._flying = Group()
            return False
        started = time.perf_counter()
        end = await self._log.ask(self.store.append, entries, self.clock())
        if end != self.position - sum(one.number for one in self._entries):
            raise StoreError("io", f"the log ends with entry {end}, and this service has written {self.position}")
        self.metrics.commits.value += 1
        self.metrics.commit_seconds.observe(time.perf_counter() - started)
        self._flying = Group()
        group.done()
        return True

    def _keep(self, group: Group, error: StoreError) -> None:
        """Return a failed group to the pending one, fail its callers and mark the store as unusable. It keeps the entries."""
        self._next.join(group)
        self._flying = Group()
        self.failed(error)
        group.fail()

    # ------------------------------------------------------------------ recovery
    async def _recovered(self) -> bool:
        """Probe a store that failed, opening it again where that can help. Returns whether it can be written again."""
        try:
            same = True
            if self.availability.away in OPEN_AGAIN:
                same = await self._writer.ask(self.store.reopen)
            if same and not self._replaced:
                if self.availability.away == "full":
                    await self._writer.ask(self.store.probe)
                await self._log.ask(self.store.append, [], self.clock())  # writes the entries that the store has kept
            else:
                self._replaced = True  # stays True if the next line fails: memory still has another store's queries
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
        self._next.fail()  # its entries belong to the old store and are forgotten
        self._next, self._replaced = Group(), False
        self.renew(life)
        take_up()

    def renew(self, life: Life) -> None:
        """Forget all queries in memory, for the content of another store."""
        ranker = self.ranker
        ranker.rows.clear()
        ranker.unwritten.clear()
        ranker.life, ranker.issued = life, 0
        self.used, self.lives = Used(life.id, self.window), {}
        self.rows.renew()
