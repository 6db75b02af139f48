"""The service behind the routes: wires its parts, starts and stops them, and takes up rows that were read from the store.

All state lives on one event loop. The loader reads rows that are not in memory, within the request's deadline; the committer
writes. This module does not know HTTP.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import struct
from collections.abc import Callable

from swerve.core.errors import SwerveError
from swerve.service.admission import NewQueries
from swerve.service.availability import Availability
from swerve.service.beacons import Beacons, Counting
from swerve.service.clock import Clock
from swerve.service.committer import Committer
from swerve.service.compiling import compiled
from swerve.service.config.load import Config, recorded, signal_names
from swerve.service.config.settings import settings_of, windows_of
from swerve.service.control import Control
from swerve.service.crew import Crew
from swerve.service.erasing import Erasing
from swerve.service.experiments import Experiments
from swerve.service.exporting import Exporting
from swerve.service.feedback import AHEAD, Feedback
from swerve.service.feeding import Feeding
from swerve.service.forwarding import Forwarder
from swerve.service.inspection import Inspection
from swerve.service.loader import Found, Loader, Wish
from swerve.service.metrics import Metrics
from swerve.service.namespaces import Namespaces
from swerve.service.observing import Observing
from swerve.service.ranking import Ranking
from swerve.service.ranking_batches import Batching
from swerve.service.recovering import Recovered, recover
from swerve.service.secrets import Secrets
from swerve.service.shared import OPERATED, shared_of
from swerve.service.throttle import Addresses, Throttle
from swerve.service.together import Together
from swerve.service.tracing import Tracing
from swerve.service.ubi import Ubi
from swerve.service.warm import Warming
from swerve.serving.erasing import Erased
from swerve.serving.migration import Layouts, is_rival
from swerve.serving.place import Place
from swerve.serving.ranker import Ranker
from swerve.serving.tokens import Tokens
from swerve.serving.ubi import CLICKS, QueryIds
from swerve.store.protocol import DAY, Damaged, Row, Store, StoreError
from swerve_client.naming import namespace_in

log = logging.getLogger("swerve.service")

#: Seconds between two checks of the wall clock and counts of the stored rows.
TICK = 5.0
#: Ticks between two full garbage collections: one every ten minutes, because each looks through all rows in memory.
GARBAGE_TICKS = 120
#: Objects that a collection of the youngest generation looks at; it holds the event loop, for a tenth of a millisecond. What lives
#: longer is not looked at again until it is frozen, at the next tick: nearly all of it is kept for minutes, and looking at all that
#: came since the last tick would hold the loop for milliseconds. `GARBAGE_TICKS` alone collects the rest.
GC_THRESHOLDS = 2000, 100_000, 100_000


#: Seconds in which a stop still forwards documents of UBI.
FORWARD_PATIENCE = 2.0


class Service:
    """A service over one store. `restored` is called in the writer's thread when another file has replaced the store."""

    def __init__(
        self,
        config: Config,
        store: Store,
        secrets: Secrets,
        *,
        clock: Clock | None = None,
        restored: Callable[[], None] = lambda: None,
        crew: Crew | None = None,
    ) -> None:
        self.config, self.store, self.owner, self.crew = config, store, secrets.fingerprint(), crew
        self.metrics = Metrics()
        self.tracing: Tracing | None = None  # set by the server that runs it
        self.names = signal_names(config)
        kept = shared_of(store)
        earliest = struct.unpack("<d", kept["clock"])[0] if "clock" in kept else 0.0
        self.clock = clock or Clock(max(store.last, earliest))
        self.ranker = Ranker(settings_of(config), secrets.query_key, store.begin_life())
        self.ranker.share(kept)
        self.tokens = Tokens(secrets.token_keys, self.ranker.life)
        if crew is not None:
            self.tokens.live_in(crew.share)
        self.layouts = Layouts(store, self.ranker)
        self.fresh = NewQueries(config.limits.new_queries_per_minute, self.clock.now())
        self.namespaces = Namespaces(config, self.clock.now)
        self.throttle = Throttle(config.security.api_keys, config.limits, self.clock.now)
        limits = config.limits
        self.addresses = Addresses(limits.beacon_rate, limits.beacon_burst, self.clock.now)
        self.restored = restored
        self.availability = Availability()
        windows = windows_of(config)
        self.committer = Committer(
            store,
            self.ranker,
            self.layouts.ids,
            self.availability,
            self.metrics,
            self.clock.now,
            flush=config.store.flush_seconds,
            window=max(windows.values()) + AHEAD,
            idle=self._idle,
            config=recorded(config),
            texts=config.store.journal_days > 0.0 or config.store.store_queries,
            keep=config.store.journal_days * DAY,
            moved=self._moved,
        )
        self.committer.kept = {name: record for name, record in kept.items() if name in OPERATED}
        self.experiments = self.committer.counts = Experiments(
            self.ranker, self.metrics, self.clock.now, config, kept, away=crew is not None and crew.first is not None
        )
        self.loader = Loader(store, self.metrics, self._adopt, self.committer.suspect)
        query_ids = QueryIds(config.ubi.query_ids)
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
            experiments=self.experiments,
            namespaces=self.namespaces,
            query_ids=query_ids if config.ubi.enabled else None,
        )
        self.batching = Batching(self.ranking)
        self.feeding = Feeding(self.ranking, self.metrics, self.clock.now, ttl=config.signals.feed_ttl_seconds)
        self.erased = Erased(max(windows.values()))
        self.erased.load(kept, self.clock.now())
        self.feedback = Feedback(
            self.ranker,
            self.loader,
            self.committer,
            self.tokens,
            self.availability,
            self.metrics,
            self.clock.now,
            limits=config.limits,
            windows=windows,
            experiments=self.experiments,
            erased=self.erased,
        )
        self.beacons = Beacons(self.feedback, self.metrics)
        self.forwarder: Forwarder | None = None
        if config.ubi.enabled and config.ubi.forward:
            self.forwarder = Forwarder(config.ubi.forward, os.environ.get("SWERVE_UBI_AUTHORIZATION", "").strip(), self.metrics)
        self.ubi = Ubi(
            self.beacons,
            self.tokens,
            query_ids,
            self.metrics,
            clicks=config.ubi.clicks or CLICKS,
            kinds=windows,
            first=config.ubi.first_position,
            forwarder=self.forwarder,
        )
        self.observing = Observing(
            self.ranker,
            self.loader,
            self.tokens,
            self.availability,
            self.ranking,
            self.feedback,
            self.clock.now,
            window=config.feedback.window_seconds,
        )
        self.control = Control(
            self.ranker,
            self.ranking,
            self.committer,
            self.availability,
            self.metrics,
            self.clock.now,
            limits=config.limits,
            kept=kept,
        )
        self.erasing = Erasing(
            self.ranker,
            self.ranking,
            self.loader,
            self.committer,
            self.control,
            self.availability,
            self.clock.now,
            limits=config.limits,
            erased=self.erased,
            layouts=lambda: self.layouts,
        )
        self.inspection = Inspection(
            self.ranker,
            self.loader,
            self.committer,
            self.availability,
            self.clock.now,
            layouts=lambda: self.layouts,
            names=self.names,
            shifted=self.control.shifted,
            guarded=self.experiments.why,
        )
        self.experiments.write = self.control.write
        self.exporting = Exporting(self.ranker, self.loader, self.committer, lambda: self.layouts, self.names)
        #: What is asked for several decisions: of this worker, or of those that have them.
        self.many_feedbacks: Counting = self.feedback
        self.together: Together | None = None
        if crew is not None:
            self.together = Together(self, crew)
            self.many_feedbacks = self.together.spreading
        self._warming = Warming(
            config, self.ranker, several=crew is not None, elsewhere=crew is not None and crew.compiled_elsewhere
        )
        self._ticking: asyncio.Task[None] | None = None
        self.metrics.cache_rows.ask = lambda: len(self.ranker.rows)
        self.metrics.pending_rows.ask = lambda: len(self.ranker.unwritten)
        self.metrics.behind.ask = lambda: float(self.committer.position - store.begin)
        self.metrics.ready.ask = lambda: float(self.availability.trouble() is None and not self.availability.stopping)

    # ------------------------------------------------------------------ start and stop
    async def start(self, *, whole: bool = False) -> None:
        """Return when the smallest capacity is compiled; until then every ranking is degraded. With `whole`, return when all are.

        Larger capacities are compiled in the background; until then queries that need them get the given order.
        """
        self._ticking = asyncio.get_running_loop().create_task(self._tick(), name="swerve-clock")
        if self.crew is not None:
            self.crew.follow(lambda: self.store.epoch)
        first, every = compiled(self._warming, self.ranker.rows.tables, lambda: self.committer.position - self.store.begin)
        await first
        if self.store.begin != self.store.end:
            take_up = await asyncio.to_thread(self._taken_up)
            take_up()
        else:
            self._exchange()
            self.committer.begin()
        self.committer.start()
        if self.together is not None:
            await self.together.start()
        self.availability.compiled = True
        if whole:
            await every

    async def stop(self) -> bool:
        """Write all changes and close the store. Returns whether all changes could be written."""
        self.availability.stopping = True
        if self.together is not None:
            self.together.stop()
        self._warming.stop()
        if self._ticking is not None:
            self._ticking.cancel()
        written = await self.committer.stop(self.config.server.drain_seconds)
        self.loader.stop()
        if self.forwarder is not None:
            await asyncio.to_thread(self.forwarder.stop, FORWARD_PATIENCE)
        self.store.close()
        return written

    def _exchange(self) -> None:
        """Begin to keep what this worker learns apart, for the others."""
        if self.crew is not None:
            self.ranker.exchange.begin(self.clock.now())

    def _idle(self) -> float:
        """Return the seconds without a request after which a query expires; after a doubtful clock jump none does."""
        return self.clock.now() if self.clock.doubtful else self.config.store.idle_days * DAY

    async def _tick(self) -> None:
        gc.set_threshold(*GC_THRESHOLDS)
        ticks = 0
        while True:
            # Rows live long, and looking through all of them takes a tenth of a second: frozen objects are skipped.
            if ticks % GARBAGE_TICKS == GARBAGE_TICKS - 1:
                gc.unfreeze()
                gc.collect()
            gc.freeze()
            ticks += 1
            self.clock.check()
            while self.experiments.judge():
                await asyncio.sleep(0)
            try:
                self.metrics.stored_rows.value = await self.loader.ask(self.store.count)
            except StoreError as error:
                if error.kind not in ("corrupt", "locked"):
                    self.committer.suspect(error)
            await asyncio.sleep(TICK)

    def _moved(self) -> Callable[[], None]:
        """Read the store that has replaced ours, in the writer's thread; the returned function takes it up on the event loop."""
        if not self.store.claim(self.owner):
            raise StoreError("corrupt", "another file has replaced the store, and its queries are stored under other secrets")
        self.restored()
        return self._taken_up()

    def _taken_up(self) -> Callable[[], None]:
        """Recover what the log of the store has beyond its rows, in another thread; the returned function takes it up on the event
        loop."""
        try:
            recovered = recover(self.store, lambda: settings_of(self.config))
        except StoreError:
            raise
        except SwerveError as error:
            raise StoreError("corrupt", str(error)) from error
        layouts, kept = Layouts(self.store, self.ranker), shared_of(self.store)

        def take_up() -> None:
            self.layouts, self.committer.rows.layouts = layouts, layouts.ids
            self.tokens.life = self.ranker.life
            for commons in (self.ranker.commons, self.ranker.rivals):
                if commons is not None:
                    commons.begin()
            self.ranker.share(kept)
            self._exchange()
            self.ranker.forget_sessions()
            self.committer.kept = {name: record for name, record in kept.items() if name in OPERATED}
            self.control.load(kept)
            self.experiments.load(kept)
            self.erased.load(kept, self.clock.now())
            self.committer.begin()
            self.loader.deletions += 1  # what was read meanwhile is read again
            self._stranded(recovered)

        return take_up

    def _stranded(self, recovered: Recovered) -> None:
        """Take up rows that the log alone has, because their pages in the store are damaged."""
        for row in recovered.stranded:
            place = self.layouts.restore(row)
            if place is None:
                raise StoreError("corrupt", "the store has more damaged pages than memory has room for: restore a backup of it")
            self.ranker.mark(place, self.clock.now())

    def _adopt(self, wish: Wish, row: Found) -> Place | str:
        """Make a row in memory from a stored one; return it, or the reason why there is none."""
        key = wish.key
        place = self.ranker.rows.get(key)
        if place is not None:
            return place
        if not self.committer.begun:  # the log may have more than the row
            return "starting"
        if self.committer.rows.erasing:
            return "store"
        now = self.clock.now()
        if (wish.rival or (isinstance(row, Row) and is_rival(row))) and self.ranker.rivals is None:
            return "unknown"  # the control arm has no policy of its own any more: its records expire
        if isinstance(row, Row) and (misplaced := self.layouts.misplaced(row)) is not None:
            row = misplaced
        if isinstance(row, Damaged):
            self.metrics.store_errors("corrupt").value += 1
            if row.version == 0 or not wish.begin:  # its page can be neither read nor written
                return "store"
            log.error("a damaged record starts fresh", extra={"query": key.hex()})
            place = self.ranker.fresh(key, wish.text, wish.arms, now, wish.rival)
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
        elif not self._permitted(wish, now):
            return "limit"
        else:
            self.metrics.new_queries.value += 1
            place = self.ranker.fresh(key, wish.text, wish.arms, now, wish.rival)
        return place or "memory"

    def _permitted(self, wish: Wish, now: float) -> bool:
        """Take the permits for a new query; a flood of new queries in one namespace takes none of the others'."""
        key, session, several = wish.key, wish.session, wish.several
        of_namespace = self.namespaces.allow(namespace_in(wish.text), key, session, now, several=several)
        return of_namespace and self.fresh.allow(key, session, now, several=several)
