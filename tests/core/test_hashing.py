"""The words of many streams, against Python's own BLAKE2b."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swerve.core.hashing import FEW, LONGEST, SCRATCH, hash_words, path_of, word_of, words
from swerve.core.rng import split


def expected(text):
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


@pytest.fixture(scope="module")
def compiled():
    """Return the compiled hash of the last of some numbers, by path."""
    hashed = hash_words.bind()

    def last(path, count):
        out = np.zeros(count, np.uint64)
        hashed(np.frombuffer(path, np.uint8), np.zeros(SCRATCH, np.uint64), out)
        return [int(word) for word in out]

    return last


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=LONGEST), st.integers(1, 120))
def test_compiled_words_are_those_of_hashlib(compiled, path, count):
    assert compiled(path, count) == [expected(path + str(number).encode()) for number in range(count)]


@pytest.mark.parametrize("number", [0, 9, 10, 99, 100, 12345, 10**9, 2**62])
def test_numbers_of_any_length(number):
    scratch = np.zeros(SCRATCH, np.uint64)
    path = path_of(3, "clicks")
    assert int(word_of.compiled(path, number, scratch)) == int(word_of(path, number, scratch)) == split(3, "clicks", number)


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 300])
@pytest.mark.parametrize("name", ["clicks", "a/b", "n" * (LONGEST + 5)])
def test_words_are_those_of_split(count, name):
    assert [int(word) for word in words(2**63, name, count)] == [split(2**63, name, number) for number in range(count)]
