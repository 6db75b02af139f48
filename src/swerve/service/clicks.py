"""Feedback: what a token says, whether it was used before, what it teaches, and when that is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swerve.service.committer import Away, Written
from swerve.service.kernels import LATE, LEARNED
from swerve.service.rows import Place
from swerve.service.schemas import FeedbackRequest, FeedbackResponse, Refused
from swerve.service.tokens import Forged, Ticket
from swerve.store.protocol import StoreError

if TYPE_CHECKING:
    from swerve.service.service import Service

WAIT = 1.0  # seconds that feedback waits for a row

OUTCOMES = {LEARNED: "learned", LATE: "late"}
ANSWERS = {"learned": FeedbackResponse("learned"), "late": FeedbackResponse("late"), "expired": FeedbackResponse("expired")}


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
        if now - ticket.at > self.window:
            return self.answered("expired")
        if self.committer.away is not None or self.service.stopping or not self.service.ready:
            raise Unavailable
        used = self.committer.used
        outcome = used.get(ticket.number) or (0 if used.ours(ticket.number) else await self._earlier(ticket))
        place = self.ranker.rows.get(ticket.key)
        if place is None and not outcome:
            found = await self.service.loader.load(ticket.key, WAIT, begin=True)
            if isinstance(found, str):
                raise Unavailable
            place = found
            outcome = self.committer.used.get(ticket.number)  # its repeat may have been quicker
        waiting: Written | None
        if outcome or place is None:
            self.metrics.feedback("repeat").value += 1
            status, waiting = OUTCOMES[outcome], self.committer.again(ticket.number)
        else:
            status, waiting = self._count(place, ticket, request.clicked, now)
        if waiting is not None:
            await self.durable(waiting)
        return self.answered(status)

    def feedback_at_once(self, request: FeedbackRequest) -> tuple[str, Written] | None:
        """`feedback` for a decision of this start that was not used and whose row is in memory: what it came to, and when that is
        durable. None for all others."""
        try:
            ticket = self.service.tokens.read(request.decision)
        except Forged:
            return None
        now = self.clock.now()
        place = self.ranker.rows.get(ticket.key)
        used = self.committer.used
        if (
            place is None
            or now - ticket.at > self.window
            or not used.ours(ticket.number)
            or used.get(ticket.number)
            or self.committer.away is not None
            or self.service.stopping
            or not self.service.ready
        ):
            return None
        return self._count(place, ticket, request.clicked, now)

    def _count(self, place: Place, ticket: Ticket, clicked: str | None, now: float) -> tuple[str, Written]:
        outcome = self.ranker.feedback(place, ticket, clicked, now)
        if self.service.recorder is not None:
            self.service.recorder.answered(ticket.number, clicked, now)
        return OUTCOMES[outcome], self.committer.durable(place, ticket.number, outcome)

    async def durable(self, waiting: Written) -> None:
        """Wait for a batch; raises `Unavailable` when it, or this row of it, could not be written."""
        try:
            written = await waiting
        except Away:
            raise Unavailable from None
        if not written:
            raise Unavailable

    async def _earlier(self, ticket: Ticket) -> int:
        """The outcome of a decision that an earlier start issued: asked of the store, then remembered."""
        try:
            known = await self.service.loader.ask(self.service.store.outcomes, [ticket.number])
        except StoreError:
            raise Unavailable from None
        outcome = self.committer.used.get(ticket.number) or known.get(ticket.number, 0)
        if outcome:
            self.committer.used.put(ticket.number, outcome, self.clock.now())
        return outcome

    def answered(self, status: str) -> FeedbackResponse:
        """The answer to feedback, counted."""
        self.metrics.feedback(status).value += 1
        return ANSWERS[status]
