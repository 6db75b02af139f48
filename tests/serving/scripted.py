"""A ranker without a service around it, for tests that call it directly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.core.spec import Spec
from swerve.policies import policy
from swerve.serving.messages import Event
from swerve.serving.notes import write_down
from swerve.serving.outcomes import Outcome
from swerve.serving.place import Place
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Decided, Prepared
from swerve.serving.settings import Settings
from swerve.signals import Senses
from swerve.store.journal import Journal

KEY = b"q" * 32


def ranker(spec: str | Spec = "ts", *, arms: int = 8, **settings: Any) -> Ranker:
    """A ranker for up to so many candidates. Unless told otherwise it fills one slot, and each request gets a new decision."""
    chosen = policy(spec) if isinstance(spec, str) else spec
    plain = {"policy": chosen, "senses": Senses(), "plan": (0,), "numbers": (), "arms": arms, "slots": 1, "steady": 0.0}
    return Ranker(Settings(**{**plain, **settings}), KEY)


class Recorder:
    """Writes everything that a ranker does into a journal, as a service does into that of its store."""

    def __init__(self, folder: Path, config: dict[str, Any], ranker: Ranker, now: float) -> None:
        self.notes, self.journal = write_down(ranker, config, now), Journal(folder)

    def close(self, now: float) -> None:
        self.journal.put(*self.notes.take())
        self.journal.sync(now)
        self.journal.close()


class Script:
    """Requests and user events to one ranker, one after the other."""

    def __init__(self, made: Ranker) -> None:
        self.ranker, self.now = made, 1_000_000.0
        self.outcomes: dict[int, Outcome] = {}  # by decision, as the store keeps them

    def place(self, query: str, arms: int = 1) -> Place:
        key = self.ranker.key_of(query)
        found = self.ranker.rows.get(key) or self.ranker.fresh(key, query, arms, self.now)
        assert found is not None
        return found

    def asking(self, query: str, candidates: list[Any], **more: Any) -> tuple[Place, Prepared]:
        """A request, with its row."""
        asked = {"slots": self.ranker.settings.slots, **more}
        return self.place(query, len(candidates)), Prepared(self.ranker.key_of(query), query, candidates, **asked)

    def rank(self, query: str, candidates: list[Any], *, step: float = 1.0, **more: Any) -> Decided:
        self.now += step
        decided = self.ranker.rank([self.asking(query, candidates, **more)], self.now)[0]
        assert decided is not None
        return decided

    def click(
        self,
        decided: Decided,
        clicked: str | int | Sequence[str | int] | None,
        *,
        shown: Sequence[str] | None = None,
        step: float = 0.0,
    ) -> int:
        """Report clicks, by id or by position, and what was shown if that differs; return what became of the decision."""
        return self.respond(decided, clicked, shown=shown, step=step).status

    def respond(
        self,
        decided: Decided,
        clicked: str | int | Sequence[str | int] | None,
        *,
        shown: Sequence[str] | None = None,
        step: float = 0.0,
    ) -> Outcome:
        """As `click`, with everything that is kept of the decision."""
        self.now += step
        several = [] if clicked is None else [clicked] if isinstance(clicked, str | int) else clicked
        events = [Event("click", position=one) if isinstance(one, int) else Event("click", one) for one in several]
        ticket, number = ticket_of(decided, self.ranker.life), decided.signed.number
        before = self.outcomes.get(number) or Outcome(0, ticket.seen)
        place = self.ranker.rows.places[decided.signed.key]
        self.outcomes[number] = self.ranker.feedback(place, ticket, number, before, events, shown, self.now)
        return self.outcomes[number]
