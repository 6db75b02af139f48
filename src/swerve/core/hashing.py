"""The words of many streams at once: `rng.split` in compiled code.

`split(seed, "clicks", 3)` is the hash of the text `seed/clicks/3` by BLAKE2b with a digest of 8 bytes (RFC 7693). An instance has
hundreds of such words, and Python's `hashlib` takes longer for them than compiled code takes to draw all the rest.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from swerve.core.blake2b import BLOCK, BLOCK_BYTES, START, STATE, compress
from swerve.core.engine import Entry
from swerve.core.verbs import kernel

SCRATCH = BLOCK + STATE  # words of scratch space: the block, and the state
DIGITS = 20  # of the largest 64-bit number
LONGEST = BLOCK_BYTES - DIGITS  # bytes of a path before its number: a longer text would need a second block
FIRST = START[0] ^ np.uint64(0x01010008)  # no key, a digest of 8 bytes


def path_of(seed: int, name: str) -> NDArray[np.uint8]:
    """Return the text of a path before its number, as bytes for `word_of`."""
    return np.frombuffer(f"{seed}/{name}/".encode(), np.uint8)


def word_of(path: Any, number: Any, scratch: Any) -> np.uint64:
    """Return the word of the stream `path` + number, as `rng.split` does; compiled code needs `SCRATCH` words of scratch space."""
    text = bytes(path) + str(int(number)).encode()
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


@kernel
def put(block, at, byte):
    """Write a byte into a block of words."""
    block[at >> 3] |= np.uint64(byte) << np.uint64(8 * (at & 7))


def _word_of(path, number, scratch):
    block, state = scratch[:BLOCK], scratch[BLOCK:]
    for i in range(BLOCK):
        block[i] = np.uint64(0)
    length = 0
    for i in range(len(path)):
        put(block, length, path[i])
        length += 1
    power = 1
    while number // power >= 10:
        power *= 10
    while power > 0:
        put(block, length, 48 + (number // power) % 10)  # 48 is the code of the digit 0
        length += 1
        power //= 10
    for i in range(STATE):
        state[i] = START[i]
    state[0] = FIRST
    compress(state, block, length, True)
    return state[0]


@overload(word_of)
def _(path, number, scratch):
    return _word_of


word_of.compiled = _word_of  # type: ignore[attr-defined]  # lets the fingerprint of code see the compiled form


@Entry
def hash_words(path, scratch, out):
    """Write the words of the streams `path` + 0, 1, … into `out`."""
    for number in range(len(out)):
        out[number] = word_of(path, number, scratch)


#: Up to this many words Python's own hash is faster than loading compiled code.
FEW = 16


def words(seed: int, name: str, count: int) -> NDArray[np.uint64]:
    """Return the words of the streams `split(seed, name, 0)`, `split(seed, name, 1)`, …

    >>> from swerve.core.rng import split
    >>> [int(word) for word in words(7, "clicks", 3)] == [split(7, "clicks", number) for number in range(3)]
    True
    """
    path, out = path_of(seed, name), np.zeros(count, np.uint64)
    few = count <= FEW or len(path) > LONGEST
    (hash_words.plain if few else hash_words.bind())(path, np.zeros(SCRATCH, np.uint64), out)
    return out
