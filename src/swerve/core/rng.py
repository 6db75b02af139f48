"""Randomness as state: splitmix64 words, split by path in Python, drawn from records in kernels.

One word is a stream. `split(seed, "clicks", query)` names a stream by its path, so that every draw has an address of its
own and no two purposes share one. In a kernel, `draw(row)` advances the word stored in `row.rng`; `at(word, t)` is the t-th
word of a stream without walking to it, which is how environments give every policy the same clicks.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numba.extending import overload

from swerve.core.verbs import kernel

MASK = (1 << 64) - 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
S11, S27, S30, S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
ULP = 2.0**-53


def wrap_add(a: Any, b: Any) -> np.uint64:
    """a + b modulo 2^64. (NumPy scalars warn when they wrap; compiled integers just wrap.)"""
    return np.uint64((int(a) + int(b)) & MASK)


def wrap_multiply(a: Any, b: Any) -> np.uint64:
    """a · b modulo 2^64."""
    return np.uint64((int(a) * int(b)) & MASK)


@overload(wrap_add)
def _(a, b):
    return lambda a, b: np.uint64(a) + np.uint64(b)


@overload(wrap_multiply)
def _(a, b):
    return lambda a, b: np.uint64(a) * np.uint64(b)


@kernel
def mix(word):
    """Splitmix64's finaliser: a bijection of 64-bit words whose output looks random."""
    word = wrap_multiply(word ^ (word >> S30), FIRST)
    word = wrap_multiply(word ^ (word >> S27), SECOND)
    return word ^ (word >> S31)


@kernel
def at(word, t):
    """The t-th word of the stream that starts at `word`."""
    return mix(wrap_add(word, wrap_multiply(t, GOLDEN)))


@kernel
def unit(word):
    """A word as a number in [0, 1)."""
    return np.int64(word >> S11) * ULP


@kernel
def draw(row):
    """The next number in [0, 1) of the stream kept in `row.rng`."""
    row.rng = wrap_add(row.rng, GOLDEN)
    return unit(mix(row.rng))


@kernel
def normal(row):
    """A standard normal number, by the ratio of uniforms with Leva's quadratic bounds (ACM TOMS 18, 1992)."""
    while True:
        u = 1.0 - draw(row)
        v = 1.7155277699214135 * (draw(row) - 0.5)  # 2·sqrt(2/e)
        x = u - 0.449871
        y = abs(v) + 0.386595
        q = x * x + y * (0.196 * y - 0.25472 * x)
        if q < 0.27597 or (q <= 0.27846 and v * v <= -4.0 * u * u * math.log(u)):
            return v / u


@kernel
def gamma(row, shape):
    """A Gamma(shape, 1) number, by Marsaglia and Tsang's cubed normal (ACM TOMS 26, 2000)."""
    boost = 1.0
    if shape < 1.0:
        boost = math.exp(math.log(1.0 - draw(row)) / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(row)
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            u = 1.0 - draw(row)
            square = x * x
            if u < 1.0 - 0.0331 * square * square or math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
                return boost * d * v


@kernel
def beta(row, a, b):
    """A Beta(a, b) number."""
    x = gamma(row, a)
    return x / (x + gamma(row, b))


def split(seed: int, *path: str | int) -> int:
    """The word of the stream named by `path` under `seed`, the same on every machine.

    >>> split(0, "clicks", 3) == split(0, "clicks", 3) != split(0, "clicks", 4)
    True
    """
    text = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Stream:
    """A stream for Python code that draws problem instances: the same words as `draw` gives a kernel.

    >>> Stream(split(0, "example")).integer(1, 6)
    3
    """

    def __init__(self, word: int) -> None:
        self.word = word & MASK

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A number in [low, high)."""
        self.word = (self.word + int(GOLDEN)) & MASK
        z = self.word
        z = ((z ^ (z >> 30)) * int(FIRST)) & MASK
        z = ((z ^ (z >> 27)) * int(SECOND)) & MASK
        return low + (high - low) * (((z ^ (z >> 31)) >> 11) * ULP)

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def choose(self, n: int, count: int) -> list[int]:
        """`count` distinct whole numbers below n, in random order (a partial Fisher–Yates shuffle)."""
        moved: dict[int, int] = {}
        out = []
        for i in range(count):
            j = self.integer(i, n - 1)
            out.append(moved.get(j, j))
            moved[j] = moved.get(i, i)
        return out
