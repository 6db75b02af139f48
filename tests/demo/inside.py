"""The service's ranker behind the client's interface, without a network or a store; the test sets its time, as the demo does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from swerve.service.config.load import resolve
from swerve.service.config.settings import settings_of
from swerve.service.config.toml import Document
from swerve.serving.messages import Event, normalise
from swerve.serving.outcomes import Outcome
from swerve.serving.place import Place
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Prepared
from swerve.serving.tokens import Ticket
from swerve_client.forms import RankArguments, Ranking, Report

#: A service with the number `news`, and with a fixed seed.
NEWS: dict[str, Any] = {"signals": {"numbers": {"news": "count"}}, "policy": {"seed": 1}}


class Inside:
    """`rank_many` and `feedback_many` of a client, over a ranker in this process."""

    def __init__(self, **policy: Any) -> None:
        config = resolve(Document("", {**NEWS, "policy": {**NEWS["policy"], **policy}}, {}))
        self.ranker = Ranker(settings_of(config), b"a key for tests only, 32 bytes..")
        self.now = 0.0
        self.times: list[float] = []
        self.asked: list[RankArguments] = []
        self.clicked: list[str] = []
        self.shown: list[tuple[float, str, str]] = []  # time, query, top
        self._tickets: dict[str, tuple[Place, Ticket]] = {}

    def advance(self, now: float) -> None:
        self.now = now
        self.times.append(now)

    def rank_many(self, requests: Iterable[RankArguments]) -> list[Ranking]:
        asked = list(requests)
        self.asked += asked
        pairs = []
        for one in asked:
            text = normalise(one["query"])
            key = self.ranker.key_of(text)
            place = self.ranker.rows.get(key) or self.ranker.fresh(key, text, len(one["candidates"]), self.now)
            assert place is not None
            slots = self.ranker.settings.slots
            pairs.append((place, Prepared(key, text, list(one["candidates"]), None, one["signals"], one["session"], slots)))
        out = []
        for (place, request), decided in zip(pairs, self.ranker.rank(pairs, self.now), strict=True):
            assert decided is not None
            self.shown.append((self.now, request.text, decided.ranking[0]))
            number = str(decided.signed.number)
            self._tickets[number] = place, ticket_of(decided, self.ranker.life)
            out.append(Ranking(number, decided.ranking, phase=decided.phase))
        return out

    def feedback_many(self, reports: Iterable[Report]) -> list[bool]:
        out = []
        for decision, clicked, *_ in reports:
            assert decision is not None and isinstance(clicked, str)
            place, ticket = self._tickets.pop(decision)
            self.clicked.append(clicked)
            before, events = Outcome(0, ticket.seen), [Event("click", clicked)]
            out.append(bool(self.ranker.feedback(place, ticket, int(decision), before, events, None, self.now).status))
        return out

    def alarms(self, query: str) -> int:
        """Return the alarms that the query's ledger counts."""
        place = self.ranker.rows.get(self.ranker.key_of(query))
        return 0 if place is None else int(place.record.ledger.alarms)
