"""Tokens: what is signed comes back, and nothing else does."""

from __future__ import annotations

import base64
import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.core.errors import SwerveError
from swerve.service.tokens import LENGTH, Forged, Ticket, Tokens, code_of

KEY, OLD = bytes(range(32)), bytes(range(32, 64))
QUERY = bytes(range(100, 116))
TOKENS = Tokens((KEY,))
TOKEN = TOKENS.sign(QUERY, code_of(63, 255, 12345), 1.7e9 + 0.25, 7 << 40 | 99, 2**24 - 2)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text)


@given(
    st.binary(min_size=16, max_size=16),
    st.integers(0, 63),
    st.integers(0, 255),
    st.integers(0, 2**50 - 1),
    st.floats(-1e12, 1e12),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**24 - 1),
)
def test_what_is_signed_comes_back(key, place, generation, phase, at, number, top):
    text = TOKENS.sign(key, code_of(place, generation, phase), at, number, top)
    assert len(text) == LENGTH
    assert set(text) <= set(ALPHABET)
    assert TOKENS.read(text) == Ticket(key, place, generation, phase, at, number, top)


def test_the_bytes_are_as_documented():
    payload = struct.pack("<B16sQdQ3s", 1, QUERY, 63 | 255 << 6 | 12345 << 14, 1.7e9 + 0.25, 7 << 40 | 99, b"\xfe\xff\xff")
    tag = hashlib.blake2b(payload, key=KEY, digest_size=16, person=b"swerve-token").digest()
    assert base64.urlsafe_b64encode(payload + tag).decode() == TOKEN


def test_every_changed_bit_is_refused():
    whole = raw(TOKEN)
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Forged):
            TOKENS.read(base64.urlsafe_b64encode(changed).decode())


def test_every_cut_is_refused():
    for end in range(LENGTH):
        for part in (TOKEN[:end], TOKEN[end + 1 :], TOKEN[:end] + TOKEN[end + 1 :], TOKEN[:end].ljust(LENGTH, "=")):
            with pytest.raises(Forged):
                TOKENS.read(part)


def test_a_changed_character_is_refused():
    for place in range(LENGTH):
        for other in (*ALPHABET, "+", "/", "=", "\n", " ", "\0", "é", "\ud800", "Ａ"):
            if other != TOKEN[place]:
                with pytest.raises(Forged):
                    TOKENS.read(TOKEN[:place] + other + TOKEN[place + 1 :])


def test_another_text_for_the_same_bytes_is_refused():
    tokens = (TOKENS.sign(QUERY, 0, 1e9, number, 0) for number in range(1000))
    both = next(text for text in tokens if "-" in text and "_" in text)
    assert TOKENS.read(both)
    spellings = [
        both.replace("-", "+"),
        both.replace("_", "/"),
        both + "=",
        both + "==",
        both + "\n",
        " " + both,
        both[:40] + "\n" + both[40:],
    ]
    for other in spellings:
        assert other != both
        with pytest.raises(Forged):
            TOKENS.read(other)


@given(
    st.text(max_size=100)
    | st.text(ALPHABET, min_size=LENGTH, max_size=LENGTH)
    | st.text(ALPHABET + "+/=é", min_size=78, max_size=82)
)
def test_any_text_is_refused_and_nothing_else_happens(text):
    with pytest.raises(Forged):
        TOKENS.read(text)


@given(st.data())
def test_pieces_of_two_tokens_are_refused(data):
    other = TOKENS.sign(QUERY[::-1], code_of(1, 0, 2), 1.6e9, 3, 4)
    cut = data.draw(st.integers(1, LENGTH - 1))
    mixed = TOKEN[:cut] + other[cut:]
    if mixed not in (TOKEN, other):
        with pytest.raises(Forged):
            TOKENS.read(mixed)


def test_two_keys_are_valid_and_the_first_one_signs():
    rotated = Tokens((OLD, KEY))
    assert rotated.read(TOKEN) == TOKENS.read(TOKEN)
    fresh = rotated.sign(QUERY, 0, 1e9, 1, 0)
    assert Tokens((OLD,)).read(fresh).number == 1
    with pytest.raises(Forged, match="not issued by this service"):
        TOKENS.read(fresh)


def test_a_foreign_version_is_refused_even_when_it_is_signed():
    payload = b"\2" + raw(TOKEN)[1:-16]
    tag = hashlib.blake2b(payload, key=KEY, digest_size=16, person=b"swerve-token").digest()
    with pytest.raises(Forged, match="version 2; this service reads version 1"):
        TOKENS.read(base64.urlsafe_b64encode(payload + tag).decode())


def test_a_tag_made_for_another_purpose_is_refused():
    payload = raw(TOKEN)[:-16]
    tag = hashlib.blake2b(payload, key=KEY, digest_size=16).digest()
    with pytest.raises(Forged):
        TOKENS.read(base64.urlsafe_b64encode(payload + tag).decode())


@pytest.mark.parametrize("keys", [(), (b"short",), (KEY, b"x" * 65)])
def test_keys_of_another_length_are_refused(keys):
    with pytest.raises(SwerveError, match="16 to 64 bytes"):
        Tokens(keys)


def test_the_keys_are_not_shown():
    assert KEY.hex() not in repr(vars(TOKENS)) and repr(KEY) not in repr(vars(TOKENS))
