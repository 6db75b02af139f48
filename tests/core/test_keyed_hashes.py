"""Keyed hashes in compiled code: BLAKE2b beside `hashlib`, SipHash beside the vectors of its authors."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swerve.core.blake2b import BLOCK_BYTES, compress, keyed
from swerve.core.siphash import hash_text

#: SipHash-2-4 with 128 bits of the bytes 0, 1, …, with the key 0, 1, …, 15: `vectors_sip128` of the reference implementation.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    63: "5150d1772f50834a503e069a973fbd7c",
}
KEY = np.frombuffer(bytes(range(16)), np.uint64)


@pytest.mark.parametrize("form", [hash_text.plain, hash_text.bind()], ids=["plain", "compiled"])
def test_siphash_gives_the_vectors_of_its_authors(form):
    for length, expected in VECTORS.items():
        low, high = form(KEY, bytes(range(length)))
        assert (int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")).hex() == expected


@given(st.binary(min_size=1, max_size=64), st.binary(min_size=1, max_size=256), st.integers(1, 64), st.binary(max_size=16))
def test_blake2b_gives_the_bytes_of_hashlib(key: bytes, text: bytes, size: int, person: bytes):
    state = keyed(key, size, person)
    for start in range(0, len(text), BLOCK_BYTES):
        block, last = text[start : start + BLOCK_BYTES], start + BLOCK_BYTES >= len(text)
        words = np.frombuffer(block.ljust(BLOCK_BYTES, b"\0"), np.uint64)
        compress(state, words, BLOCK_BYTES + start + len(block), last)
    assert state.tobytes()[:size] == hashlib.blake2b(text, key=key, digest_size=size, person=person).digest()
