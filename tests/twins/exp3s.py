"""EXP3.S as Auer, Cesa-Bianchi, Freund and Schapire (2002) print it: one update after each round."""

from __future__ import annotations

import math
from collections.abc import Callable


class EXP3S:
    def __init__(self, n: int, gamma: float, alpha: float, uniform: Callable[[], float]) -> None:
        self.gamma, self.alpha, self.uniform = gamma, alpha, uniform
        self.weights = [1.0] * n

    def probabilities(self, offer: list[int]) -> dict[int, float]:
        total = sum(self.weights[arm] for arm in offer)
        return {arm: (1 - self.gamma) * self.weights[arm] / total + self.gamma / len(offer) for arm in offer}

    def select(self, offer: list[int]) -> int:
        u, below = self.uniform(), 0.0
        for arm, p in self.probabilities(offer).items():
            below += p
            if u < below:
                return arm
        return offer[-1]

    def update(self, offer: list[int], arm: int, value: float) -> None:
        p = self.probabilities(offer)
        total = sum(self.weights[other] for other in offer)
        for other in offer:
            estimate = value / p[arm] if other == arm else 0.0
            self.weights[other] *= math.exp(self.gamma * estimate / len(offer))
            self.weights[other] += math.e * self.alpha / len(offer) * total
