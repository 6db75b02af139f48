"""Rankings: prepare, decide, answer. Single requests, batches and the short way of the protocol all take this path.

`prepare` reads and checks a request. Rows that are not in memory are waited for, within the deadline; nothing else waits. Then
requests are decided together, and answered with signed tokens. Whatever goes wrong, the caller gets its own order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from swerve.core.contract import ALARM, RESTARTED
from swerve.service.availability import Availability
from swerve.service.config.sections import Limits
from swerve.service.loader import Loader, Wish
from swerve.service.metrics import Metrics
from swerve.service.turns import Turns
from swerve.serving.checks import check_candidates, check_query, check_session, check_signals
from swerve.serving.messages import Asked, RankResponse, Refused, normalise
from swerve.serving.ranker import Ranker
from swerve.serving.recording import Recorder
from swerve.serving.requests import Decided, Prepared
from swerve.serving.rows import Place
from swerve.serving.sessions import name_of
from swerve.serving.tokens import Tokens

log = logging.getLogger("swerve.service")

MOST_KEYS, LONGEST_KEYS = 50_000, 64  # texts whose key is remembered, and their characters at most
SLICE = 100  # entries of a batch whose rows are waited for together: the deadline is for so many
TOGETHER = 64  # what is decided in one go, in requests; each candidate that may be new to its row counts as much as a request
PATIENCE = 0.75  # the share of the deadline that may be spent on waiting for rows

#: A request on its way: where it stands among the answers, and itself, ready to be decided.
Entry = tuple[int, Prepared]
#: A request that can be decided: its row, and itself.
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
        recorder: Recorder | None,
    ) -> None:
        self.ranker, self.loader, self.tokens, self.availability = ranker, loader, tokens, availability
        self.metrics, self.clock, self.limits, self.deadline = metrics, clock, limits, deadline
        self.names, self.recorder = names, recorder
        self.numbers = frozenset(ranker.settings.numbers)
        self.watched: Mapping[bytes, Callable[[list[str]], None]] = {}  # who is told of each ranking, by the query's key
        self._keys: dict[str, bytes] = {}
        self._rounded = ranker.settings.draws > 0

    # ------------------------------------------------------------------ prepare
    def prepare(self, asked: Asked) -> tuple[Place | None, Prepared]:
        """A request, read and checked, and its row if that is in memory. Raises `Refused`."""
        key = self._keys.get(asked.query) or self._key_of(asked.query)
        place = self.ranker.rows.get(key)
        candidates = None
        if place is None or place.raw != asked.candidates:  # else they are those of the last time, when they were good
            candidates = asked.read()
            check_candidates(candidates, self.limits)
        session = asked.session
        if session is not None:
            check_session(session, self.limits)
        if asked.signals and not asked.signals.keys() <= self.numbers:
            check_signals(asked.signals, self.numbers)
        return place, Prepared(key, asked.query, candidates, asked.candidates, asked.signals, session)

    def _key_of(self, query: str) -> bytes:
        check_query(query, self.limits)
        key = self.ranker.key_of(normalise(query))
        if len(query) <= LONGEST_KEYS:  # long ones are rare, and would take the memory of many
            if len(self._keys) >= MOST_KEYS:
                self._keys.clear()
            self._keys[query] = key
        return key

    # ------------------------------------------------------------------ the ways in
    async def rank_one(self, asked: Asked) -> RankResponse:
        """The order to show for one request. Raises `Refused`."""
        answers: list[Any] = [None]
        await self._rank([(0, self.prepare(asked)[1])], answers, Turns())
        answer: RankResponse = answers[0]
        return answer

    async def rank(self, asked: Sequence[Asked | Refused], turns: Turns | None = None) -> list[RankResponse | Refused]:
        """The orders to show for several, in order; in the place of one that is refused, why."""
        turns, answers = turns or Turns(), list[Any](asked)
        for start in range(0, len(asked), SLICE):
            entries: list[Entry] = []
            for at in range(start, min(start + SLICE, len(asked))):
                one = asked[at]
                if type(one) is not Asked:
                    continue
                await turns()
                try:
                    entries.append((at, self.prepare(one)[1]))
                except Refused as refused:
                    answers[at] = refused
            await self._rank(entries, answers, turns)
        return answers

    def at_once(self, asked: Sequence[Asked]) -> list[RankResponse] | None:
        """The same where nothing has to be waited for, nothing is refused, and of several none has new candidates to be read; else
        None, and nothing is done."""
        if self.availability.degraded() is not None:
            return None
        pairs: list[Pair] = []
        several = len(asked) > 1
        try:
            for one in asked:
                place, prepared = self.prepare(one)
                if place is None or (several and prepared.candidates is not None):  # reading takes long: not in one turn
                    return None
                pairs.append((place, prepared))
        except Refused:
            return None
        answers: list[Any] = [None] * len(pairs)
        self.metrics.cache_hits.value += len(pairs)
        self._decide(range(len(pairs)), pairs, answers)
        return answers

    # ------------------------------------------------------------------ wait, decide, answer
    async def _rank(self, entries: Sequence[Entry], answers: list[Any], turns: Turns) -> None:
        """Wait for the rows that are not in memory, and decide; where that fails, answer with the given order."""
        try:
            await self._wait_and_decide(entries, answers, turns)
        except Exception:
            self._failed(entries, answers)

    async def _wait_and_decide(self, entries: Sequence[Entry], answers: list[Any], turns: Turns) -> None:
        reason = self.availability.degraded()
        if reason is not None:
            for at, prepared in entries:
                answers[at] = self.given(prepared, reason)
            return
        get, touch = self.ranker.rows.get, self.ranker.rows.touch
        wishes: dict[bytes, Wish] = {}
        for _, prepared in entries:
            if get(prepared.key) is not None:
                touch(prepared.key)  # it is not the one to make room for those that are waited for
                continue
            session, wish = name_of(prepared.session), wishes.get(prepared.key)
            if wish is None:
                wishes[prepared.key] = Wish(prepared.key, True, normalise(prepared.query), len(prepared.read()), session)
            elif wish.session != session:
                wishes[prepared.key] = wish._replace(several=True)
        self.metrics.cache_misses.value += len(wishes)
        self.metrics.cache_hits.value += len(entries) - len(wishes)
        within = self.deadline * PATIENCE * max(1.0, len(wishes) / 100)  # a batch has the time of its hundreds
        async with self.loader.held(list(wishes.values()), within) as found:
            missing = {key: why for key, why in zip(wishes, found, strict=True) if isinstance(why, str)}
            spots: list[int] = []
            pairs: list[Pair] = []
            work = 0
            for at, prepared in entries:
                if work >= TOGETHER or turns.over():
                    self._decide(spots, pairs, answers)  # rows may go while others have their turn
                    spots, pairs, work = [], [], 0
                    await turns()
                work += 1 if prepared.candidates is None else 1 + len(prepared.candidates)
                place = get(prepared.key)
                if place is None:  # not loaded, or let go again to make room for another of this batch
                    answers[at] = self.given(prepared, missing.get(prepared.key, "memory"))
                else:
                    spots.append(at)
                    pairs.append((place, prepared))
            self._decide(spots, pairs, answers)

    def _decide(self, spots: Sequence[int], pairs: Sequence[Pair], answers: list[Any]) -> None:
        """Decide requests whose rows are in memory, and put the answers in their spots."""
        if not pairs:
            return
        now, touch = self.clock(), self.ranker.rows.touch
        for _, prepared in pairs:
            touch(prepared.key)
        made = explored = 0
        try:
            decisions = self.ranker.rank(pairs, now)
            tokens = iter(self.tokens.sign_many([decided.signed for decided in decisions if decided is not None], now))
            for at, (_, prepared), decided in zip(spots, pairs, decisions, strict=True):
                if decided is None:
                    # the capacity that it needs may still be compiling
                    answers[at] = self.given(prepared, "candidates" if self.ranker.rows.ready else "starting")
                    continue
                if self.recorder is not None:
                    self.recorder.ranked(prepared.request(), decided, now)
                answers[at] = self._answer(decided, next(tokens))
                made += 1
                explored += decided.explored
        except Exception:
            self._failed([(at, prepared) for at, (_, prepared) in zip(spots, pairs, strict=True)], answers)
        self.metrics.decisions.value += made
        self.metrics.explored.value += explored

    def _failed(self, entries: Sequence[Entry], answers: list[Any]) -> None:
        """Search must not break because of a defect of ours: who has no answer yet gets the given order."""
        log.exception("a ranking failed")
        for at, prepared in entries:
            if type(answers[at]) is not RankResponse:
                answers[at] = self.given(prepared, "internal")

    def _answer(self, decided: Decided, token: str) -> RankResponse:
        if self.watched and (seen := self.watched.get(decided.signed.key)) is not None:
            seen(decided.ranking)
        if decided.report & (ALARM | RESTARTED):
            self._tell(decided)
        chance = round(decided.chance, 6) if self._rounded else None
        return RankResponse(token, decided.ranking, decided.explored, chance, decided.phase, False)

    def _tell(self, decided: Decided) -> None:
        """Count and log what happened to a query's policy."""
        if decided.report & RESTARTED:
            self.metrics.restarts.value += 1
        if decided.report & ALARM:
            name = self.names[decided.signal] if self.names else "none"
            self.metrics.alarms(name).value += 1
            log.info("alarm", extra={"query": decided.signed.key.hex(), "signal": name, "phase": decided.phase})

    def given(self, prepared: Prepared, reason: str) -> RankResponse:
        """The order that the caller gave."""
        self.metrics.degraded(reason).value += 1
        return RankResponse(None, prepared.ids(), False, None, None, True)
