"""SafeCl from its definition: negative iff no concept that fits all false labels calls the context an event."""

from __future__ import annotations

from collections.abc import Sequence


class Finite:
    def __init__(self, table: Sequence[Sequence[int]]) -> None:
        self.table = table
        self.false: list[int] = []

    def fits(self, concept: Sequence[int]) -> bool:
        return all(concept[context] == -1 for context in self.false)

    def predict(self, x: list[float], told: bool = False) -> bool:
        return any(concept[int(x[0])] == 1 and self.fits(concept) for concept in self.table)

    def learn(self, x: list[float]) -> None:
        self.false.append(int(x[0]))
