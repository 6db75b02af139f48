"""Tokens: a signed token is read back, and any other text is refused."""

from __future__ import annotations

import base64
import hashlib
import struct

import pytest
from hypothesis import given, strategies as st

from swerve.core.decisions import encode
from swerve.core.errors import SwerveError
from swerve.serving.tokens import LENGTHS, Forged, Signed, Ticket, Tokens, page_of
from swerve.store import Life

KEY, OLD = bytes(range(32)), bytes(range(32, 64))
QUERY = bytes(range(100, 116))
LIFE = Life(store=2**63 - 1, mark=2**62 + 5, id=7)
TOKENS = Tokens((KEY,), LIFE)
#: Two slots: for each an arm with its generation, then for each the hash of its candidate.
CODES, NAMES = [encode(63, 255, 0), encode(1, 0, 0)], [2**32 - 2, 7]
TOKEN = TOKENS.sign(Signed(QUERY, 12345, 2**24 + 5, 7 << 40 | 99, 12, True, 0b11, 2**63 | 2, page_of(CODES, NAMES)), 1.7e9 + 0.25)
LENGTH = LENGTHS[2]
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text)


def signed(number: int, slots: int = 2) -> Signed:
    page = page_of(CODES[:slots], NAMES[:slots])
    return Signed(QUERY, start=7, phase=1, number=number, session=0, evidence=True, seen=1, offer=3, page=page)


@given(
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**25 - 1),
    st.integers(0, 2**25 - 1),
    st.floats(-1e12, 1e12),
    st.integers(0, 2**40 - 1),
    st.integers(0, 2**64 - 1),
    st.booleans(),
    st.integers(0, 2**10 - 1),
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.integers(0, 63), st.integers(0, 255), st.integers(0, 2**32 - 1)), min_size=1, max_size=10),
)
def test_what_is_signed_comes_back(key, start, phase, at, number, session, evidence, seen, offer, slots):
    codes = tuple(int(encode(arm, generation, 0)) for arm, generation, _ in slots)
    names = tuple(name for *_, name in slots)
    text = TOKENS.sign(Signed(key, start, phase, LIFE.id << 40 | number, session, evidence, seen, offer, page_of(codes, names)), at)
    assert len(text) == LENGTHS[len(slots)]
    assert set(text) <= set(ALPHABET)
    assert TOKENS.read(text) == Ticket(
        key, start, phase, at, LIFE.store, LIFE.mark, number, session, evidence, seen, offer, codes, names
    )


def test_the_bytes_are_as_documented():
    word = 12345 | (2**24 + 5) << 25
    head = struct.pack("<BBBH16sQdQQQQQ", 3, 1, 2, 0b11, QUERY, word, 1.7e9 + 0.25, LIFE.store, LIFE.mark, 99, 12, 2**63 | 2)
    payload = head + struct.pack("<HHII", 63 | 255 << 6, 1, 2**32 - 2, 7)
    tag = hashlib.blake2b(payload, key=KEY, digest_size=16, person=b"swerve-token").digest()
    assert base64.urlsafe_b64encode(payload + tag).decode() == TOKEN
    assert (LENGTHS[1], LENGTHS[10]) == (132, 204)


def test_many_are_signed_as_one_is():
    some = [signed(number, number % 3) for number in range(5)]  # pages of different lengths together
    assert TOKENS.sign_many(some, 1e9) == [TOKENS.sign(one, 1e9) for one in some]
    assert TOKENS.sign_many([], 1e9) == []


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
    tokens = (TOKENS.sign(signed(number), 1e9) for number in range(1000))
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
    st.text(max_size=220)
    | st.text(ALPHABET, min_size=LENGTH, max_size=LENGTH)
    | st.text(ALPHABET + "+/=é", min_size=LENGTH - 2, max_size=LENGTH + 2)
)
def test_any_text_is_refused_and_nothing_else_happens(text):
    with pytest.raises(Forged):
        TOKENS.read(text)


@given(st.data())
def test_pieces_of_two_tokens_are_refused(data):
    other = TOKENS.sign(Signed(QUERY[::-1], 2, 3, 4, 5, False, 0, 1, page_of([1, 2], [3, 4])), 1.6e9)
    cut = data.draw(st.integers(1, LENGTH - 1))
    mixed = TOKEN[:cut] + other[cut:]
    if mixed not in (TOKEN, other):
        with pytest.raises(Forged):
            TOKENS.read(mixed)


def test_two_keys_are_valid_and_the_first_one_signs():
    rotated = Tokens((OLD, KEY), LIFE)
    assert rotated.read(TOKEN) == TOKENS.read(TOKEN)
    fresh = rotated.sign(signed(1), 1e9)
    assert Tokens((OLD,), LIFE).read(fresh).number == 1
    with pytest.raises(Forged, match="not issued by this service"):
        TOKENS.read(fresh)


def test_a_foreign_version_is_refused_even_when_it_is_signed():
    payload = b"\2" + raw(TOKEN)[1:-16]
    tag = hashlib.blake2b(payload, key=KEY, digest_size=16, person=b"swerve-token").digest()
    with pytest.raises(Forged, match="version 2; this service reads version 3"):
        TOKENS.read(base64.urlsafe_b64encode(payload + tag).decode())


def test_a_length_of_another_page_is_refused():
    """The number of slots is signed: bytes cannot be moved from one part of a token to another."""
    for slots in range(11):
        if slots != 2:
            with pytest.raises(Forged):
                TOKENS.read((TOKEN * 2)[: LENGTHS[slots]])


def test_a_tag_made_for_another_purpose_is_refused():
    payload = raw(TOKEN)[:-16]
    tag = hashlib.blake2b(payload, key=KEY, digest_size=16).digest()
    with pytest.raises(Forged):
        TOKENS.read(base64.urlsafe_b64encode(payload + tag).decode())


@pytest.mark.parametrize("keys", [(), (b"short",), (KEY, b"x" * 65)])
def test_keys_of_another_length_are_refused(keys):
    with pytest.raises(SwerveError, match="16 to 64 bytes"):
        Tokens(keys, LIFE)


def test_the_keys_are_not_shown():
    assert KEY.hex() not in repr(vars(TOKENS)) and repr(KEY) not in repr(vars(TOKENS))
