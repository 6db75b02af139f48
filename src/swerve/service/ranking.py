"""Rankings: prepare, decide, answer. Single requests and the short way of the protocol take this path; so do entries of batches
that are not in columns (`swerve.service.ranking_batches`).

`prepare` reads and checks a request. The path waits only for rows that are not in memory, within the deadline. Then requests are
decided together and answered with signed tokens. If anything fails, the caller gets its own order.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from swerve.core.contract import ALARM, RESTARTED
from swerve.core.examination import SLOTS
from swerve.service.availability import Availability
from swerve.service.config.callers import Limits
from swerve.service.experiments import Experiments
from swerve.service.loader import Loader, Wish
from swerve.service.metrics import Metrics
from swerve.service.namespaces import Namespaces
from swerve.service.query_keys import QueryKeys, named
from swerve.service.shadow import Shadow
from swerve.service.turns import Turns
from swerve.serving.bulk import Bulk
from swerve.serving.checks import check_candidates, check_query_id, check_session, check_signals, check_unit
from swerve.serving.feeds import Feeds
from swerve.serving.messages import Asked, ObserveRequest, RankResponse, Refused
from swerve.serving.people import name_of
from swerve.serving.place import Place
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Decided, Prepared, Watcher
from swerve.serving.rulebook import RuleBook
from swerve.serving.ruling import Ruled, Ruling
from swerve.serving.tokens import Tokens
from swerve.serving.ubi import QueryIds

log = logging.getLogger("swerve.service")

SLICE = 100  # entries of a batch that wait together for their rows, within one deadline
TOGETHER = 64  # requests that are decided together; each candidate that may be new to its row counts as one more
WAIT_SHARE = 0.75  # the share of the deadline that may be spent on waiting for rows


class Fetched(NamedTuple):
    """Rows of a batch that were read together before it was decided."""

    fresh: set[bytes]  # those that no request was counted for yet
    missing: dict[bytes, str]  # those that could not be had, and why


#: The index of a request's answer, and the request.
Entry = tuple[int, Prepared]
#: The row of a request, and the request.
Pair = tuple[Place, Prepared]


class Ranking:
    """The `rank` side of a service."""

    def __init__(
        self,
        ranker: Ranker,
        loader: Loader,
        tokens: Tokens,
        availability: Availability,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        limits: Limits,
        deadline: float,
        names: Sequence[str],
        experiments: Experiments,
        namespaces: Namespaces,
        query_ids: QueryIds | None = None,
    ) -> None:
        self.ranker, self.loader, self.tokens, self.availability = ranker, loader, tokens, availability
        self.metrics, self.clock, self.limits, self.deadline, self.experiments = metrics, clock, limits, deadline, experiments
        self.names, self.namespaces, self.query_ids = names, namespaces, query_ids
        self.numbers = frozenset(ranker.settings.numbers)
        self.bulk = Bulk(ranker, tokens, limits.session_chars)
        self.feeds = Feeds(ranker.settings.numbers, limits.fed_queries)
        self.watched: Mapping[bytes, Watcher] = {}  # by the query's key
        self.slots = ranker.settings.slots
        self.shadow = Shadow(metrics, clock()) if ranker.settings.shadow else None
        self.rules: RuleBook | None = None  # None while there is no rule: then rules cost one test
        self._keys = QueryKeys(ranker.key_of, limits, namespaces)
        self._get, self._touch, self._estimated = ranker.rows.get, ranker.rows.touch, ranker.settings.draws > 0

    # ------------------------------------------------------------------ prepare
    def key_in(self, asked: Asked) -> bytes:
        """Return the key of a request's query. Raises `Refused`."""
        return self._keys[named(asked)][0]

    def ownerless(self, asked: Asked) -> RankResponse:
        """Return the given order for a request whose query belongs to a worker that does not answer. Raises `Refused`."""
        return self.given(self.prepare(asked)[1], "owner")

    def prepare(self, asked: Asked) -> tuple[Place | None, Prepared]:
        """Read and check a request; return its row, if that is in memory, and the request. Raises `Refused`."""
        namespace, raw, signals, session = asked.namespace, asked.candidates, asked.signals, asked.session
        key, text = self._keys[named(asked)]
        place = self._get(key)
        candidates = None
        if place is None or place.raw != raw:  # else they are those of the last request, which were checked
            candidates = asked.read()
            check_candidates(candidates, self.limits)
        if session is not None:
            check_session(session, self.limits)
        if signals and signals.keys() != self.numbers:
            check_signals(signals, self.numbers)
        prepared = Prepared(key, text, candidates, raw, signals, session, asked.slots or self.slots)
        if namespace is not None:
            self.namespaces.check(namespace, candidates, asked.signals)
            prepared.namespace = namespace
        if self.feeds:
            self._feed(prepared)
        if self.rules is not None:
            prepared = self.rules.apply(prepared, self.clock())
        if asked.unit is not None:
            check_unit(asked.unit, self.limits)
        if self.experiments.trial is not None:
            self.experiments.assign(asked, prepared)
            if prepared.plain is not None:
                place = self.ranker.rows.get(prepared.key)
        if asked.query_id is not None:
            check_query_id(asked.query_id, self.limits)
            prepared.query_id = asked.query_id
        return place, prepared

    def prepare_shown(self, request: ObserveRequest) -> Prepared:
        """Read and check a ranking that Swerve did not make. Raises `Refused`."""
        key, text = self._keys[(request.query, request.locale, request.filter, request.segment, request.namespace)]
        check_candidates(request.shown, self.limits, "shown")
        if request.session is not None:
            check_session(request.session, self.limits)
        if request.signals:
            check_signals(request.signals, self.numbers)
        self.namespaces.check(request.namespace, request.shown, request.signals)
        shown, signals, session = request.shown, request.signals, request.session
        prepared = Prepared(key, text, shown, None, signals, session, SLOTS, as_given=True, namespace=request.namespace)
        if self.feeds:
            self._feed(prepared)
        return prepared

    def _feed(self, prepared: Prepared) -> None:
        """Give a request the fresh pushed numbers that it does not carry itself."""
        namespace = prepared.namespace
        allowed = self.namespaces.numbers(namespace)
        prepared.signals = self.feeds.fill(prepared.key, namespace, prepared.signals, self.clock(), allowed)

    def key_of(self, query: str, locale: str | None, filter_: str | None, segment: str | None, namespace: str | None) -> bytes:
        """Return the key of a query. Raises `Refused`."""
        return self._keys[(query, locale, filter_, segment, namespace)][0]

    def forget(self, keys: Collection[bytes]) -> None:
        """Forget the names of queries, the numbers that were pushed for them, and what shadow mode has noted of them."""
        self.feeds.forget(keys)
        self.bulk.forget(keys)
        self._keys.forget(keys)
        if self.shadow is not None:
            self.shadow.forget(keys)

    # ------------------------------------------------------------------ the ways in
    async def rank_one(self, asked: Asked) -> RankResponse:
        """Return the order to show for one request. Raises `Refused`."""
        answers, prepared = list[Any]([None]), self.prepare(asked)[1]
        self.namespaces.take(prepared.namespace)
        await self._rank([(0, prepared)], answers, Turns())
        answer: RankResponse = answers[0]
        return answer

    async def rank(
        self, asked: Sequence[Asked | Refused], turns: Turns | None = None, fetched: Fetched | None = None
    ) -> list[RankResponse | Refused]:
        """Return the orders to show for several requests; a refused one has its refusal instead. `fetched` are rows that were read
        for them."""
        turns, answers = turns or Turns(), list[Any](asked)
        for start in range(0, len(asked), SLICE):
            entries: list[Entry] = []
            for at in range(start, min(start + SLICE, len(asked))):
                one = asked[at]
                if type(one) is not Asked:
                    continue
                await turns()
                try:
                    prepared = self.prepare(one)[1]
                    self.namespaces.take(prepared.namespace)
                    entries.append((at, prepared))
                except Refused as refused:
                    answers[at] = refused
            await self._rank(entries, answers, turns, fetched)
        return answers

    def at_once(self, asked: Asked) -> RankResponse | None:
        """Return the order to show if that needs no waiting: the row is in memory, the request is not refused, and no rule concerns
        it. Otherwise do nothing and return None."""
        if self.availability.degraded() is not None:
            return None
        try:
            place, prepared = self.prepare(asked)
        except Refused:
            return None
        if place is None or prepared.ruling is not None or (prepared.namespace is not None and self.namespaces.limited):
            return None
        self.metrics.cache_hits.value += 1
        return self.decided(place, prepared)

    def decided(self, place: Place, prepared: Prepared) -> RankResponse:
        """Decide one request whose row is in memory."""
        answers: list[Any] = [None]
        self._decide((0,), ((place, prepared),), answers)
        answer: RankResponse = answers[0]
        return answer

    def repeats(self, asked: Asked) -> Place | None:
        """Return the row of a request without parts, if it is in memory and was last asked the same candidates."""
        place = None
        with contextlib.suppress(Refused):
            if isinstance(name := named(asked), str):
                place = self._get(self._keys[name][0])
        return None if place is None or place.raw != asked.candidates else place

    # ------------------------------------------------------------------ wait, decide, answer
    @contextlib.asynccontextmanager
    async def held(self, asked: Sequence[Asked | Refused]) -> AsyncIterator[Fetched]:
        """Read the rows of requests without parts that are not in memory, together; they stay in memory until the end of the block.
        What is wrong with a request is left to `rank`."""
        wishes: dict[bytes, Wish] = {}
        for one in asked:
            if isinstance(one, Asked) and isinstance(name := named(one), str):
                with contextlib.suppress(Refused):
                    if self._get(self._keys[name][0]) is None:
                        self._wish(self.prepare(one)[1], wishes)
        try:
            block = self.loader.held(list(wishes.values()), self._patience(len(wishes)))
            found = await block.__aenter__()
        except Exception:
            log.exception("rows could not be read ahead")  # `rank` waits for them, or answers without
            yield Fetched(set(), {})
            return
        try:
            yield Fetched(set(wishes), {key: why for key, why in zip(wishes, found, strict=True) if isinstance(why, str)})
        finally:
            await block.__aexit__(None, None, None)

    def _patience(self, wishes: int) -> float:
        """Return how many seconds so many rows may be waited for."""
        return self.deadline * WAIT_SHARE * max(1.0, wishes / SLICE)

    @staticmethod
    def _wish(prepared: Prepared, wishes: dict[bytes, Wish]) -> None:
        """Add the wish for the row of a request."""
        session, wish = name_of(prepared.session), wishes.get(prepared.key)
        if wish is None:
            wishes[prepared.key] = Wish(prepared.key, True, prepared.text, len(prepared.read()), session)
        elif wish.session != session:
            wishes[prepared.key] = wish._replace(several=True)

    async def _rank(self, entries: Sequence[Entry], answers: list[Any], turns: Turns, fetched: Fetched | None = None) -> None:
        """Wait for rows that are not in memory, then decide. If that fails, answer with the given order."""
        try:
            await self._wait_and_decide(entries, answers, turns, fetched or Fetched(set(), {}))
        except Exception:
            self._failed(entries, answers)

    async def _wait_and_decide(self, entries: Sequence[Entry], answers: list[Any], turns: Turns, fetched: Fetched) -> None:
        entries = [(at, prepared) for at, prepared in entries if not self._undecided(at, prepared, answers)]
        reason = self.availability.degraded()
        if reason is not None:
            for at, prepared in entries:
                answers[at] = self.given(prepared, reason)
            return
        get, touch = self._get, self._touch
        wishes: dict[bytes, Wish] = {}
        misses = 0
        for _, prepared in entries:
            if prepared.key in fetched.fresh:
                fetched.fresh.discard(prepared.key)
                misses += 1
            if get(prepared.key) is not None:
                touch(prepared.key)  # it must not be dropped to make room for the rows that are read
            elif prepared.key not in fetched.missing:
                self._wish(prepared, wishes)
        self.metrics.cache_misses.value += len(wishes) + misses
        self.metrics.cache_hits.value += len(entries) - len(wishes) - misses
        async with self.loader.held(list(wishes.values()), self._patience(len(wishes))) as found:
            missing = fetched.missing | {key: why for key, why in zip(wishes, found, strict=True) if isinstance(why, str)}
            spots: list[int] = []
            pairs: list[Pair] = []
            work = 0
            for at, prepared in entries:
                if work >= TOGETHER or turns.over():
                    self._decide(spots, pairs, answers)  # rows may leave memory during the pause
                    spots, pairs, work = [], [], 0
                    await turns()
                work += 1 if prepared.candidates is None else 1 + len(prepared.candidates)
                place = get(prepared.key)
                if place is None:  # not loaded, or dropped again to make room for another row of this batch
                    answers[at] = self.given(prepared, missing.get(prepared.key, "memory"))
                else:
                    spots.append(at)
                    pairs.append((place, prepared))
            self._decide(spots, pairs, answers)

    def _undecided(self, at: int, prepared: Prepared, answers: list[Any]) -> bool:
        """Answer a request that the rules leave nothing to decide: the kill switch is on, or every result is pinned or blocked.
        Returns whether it is one."""
        ruling = prepared.ruling
        if ruling is None or not (ruling.off or not prepared.candidates):
            return False
        ranking = ruling.arrange(prepared.ids())
        sure = [1.0] * min(ruling.slots, len(ranking)) if self._estimated else None
        answers[at] = RankResponse(None, ranking, sure, None, None, False, self._marks(ruling, ranking))
        return True

    def _marks(self, ruling: Ruling, ranking: Sequence[str]) -> list[Ruled]:
        """Return what rules have done to an answer, and count it."""
        marks = ruling.marks(ranking)
        for kind in {mark.kind for mark in marks}:
            self.metrics.ruled(kind).value += 1
        return marks

    def _decide(self, spots: Sequence[int], pairs: Sequence[Pair], answers: list[Any]) -> None:
        """Decide requests whose rows are in memory, and set their answers."""
        if not pairs:
            return
        now, touch = self.clock(), self._touch
        for _, prepared in pairs:
            touch(prepared.key)
        made = explored = 0
        try:
            decisions = self.ranker.rank(pairs, now)
            tokens = self.tokens.sign_many(
                [decided.signed for decided in decisions if decided is not None and not decided.again], now
            )
            for at, (_, prepared), decided in zip(spots, pairs, decisions, strict=True):
                if decided is None:
                    # the capacity that it needs may still be compiling
                    answers[at] = self.given(prepared, "candidates" if self.ranker.rows.ready else "starting")
                elif decided.again:
                    self.metrics.shown_again.value += 1
                    answers[at] = self._answer(prepared, decided, self.tokens.sign(decided.signed, decided.at))
                else:
                    answers[at] = self._answer(prepared, decided, tokens[made])
                    made += 1
                    explored += decided.explored >= 0
        except Exception:
            self._failed([(at, prepared) for at, (_, prepared) in zip(spots, pairs, strict=True)], answers)
        self.metrics.decisions.value += made
        self.metrics.explored.value += explored

    def _failed(self, entries: Sequence[Entry], answers: list[Any]) -> None:
        """Answer requests that have no answer yet with the given order: a defect must not break a search."""
        log.exception("a ranking failed")
        for at, prepared in entries:
            if type(answers[at]) is not RankResponse:
                answers[at] = self.given(prepared, "internal")

    def _answer(self, prepared: Prepared, decided: Decided, token: str) -> RankResponse:
        if self.watched and (seen := self.watched.get(decided.signed.key)) is not None:
            seen(decided.ranking, decided.explored, prepared)
        if decided.report & (ALARM | RESTARTED):
            self.tell(decided.signed.key, decided.report, decided.signal, decided.phase)
        if prepared.namespace is not None:
            self.metrics.namespaces(self.namespaces.label(prepared.namespace)).value += 1
        if prepared.query_id is not None and self.query_ids is not None:
            self.query_ids.put(prepared.query_id, token)
        chances = decided.chances if self._estimated else None
        explored = decided.explored + 1 if decided.explored >= 0 else None
        answer = RankResponse(token, decided.ranking, chances, explored, decided.phase, False)
        if decided.swapped is not None:
            answer.swapped = decided.swapped
        if self.shadow is not None:
            answer.shadow = True
            self.shadow.note(decided)
        if prepared.arm:
            self.experiments.answered(prepared, decided, answer)
        if decided.ruling is not None:
            answer.ruled = self._marks(decided.ruling, decided.ranking)
        return answer

    def tell(self, key: bytes, report: int, signal: int, phase: int) -> None:
        """Count and log an alarm or a restart of a query's policy."""
        if report & RESTARTED:
            self.metrics.restarts.value += 1
        if report & ALARM:
            name = self.names[signal] if self.names else "none"
            self.metrics.alarms(name).value += 1
            log.info("alarm", extra={"query": key.hex(), "signal": name, "phase": phase})

    def given(self, prepared: Prepared, reason: str) -> RankResponse:
        """Return the degraded answer: the order that the caller gave, after the rules."""
        self.metrics.degraded(reason).value += 1
        ruling = prepared.ruling
        if ruling is None:
            return RankResponse(None, prepared.ids(), None, None, None, True)
        ranking = ruling.arrange(prepared.ids())
        return RankResponse(None, ranking, None, None, None, True, self._marks(ruling, ranking))
