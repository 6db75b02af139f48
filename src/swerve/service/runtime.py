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
from collections.abc import Callable, Mapping

from swerve.core.contract import ALARM, RESTARTED
from swerve.service.admission import NewQueries
from swerve.service.batches import Batches
from swerve.service.clock import Clock
from swerve.service.committer import Committer
from swerve.service.config.load import Config, as_table, signal_names
from swerve.service.config.settings import settings_of
from swerve.service.feedback import Clicks
from swerve.service.loader import Found, Loader, Wish
from swerve.service.metrics import Metrics
from swerve.service.secrets import Secrets
from swerve.service.warm import Warming
from swerve.serving.checks import check_candidates, check_query, check_rest
from swerve.serving.messages import Asked, RankRequest, RankResponse, normalise
from swerve.serving.migration import Layouts
from swerve.serving.ranker import Decided, Ranker
from swerve.serving.recording import Recorder
from swerve.serving.rows import Place
from swerve.serving.tokens import Tokens
from swerve.store.protocol import Damaged, Row, Store, StoreError

log = logging.getLogger("swerve.service")

MOST_KEYS, LONGEST_KEYS = 50_000, 64  # texts whose key is remembered, and their characters at most
TICK = 5.0  # seconds between looks at the clock
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
        self.numbers = frozenset(config.signals.numbers)
        kept = shared_of(store)
        self.clock = clock or Clock(struct.unpack("<d", kept["clock"])[0] if "clock" in kept else 0.0)
        self.ranker = Ranker(settings_of(config), secrets.query_key, store.begin_life())
        self.ranker.share(kept)
        self.tokens = Tokens(secrets.token_keys, self.ranker.life)
        self.layouts = Layouts(store, self.ranker)
        self.fresh = NewQueries(config.limits.new_queries_per_minute, self.clock.now())
        self.recorder = Recorder(config.log.record, as_table(config), self.ranker) if config.log.record else None
        self.watched: Mapping[bytes, Callable[[list[str]], None]] = {}  # who is told of each ranking, by the query's key
        self.restored = restored
        self.ready = False  # whether all capacities are compiled
        self.stopping = False
        self.deadline = config.server.deadline_ms / 1000.0
        self.committer = Committer(
            store,
            self.ranker,
            self.layouts.ids,
            self.metrics,
            self.clock.now,
            flush=config.store.flush_seconds,
            window=config.feedback.window_seconds,
            idle=self._idle,
            moved=self._moved,
        )
        self.loader = Loader(store, self.metrics, self._adopt, self.committer.suspect)
        self.clicks = Clicks(self)
        self.batches = Batches(self)
        self._warming = Warming(config, self.ranker)
        self.keys: dict[str, bytes] = {}
        self._ticking: asyncio.Task[None] | None = None
        self.metrics.cache_rows.ask = lambda: len(self.ranker.rows)
        self.metrics.pending_rows.ask = lambda: len(self.ranker.unwritten)
        self.metrics.ready.ask = lambda: float(self.trouble() is None and not self.stopping)

    # ------------------------------------------------------------------ life
    async def start(self) -> None:
        """Compile what serves requests, then be ready; until then every ranking is the given order."""
        loop = asyncio.get_running_loop()
        self._ticking = loop.create_task(self._tick(), name="swerve-clock")
        compiled: asyncio.Future[None] = loop.create_future()

        def compile_all() -> None:
            trouble: Exception | None = None
            try:
                self._warming.run()
            except Exception as error:
                trouble = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, trouble)

        def settle(trouble: Exception | None) -> None:
            if not compiled.done():
                compiled.set_result(None) if trouble is None else compiled.set_exception(trouble)

        # a daemon: who stops the service while it compiles need not wait for the end of that
        threading.Thread(target=compile_all, name="swerve-compiler", daemon=True).start()
        await compiled
        self.committer.start()  # not before: compiling leaves traces that nobody is to keep
        self.ready = True

    async def stop(self) -> bool:
        """Write everything and let go of the store; whether everything could be written."""
        self.stopping = True
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
        gc.set_threshold(20_000, 20, 50)
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

    def trouble(self) -> str | None:
        """Why rankings are the given order at present, if they are."""
        if not self.ready:
            return "starting"
        return f"store {self.committer.away}" if self.committer.away else None

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

    # ------------------------------------------------------------------ rank
    def rank_at_once(self, asked: Asked) -> RankResponse | None:
        """The order to show for a request whose row is in memory; None for others. Raises `Refused`."""
        key, place, request = self.read(asked)
        if place is None or not self.ready or self.committer.away is not None:
            return None
        self.metrics.cache_hits.value += 1
        try:
            return self._decide(key, place, asked, request)
        except Exception:  # search must not break because of a defect of ours
            log.exception("a ranking failed")
            return self.given(request, "internal")

    async def rank(self, asked: Asked) -> RankResponse:
        """The order to show for one request. Raises `Refused`."""
        key, place, request = self.read(asked)
        if not self.ready or self.committer.away is not None:
            return self.given(request, "store" if self.ready else "starting")
        try:
            if place is None:
                self.metrics.cache_misses.value += 1
                wish = Wish(key, True, normalise(request.query), len(request.candidates))
                async with self.loader.held([wish], self.deadline * 0.75) as (found,):
                    return self.given(request, found) if isinstance(found, str) else self._decide(key, found, asked, request)
            self.metrics.cache_hits.value += 1
            return self._decide(key, place, asked, request)
        except Exception:  # search must not break because of a defect of ours
            log.exception("a ranking failed")
            return self.given(request, "internal")

    def _decide(self, key: bytes, place: Place, asked: Asked, request: RankRequest) -> RankResponse:
        self.keep_text(place, request)
        self.ranker.rows.touch(key)
        now = self.clock.now()
        decided = self.ranker.rank(((place, request),), now)[0]
        if place.raw is None:
            self.ranker.rows.remember(place, asked.candidates, request)
        return self.response(request, decided, now)

    def keep_text(self, place: Place, request: RankRequest) -> None:
        """Note a query's text where the operator wants that."""
        if place.query is None and self.ranker.settings.keep_text:
            place.query = normalise(request.query)
            self.ranker.rows.recount(place)

    def read(self, asked: Asked) -> tuple[bytes, Place | None, RankRequest]:
        """The key of a request's query, its row if that is in memory, and the request itself, checked."""
        key = self.keys.get(asked.query)
        if key is None:
            check_query(asked.query, self.config.limits)
            key = self.ranker.key_of(normalise(asked.query))
            if len(self.keys) >= MOST_KEYS:
                self.keys.clear()
            if len(asked.query) <= LONGEST_KEYS:  # long ones are rare, and would take the memory of many
                self.keys[asked.query] = key
        place = self.ranker.rows.get(key)
        if place is not None and place.raw == asked.candidates:  # the same as the last time, when they were good
            request = RankRequest(asked.query, place.last, asked.signals, asked.session)
        else:
            request = asked.request()
            check_candidates(request, self.config.limits)
        check_rest(request, self.config.limits, self.numbers)
        return key, place, request

    def response(self, request: RankRequest, decided: Decided | None, now: float) -> RankResponse:
        if decided is None:
            return self.given(request, "candidates")
        if self.recorder is not None:
            self.recorder.ranked(request, decided, now)
        key = decided.signed.key
        if self.watched and (seen := self.watched.get(key)) is not None:
            seen(decided.ranking)
        metrics = self.metrics
        metrics.decisions.value += 1
        metrics.explored.value += decided.explored
        if decided.report & (ALARM | RESTARTED):
            self.happened(key, decided.report, decided.signal, decided.phase)
        token = self.tokens.sign(decided.signed, now)
        chance = round(decided.chance, 6) if self.ranker.settings.draws else None
        return RankResponse(token, decided.ranking, decided.explored, chance, decided.phase, False)

    def happened(self, key: bytes, report: int, signal: int, phase: int) -> None:
        """Count and log what happened to a query's policy."""
        if report & RESTARTED:
            self.metrics.restarts.value += 1
        if report & ALARM:
            name = self.names[signal] if self.names else "none"
            self.metrics.alarms(name).value += 1
            log.info("alarm", extra={"query": key.hex(), "signal": name, "phase": phase})

    def given(self, request: RankRequest, reason: str) -> RankResponse:
        """The order that the caller gave."""
        self.metrics.degraded(reason).value += 1
        return RankResponse(None, request.ids(), False, None, None, True)

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
            place = self.layouts.restore(row)
        elif not wish.begin:
            return "unknown"
        elif not self.fresh.allow(now):
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
