"""The guess of Algorithm 2, lines 7 to 10, over any bandit that keeps its history."""

from __future__ import annotations

from typing import Any


class Testable:
    __test__ = False

    def __init__(self, bandit: Any, length: int, epsilon: float) -> None:
        self.bandit, self.length, self.epsilon = bandit, length, epsilon

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bandit, name)

    def leader(self) -> int:
        """Return the arm played most often after round ⌊L/2⌋; the lowest number among equals."""
        late = [play[0] for play in self.bandit.history[self.length // 2 :]]
        return max(range(self.bandit.n), key=lambda arm: (late.count(arm), -arm))

    def guess(self) -> tuple[set[int], set[int]]:
        return sort_out(self.bandit, self.leader(), self.epsilon)


def sort_out(bandit: Any, leader: int, epsilon: float) -> tuple[set[int], set[int]]:
    plus, minus = set(), set()
    for arm in range(bandit.n):
        if bandit.plays(arm):
            estimate = bandit.mean(leader) - bandit.mean(arm)
            if estimate <= epsilon / 4:
                plus.add(arm)
            if estimate > epsilon / 2:
                minus.add(arm)
    return plus, minus


def guess_of_round(arms: list[int], rewards: list[float], t: int, n: int, epsilon: float) -> tuple[set[int], set[int]]:
    """Return the t-th round guess of a recorded run, by a full recount."""
    earned: dict[int, list[float]] = {arm: [] for arm in range(n)}
    for arm, value in zip(arms[:t], rewards[:t], strict=True):
        earned[arm].append(value)
    mean = {arm: sum(values) / len(values) for arm, values in earned.items() if values}
    late = arms[t // 2 : t]
    leader = min(mean, key=lambda arm: (-late.count(arm), arm))
    gap = {arm: mean[leader] - mean[arm] for arm in mean}
    return {a for a in gap if gap[a] <= epsilon / 4}, {a for a in gap if gap[a] > epsilon / 2}
