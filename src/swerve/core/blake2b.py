"""BLAKE2b (RFC 7693) in compiled code and in plain Python: its compression of a block, and the state after a key.

Python's `hashlib` has the whole of it. Compiled code hashes many short texts in one call, to the same bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swerve.core.rng import MASK, wrap_add
from swerve.core.verbs import inlined, kernel

STATE, BLOCK = 8, 16  # words of a state, and of a block
WORD = 8  # bytes
BLOCK_BYTES = WORD * BLOCK
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
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    np.uint8,
)


@inlined
def turned(word, bits):
    """Return a word whose bits are rotated to the right."""
    return (word >> np.uint64(bits)) | (word << np.uint64(64 - bits))


@inlined
def mixed(a, b, c, d, x, y):
    """Return four words of the working state, mixed with two words of the block."""
    a = wrap_add(wrap_add(a, b), x)
    d = turned(d ^ a, 32)
    c = wrap_add(c, d)
    b = turned(b ^ c, 24)
    a = wrap_add(wrap_add(a, b), y)
    d = turned(d ^ a, 16)
    c = wrap_add(c, d)
    b = turned(b ^ c, 63)
    return a, b, c, d


@kernel
def compress(state, block, length, last):
    """Fold a block into the state; `length` is the number of bytes so far, `last` says whether this block is the last one.

    The working state is in sixteen variables: in an array it would take three times as long.
    """
    a0, a1, a2, a3 = state[0], state[1], state[2], state[3]
    b0, b1, b2, b3 = state[4], state[5], state[6], state[7]
    c0, c1, c2, c3 = START[0], START[1], START[2], START[3]
    d0, d1, d2, d3 = START[4] ^ np.uint64(length), START[5], START[6], START[7]
    if last:
        d2 ^= ALL
    for turn in range(ROUNDS):
        at = ORDER[turn]
        a0, b0, c0, d0 = mixed(a0, b0, c0, d0, block[at[0]], block[at[1]])
        a1, b1, c1, d1 = mixed(a1, b1, c1, d1, block[at[2]], block[at[3]])
        a2, b2, c2, d2 = mixed(a2, b2, c2, d2, block[at[4]], block[at[5]])
        a3, b3, c3, d3 = mixed(a3, b3, c3, d3, block[at[6]], block[at[7]])
        a0, b1, c2, d3 = mixed(a0, b1, c2, d3, block[at[8]], block[at[9]])
        a1, b2, c3, d0 = mixed(a1, b2, c3, d0, block[at[10]], block[at[11]])
        a2, b3, c0, d1 = mixed(a2, b3, c0, d1, block[at[12]], block[at[13]])
        a3, b0, c1, d2 = mixed(a3, b0, c1, d2, block[at[14]], block[at[15]])
    state[0] ^= a0 ^ c0
    state[1] ^= a1 ^ c1
    state[2] ^= a2 ^ c2
    state[3] ^= a3 ^ c3
    state[4] ^= b0 ^ d0
    state[5] ^= b1 ^ d1
    state[6] ^= b2 ^ d2
    state[7] ^= b3 ^ d3


def keyed(key: bytes, digest: int, person: bytes = b"") -> NDArray[np.uint64]:
    """Return the state of `hashlib.blake2b(key=key, digest_size=digest, person=person)`, with its key folded in.

    The length of a message that follows begins at `BLOCK_BYTES`.
    """
    state = START.copy()
    state[0] ^= np.uint64(0x01010000 | len(key) << 8 | digest)
    state[6:] ^= np.frombuffer(person.ljust(2 * WORD, b"\0"), np.uint64)
    compress(state, np.frombuffer(key.ljust(BLOCK_BYTES, b"\0"), np.uint64), BLOCK_BYTES, False)
    return state
