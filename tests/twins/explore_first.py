"""The simple testable bandit: random arms for L rounds, then a bandit that has seen them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twins.testable import sort_out


class ExploreFirst:
    def __init__(self, bandit: Any, length: int, epsilon: float, uniform: Callable[[], float]) -> None:
        self.bandit, self.length, self.epsilon, self.uniform = bandit, length, epsilon, uniform

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bandit, name)

    def select(self, offer: list[int]) -> int:
        if self.bandit.played >= self.length:
            return int(self.bandit.select(offer))
        return sorted(offer)[int(self.uniform() * len(offer))]

    def guess(self) -> tuple[set[int], set[int]]:
        seen = [arm for arm in range(self.bandit.n) if self.bandit.plays(arm)]
        best = max(seen, key=lambda arm: (self.bandit.mean(arm), -arm), default=0)
        return sort_out(self.bandit, best, self.epsilon)
