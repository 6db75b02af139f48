"""Change detectors from their papers, every number recomputed from the whole history of an arm."""

from __future__ import annotations

import math
from fractions import Fraction

from twins.kl_ucb import kl


class History:
    """The rewards of each arm, play by play."""

    def __init__(self, arms: int) -> None:
        self.rewards: list[list[float]] = [[] for _ in range(arms)]

    def restart(self) -> None:
        self.rewards = [[] for _ in self.rewards]

    def evict(self, arm: int) -> None:
        self.rewards[arm] = []

    def watch(self, arm: int, value: float) -> bool:
        self.rewards[arm].append(value)
        return self.changed(self.rewards[arm])

    def changed(self, y: list[float]) -> bool:
        raise NotImplementedError


class CUSUM(History):
    def __init__(self, arms: int, warmup: int, drift: float, threshold: float) -> None:
        super().__init__(arms)
        self.warmup, self.drift, self.threshold = warmup, drift, threshold

    def changed(self, y: list[float]) -> bool:
        if len(y) <= self.warmup:
            return False
        average = sum(y[: self.warmup]) / self.warmup
        # max(0, ·) at each step is the highest sum over all suffixes of the deviations, the empty one included
        for sign in (1, -1):
            away = [sign * (value - average) - self.drift for value in y[self.warmup :]]
            if max(math.fsum(away[start:]) for start in range(len(away))) >= self.threshold:
                return True
        return False


class MUCB(History):
    def __init__(self, arms: int, window: int, threshold: float) -> None:
        super().__init__(arms)
        self.window, self.threshold = window, threshold

    def changed(self, y: list[float]) -> bool:
        half = self.window // 2
        return len(y) >= self.window and abs(sum(y[-half:]) - sum(y[-2 * half : -half])) > self.threshold


def marks(n: int, levels: int) -> list[int]:
    """Return the start of each level's suffix after n plays, by replaying the rule from the first play."""
    places = [0] * levels
    for play in range(n):  # `play` plays come before this one
        for k in range(levels - 1, 0, -1):
            if play % 2**k == 0:
                places[k] = places[k - 1]
        places[0] = play
    return places


def starts(n: int, every: int, levels: int) -> list[int]:
    """Return the splits to test after n plays; long suffixes only after every eighth of 2^k plays."""
    if n % every:
        return []
    return [start for k, start in enumerate(marks(n, levels)) if start > 0 and (2**k // 8 < 8 or n % (2**k // 8) < every)]


class GLR(History):
    def __init__(self, arms: int, delta: float, every: int, levels: int) -> None:
        super().__init__(arms)
        self.delta, self.every, self.levels = delta, every, levels

    def changed(self, y: list[float]) -> bool:
        n, mu = len(y), sum(y) / len(y)
        for s in starts(n, self.every, self.levels):
            before, after = sum(y[:s]) / s, sum(y[s:]) / (n - s)
            if s * kl(before, mu) + (n - s) * kl(after, mu) > math.log(n**1.5 / self.delta):
                return True
        return False


def forecast(y: list[float]) -> Fraction:
    """Return the probability that Laplace's forecaster gives to the clicks y, one by one."""
    out, clicks = Fraction(1), 0
    for n, click in enumerate(y):
        chance = Fraction(clicks + 1, n + 2)
        out *= chance if click else 1 - chance
        clicks += int(click)
    return out


class BOCPD(History):
    """ϑ_s = η · exp(−L̂_{s:t}) · exp(−L̂_{1:s−1}) against ϑ_1 = exp(−L̂_{1:t}), in exact fractions; clicks only."""

    def __init__(self, arms: int, delta: float, every: int, levels: int) -> None:
        super().__init__(arms)
        self.delta, self.every, self.levels = delta, every, levels

    def changed(self, y: list[float]) -> bool:
        prior = Fraction(self.delta) / len(y)
        first = forecast(y)
        return any(prior * forecast(y[s:]) * forecast(y[:s]) > first for s in starts(len(y), self.every, self.levels))
