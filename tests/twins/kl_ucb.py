"""KL-UCB (Garivier and Cappé 2011): the bound by plain bisection."""

from __future__ import annotations

import math

from twins.ucb1 import Averages


def kl(p: float, q: float) -> float:
    """Return the divergence of two Bernoulli distributions; infinite where q excludes what p allows."""
    out = 0.0
    for a, b in ((p, q), (1 - p, 1 - q)):
        if a > 0:
            out += a * math.log(a / b) if b > 0 else math.inf
    return out


def upper(mu: float, level: float) -> float:
    low, high = mu, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if kl(mu, middle) <= level else (low, middle)
    return low if high < 1.0 else high


class KLUCB(Averages):
    def __init__(self, n: int, c: float = 0.0) -> None:
        super().__init__(n)
        self.c = c

    def bound(self, arm: int) -> float:
        log_t = math.log(self.played + 1)
        level = log_t + (self.c * math.log(log_t) if self.c and log_t > 1 else 0.0)
        return upper(self.mean(arm), level / self.plays(arm))

    def select(self, offer: list[int]) -> int:
        fresh = [arm for arm in offer if not self.plays(arm)]
        if fresh:
            return min(fresh)
        # bounds closer than the accuracy of both searches are equal: the lowest arm wins
        bounds = {arm: round(self.bound(arm), 8) for arm in offer}
        return max(offer, key=lambda arm: (bounds[arm], -arm))
