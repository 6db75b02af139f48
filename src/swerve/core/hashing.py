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

from swerve.core.engine import Entry
from swerve.core.rng import MASK, wrap_add
from swerve.core.verbs import kernel

BLOCK = 16  # words of a message's block, 128 bytes: a longer text would need a second one
SCRATCH = 2 * BLOCK  # words of scratch space: the block, and the working state
DIGITS = 20  # of the largest 64-bit number
LONGEST = 8 * BLOCK - DIGITS  # bytes of a path before its number
ROUNDS = 12
START = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
FIRST = START[0] ^ np.uint64(0x01010008)  # no key, a digest of 8 bytes
ALL = np.uint64(MASK)
ORDER = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.uint8,
)
#: The words of the working state that each of the eight mixings of a round takes: columns, then diagonals.
MIXED = np.array(
    [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]],
    np.uint8,
)


def path_of(seed: int, name: str) -> NDArray[np.uint8]:
    """Return the text of a path before its number, as bytes for `word_of`."""
    return np.frombuffer(f"{seed}/{name}/".encode(), np.uint8)


def word_of(path: Any, number: Any, scratch: Any) -> np.uint64:
    """Return the word of the stream `path` + number, as `rng.split` does; compiled code needs `SCRATCH` words of scratch space."""
    text = bytes(path) + str(int(number)).encode()
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


@kernel
def turned(word, bits):
    """Return a word whose bits are rotated to the right."""
    return (word >> np.uint64(bits)) | (word << np.uint64(64 - bits))


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
    for i in range(8):
        state[i] = START[i]
        state[8 + i] = START[i]
    state[0] = FIRST
    state[12] ^= np.uint64(length)
    state[14] ^= ALL
    for turn in range(ROUNDS):
        line = turn % 10
        for step in range(8):
            a, b, c, d = MIXED[step, 0], MIXED[step, 1], MIXED[step, 2], MIXED[step, 3]
            state[a] = wrap_add(wrap_add(state[a], state[b]), block[ORDER[line, 2 * step]])
            state[d] = turned(state[d] ^ state[a], 32)
            state[c] = wrap_add(state[c], state[d])
            state[b] = turned(state[b] ^ state[c], 24)
            state[a] = wrap_add(wrap_add(state[a], state[b]), block[ORDER[line, 2 * step + 1]])
            state[d] = turned(state[d] ^ state[a], 16)
            state[c] = wrap_add(state[c], state[d])
            state[b] = turned(state[b] ^ state[c], 63)
    return FIRST ^ state[0] ^ state[8]


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
