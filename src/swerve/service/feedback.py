"""Feedback: reads the token, checks whether it was used, credits the click, and answers when that is durable.

`at_once` handles feedback that needs no reading. `one` handles the rest, which may wait for a row, or for the store to look up a
decision of an earlier life. Both end in `_count`; batches use both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from swerve.service import tracing
from swerve.service.availability import Availability, Unavailable
from swerve.service.committer import Committer
from swerve.service.config.callers import Limits
from swerve.service.experiments import Experiments
from swerve.service.groups import Written, durable
from swerve.service.loader import Loader, Wish
from swerve.service.metrics import Metrics
from swerve.service.namespaces import Within, may, require
from swerve.service.turns import Turns
from swerve.serving.checks import check_feedback, check_positions
from swerve.serving.erasing import Erased
from swerve.serving.holdout import CONTROL
from swerve.serving.messages import Event, FeedbackRequest, FeedbackResponse, Refused, Status
from swerve.serving.outcomes import STATUSES, Outcome, decode, encode
from swerve.serving.place import Place
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Watcher
from swerve.serving.tokens import NUMBER_BITS, Forged, Ticket, Tokens
from swerve.store.protocol import StoreError

#: Seconds that feedback waits for a row; then it is answered 503.
WAIT = 1.0
#: Entries of a batch that wait together: bounds the tasks and the pinned rows of one batch.
SLICE = 100
#: Seconds by which a decision's time may be ahead of the clock: twice what a crash can lose of the time in the store. Only a
#: restore with a clock that was set back leaves more. Outcomes are kept for as long beyond their window: a repeat is known.
AHEAD = 120.0

ANSWERS: dict[Status, FeedbackResponse] = {status: FeedbackResponse(status) for status in (*STATUSES.values(), "expired")}

#: The status of feedback, and the future that resolves when it is durable; None when it is.
Counted = tuple[Status, Written | None]
#: The outcome of an entry of a batch; None: the caller must send it again.
Said = FeedbackResponse | Refused | None


class Feedback:
    """The feedback side of a service."""

    def __init__(
        self,
        ranker: Ranker,
        loader: Loader,
        committer: Committer,
        tokens: Tokens,
        availability: Availability,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        limits: Limits,
        windows: Mapping[str, float],
        experiments: Experiments,
        erased: Erased,
    ) -> None:
        self.ranker, self.loader, self.committer, self.tokens = ranker, loader, committer, tokens
        self.availability, self.metrics, self.clock, self.limits = availability, metrics, clock, limits
        self.window, self.experiments, self.erased = max(windows.values()), experiments, erased
        self.kinds = ranker.responses.rewards.weights
        #: The windows that end before the longest one. Where there is none, they cost one test.
        self.shorter = {kind: window for kind, window in windows.items() if window < self.window}
        self.watched: Mapping[bytes, Watcher] = {}  # by the query's key

    # ------------------------------------------------------------------ entry points
    def at_once(self, request: FeedbackRequest, within: Within = None, ticket: Ticket | None = None) -> Counted | None:
        """Count feedback for a decision of this life whose row is in memory. For any other feedback do nothing and return None.
        Raises `Refused`. `ticket` is what the decision says, if that was read already."""
        check_feedback(request, self.limits, self.kinds)
        try:
            ticket = ticket or self.tokens.read(request.decision)
        except Forged:
            return None
        now, life, place = self.clock(), self.ranker.life, self.ranker.rows.get(ticket.key)
        ours = ticket.life == life.mark and ticket.store == life.store
        if place is None or not ours or now - ticket.at > self.window or (self.shorter and self._late(request, ticket, now)):
            return None
        if not may(within, place.namespace) or self.erased.query(ticket.key, ticket.at):
            return None
        try:
            self.availability.require()
        except Unavailable:
            return None
        return self._count(place, ticket, life.id << NUMBER_BITS | ticket.number, request, now)

    async def one(self, request: FeedbackRequest, within: Within = None) -> FeedbackResponse:
        """Count feedback and return its status once it is durable. Raises `Refused`, or `Unavailable` when the caller must send it
        again. `within` are the namespaces that the caller may use."""
        check_feedback(request, self.limits, self.kinds)
        ticket, now = self._read(request.decision), self.clock()
        if self._over(ticket, now):
            return self.answer("expired")
        if self.shorter and (late := self._late(request, ticket, now)):
            kept = [event for event in request.events if event.kind not in late]
            if not kept and request.shown is None:
                return FeedbackResponse(self.answer("expired").status, late)
            in_time = msgspec.structs.replace(request, events=kept)
            return FeedbackResponse((await self._one(in_time, ticket, within)).status, late)
        return await self._one(request, ticket, within)

    async def _one(self, request: FeedbackRequest, ticket: Ticket, within: Within) -> FeedbackResponse:
        """Count feedback that came in time."""
        self.availability.require()
        life, number = self.ranker.life, await self._number(ticket)
        used = self.committer.used
        if not used.ours(number) and not used.get(number):
            await self._earlier(number)
        place = self.ranker.rows.get(ticket.key)
        if place is not None:
            require(within, place.namespace)
            counted = self._count_in_time(place, ticket, number, request)
            return await self._when_durable(*counted)
        async with self.loader.held([Wish(ticket.key, begin=within is None, rival=ticket.rival)], WAIT) as (found,):
            if found == "unknown":  # the token does not tell the namespace of a query without a row; or that policy is gone
                return self.answer("expired")
            if isinstance(found, str) or self.ranker.life is not life:
                raise Unavailable
            self.availability.require()
            require(within, found.namespace)
            counted = self._count_in_time(found, ticket, number, request)
        return await self._when_durable(*counted)

    async def many(self, entries: Sequence[FeedbackRequest | Refused], turns: Turns, within: Within = None) -> list[Said]:
        """Count several entries and return their outcomes, in order, once they are durable."""
        out: list[Said] = []
        with tracing.inside("store.commit", entries=len(entries)), tracing.Aside():
            for start in range(0, len(entries), SLICE):
                out += await self._slice(entries[start : start + SLICE], turns, within)
        return out

    async def _slice(self, entries: Sequence[FeedbackRequest | Refused], turns: Turns, within: Within) -> list[Said]:
        """Count some entries. Most are counted at once and share the future of one group; only the others get a task each."""
        loop = asyncio.get_running_loop()
        waiting: list[Counted | asyncio.Task[Said] | Refused] = []
        later: set[str] = set()  # decisions whose first entry has a task: a second entry must not overtake it
        for entry in entries:
            await turns()
            counted: Counted | None = None
            try:
                if isinstance(entry, Refused):
                    raise entry
                if entry.decision not in later:
                    counted = self.at_once(entry, within)
            except Refused as refused:
                waiting.append(refused)
                continue
            if counted is None:
                later.add(entry.decision)
                waiting.append(loop.create_task(self._said(entry, within), name="swerve-feedback"))
            else:
                waiting.append(counted)
        out: list[Said] = []
        for one in waiting:
            if isinstance(one, asyncio.Task):
                out.append(await one)
            elif isinstance(one, Refused):
                out.append(one)
            else:
                try:
                    out.append(await self._when_durable(*one))
                except Unavailable:
                    out.append(None)
        return out

    async def _said(self, entry: FeedbackRequest, within: Within) -> Said:
        try:
            return await self.one(entry, within)
        except Refused as refused:
            return refused
        except Unavailable:
            return None

    def _over(self, ticket: Ticket, now: float) -> bool:
        """Return whether feedback for a decision does not count: its window is over, its query was deleted, the share that has its
        record is unknown, or its time is ahead of the clock, so that its outcome would be dropped too early."""
        outside = not -AHEAD <= now - ticket.at <= self.window
        return outside or self.erased.query(ticket.key, ticket.at) or self.tokens.strayed(ticket)

    def _late(self, request: FeedbackRequest, ticket: Ticket, now: float) -> list[str]:
        """Return the kinds of the request's events whose windows are over."""
        age = now - ticket.at
        return sorted({event.kind for event in request.events if age > self.shorter.get(event.kind, self.window)})

    # ------------------------------------------------------------------ tokens and numbers
    def _read(self, decision: str) -> Ticket:
        """Return the content of a token of this store; raises `Refused`."""
        try:
            ticket = self.tokens.read(decision)
        except Forged as forged:
            self.metrics.refused("forged").value += 1
            raise Refused(403, "forged", str(forged), "decision") from None
        if ticket.store != self.ranker.life.store:
            self.metrics.refused("foreign").value += 1
            raise Refused(403, "foreign", "the decision was made by a service with another store", "decision")
        return ticket

    async def _number(self, ticket: Ticket) -> int:
        """Return the number of a decision in this store: the id of its life, then its number in that life."""
        life = self.ranker.life
        if ticket.life == life.mark:
            return life.id << NUMBER_BITS | ticket.number
        lives = self.committer.lives
        if ticket.life not in lives:
            try:
                lives[ticket.life] = await self.loader.ask(self.loader.store.life_id, ticket.life)
            except StoreError:
                raise Unavailable from None
            if self.ranker.life is not life:  # another store has replaced ours meanwhile, and its numbers differ
                self.committer.lives.pop(ticket.life, None)
                raise Unavailable
        return lives[ticket.life] << NUMBER_BITS | ticket.number

    async def _earlier(self, number: int) -> None:
        """Read the outcome of a decision of an earlier life from the store, and remember it."""
        used = self.committer.used
        try:
            known = await self.loader.ask(self.loader.store.outcomes, [number])
        except StoreError:
            raise Unavailable from None
        if self.committer.used is not used:  # another store has replaced ours meanwhile
            raise Unavailable
        if number in known and not used.get(number):
            used.put(number, known[number], self.clock())

    # ------------------------------------------------------------------ count, wait, answer
    def _count_in_time(self, place: Place, ticket: Ticket, number: int, request: FeedbackRequest) -> Counted:
        """Apply feedback that has waited for its row or its number. Meanwhile its window may have ended, or its query may have been
        deleted: then its outcome may be gone, and a repeat would count again."""
        now = self.clock()
        return ("expired", None) if self._over(ticket, now) else self._count(place, ticket, number, request, now)

    def _count(self, place: Place, ticket: Ticket, number: int, request: FeedbackRequest, now: float) -> Counted:
        """Apply feedback to its decision, in the order in which requests arrive; raises `Refused`."""
        known = self.committer.used.get(number)
        before = decode(known) if known else Outcome(0, ticket.seen)
        events = request.events
        if request.shown is not None or not ticket.ruled:
            check_positions(events, ticket.offer.bit_count() if request.shown is None else len(request.shown))
        if self.erased.results:
            events = self.erased.left_of(place, ticket.at, events, self.ranker.rows.short)
            if not events and request.events and request.shown is None:
                return "ignored", None  # every click is on a result that was deleted
        return self.apply(place, ticket, number, before, events, request.shown, now)

    def apply(
        self,
        place: Place,
        ticket: Ticket,
        number: int,
        before: Outcome,
        events: list[Event],
        shown: list[str] | None,
        now: float,
    ) -> Counted:
        """Apply events to a decision, whose outcome was `before`; raises `Refused`."""
        outcome = self.ranker.feedback(place, ticket, number, before, events, shown, now)
        # After other events of the decision, the answer is the one that a repeat will get.
        known = outcome is before or before.told
        status = STATUSES[self.ranker.responses.again(place, ticket, outcome, events) if known else outcome.status]
        if outcome is before:
            self.metrics.feedback("repeat").value += 1
            return status, self.committer.again(number)
        seen = self.watched.get(place.key) if self.watched else None
        fresh = outcome.clicked & ~before.clicked
        for slot in range(fresh.bit_length()):
            if fresh >> slot & 1:
                self.metrics.clicks[slot].value += 1
                if seen is not None and (ticket.rival or ticket.arm != CONTROL):  # the given order is no page of the policy
                    seen.clicked(slot)
        if ticket.arm:
            self.experiments.clicked(ticket, number, before, outcome)
        return status, self.committer.durable(number, encode(outcome))

    async def _when_durable(self, status: Status, waiting: Written | None) -> FeedbackResponse:
        if waiting is not None:
            await durable(waiting)
        return self.answer(status)

    def answer(self, status: Status) -> FeedbackResponse:
        """Return the answer for a status, and count it."""
        self.metrics.feedback(status).value += 1
        return ANSWERS[status]
