"""Posterior odds of a change over geometric splits, from the whole history of an arm and exact factorials; clicks only."""

from __future__ import annotations

import math

from twins.detectors import History, marks


def log_factor(before: list[float], after: list[float]) -> float:
    """Return ln of the Bayes factor; each part and the whole have the likelihood c! (n − c)! / (n + 1)!."""

    def unlikely(y: list[float]) -> int:
        return (len(y) + 1) * math.comb(len(y), int(sum(y)))

    return math.log(unlikely(before + after)) - math.log(unlikely(before)) - math.log(unlikely(after))


class Split(History):
    def __init__(self, arms: int, hazard: float, odds: float, levels: int, often: int) -> None:
        super().__init__(arms)
        self.hazard, self.odds, self.levels, self.often = hazard, odds, levels, often

    def starts(self, n: int) -> list[tuple[int, int]]:
        """Return level and start of each suffix that is not the whole record; the shortest have 4 plays."""
        return [(k, start) for k, start in enumerate(marks(n, self.levels)) if k >= 2 and start > 0]

    def evidence(self, arm: int, bonus: float = 0.0) -> tuple[float, int, float]:
        y = self.rewards[arm]
        best = (0.0, 0, 0.0)
        for k, start in self.starts(len(y)):
            if start >= 4 and len(y) % max(1, 2**k // self.often) == 0:
                after = y[start:]
                score = math.log(self.hazard * len(after) / self.odds) + log_factor(y[:start], after) + bonus
                best = max(best, (score, len(after), sum(after)), key=lambda found: found[0])
        return best

    def onset(self, arm: int) -> tuple[int, float]:
        y = self.rewards[arm]
        found = [(log_factor(y[:start], y[start:]) + math.log(len(y) - start), start) for _, start in self.starts(len(y))]
        start = max(found)[1] if found else 0
        return len(y) - start, sum(y[start:])

    def changed(self, y: list[float]) -> bool:
        arm = next(a for a, record in enumerate(self.rewards) if record is y)
        return self.evidence(arm)[0] > 0.0
