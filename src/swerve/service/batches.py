"""Batches at full speed: one pass over the requests, one compiled call, one pass over the answers.

Most requests of a batch ask for rows that are in memory, with the candidates of the request before. They need nothing that could
wait, fail or change who holds which arm, and are decided together; all others go the way of single requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swerve.core.contract import ALARM, RESTARTED
from swerve.service.committer import Written
from swerve.service.feedback import Unavailable
from swerve.service.loader import Wish
from swerve.service.turns import Turns
from swerve.serving.checks import check
from swerve.serving.messages import Asked, FeedbackRequest, FeedbackResponse, RankRequest, RankResponse, Refused, Status, normalise
from swerve.serving.ranker import Asking
from swerve.serving.rows import Place

if TYPE_CHECKING:
    from swerve.service.runtime import Service

log = logging.getLogger("swerve.service")

#: Entries of a long batch that are looked at, loaded and decided before the next: the deadline is for a hundred.
SLICE = 100
#: Entries that are decided in one go when not all of a slice are plain.
TOGETHER = 25

#: One of a batch: where it stands there, its key, itself, and itself with its candidates read unless it is a plain one.
Entry = tuple[int, bytes, Asked, RankRequest | None]
#: A plain one: where it stands, its row, and itself.
Easy = tuple[int, Place, Asked]
#: One that is not, with its candidates read.
Hard = tuple[int, Place, Asked, RankRequest]


class Batches:
    """Ranks batches of requests, and takes batches of feedback."""

    def __init__(self, service: Service) -> None:
        self.service, self.ranker = service, service.ranker
        self.longest, self.numbers = service.config.limits.session_chars, service.numbers
        self.keep_text = service.ranker.settings.keep_text
        self.rounded = service.ranker.settings.draws > 0

    def plain(self, place: Place, asked: Asked) -> bool:
        """Whether a request repeats the candidates of the last one for its row, and nothing about it is to be refused."""
        service = self.service
        if place.raw != asked.candidates or service.recorder is not None:
            return False
        if self.keep_text and place.query is None:
            return False
        session, given = asked.session, asked.signals
        if session is not None and (not 0 < len(session) <= self.longest or "\0" in session):
            return False
        return not given or given.keys() <= self.numbers

    def at_once(self, entries: Sequence[Asked | Refused]) -> list[RankResponse | Refused] | None:
        """`rank` for each, in order, when all of them are plain; else None, and nothing is done."""
        if not self.service.ready or self.service.committer.away is not None:
            return None
        get, keys, plain = self.ranker.rows.get, self.service.keys, self.plain
        easy: list[Easy] = []
        for at, asked in enumerate(entries):
            if type(asked) is not Asked or (key := keys.get(asked.query)) is None:
                return None
            place = get(key)
            if place is None or not plain(place, asked):
                return None
            easy.append((at, place, asked))
        out = list[Any](entries)
        try:
            self._rank_easy(easy, self.service.clock.now(), out)
        except Exception:
            log.exception("a batch of rankings failed")
            out = [one if type(one) is RankResponse else self.service.given(one.request(), "internal") for one in out]
        self.service.metrics.cache_hits.value += len(easy)
        return out

    async def rank(self, entries: Sequence[Asked | Refused], turns: Turns | None = None) -> list[RankResponse | Refused]:
        """`rank` for each, in order; others have their turn in between."""
        turns = turns or Turns()
        if len(entries) <= SLICE:
            return await self._rank(entries, turns)
        out: list[RankResponse | Refused] = []
        for start in range(0, len(entries), SLICE):
            await turns()
            out += await self._rank(entries[start : start + SLICE], turns)
        return out

    async def _rank(self, entries: Sequence[Asked | Refused], turns: Turns) -> list[RankResponse | Refused]:
        """A part of a batch, with one load for all that are not in memory and few compiled calls."""
        answers = self.at_once(entries)
        if answers is not None:
            return answers
        get, keys, plain, out = self.ranker.rows.get, self.service.keys, self.plain, list[Any](entries)
        read: list[Entry] = []
        missing: dict[bytes, RankRequest] = {}
        for at, asked in enumerate(entries):
            if type(asked) is not Asked:
                continue
            await turns()
            key = keys.get(asked.query)
            if key is not None and (known := get(key)) is not None and plain(known, asked):
                read.append((at, key, asked, None))
                continue
            try:
                key, place, new = self.service.read(asked)
            except Refused as refused:
                out[at] = refused
                continue
            read.append((at, key, asked, new))
            if place is None:
                missing.setdefault(key, new)
            else:
                self.ranker.rows.touch(key)
        if not self.service.ready or self.service.committer.away is not None:
            for at, _, asked, request in read:
                out[at] = self.service.given(request or asked.request(), "store" if self.service.ready else "starting")
            return out
        self.service.metrics.cache_misses.value += len(missing)
        self.service.metrics.cache_hits.value += len(read) - len(missing)
        try:
            wishes = [Wish(key, True, normalise(new.query), len(new.candidates)) for key, new in missing.items()]
            within = self.service.deadline * 0.75 * max(1.0, len(missing) / 100)  # a batch has the time of its hundreds
            async with self.service.loader.held(wishes, within) as found:
                trouble = {key: why for key, why in zip(missing, found, strict=True) if isinstance(why, str)}
                await self._rank_all(read, trouble, out, turns)
        except Exception:
            log.exception("a batch of rankings failed")
            for at, _, asked, request in read:
                if out[at] is entries[at]:
                    out[at] = self.service.given(request or asked.request(), "internal")
        return out

    async def feedback(self, entries: Sequence[FeedbackRequest | Refused], turns: Turns) -> list[FeedbackResponse | Refused | None]:
        """What became of several decisions, in order; returns when it is durable. None: it must be sent again."""
        out: list[FeedbackResponse | Refused | None] = []
        for start in range(0, len(entries), SLICE):
            out += await self._feedback(entries[start : start + SLICE], turns)
        return out

    async def _feedback(
        self, entries: Sequence[FeedbackRequest | Refused], turns: Turns
    ) -> list[FeedbackResponse | Refused | None]:
        """Most needs no task to wait in: what it teaches is known at once, and when that is durable is one moment for all."""
        clicks, loop = self.service.clicks, asyncio.get_running_loop()
        waiting: list[tuple[Status, Written] | asyncio.Task[FeedbackResponse | Refused | None] | Refused] = []
        later: set[str] = set()  # a task says what was said of these first: what is said next must not be quicker
        for entry in entries:
            await turns()
            if isinstance(entry, Refused):
                waiting.append(entry)
                continue
            try:
                check(entry, self.service.config.limits)
            except Refused as refused:
                waiting.append(refused)
                continue
            quick = None if entry.decision in later else clicks.feedback_at_once(entry)
            if quick is None:
                later.add(entry.decision)
                waiting.append(loop.create_task(self._one(entry), name="swerve-feedback"))
            else:
                waiting.append(quick)
        out: list[FeedbackResponse | Refused | None] = []
        for one in waiting:
            if isinstance(one, asyncio.Task):
                out.append(await one)
            elif isinstance(one, Refused):
                out.append(one)
            else:
                try:
                    await clicks.durable(one[1])
                    out.append(clicks.answered(one[0]))
                except Unavailable:
                    out.append(None)
        return out

    async def _one(self, entry: FeedbackRequest) -> FeedbackResponse | Refused | None:
        """Feedback that may have to wait for its row."""
        try:
            return await self.service.clicks.feedback(entry)
        except Refused as refused:
            return refused
        except Unavailable:
            return None

    async def _rank_all(self, read: list[Entry], trouble: dict[bytes, str], out: list[Any], turns: Turns) -> None:
        """Plain requests next to each other are decided together, and so are others; in the order of the batch."""
        now, get, plain = self.service.clock.now(), self.ranker.rows.get, self.plain
        easy: list[Easy] = []
        hard: list[Hard] = []
        for at, key, asked, request in read:
            if len(hard) >= TOGETHER or len(easy) >= TOGETHER or turns.over():
                # rows may go while others have their turn: nothing is held across it
                self._rank_easy(easy, now, out)
                self._rank_hard(hard, now, out)
                easy, hard = [], []
                await turns()
                now = self.service.clock.now()
            if request is None and hard:
                self._rank_hard(hard, now, out)
                hard = []
            place = get(key)
            if place is None:  # not loaded, or let go again to make room for another of this batch
                out[at] = self.service.given(request or asked.request(), trouble.get(key, "memory"))
            elif request is None and plain(place, asked):  # it was; what came before it may have changed the row
                easy.append((at, place, asked))
            else:
                if easy:
                    self._rank_easy(easy, now, out)
                    easy = []
                hard.append((at, place, asked, request or asked.request()))
        if easy:
            self._rank_easy(easy, now, out)
        if hard:
            self._rank_hard(hard, now, out)

    def _rank_easy(self, entries: list[Easy], now: float, out: list[Any]) -> None:
        answers = self._together(entries, now)
        for (at, _, asked), answer in zip(entries, answers, strict=True):
            out[at] = self.service.given(asked.request(), "candidates") if answer is None else answer

    def _rank_hard(self, entries: list[Hard], now: float, out: list[Any]) -> None:
        decisions = self.ranker.rank([(place, request) for _, place, _, request in entries], now)
        for (at, place, asked, request), decided in zip(entries, decisions, strict=True):
            self.service.keep_text(place, request)
            if place.raw is None:
                self.ranker.rows.remember(place, asked.candidates, request)
            out[at] = self.service.response(request, decided, now)

    def _together(self, entries: Sequence[Easy], now: float) -> list[RankResponse | None]:
        """The answers to plain requests, in order; None where nothing can be decided."""
        out: list[RankResponse | None] = []
        run: list[Asking] = []
        shelf, asking = None, self.ranker.asking
        heard: set[tuple[str, bytes]] = set()
        for _, place, asked in entries:
            session = asked.session
            if run and (place.shelf is not shelf or (session is not None and (session, place.key) in heard)):
                out += self._decide(run, now)
                run = []
                heard.clear()
            shelf = place.shelf
            if session is not None:
                heard.add((session, place.key))
            run.append(asking(place, place.last, place.published, asked.signals, asked.session, now))
        return out + self._decide(run, now) if run else out

    def _decide(self, run: list[Asking], now: float) -> list[RankResponse | None]:
        """Requests for rows of one table."""
        ranker, service, watched = self.ranker, self.service, self.service.watched
        answers, chances, first = ranker.answers(run, now)
        touch, unwritten = ranker.rows.touch, ranker.unwritten
        parts, made = [], []
        explorations = 0
        for number, (asking, answer, chance) in enumerate(zip(run, answers, chances, strict=True), first):
            place, ids, offer, *_ = asking
            arm, _, phase, explored, report, signal, _ = answer
            if arm < 0:
                continue
            if not place.dirty:  # a row that is to be written stays in memory anyway
                place.dirty = True
                unwritten.append((now, place))
                touch(place.key)
            if report & (ALARM | RESTARTED):
                service.happened(place.key, report, signal, phase)
            explorations += explored
            at = offer.index(arm)
            parts.append(ranker.signed(asking, answer, number))
            order = ids if at == 0 else [ids[at], *ids[:at], *ids[at + 1 :]]
            if watched and (seen := watched.get(place.key)) is not None:
                seen(order)
            made.append((order, explored != 0, round(chance, 6) if self.rounded else None, phase))
        service.metrics.decisions.value += len(made)
        service.metrics.explored.value += explorations
        tokens = service.tokens.sign_many(parts, now)
        good: list[RankResponse | None] = [RankResponse(token, *rest, False) for token, rest in zip(tokens, made, strict=True)]
        if len(good) == len(run):
            return good
        left = iter(good)
        return [None if answer[0] < 0 else next(left) for answer in answers]
