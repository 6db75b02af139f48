"""Sliding windows and discounting, from the papers' sums over the history."""

from __future__ import annotations

import math

from twins.thompson import Words, beta
from twins.ucb1 import Averages


class Weighted(Averages):
    """Plays with weights: `weight(age)` is the weight of the play `age` plays ago."""

    def weight(self, age: int) -> float:
        raise NotImplementedError

    def sums(self, arm: int) -> tuple[float, float]:
        """Return the arm's weighted plays and rewards."""
        ages = range(len(self.history) - 1, -1, -1)
        mine = [(self.weight(age), value) for age, (played, value) in zip(ages, self.history, strict=True) if played == arm]
        return math.fsum(w for w, _ in mine), math.fsum(w * value for w, value in mine)

    def reward(self, arm: int, value: float) -> None:
        """Credit a click to the arm's latest play; its plays earn at most 1 each in total."""
        place = max(i for i, play in enumerate(self.history) if play[0] == arm)
        weight = self.weight(len(self.history) - 1 - place)
        n, earned = self.sums(arm)
        if weight > 0:
            self.history[place][1] += max(0.0, min(value, (n - earned) / weight))


class Window(Weighted):
    def __init__(self, n: int, window: int) -> None:
        super().__init__(n)
        self.window = window

    def weight(self, age: int) -> float:
        return 1.0 if age < self.window else 0.0


class Discount(Weighted):
    def __init__(self, n: int, gamma: float) -> None:
        super().__init__(n)
        self.gamma = gamma

    def weight(self, age: int) -> float:
        return self.gamma**age


def optimist(bandit: Weighted, offer: list[int], scale: float) -> int:
    """Return the arm with the highest average plus √(scale / plays); indices within rounding are equal."""
    index = {}
    for arm in offer:
        n, earned = bandit.sums(arm)
        index[arm] = math.inf if n == 0 else round(min(1.0, earned / n) + math.sqrt(scale / n), 9)
    return max(offer, key=lambda arm: (index[arm], -arm))


class SWUCB(Window):
    def __init__(self, n: int, window: int, xi: float) -> None:
        super().__init__(n, window)
        self.xi = xi

    def select(self, offer: list[int]) -> int:
        return optimist(self, offer, self.xi * math.log(min(self.played + 1, self.window)))


class DUCB(Discount):
    def __init__(self, n: int, gamma: float, xi: float) -> None:
        super().__init__(n, gamma)
        self.xi = xi

    def select(self, offer: list[int]) -> int:
        total = sum(self.sums(arm)[0] for arm in range(self.n))
        return optimist(self, offer, 4 * self.xi * max(0.0, math.log(total)) if total else 0.0)


def sample(bandit: Weighted, offer: list[int], words: Words, a: float, b: float) -> int:
    draws = {}
    for arm in sorted(offer):
        n, earned = bandit.sums(arm)
        draws[arm] = beta(words, a + min(n, earned), b + max(0.0, n - earned))  # a late click may outlast its play
    return max(offer, key=lambda arm: (draws[arm], -arm))


class SWTS(Window):
    def __init__(self, n: int, window: int, words: Words, a: float = 1.0, b: float = 1.0) -> None:
        super().__init__(n, window)
        self.words, self.a, self.b = words, a, b

    def select(self, offer: list[int]) -> int:
        return sample(self, offer, self.words, self.a, self.b)


class DTS(Discount):
    def __init__(self, n: int, gamma: float, words: Words, a: float = 1.0, b: float = 1.0) -> None:
        super().__init__(n, gamma)
        self.words, self.a, self.b = words, a, b

    def select(self, offer: list[int]) -> int:
        return sample(self, offer, self.words, self.a, self.b)
