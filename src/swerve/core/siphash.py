"""SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012): keyed hashes of short texts, in compiled code and in plain Python.

Without the key nobody can find two texts with equal hashes, and the hash of a text of a few hundred bytes takes a tenth of a
microsecond. The form with 128 bits is for texts that are then taken to be equal; that with 64 bits is its first half.
"""

from __future__ import annotations

import numpy as np

from swerve.core.blake2b import turned
from swerve.core.engine import Entry
from swerve.core.rng import wrap_add
from swerve.core.verbs import inlined, kernel

KEY_BYTES = 16
_FIRST, _SECOND = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_THIRD, _FOURTH = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_WIDE, _END, _ENDS = np.uint64(0xEE), np.uint64(0xDD), 4  # marks of the form with 128 bits, and the rounds at the end
WORD = 8  # bytes


@inlined
def turn_left(word, bits):
    """Return a word whose bits are rotated to the left."""
    return turned(word, 64 - bits)


@inlined
def sip_round(a, b, c, d):
    """Return the four words of the state after a round."""
    a = wrap_add(a, b)
    c = wrap_add(c, d)
    b = turn_left(b, 13) ^ a
    d = turn_left(d, 16) ^ c
    a = turn_left(a, 32)
    c = wrap_add(c, b)
    a = wrap_add(a, d)
    b = turn_left(b, 17) ^ c
    d = turn_left(d, 21) ^ a
    c = turn_left(c, 32)
    return a, b, c, d


@kernel
def siphash(key, text, start, stop):
    """Return the hash of the bytes of `text` from `start` to `stop` as two words; `key` has two words."""
    a, b = key[0] ^ _FIRST, key[1] ^ _SECOND ^ _WIDE
    c, d = key[0] ^ _THIRD, key[1] ^ _FOURTH
    at = start
    while stop - at >= WORD:
        word = np.uint64(0)
        for i in range(WORD):
            word |= np.uint64(text[at + i]) << np.uint64(8 * i)
        d ^= word
        a, b, c, d = sip_round(a, b, c, d)
        a, b, c, d = sip_round(a, b, c, d)
        a ^= word
        at += WORD
    word = np.uint64((stop - start) & 255) << np.uint64(56)
    for i in range(stop - at):
        word |= np.uint64(text[at + i]) << np.uint64(8 * i)
    d ^= word
    a, b, c, d = sip_round(a, b, c, d)
    a, b, c, d = sip_round(a, b, c, d)
    a ^= word
    c ^= _WIDE
    for _ in range(_ENDS):
        a, b, c, d = sip_round(a, b, c, d)
    low = a ^ b ^ c ^ d
    b ^= _END
    for _ in range(_ENDS):
        a, b, c, d = sip_round(a, b, c, d)
    return low, a ^ b ^ c ^ d


@Entry
def hash_text(key, text):
    """Return the hash of a text, given as bytes, as two words."""
    return siphash(key, text, 0, len(text))
