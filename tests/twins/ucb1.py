"""UCB1(α, t0) from Algorithm 2: index μ + α·√(8·ln(t0 + t)/(n + plays_offset)), every number recomputed from the history."""

from __future__ import annotations

import math


class Averages:
    """A list of plays with their rewards; an evicted arm loses its plays."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.restart()

    def restart(self) -> None:
        self.history: list[list[float]] = []  # [arm, earned], in the order of play; arm −1 after an eviction

    def show(self, arm: int) -> None:
        self.history.append([arm, 0.0])

    def reward(self, arm: int, value: float) -> None:
        """Credit a reward to a play of the arm; which play does not affect the average."""
        latest = [play for play in self.history if play[0] == arm][-1]
        latest[1] += value

    def evict(self, arm: int) -> None:
        for play in self.history:
            if play[0] == arm:
                play[0] = -1

    @property
    def played(self) -> int:
        return len(self.history)

    def plays(self, arm: int) -> int:
        return sum(play[0] == arm for play in self.history)

    def mean(self, arm: int) -> float:
        earned = [value for played, value in self.history if played == arm]
        return sum(earned) / len(earned) if earned else 0.0


class UCB1(Averages):
    def __init__(self, n: int, alpha: float = 0.5, t0: float = 0.0, plays_offset: float = 0.0) -> None:
        super().__init__(n)
        self.alpha, self.t0, self.plays_offset = alpha, t0, plays_offset

    def select(self, offer: list[int]) -> int:
        t = self.played + 1
        index = {}
        for arm in offer:
            weight = self.plays(arm) + self.plays_offset
            index[arm] = math.inf if weight == 0 else self.mean(arm) + self.alpha * math.sqrt(8 * math.log(self.t0 + t) / weight)
        return max(offer, key=lambda arm: (index[arm], -arm))
