"""Decision tokens: signed, and complete for feedback, so that the service keeps no table of open decisions.

A token is 90 bytes as 120 characters of URL-safe base64: a version, flags, the query's key, the decision's code (arm, generation,
start) and its phase, the time, the store and its life, the decision's number in that life, keyed hashes of the candidate on top and
of the session, and a keyed BLAKE2b tag over all of them. It is signed, not encrypted: it contains no text, and its content is of no
use without the service.

Store and life are random numbers, so that no two decisions have the same token, whatever was restored, copied or deleted.
"""

from __future__ import annotations

import hashlib
import struct
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterable
from hmac import compare_digest
from typing import NamedTuple

from swerve.core.decisions import CODE_BITS, decode
from swerve.core.errors import SwerveError
from swerve.store.protocol import Life

#: Version of the layout below.
VERSION = 2
#: Bytes of the tag: 128 bits cannot be guessed.
TAG = 16
#: Characters of a token. Its 90 bytes are a multiple of three: no padding, no spare bits, one text for each token.
LENGTH = 120
#: Bits of a decision's number in its life. The id of the life in the store stands above them.
NUMBER_BITS = 40
#: Bytes of a token key: at least 128 bits, and no more than BLAKE2b takes.
SHORTEST_KEY, LONGEST_KEY = 16, 64

_LAYOUT = struct.Struct("<BB16sQdQQQQQ")
_PHASES = (1 << 64 - CODE_BITS) - 1
_NUMBERS = (1 << NUMBER_BITS) - 1
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")  # `+` and `/` must fail: they would make a second text for a token


class Forged(SwerveError):  # noqa: N818 - it names what happened to the token
    """A decision token that this service did not sign."""


class Ticket(NamedTuple):
    """The content of a decision token."""

    key: bytes
    arm: int
    generation: int
    start: int
    phase: int
    at: float
    store: int
    life: int
    number: int  # in its life
    top: int  # keyed hash of the candidate on top
    session: int  # keyed hash of the session, 0 for none
    evidence: bool  # whether the show counts as evidence


class Signed(NamedTuple):
    """The content of a decision's token besides its time and life."""

    key: bytes
    code: int  # see `swerve.core.decisions`
    phase: int  # the ledger's
    number: int
    top: int
    session: int
    evidence: bool


class Tokens:
    """Signs and reads decision tokens. The first key signs, all keys are accepted: there are two after a rotation.

    >>> from swerve.core.decisions import encode
    >>> tokens = Tokens((b"k" * 32,), Life(store=1, mark=2, id=3))
    >>> text = tokens.sign(Signed(b"q" * 16, encode(3, 0, 1), phase=7, number=5, top=9, session=0, evidence=True), at=1e9)
    >>> ticket = tokens.read(text)
    >>> ticket.arm, ticket.phase, ticket.store, ticket.life, ticket.number, ticket.top
    (3, 7, 1, 2, 5, 9)
    >>> tokens.read(text.swapcase())
    Traceback (most recent call last):
    swerve.serving.tokens.Forged: the decision token was not issued by this service, or was changed on the way
    """

    def __init__(self, keys: tuple[bytes, ...], life: Life) -> None:
        if not keys or not all(SHORTEST_KEY <= len(key) <= LONGEST_KEY for key in keys):
            lengths = ", ".join(str(len(key)) for key in keys) or "none"
            raise SwerveError(f"token keys of {lengths} bytes are not allowed; there must be at least one, each of 16 to 64 bytes")
        self.life = life  # the life in which decisions are signed
        # A keyed state is copied for each token: that takes half the time of keying a new one.
        self._states = tuple(hashlib.blake2b(key=key, digest_size=TAG, person=b"swerve-token") for key in keys)

    def sign(self, decision: Signed, at: float) -> str:
        """Return the token of a decision; `at` is its time in unix seconds."""
        return self.sign_many((decision,), at)[0]

    def sign_many(self, decisions: Iterable[Signed], at: float) -> list[str]:
        """Return the tokens of decisions that were made at one time."""
        pack, copy, (store, mark, _) = _LAYOUT.pack, self._states[0].copy, self.life
        raw: list[bytes] = []
        for key, code, phase, number, top, session, evidence in decisions:
            payload = pack(
                VERSION, evidence, key, code | (phase & _PHASES) << CODE_BITS, at, store, mark, number & _NUMBERS, top, session
            )
            state = copy()
            state.update(payload)
            raw += (payload, state.digest())
        # The bytes of a token are a multiple of three, so that all tokens can be encoded together.
        text = b2a_base64(b"".join(raw), newline=False).translate(_TO_URL).decode("ascii")
        if len(text) == LENGTH:
            return [text]
        return [text[start : start + LENGTH] for start in range(0, len(text), LENGTH)]

    def read(self, text: str) -> Ticket:
        """Return the content of a token; raises `Forged` unless one of the keys has signed exactly this text."""
        if len(text) != LENGTH or not text.isascii():
            raise Forged(
                f"the decision token has {len(text)} characters; it must be the {LENGTH} ASCII characters of an answer to rank"
            )
        try:
            raw = a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
        except Error:
            raise Forged("the decision token is not URL-safe base64; it must be the text of an answer to rank") from None
        payload, tag = raw[:-TAG], raw[-TAG:]
        if len(payload) != _LAYOUT.size or not any(compare_digest(tag, self._tag(state, payload)) for state in self._states):
            raise Forged("the decision token was not issued by this service, or was changed on the way")
        version, evidence, key, code, at, store, life, number, top, session = _LAYOUT.unpack(payload)
        if version != VERSION:
            raise Forged(f"the decision token has version {version}; this service reads version {VERSION}")
        arm, generation, start = decode(code)
        return Ticket(key, arm, generation, start, code >> CODE_BITS, at, store, life, number, top, session, bool(evidence))

    @staticmethod
    def _tag(state: hashlib.blake2b, payload: bytes) -> bytes:
        state = state.copy()
        state.update(payload)
        return state.digest()
