"""Feedback: what a token says, whether it was used before, what it teaches, and when that is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swerve.service.committer import Away, Written
from swerve.service.loader import Wish
from swerve.serving.kernels import IGNORED, LATE, LEARNED
from swerve.serving.messages import FeedbackRequest, FeedbackResponse, Refused, Status
from swerve.serving.rows import Place
from swerve.serving.tokens import NUMBER_BITS, Forged, Ticket
from swerve.store.protocol import StoreError

if TYPE_CHECKING:
    from swerve.service.runtime import Service

WAIT = 1.0  # seconds that feedback waits for a row

OUTCOMES: dict[int, Status] = {LEARNED: "learned", LATE: "late", IGNORED: "ignored"}
ANSWERS: dict[Status, FeedbackResponse] = {status: FeedbackResponse(status) for status in (*OUTCOMES.values(), "expired")}


class Unavailable(Exception):  # noqa: N818 - what happened, not what went wrong
    """It cannot be made durable, or read, now: 503, to be sent again."""


class Clicks:
    """The feedback side of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.committer, self.ranker, self.metrics, self.clock = service.committer, service.ranker, service.metrics, service.clock
        self.window = service.config.feedback.window_seconds

    async def feedback(self, request: FeedbackRequest) -> FeedbackResponse:
        """What became of a decision; returns when it is durable. Raises `Refused` for a forged token, `Unavailable` for now."""
        try:
            ticket = self.service.tokens.read(request.decision)
        except Forged as forged:
            self.metrics.refused("forged").value += 1
            raise Refused(403, "forged", str(forged), "decision") from None
        now = self.clock.now()
        if ticket.store != self.ranker.life.store:
            self.metrics.refused("foreign").value += 1
            raise Refused(403, "foreign", "the decision was made by another store than the one that is served here", "decision")
        if now - ticket.at > self.window:
            return self.answered("expired")
        self._serving()
        life, number = self.ranker.life, await self._number(ticket)
        used = self.committer.used
        outcome = used.get(number) or (0 if used.ours(number) else await self._earlier(number))
        if outcome:
            return await self._again(number, outcome)
        place = self.ranker.rows.get(ticket.key)
        if place is not None:
            return await self._durable(*self._count(place, ticket, number, request.clicked, now))
        async with self.service.loader.held([Wish(ticket.key, begin=True)], WAIT) as (found,):
            if isinstance(found, str) or self.ranker.life is not life:
                raise Unavailable
            self._serving()
            outcome = self.committer.used.get(number)  # its repeat may have been quicker
            if not outcome:
                counted = self._count(found, ticket, number, request.clicked, now)
        return await (self._again(number, outcome) if outcome else self._durable(*counted))

    def _serving(self) -> None:
        """Raises `Unavailable` when nothing can be counted now."""
        if self.committer.away is not None or self.service.stopping or not self.service.ready:
            raise Unavailable

    async def _number(self, ticket: Ticket) -> int:
        """The number of a decision in this store: its life's id, and its own."""
        life = self.ranker.life
        if ticket.life == life.mark:
            return life.id << NUMBER_BITS | ticket.number
        lives = self.committer.lives
        if ticket.life not in lives:
            try:
                lives[ticket.life] = await self.service.loader.ask(self.service.store.life_id, ticket.life)
            except StoreError:
                raise Unavailable from None
            if self.ranker.life is not life:  # another store was put in its place meanwhile: its numbers differ
                self.committer.lives.pop(ticket.life, None)
                raise Unavailable
        return lives[ticket.life] << NUMBER_BITS | ticket.number

    async def _again(self, number: int, outcome: int) -> FeedbackResponse:
        """A repeat is answered as the first one, when that is durable."""
        self.metrics.feedback("repeat").value += 1
        return await self._durable(OUTCOMES[outcome], self.committer.again(number))

    async def _durable(self, status: Status, waiting: Written | None) -> FeedbackResponse:
        if waiting is not None:
            await self.durable(waiting)
        return self.answered(status)

    def feedback_at_once(self, request: FeedbackRequest) -> tuple[Status, Written] | None:
        """`feedback` for a decision of this life that was not used and whose row is in memory: what it came to, and when that is
        durable. None for all others."""
        try:
            ticket = self.service.tokens.read(request.decision)
        except Forged:
            return None
        now = self.clock.now()
        place = self.ranker.rows.get(ticket.key)
        life = self.ranker.life
        number = life.id << NUMBER_BITS | ticket.number
        if (
            place is None
            or now - ticket.at > self.window
            or ticket.life != life.mark
            or ticket.store != life.store
            or self.committer.used.get(number)
            or self.committer.away is not None
            or self.service.stopping
            or not self.service.ready
        ):
            return None
        return self._count(place, ticket, number, request.clicked, now)

    def _count(self, place: Place, ticket: Ticket, number: int, clicked: str | None, now: float) -> tuple[Status, Written]:
        outcome = self.ranker.feedback(place, ticket, clicked, now)
        if self.service.recorder is not None:
            self.service.recorder.answered(number, clicked, now)
        return OUTCOMES[outcome], self.committer.durable(place, number, outcome)

    async def durable(self, waiting: Written) -> None:
        """Wait for a batch; raises `Unavailable` when it, or this row of it, could not be written."""
        try:
            written = await waiting
        except Away:
            raise Unavailable from None
        if not written:
            raise Unavailable

    async def _earlier(self, number: int) -> int:
        """The outcome of a decision of an earlier life: asked of the store, then remembered."""
        used = self.committer.used
        try:
            known = await self.service.loader.ask(self.service.store.outcomes, [number])
        except StoreError:
            raise Unavailable from None
        if self.committer.used is not used:  # another store was put in its place meanwhile
            raise Unavailable
        outcome = used.get(number) or known.get(number, 0)
        if outcome:
            used.put(number, outcome, self.clock.now())
        return outcome

    def answered(self, status: Status) -> FeedbackResponse:
        """The answer to feedback, counted."""
        self.metrics.feedback(status).value += 1
        return ANSWERS[status]
