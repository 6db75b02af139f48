"""The service behind the routes: finds rows, decides, writes, and gives the caller's own order when it cannot.

All state lives on one event loop. A row that is not in memory is read by the loader within the request's deadline; writing is the
committer's. Nothing here speaks HTTP.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
import threading
from collections.abc import Callable
from typing import Any

from swerve.service.admission import NewQueries
from swerve.service.availability import Availability
from swerve.service.clock import Clock
from swerve.service.committer import Committer
from swerve.service.config.load import Config, as_table, signal_names
from swerve.service.config.settings import settings_of
from swerve.service.feedback import Feedback
from swerve.service.inspection import Inspection
from swerve.service.loader import Found, Loader, Wish
from swerve.service.metrics import Metrics
from swerve.service.ranking import Ranking
from swerve.service.secrets import Secrets
from swerve.service.warm import Warming
from swerve.serving.migration import Layouts
from swerve.serving.ranker import Ranker
from swerve.serving.recording import Recorder
from swerve.serving.rows import Place
from swerve.serving.tokens import Tokens
from swerve.store.protocol import Damaged, Row, Store, StoreError

log = logging.getLogger("swerve.service")

TICK = 5.0  # seconds between looks at the clock
#: Objects that a collection of the youngest generation looks at, and how many of those make one of the next: a collection holds
#: the loop, and this many objects take about a millisecond. The oldest generation is collected by `GARBAGE` alone.
GARBAGE_THRESHOLDS = (2000, 3, 100_000)
GARBAGE = 120  # of them between full collections of garbage


class Service:
    """One store's queries, served. `restored` is called, in a thread, when another store was found where ours was."""

    def __init__(
        self,
        config: Config,
        store: Store,
        secrets: Secrets,
        *,
        clock: Clock | None = None,
        restored: Callable[[], None] = lambda: None,
    ) -> None:
        self.config, self.store, self.owner = config, store, secrets.fingerprint()
        self.metrics = Metrics()
        self.names = signal_names(config)
        kept = shared_of(store)
        self.clock = clock or Clock(struct.unpack("<d", kept["clock"])[0] if "clock" in kept else 0.0)
        self.ranker = Ranker(settings_of(config), secrets.query_key, store.begin_life())
        self.ranker.share(kept)
        self.tokens = Tokens(secrets.token_keys, self.ranker.life)
        self.layouts = Layouts(store, self.ranker)
        self.fresh = NewQueries(config.limits.new_queries_per_minute, self.clock.now())
        self.recorder = Recorder(config.log.record, as_table(config), self.ranker) if config.log.record else None
        self.restored = restored
        self.availability = Availability()
        self.committer = Committer(
            store,
            self.ranker,
            self.layouts.ids,
            self.availability,
            self.metrics,
            self.clock.now,
            flush=config.store.flush_seconds,
            window=config.feedback.window_seconds,
            idle=self._idle,
            moved=self._moved,
        )
        self.loader = Loader(store, self.metrics, self._adopt, self.committer.suspect)
        self.ranking = Ranking(
            self.ranker,
            self.loader,
            self.tokens,
            self.availability,
            self.metrics,
            self.clock.now,
            limits=config.limits,
            deadline=config.server.deadline_ms / 1000.0,
            names=self.names,
            recorder=self.recorder,
        )
        self.feedback = Feedback(
            self.ranker,
            self.loader,
            self.committer,
            self.tokens,
            self.availability,
            self.metrics,
            self.clock.now,
            limits=config.limits,
            window=config.feedback.window_seconds,
            recorder=self.recorder,
        )
        self.inspection = Inspection(
            self.ranker,
            self.loader,
            self.committer,
            self.availability,
            self.clock.now,
            layouts=lambda: self.layouts,
            names=self.names,
            recorder=self.recorder,
        )
        self._warming = Warming(config, self.ranker)
        self._ticking: asyncio.Task[None] | None = None
        self.metrics.cache_rows.ask = lambda: len(self.ranker.rows)
        self.metrics.pending_rows.ask = lambda: len(self.ranker.unwritten)
        self.metrics.ready.ask = lambda: float(self.availability.trouble() is None and not self.availability.stopping)

    # ------------------------------------------------------------------ life
    async def start(self, *, whole: bool = False) -> None:
        """Compile for the smallest capacity, then be ready; until then every ranking is the given order. Larger ones follow behind:
        until they are there, queries that need them have the given order. With `whole`, return when all are there."""
        loop = asyncio.get_running_loop()
        self._ticking = loop.create_task(self._tick(), name="swerve-clock")
        first: asyncio.Future[None] = loop.create_future()
        every: asyncio.Future[None] = loop.create_future()
        shelves = {shelf.arms: shelf for shelf in self.ranker.rows.shelves}

        def ready(arms: int) -> None:
            shelves[arms].ready = True
            if not first.done():
                first.set_result(None)
            left = [shelf.arms for shelf in shelves.values() if not shelf.ready]
            if not left:
                every.set_result(None)
            log.info("compiled", extra={"capacity": arms, "still_compiling": left})

        def failed(error: Exception) -> None:
            if not first.done():
                first.set_exception(error)
            else:
                log.error("compiling failed; queries with more candidates keep the given order: %s", error)
                every.set_exception(error)
                every.exception()  # nobody may be waiting

        def tell(what: Callable[..., None], *args: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(what, *args)

        def compile_all() -> None:
            try:
                self._warming.run(lambda arms: tell(ready, arms))
            except Exception as error:
                tell(failed, error)

        for shelf in shelves.values():
            shelf.ready = False
        # Daemon, so shutdown need not wait for compilation.
        threading.Thread(target=compile_all, name="swerve-compiler", daemon=True).start()
        await first
        self.committer.start()
        self.availability.compiled = True
        if whole:
            await every

    async def stop(self) -> bool:
        """Write everything and let go of the store; whether everything could be written."""
        self.availability.stopping = True
        self._warming.stop()
        if self._ticking is not None:
            self._ticking.cancel()
        written = await self.committer.stop(self.config.server.drain_seconds)
        self.loader.stop()
        if self.recorder is not None:
            self.recorder.close()
        self.store.close()
        return written

    def _idle(self) -> float:
        """Seconds after which a query that nobody asks is forgotten."""
        return self.clock.now() if self.clock.doubtful else self.config.store.idle_days * 86_400.0

    async def _tick(self) -> None:
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        ticks = 0
        while True:
            # rows live long: to look through all of them for garbage again and again would take a tenth of a second each time
            if ticks % GARBAGE == GARBAGE - 1:
                gc.unfreeze()
                gc.collect()
            gc.freeze()
            ticks += 1
            self.clock.check()
            try:
                self.metrics.stored_rows.value = await self.loader.ask(self.store.count)
            except StoreError as error:
                if error.kind not in ("corrupt", "locked"):
                    self.committer.suspect(error)
            await asyncio.sleep(TICK)

    def _moved(self) -> Callable[[], None]:
        """In the writer's thread, when another store lies where ours was: read it; what is returned is done on the event loop."""
        if not self.store.claim(self.owner):
            raise StoreError("corrupt", "another store lies where ours was, and its queries are kept under other secrets")
        self.restored()
        layouts, kept = Layouts(self.store, self.ranker), shared_of(self.store)

        def take_up() -> None:
            self.layouts, self.committer.layouts = layouts, layouts.ids
            self.tokens.life = self.ranker.life
            self.ranker.share(kept)
            self.ranker.forget_sessions()

        return take_up

    def _adopt(self, wish: Wish, row: Found) -> Place | str:
        """A row in memory of what was read from the store, or why not."""
        key = wish.key
        place = self.ranker.rows.get(key)
        if place is not None:
            return place
        now = self.clock.now()
        if isinstance(row, Row) and (misplaced := self.layouts.misplaced(row)) is not None:
            row = misplaced
        if isinstance(row, Damaged):
            self.metrics.store_errors("corrupt").value += 1
            if row.version == 0 or not wish.begin:  # its page cannot be read, nor written
                return "store"
            log.error("a damaged record begins anew", extra={"query": key.hex()})
            place = self.ranker.fresh(key, wish.text, wish.arms, now)
            if place is not None:
                place.version = row.version
        elif row is not None:
            if not self.layouts.shelf_of(row).ready:
                return "starting"
            place = self.layouts.restore(row)
        elif not wish.begin:
            return "unknown"
        elif not self.ranker.rows.shelf_for(wish.arms).ready:
            return "starting"
        elif not self.fresh.allow(key, wish.session, now, several=wish.several):
            return "limit"
        else:
            self.metrics.new_queries.value += 1
            place = self.ranker.fresh(key, wish.text, wish.arms, now)
        return place or "memory"


def shared_of(store: Store) -> dict[str, bytes]:
    """What all queries of a store have learnt together; nothing when that is damaged: then it is learnt again."""
    try:
        return {name: record for (name, _), record in store.groups().items()}
    except Damaged as error:
        log.error("what all queries had learnt together is damaged and begins anew: %s", error)
        return {}
