"""A ranker without a service around it, for tests that call it directly."""

from __future__ import annotations

from typing import Any

from swerve.core.spec import Spec
from swerve.policies import policy
from swerve.serving.ranker import Ranker
from swerve.serving.replay import ticket_of
from swerve.serving.requests import Decided, Prepared
from swerve.serving.rows import Place
from swerve.serving.settings import Settings
from swerve.signals import Senses

KEY = b"q" * 32


def ranker(spec: str | Spec = "ts", *, arms: int = 8, **settings: Any) -> Ranker:
    """Return a ranker for up to this many candidates."""
    chosen = policy(spec) if isinstance(spec, str) else spec
    return Ranker(Settings(**{"policy": chosen, "senses": Senses(), "plan": (0,), "numbers": (), "arms": arms, **settings}), KEY)


class Script:
    """Sends requests and clicks to one ranker, one by one."""

    def __init__(self, made: Ranker) -> None:
        self.ranker, self.now = made, 1_000_000.0

    def place(self, query: str, arms: int = 1) -> Place:
        key = self.ranker.key_of(query)
        found = self.ranker.rows.get(key) or self.ranker.fresh(key, query, arms, self.now)
        assert found is not None
        return found

    def asking(self, query: str, candidates: list[Any], **more: Any) -> tuple[Place, Prepared]:
        """Return a request with its row."""
        return self.place(query, len(candidates)), Prepared(self.ranker.key_of(query), query, candidates, **more)

    def rank(self, query: str, candidates: list[Any], *, step: float = 1.0, **more: Any) -> Decided:
        self.now += step
        decided = self.ranker.rank([self.asking(query, candidates, **more)], self.now)[0]
        assert decided is not None
        return decided

    def click(self, decided: Decided, clicked: str | None, *, step: float = 0.0, at: float | None = None) -> int:
        shown = self.now if at is None else at
        self.now += step
        return self.ranker.feedback(
            self.ranker.rows.places[decided.signed.key], ticket_of(decided, shown, self.ranker.life), clicked, self.now
        )
