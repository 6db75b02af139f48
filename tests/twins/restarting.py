"""A bandit that starts over at a detector's alarm, and one with forced exploration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


class Restarting:
    """Starts over at an alarm; the detector gets a play when the next round begins."""

    def __init__(self, bandit: Any, detector: Any, scope: str = "all") -> None:
        self.bandit, self.detector, self.scope = bandit, detector, scope
        self.starts, self.alarms = 1, 0
        self.open: list[float] = []  # [arm, earned] of the incomplete play

    def decide(self, x: list[float], told: bool, offer: list[int], now: float) -> int:
        if self.open and self.detector.watch(int(self.open[0]), self.open[1]):
            self.alarms += 1
            if self.scope == "all":
                self.bandit.restart()
                self.detector.restart()
                self.starts += 1
            else:
                self.bandit.evict(int(self.open[0]))
                self.detector.evict(int(self.open[0]))
        arm = int(self.bandit.select(offer))
        self.bandit.show(arm)
        self.open = [arm, 0.0]
        return arm

    def reward(self, arm: int, value: float) -> None:
        self.bandit.reward(arm, value)
        if self.open and self.open[0] == arm:
            self.open[1] = min(1.0, self.open[1] + value)

    def evict(self, arm: int) -> None:
        self.bandit.evict(arm)
        self.detector.evict(arm)
        if self.open and self.open[0] == arm:
            self.open = []


class Forced:
    def __init__(
        self, bandit: Any, rate: float, order: str, growing: bool = False, uniform: Callable[[], float] | None = None
    ) -> None:
        self.bandit, self.rate, self.order, self.growing, self.uniform = bandit, rate, order, growing, uniform
        self.t, self.starts = 0, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bandit, name)

    def restart(self) -> None:
        self.t, self.starts = 0, self.starts + 1
        self.bandit.restart()

    def select(self, offer: list[int]) -> int:
        own = int(self.bandit.select(offer))
        rate = min(1.0, self.rate * math.sqrt(self.starts)) if self.growing else self.rate
        if self.order == "cycle":
            turn = self.t % max(len(offer), math.floor(len(offer) / rate))
            return sorted(offer)[turn] if turn < len(offer) else own
        assert self.uniform is not None
        if self.uniform() >= rate:
            return own
        return sorted(offer)[int(self.uniform() * len(offer))]

    def show(self, arm: int) -> None:
        self.t += 1
        self.bandit.show(arm)
