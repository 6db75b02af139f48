"""The quantile box, one feature at a time, in plain numbers: a record of contexts read from the start."""

from __future__ import annotations


class Quantile:
    """Robbins and Monro's search for the point that a share of the values lies beyond."""

    def __init__(self, share: float, side: int, at: float) -> None:
        self.share, self.side, self.at = share, side, at

    def beyond(self, value: float) -> bool:
        return (value - self.at) * self.side > 0

    def follow(self, value: float, step: float) -> None:
        self.at += self.side * step * (self.beyond(value) - self.share)


class Feature:
    def __init__(self, outer: float, inner: float, reach: float, margin: float) -> None:
        self.outer, self.inner, self.reach, self.margin = outer, inner, reach, margin
        self.seen = 0

    def absorb(self, value: float) -> None:
        self.seen += 1
        if self.seen == 1:
            self.average, self.deviation = value, 0.0
            self.pairs = {side: (Quantile(self.outer, side, value), Quantile(self.inner, side, value)) for side in (-1, 1)}
            return
        share = 1 / min(self.seen, 2048)
        self.deviation = (1 - share) * self.deviation + share * abs(value - self.average)
        self.average = (1 - share) * self.average + share * value
        if self.seen <= 16:
            self.pairs = {
                side: (Quantile(self.outer, side, self.average), Quantile(self.inner, side, self.average)) for side in (-1, 1)
            }
            return
        step = max(8 / 2048, 8 / (self.seen + 64) ** 0.9) * self.deviation
        for pair in self.pairs.values():
            for quantile in pair:
                quantile.follow(value, step)

    def bound(self, side: int) -> float:
        outer, inner = self.pairs[side]
        return outer.at + side * max(self.margin, self.reach * side * (outer.at - inner.at))

    def far(self, value: float) -> bool:
        return value > self.bound(1) or value < self.bound(-1)


class QuantileBox:
    def __init__(
        self,
        d: int,
        outer_tail: float = 0.02,
        inner_tail: float = 0.1,
        tail_factor: float = 1.5,
        min_margin: float = 0.0,
        warmup_contexts: int = 200,
    ):
        self.features = [Feature(outer_tail, inner_tail, tail_factor, min_margin) for _ in range(d)]
        self.warm = warmup_contexts

    def predict(self, x: list[float]) -> bool:
        return self.features[0].seen >= self.warm and any(f.far(value) for f, value in zip(self.features, x, strict=True))

    def absorb(self, x: list[float]) -> None:
        for feature, value in zip(self.features, x, strict=True):
            feature.absorb(value)
