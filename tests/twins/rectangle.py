"""SafeCl on axis-parallel rectangles, from all false-labelled contexts each time."""

from __future__ import annotations


class Rectangle:
    def __init__(self, margin: float) -> None:
        self.margin = margin
        self.false: list[list[float]] = []

    def predict(self, x: list[float], told: bool = False) -> bool:
        return not self.false or self.distance(x) >= self.margin

    def distance(self, x: list[float]) -> float:
        """Return the L∞ distance from x to the smallest rectangle around the false-labelled contexts."""
        sides = list(zip(*self.false, strict=True))
        return max(max(min(side) - value, value - max(side), 0.0) for side, value in zip(sides, x, strict=True))

    def learn(self, x: list[float]) -> None:
        self.false.append(list(x))

    def box(self) -> tuple[list[float], list[float]] | None:
        sides = list(zip(*self.false, strict=True))
        return ([min(side) for side in sides], [max(side) for side in sides]) if self.false else None
