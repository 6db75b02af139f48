"""Decision tokens: signed, and with all in them that feedback needs, so that no table of open decisions is kept.

A token is 60 bytes as 80 characters of URL-safe base64: a version byte, the query's key, a code (place, generation and phase of the
arm that was shown), the time, the decision's id, a short hash of the candidate on top, and a keyed BLAKE2b tag over all of them.
It is signed, not encrypted: it holds no query text, and what it holds is of no use without the service.
"""

from __future__ import annotations

import hashlib
import struct
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterable
from hmac import compare_digest
from typing import NamedTuple

from swerve.core.errors import SwerveError

VERSION = 1
TAG = 16
PLACE_BITS, GENERATION_BITS = 6, 8
#: 60 bytes are a multiple of three: no padding, no spare bits, one text for each token
LENGTH = 80

_LAYOUT = struct.Struct("<B16sQdQHB")
_PHASE = PLACE_BITS + GENERATION_BITS
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")  # the plain alphabet's own signs must not pass: they would make a second text


class Forged(SwerveError):  # noqa: N818 - it names what happened to the token
    """A decision token that this service did not sign."""


class Ticket(NamedTuple):
    """What a decision token says."""

    key: bytes
    place: int
    generation: int
    phase: int
    at: float
    number: int
    top: int


def code_of(place: int, generation: int, phase: int) -> int:
    """The arm that was shown and the phase it was shown in, as the 64 bits that `sign` takes.

    >>> code_of(place=3, generation=2, phase=1) == 3 | 2 << 6 | 1 << 14
    True
    """
    return place | generation << PLACE_BITS | phase << _PHASE


class Tokens:
    """Signs and reads decision tokens. The first key signs, any of them is taken: two are valid while one replaces the other.

    >>> tokens = Tokens((b"k" * 32,))
    >>> text = tokens.sign(b"q" * 16, code_of(3, 0, 7), at=1e9, number=5, top=9)
    >>> tokens.read(text)
    Ticket(key=b'qqqqqqqqqqqqqqqq', place=3, generation=0, phase=7, at=1000000000.0, number=5, top=9)
    >>> tokens.read(text.swapcase())
    Traceback (most recent call last):
    swerve.service.tokens.Forged: the decision token was not issued by this service, or was changed on the way
    """

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        if not keys or not all(16 <= len(key) <= 64 for key in keys):
            lengths = ", ".join(str(len(key)) for key in keys) or "none"
            raise SwerveError(f"token keys of {lengths} bytes are not allowed; there must be at least one, each of 16 to 64 bytes")
        # a keyed state is copied for each token: half the time of keying it anew
        self._states = tuple(hashlib.blake2b(key=key, digest_size=TAG, person=b"swerve-token") for key in keys)

    def sign(self, key: bytes, code: int, at: float, number: int, top: int) -> str:
        """The token of a decision.

        `key`: the query's; `code`: `code_of` the arm; `at`: unix seconds; `number`: the decision's id; `top`: 24 bits that tell the
        candidate on top from others.
        """
        payload = _LAYOUT.pack(VERSION, key, code, at, number, top & 0xFFFF, top >> 16)
        state = self._states[0].copy()
        state.update(payload)
        return b2a_base64(payload + state.digest(), newline=False).translate(_TO_URL).decode("ascii")

    def sign_many(self, parts: Iterable[tuple[bytes, int, int, int]], at: float) -> list[str]:
        """The tokens of decisions made at one time, each of (key, code, number, top).

        >>> tokens, parts = Tokens((b"k" * 32,)), (b"q" * 16, code_of(3, 0, 7), 5, 9)
        >>> tokens.sign_many([parts], at=1e9) == [tokens.sign(*parts[:2], 1e9, *parts[2:])]
        True
        """
        pack, copy = _LAYOUT.pack, self._states[0].copy
        raw: list[bytes] = []
        for key, code, number, top in parts:
            payload = pack(VERSION, key, code, at, number, top & 0xFFFF, top >> 16)
            state = copy()
            state.update(payload)
            raw += (payload, state.digest())
        # a token's bytes are a multiple of three: all of them together give the texts of each
        text = b2a_base64(b"".join(raw), newline=False).translate(_TO_URL).decode("ascii")
        return [text[start : start + LENGTH] for start in range(0, len(text), LENGTH)]

    def read(self, text: str) -> Ticket:
        """What a token says; raises `Forged` when it was not signed with one of the keys, exactly as it is."""
        if len(text) != LENGTH or not text.isascii():
            raise Forged(f"the decision token is not one: it must be the {LENGTH} characters that rank answered with")
        try:
            raw = a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
        except Error:
            raise Forged("the decision token is not URL-safe base64, as rank answered with") from None
        payload, tag = raw[:-TAG], raw[-TAG:]
        if len(payload) != _LAYOUT.size or not any(compare_digest(tag, self._tag(state, payload)) for state in self._states):
            raise Forged("the decision token was not issued by this service, or was changed on the way")
        version, key, code, at, number, low, high = _LAYOUT.unpack(payload)
        if version != VERSION:
            raise Forged(f"the decision token has version {version}; this service reads version {VERSION}")
        return Ticket(
            key,
            code & (1 << PLACE_BITS) - 1,
            code >> PLACE_BITS & (1 << GENERATION_BITS) - 1,
            code >> _PHASE,
            at,
            number,
            low | high << 16,
        )

    @staticmethod
    def _tag(state: hashlib.blake2b, payload: bytes) -> bytes:
        state = state.copy()
        state.update(payload)
        return state.digest()
