"""Feedback that arrives from a page that the user leaves. The signed decision is the permission; nobody waits for the outcome."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from swerve.service.availability import Unavailable
from swerve.service.feedback import Said
from swerve.service.metrics import Metrics
from swerve.service.namespaces import Within
from swerve.service.turns import Turns
from swerve.serving.messages import FeedbackRequest, Refused

log = logging.getLogger("swerve.service")


class Counting(Protocol):
    """What counts feedback for several decisions."""

    async def many(self, entries: Sequence[FeedbackRequest | Refused], turns: Turns, within: Within = None) -> list[Said]:
        """Count several entries and return their outcomes, in order, once they are durable."""


class Beacons:
    """The beacon side of a service."""

    def __init__(self, feedback: Counting, metrics: Metrics) -> None:
        self.feedback, self.metrics = feedback, metrics

    async def take(self, entries: Sequence[FeedbackRequest | Refused], route: str = "beacon") -> None:
        """Count entries, and return once those that are taken are durable.

        What becomes of an entry is counted and not told, so that nobody learns here which decisions are good. Raises `Unavailable`
        if none could be made durable: whoever can send them again should.
        """
        answers = await self.feedback.many(entries, Turns())
        for answer in answers:
            if answer is None:
                outcome = "unavailable"
            elif isinstance(answer, Refused):
                outcome = answer.code
                log.debug("an entry of a beacon was dropped", extra={"reason": outcome, "field": answer.field})
            else:
                outcome = answer.status
            self.metrics.beacons(route, outcome).value += 1
        if answers and all(answer is None for answer in answers):
            raise Unavailable
