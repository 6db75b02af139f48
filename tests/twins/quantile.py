"""The quantile box, one feature at a time, in plain Python: contexts are read from the start."""

from __future__ import annotations


class Quantile:
    """Robbins and Monro's search for the point beyond which a share of the values lies."""

    def __init__(self, share: float, side: int, at: float) -> None:
        self.share, self.side, self.at = share, side, at

    def beyond(self, value: float) -> bool:
        return (value - self.at) * self.side > 0

    def follow(self, value: float, step: float) -> None:
        self.at += self.side * step * (self.beyond(value) - self.share)


class Codes:
    """Misra and Gries's summary of the values beyond the sides, at most eight, with a memory of 16,384 contexts."""

    def __init__(self) -> None:
        self.counts: dict[float, float] = {}

    def fade(self) -> None:
        self.counts = {value: count * (1 - 1 / 16384) for value, count in self.counts.items()}

    def note(self, value: float) -> None:
        if value in self.counts or len(self.counts) < 8:
            self.counts[value] = self.counts.get(value, 0.0) + 1
        else:
            self.counts = {other: count - 1 for other, count in self.counts.items() if count > 1}


class Feature:
    def __init__(self, outer: float, inner: float, reach: float, margin: float, share: float) -> None:
        self.outer, self.inner, self.reach, self.margin, self.share = outer, inner, reach, margin, share
        self.seen = 0
        self.codes = Codes()

    def absorb(self, value: float) -> None:
        beyond = self.seen >= 64 and not self.bound(-1, early=False) <= value <= self.bound(1, early=False)
        self.codes.fade()
        if beyond:
            self.codes.note(value)
        self.seen += 1
        if self.seen == 1:
            self.average, self.deviation = value, 0.0
            self.pairs = {side: (Quantile(self.outer, side, value), Quantile(self.inner, side, value)) for side in (-1, 1)}
            return
        share, near = 1 / min(self.seen, 2048), value
        if self.seen > 16 and self.deviation > 0:
            near = min(max(value, self.average - 64 * self.deviation), self.average + 64 * self.deviation)
        self.deviation = (1 - share) * self.deviation + share * abs(near - self.average)
        self.average = (1 - share) * self.average + share * near
        if self.seen <= 16:
            self.pairs = {
                side: (Quantile(self.outer, side, self.average), Quantile(self.inner, side, self.average)) for side in (-1, 1)
            }
            return
        step = max(8 / 2048, 8 / (self.seen + 64) ** 0.9) * self.deviation
        for pair in self.pairs.values():
            for quantile in pair:
                quantile.follow(value, step)

    def bound(self, side: int, early: bool = True) -> float:
        """Where alarms begin; `early`: further out as long as the steps of the search are longer than they will be."""
        outer, inner = self.pairs[side]
        least = max(self.margin, 2 * 8 / 2048 * self.deviation) if self.seen > 16 else self.margin
        more = 0.0
        if early and self.seen > 16:
            more = 2 * (max(8 / 2048, 8 / (self.seen + 64) ** 0.9) ** 0.5 - (8 / 2048) ** 0.5) * self.deviation
        return outer.at + side * (max(least, self.reach * side * (outer.at - inner.at)) + more)

    def far(self, value: float) -> bool:
        return value > self.bound(1) or value < self.bound(-1)

    def code(self, value: float) -> bool:
        count = self.codes.counts.get(value, 0.0)
        return count >= 2 and count >= self.share * min(self.seen, 16384)


class QuantileBox:
    """The box of one feature. A missing value (NaN) is skipped: the feature has not seen this context."""

    def __init__(
        self,
        d: int,
        outer_tail: float = 0.02,
        inner_tail: float = 0.1,
        tail_factor: float = 1.5,
        min_margin: float = 0.0,
        warmup_contexts: int = 200,
        code_share: float = 0.005,
    ):
        self.features = [Feature(outer_tail, inner_tail, tail_factor, min_margin, code_share) for _ in range(d)]
        self.warm = warmup_contexts

    def predict(self, x: list[float]) -> bool:
        pairs = [(f, value) for f, value in zip(self.features, x, strict=True) if value == value and f.seen >= self.warm]
        return any(f.far(value) and not f.code(value) for f, value in pairs)

    def absorb(self, x: list[float]) -> None:
        if all(value != value for value in x):
            return
        for feature, value in zip(self.features, x, strict=True):
            if value == value:
                feature.absorb(value)
            else:
                feature.codes.fade()
