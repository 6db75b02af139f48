"""Feedback for several decisions, given to the workers that have the records of their queries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from swerve.service.crew import Crew
from swerve.service.feedback import Feedback, Said
from swerve.service.namespaces import Within
from swerve.service.siblings import Away, Sibling
from swerve.service.turns import Turns
from swerve.serving.messages import Error, FeedbackRequest, FeedbackResponse, Refused, encode
from swerve.serving.tokens import Forged

#: The path at which a worker takes feedback from another one.
PATH = b"/inner/feedback"
#: Seconds that a sibling has to make feedback durable.
PATIENCE = 10.0


class Given(msgspec.Struct):
    """Feedback for another worker, and the namespaces that the caller may use."""

    entries: list[FeedbackRequest]
    within: list[str] | None


class Told(msgspec.Struct):
    """The outcome of an entry; without `said` and `error` it must be sent again."""

    said: FeedbackResponse | None = None
    status: int = 0
    error: Error | None = None


GIVEN, TOLD = msgspec.json.Decoder(Given), msgspec.json.Decoder(list[Told])


class Spreading:
    """Does what `Feedback` does with several entries, where several workers have the records."""

    def __init__(self, feedback: Feedback, crew: Crew) -> None:
        self.feedback, self.crew = feedback, crew

    async def many(self, entries: Sequence[FeedbackRequest | Refused], turns: Turns, within: Within = None) -> list[Said]:
        """Count several entries and return their outcomes, in order, once they are durable."""
        groups: dict[Sibling | None, list[int]] = {}
        for at, entry in enumerate(entries):
            await turns()
            groups.setdefault(self._owner(entry), []).append(at)
        out: list[Said] = [None] * len(entries)

        async def one(sibling: Sibling | None, places: list[int]) -> None:
            some = [entries[at] for at in places]
            said = await (self.feedback.many(some, turns, within) if sibling is None else self._give(sibling, some, within))
            for at, what in zip(places, said, strict=True):
                out[at] = what

        await asyncio.gather(*(one(sibling, places) for sibling, places in groups.items()))
        return out

    def _owner(self, entry: FeedbackRequest | Refused) -> Sibling | None:
        if isinstance(entry, Refused):
            return None
        try:
            return self.crew.having(self.feedback.tokens.read(entry.decision))
        except Forged:
            return None  # refused here

    async def _give(self, sibling: Sibling, entries: Sequence[FeedbackRequest | Refused], within: Within) -> list[Said]:
        body = encode({"entries": entries, "within": None if within is None else sorted(within)})
        nothing: list[Said] = [None] * len(entries)
        try:
            reply = await sibling.ask(b"POST", PATH, (), body, PATIENCE)
        except Away:
            reply = None
        self.feedback.metrics.passed_on("answered" if reply is not None and reply.status == 200 else "given_up").value += 1
        if reply is None or reply.status != 200:
            return nothing
        out: list[Said] = []
        for told in TOLD.decode(reply.body):
            if told.error is not None:
                error = told.error
                out.append(Refused(told.status, error.code, error.message, error.field, error.limit))
            else:
                out.append(told.said)
        return out

    async def take(self, body: bytes) -> bytes:
        """Count the feedback that another worker gives; return its outcomes."""
        given = GIVEN.decode(body)
        within = None if given.within is None else frozenset(given.within)
        said = await self.feedback.many(given.entries, Turns(), within)
        return encode([Told(None, one.status, one.error) if isinstance(one, Refused) else Told(one) for one in said])
