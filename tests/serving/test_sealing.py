"""Answers that compiled code writes: tokens are those of `Tokens.sign`, numbers are written as the encoder writes them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from swerve.core.engine import Entry
from swerve.serving import sealing
from swerve.serving.tokens import HEAD_BYTES, TAG, Signed, Tokens, page_of
from swerve.store.protocol import Life

pytestmark = pytest.mark.compiled
KEYS = st.binary(min_size=16, max_size=64)


@Entry
def sealed(state, words, payload, length, out):
    return sealing.put_token(out, 0, state, words, payload, length)


@Entry
def written(share, out):
    return sealing.put_share(out, 0, share)


@given(KEYS, st.integers(0, 10), st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES), st.integers(0, 2**63 - 1), st.data())
def test_a_token_is_signed_and_encoded_as_in_python(key: bytes, slots: int, head: bytes, word: int, data: st.DataObject):
    """Any content: what is compared is the tag over it, and its text."""
    tokens = Tokens((key,), Life(store=word, mark=word ^ 5, id=7))
    codes = data.draw(st.lists(st.integers(0, 2**14 - 1), min_size=slots, max_size=slots))
    names = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=slots, max_size=slots))
    made = Signed(head[:16], word & 0xFFFFFF, word & 0xFFFF, word, word, bool(word & 1), word & 1023, word, page_of(codes, names))
    expected = tokens.sign(made, 1.7e9 + word % 1000 / 7)
    seal, out = sealing.Seal(tokens.signing_state), np.zeros(300, np.uint8)
    raw = msgspec.json.decode(f'"{expected.replace("-", "+").replace("_", "/")}"', type=bytes)
    length = len(raw) - TAG
    seal.bytes[:length] = np.frombuffer(raw[:length], np.uint8)
    size = sealed.bind()(seal.state, seal.words, seal.bytes, length, out)
    assert out[:size].tobytes().decode() == expected


@given(st.integers(0, 10**9))
@example(1)
@example(999)
@example(10_000)
@example(9_990)
def test_shares_are_written_as_the_encoder_writes_them(parts: int):
    out = np.zeros(40, np.uint8)
    for share in (np.floor(parts / 1e9 * 1e9 + 0.5) / 1e9, np.floor(parts / 1e9 * 1e4 + 0.5) / 1e4):
        size = written.bind()(share, out)
        assert out[:size].tobytes() == msgspec.json.encode(float(share))
