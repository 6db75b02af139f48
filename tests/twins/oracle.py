"""ORA: starts over in the rounds that are events."""

from __future__ import annotations

from typing import Any


class Oracle:
    def __init__(self, bandit: Any) -> None:
        self.bandit = bandit
        self.starts = 1

    def decide(self, x: list[float], told: bool, offer: list[int], now: float) -> int:
        self.consulted, self.alarm, self.label = True, told, None
        self.restarts = int(told)
        if told:
            self.bandit.restart()
            self.starts += 1
        arm = int(self.bandit.select(offer))
        self.bandit.show(arm)
        return arm

    def reward(self, arm: int, value: float) -> None:
        self.bandit.reward(arm, value)


class Plain:
    """A bandit alone, with the same interface."""

    def __init__(self, bandit: Any) -> None:
        self.bandit, self.starts = bandit, 0
        self.consulted, self.alarm, self.label, self.restarts = False, False, None, 0

    def decide(self, x: list[float], told: bool, offer: list[int], now: float) -> int:
        arm = int(self.bandit.select(offer))
        self.bandit.show(arm)
        return arm

    def reward(self, arm: int, value: float) -> None:
        self.bandit.reward(arm, value)
