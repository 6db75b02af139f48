"""Thompson sampling, with the published samplers on a given stream of 64-bit words.

Normal: ziggurat of 256 layers (Marsaglia and Tsang 2000), the layer from a word's low byte and the coordinate from its high bits.
Gamma: Marsaglia and Tsang's cubed normal (2000), with the power of a uniform for shapes below 1. Beta: two gammas.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from twins.splitmix import as_unit
from twins.ucb1 import Averages

Words = Callable[[], int]
LAYERS, TAIL, AREA = 256, 3.6541528853610088, 0.00492867323399


def density(x: float) -> float:
    return math.exp(-x * x / 2)


@functools.cache
def edges() -> list[float]:
    """Return the right edges of the layers from the widest (a rectangle with the tail's area) to the top, where x = 0."""
    out = [AREA / density(TAIL), TAIL]
    while len(out) < LAYERS:
        out.append(math.sqrt(-2 * math.log(AREA / out[-1] + density(out[-1]))))
    return [*out, 0.0]


def normal(words: Words) -> float:
    while True:
        bits = words()
        layer, u = bits % 256, 2 * as_unit(bits) - 1
        x = u * edges()[layer]
        if abs(x) < edges()[layer + 1]:
            return x
        if layer == 0:
            sign = 1 if u > 0 else -1
            while True:
                deep = -math.log(1 - as_unit(words())) / TAIL
                if -2 * math.log(1 - as_unit(words())) > deep * deep:
                    return sign * (TAIL + deep)
        low, high = density(edges()[layer]), density(edges()[layer + 1])
        if low + as_unit(words()) * (high - low) < density(x):
            return x


def gamma(words: Words, shape: float) -> float:
    if shape < 1:
        power = (1 - as_unit(words())) ** (1 / shape)
        return power * gamma(words, shape + 1)
    d = shape - 1 / 3
    while True:
        x = normal(words)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0:
            u = 1 - as_unit(words())
            if u < 1 - 0.0331 * x**4 or math.log(u) < x * x / 2 + d * (1 - v + math.log(v)):
                return d * v


def beta(words: Words, a: float, b: float) -> float:
    x = gamma(words, a)
    return x / (x + gamma(words, b))


class Thompson(Averages):
    def __init__(self, n: int, words: Words, a: float = 1.0, b: float = 1.0) -> None:
        super().__init__(n)
        self.words, self.a, self.b = words, a, b

    def select(self, offer: list[int]) -> int:
        draws = {}
        for arm in sorted(offer):
            clicks = sum(value for played, value in self.history if played == arm)
            draws[arm] = beta(self.words, self.a + clicks, self.b + self.plays(arm) - clicks)
        return max(offer, key=lambda arm: (draws[arm], -arm))
