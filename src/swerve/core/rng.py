"""Randomness as state: splitmix64 words, split by path in Python and drawn from records in kernels.

One word is a stream. `split(seed, "clicks", query)` names a stream by its path, so that every draw has its own address and no two
purposes share a stream. In a kernel, `draw(row)` advances the word stored in `row.rng`. `at(word, t)` returns the t-th word of a
stream directly; environments use it to give every policy the same clicks.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from swerve.core.elementary import exp, log
from swerve.core.verbs import compiled_as, inlined, kernel

MASK = (1 << 64) - 1
# the constants of splitmix64: the step of a stream, and the multipliers and shifts of its finaliser
GOLDEN_STEP = 0x9E3779B97F4A7C15
GOLDEN = np.uint64(GOLDEN_STEP)
FIRST_FACTOR, SECOND_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
FIRST, SECOND = np.uint64(FIRST_FACTOR), np.uint64(SECOND_FACTOR)
S27, S30, S31 = np.uint64(27), np.uint64(30), np.uint64(31)
S11 = np.uint64(11)  # leaves the 53 bits of a float's mantissa
ULP = 2.0**-53  # the step between the numbers that `unit` returns


def _add(a, b):
    return np.uint64(a) + np.uint64(b)


def _multiply(a, b):
    return np.uint64(a) * np.uint64(b)


# NumPy's scalars are slow in Python, and warn where compiled integers wrap silently.


@compiled_as(_add)
def wrap_add(a, b):
    """Return a + b modulo 2^64."""
    return np.uint64((int(a) + int(b)) & MASK)


@compiled_as(_multiply)
def wrap_multiply(a, b):
    """Return a · b modulo 2^64."""
    return np.uint64((int(a) * int(b)) & MASK)


def _mix(word):
    word = wrap_multiply(word ^ (word >> S30), FIRST)
    word = wrap_multiply(word ^ (word >> S27), SECOND)
    return word ^ (word >> S31)


def _unit(word):
    return np.int64(word >> S11) * ULP


@compiled_as(_mix)
def mix(word):
    """Return splitmix64's finaliser of a word: a bijection of 64-bit words whose output looks random."""
    return np.uint64(mixed(int(word)))


def mixed(word: int) -> int:
    """Return `mix` of a word, in whole numbers of Python."""
    word = ((word ^ (word >> 30)) * FIRST_FACTOR) & MASK
    word = ((word ^ (word >> 27)) * SECOND_FACTOR) & MASK
    return word ^ (word >> 31)


def _at(word, t):
    return mix(wrap_add(word, wrap_multiply(t, GOLDEN)))


@compiled_as(_at)
def at(word, t):
    """Return the t-th word of the stream that starts at `word`."""
    return np.uint64(mixed((int(word) + int(t) * GOLDEN_STEP) & MASK))


@compiled_as(_unit)
def unit(word):
    """Return a word as a number in [0, 1)."""
    return (int(word) >> 11) * ULP


def _draw(row):
    row.rng = wrap_add(row.rng, GOLDEN)
    return unit(mix(row.rng))


@compiled_as(_draw)
def draw(row):
    """Return the next number in [0, 1) of the stream kept in `row.rng`."""
    word = (int(row.rng) + GOLDEN_STEP) & MASK
    row.rng = word
    return (mixed(word) >> 11) * ULP


def _ziggurat() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the right edges of 256 layers of equal area under exp(−x²/2), and the density at them.

    Marsaglia and Tsang, JSS 5, 2000; the area of a layer is theirs.
    """
    edge, area = TAIL, 0.00492867323399
    edges = np.zeros(257)
    edges[0], edges[1] = area / exp(-0.5 * edge * edge), edge
    for i in range(2, 256):
        edges[i] = math.sqrt(-2.0 * log(area / edges[i - 1] + exp(-0.5 * edges[i - 1] * edges[i - 1])))
    return edges, np.array([exp(-0.5 * x * x) for x in edges])


TAIL = 3.6541528853610088  # where the tail beyond the lowest of 256 layers begins (Marsaglia and Tsang)
EDGES, DENSITY = _ziggurat()
BYTE = np.uint64(255)  # the bits of a word that choose one of the 256 layers
SQUEEZE = 0.0331  # Marsaglia and Tsang's constant of the quick acceptance test

# The samplers below take and return the stream's word: a word in a register is drawn twice as fast as one that is written to its
# record each time.


@inlined
def normal(word):
    """Draw a standard normal number by the ziggurat; return the number and the stream's word."""
    while True:
        word = wrap_add(word, GOLDEN)
        bits = mix(word)
        layer = np.int64(bits & BYTE)
        u = 2.0 * unit(bits) - 1.0
        x = u * EDGES[layer]
        if abs(x) < EDGES[layer + 1]:
            return x, word
        word = wrap_add(word, GOLDEN)
        v = unit(mix(word))
        if layer > 0:
            if DENSITY[layer] + v * (DENSITY[layer + 1] - DENSITY[layer]) < exp(-0.5 * x * x):
                return x, word
        else:  # the tail beyond the lowest layer
            deep, v = 0.0, 1.0 - v
            while True:
                deep = -log(v) / TAIL
                word = wrap_add(word, GOLDEN)
                if -2.0 * log(1.0 - unit(mix(word))) > deep * deep:
                    break
                word = wrap_add(word, GOLDEN)
                v = 1.0 - unit(mix(word))
            return (TAIL + deep if u > 0.0 else -TAIL - deep), word


@kernel
def gamma_scale(shape):
    """Return the scale that `gamma` needs for a shape. It is slow to compute, so callers that draw often from a shape keep it."""
    return 1.0 / math.sqrt(9.0 * (shape if shape >= 1.0 else shape + 1.0) - 3.0)


@inlined
def gamma(word, shape, scale):
    """Draw a Gamma(shape, 1) number by Marsaglia and Tsang's cubed normal (ACM TOMS 26, 2000); return it and the word."""
    boost = 1.0
    if shape < 1.0:
        word = wrap_add(word, GOLDEN)
        boost = exp(log(1.0 - unit(mix(word))) / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    while True:
        x, word = normal(word)
        v = 1.0 + scale * x
        if v > 0.0:
            v = v * v * v
            word = wrap_add(word, GOLDEN)
            u = 1.0 - unit(mix(word))
            square = x * x
            if u < 1.0 - SQUEEZE * square * square or log(u) < 0.5 * square + d * (1.0 - v + log(v)):
                return boost * d * v, word


@inlined
def beta(word, a, b, a_scale, b_scale):
    """Draw a Beta(a, b) number, with the scales of `gamma_scale`; return it and the stream's word."""
    x, word = gamma(word, a, a_scale)
    y, word = gamma(word, b, b_scale)
    return x / (x + y), word


def split(seed: int, *path: str | int) -> int:
    """Return the word of the stream named by `path` under `seed`; it is the same on every machine.

    >>> split(0, "clicks", 3) == split(0, "clicks", 3) != split(0, "clicks", 4)
    True
    """
    text = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Stream:
    """A stream for Python code that draws problem instances: the same words that `draw` gives a kernel.

    >>> Stream(split(0, "example")).integer(1, 6)
    2
    """

    def __init__(self, word: int) -> None:
        self.word = word & MASK

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Return a number in [low, high)."""
        self.word = (self.word + GOLDEN_STEP) & MASK
        return low + (high - low) * ((mixed(self.word) >> 11) * ULP)

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def choose(self, n: int, count: int) -> list[int]:
        """Return `count` distinct whole numbers below n, in random order (a partial Fisher–Yates shuffle)."""
        moved: dict[int, int] = {}
        out = []
        for i in range(count):
            j = self.integer(i, n - 1)
            out.append(moved.get(j, j))
            moved[j] = moved.get(i, i)
        return out
