"""Decision tokens: signed, and complete for feedback, so that the service keeps no table of open decisions.

A token has a version, flags (whether its page is evidence, the arm of an experiment, and whether the control arm's policy decided),
the query's key, the policy's start and the query's phase, the time, the store and its life, the decision's number in that life, a
keyed hash of the session, the candidates on offer, the slots that count as seen, for each slot the arm, its generation and a keyed
hash of the candidate, and a keyed BLAKE2b tag over all of them, as URL-safe base64: 132 characters for one slot, 204 for ten. It is
signed, not encrypted: it has no text, and its content is of no use without the service.

Store and life are random numbers, so that no two decisions have the same token, whatever was restored, copied or deleted.
"""

from __future__ import annotations

import hashlib
import struct
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from hmac import compare_digest
from itertools import accumulate, pairwise
from typing import NamedTuple

from swerve.core.blake2b import keyed
from swerve.core.decisions import START_BITS, STARTS
from swerve.core.errors import SwerveError
from swerve.core.examination import SLOTS
from swerve.store.protocol import Life
from swerve.store.shares import Share

#: Version of the layout below.
VERSION = 3
#: Bytes of the tag: 128 bits cannot be guessed.
TAG = 16
#: Bits of a decision's number in its life. The id of the life in the store stands above them.
NUMBER_BITS = 40
#: Above the number, where they are needed: bits of the number of a share.
SHARE_BITS = 8
#: Bytes of a token key: at least 128 bits, and no more than BLAKE2b takes.
SHORTEST_KEY, LONGEST_KEY = 16, 64
#: Distinguishes tags of tokens from other uses of the key.
PURPOSE = b"swerve-token"
#: Bits of a candidate's hash in a token: enough to tell the results of one page apart.
NAME_BITS = 32
NAMES = (1 << NAME_BITS) - 1

_HEAD = struct.Struct("<BBBH16sQdQQQQQ")
HEAD_BYTES = _HEAD.size
SLOT = 6  # bytes of a slot
_PAGES = tuple(struct.Struct(f"<{slots}H{slots}I") for slots in range(SLOTS + 1))
#: Characters of a token by its number of slots. The bytes are a multiple of three: no padding, no spare bits, one text per token.
LENGTHS = tuple((_HEAD.size + page.size + TAG) * 4 // 3 for page in _PAGES)
ONE_SLOT, TEN_SLOTS = LENGTHS[1], LENGTHS[10]
_PHASES = (1 << 64 - START_BITS) - 1
_NUMBERS = (1 << NUMBER_BITS) - 1
_WORDS = (1 << 64) - 1
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")  # `+` and `/` must fail: they would make a second text for a token


class Forged(SwerveError):  # noqa: N818 - it names what happened to the token
    """A decision token that this service did not sign."""


class Ticket(NamedTuple):
    """The content of a decision token."""

    key: bytes
    start: int
    phase: int
    at: float
    store: int
    life: int
    number: int  # in its life
    session: int  # keyed hash of the session, 0 for none
    evidence: bool  # whether the show counts as evidence
    seen: int  # the slots that count as seen, as a mask
    offer: int  # the arms on offer, as a mask
    codes: tuple[int, ...]  # by slot: the arm and its generation, see `swerve.core.decisions`
    names: tuple[int, ...]  # by slot: keyed hash of the candidate
    arm: int = 0  # of an experiment, see `swerve.serving.holdout`
    rival: bool = False  # whether the policy of the control arm decided, on a record of its own
    ruled: bool = False  # whether rules have changed the ranking: it may have more results than were on offer
    home: tuple[int, int] = (0, 0)  # of a rival's decision: the share that has the record, and of how many


def page_of(codes: Sequence[int], names: Sequence[int]) -> bytes:
    """Return a page as tokens have it: the codes of all slots, then their names.

    >>> Signed(b"q" * 16, 1, 7, 5, 0, True, 1, 8, page_of([3, 4], [9, 10])).names
    (9, 10)
    """
    return _PAGES[len(codes)].pack(*codes, *names)


class Signed(NamedTuple):
    """The content of a decision's token besides its time and life. Sessions keep it: `page` is packed, which takes an eighth of the
    memory of its numbers."""

    key: bytes
    start: int
    phase: int  # the ledger's
    number: int
    session: int
    evidence: bool
    seen: int
    offer: int
    page: bytes  # see `page_of`
    arm: int = 0
    rival: bool = False
    ruled: bool = False

    @property
    def codes(self) -> tuple[int, ...]:
        """By slot: the arm and its generation."""
        return self._numbers()[: len(self.page) // SLOT]

    @property
    def names(self) -> tuple[int, ...]:
        """By slot: keyed hash of the candidate."""
        return self._numbers()[len(self.page) // SLOT :]

    def _numbers(self) -> tuple[int, ...]:
        return _PAGES[len(self.page) // SLOT].unpack(self.page)


class Tokens:
    """Signs and reads decision tokens. The first key signs, all keys are accepted: there are two after a rotation.

    >>> tokens = Tokens((b"k" * 32,), Life(store=1, mark=2, id=3))
    >>> page = page_of([3], [9])
    >>> text = tokens.sign(Signed(b"q" * 16, 1, 7, number=5, session=0, evidence=True, seen=1, offer=8, page=page), at=1e9)
    >>> ticket = tokens.read(text)
    >>> ticket.start, ticket.phase, ticket.store, ticket.life, ticket.number, ticket.codes, ticket.names
    (1, 7, 1, 2, 5, (3,), (9,))
    >>> tokens.read(text.swapcase())
    Traceback (most recent call last):
    swerve.serving.tokens.Forged: the decision token was not issued by this service, or was changed on the way
    """

    def __init__(self, keys: tuple[bytes, ...], life: Life) -> None:
        if not keys or not all(SHORTEST_KEY <= len(key) <= LONGEST_KEY for key in keys):
            lengths = ", ".join(str(len(key)) for key in keys) or "none"
            raise SwerveError(f"token keys of {lengths} bytes are not allowed; there must be at least one, each of 16 to 64 bytes")
        self.life = life  # the life in which decisions are signed
        self.home = 0  # what decisions of the control arm's policy say of the share with their records, see `live_in`
        self.signing_state = keyed(keys[0], TAG, PURPOSE)  # for compiled code, see `swerve.serving.sealing`
        # A keyed state is copied for each token: that takes half the time of keying a new one.
        self._states = tuple(hashlib.blake2b(key=key, digest_size=TAG, person=PURPOSE) for key in keys)

    def live_in(self, share: Share) -> None:
        """Write the share into tokens of the control arm's policy: the keys of its records do not tell their share."""
        self.home = (share.of << SHARE_BITS | share.number) << NUMBER_BITS

    def strayed(self, ticket: Ticket) -> bool:
        """Return whether the share that has the record of a decision is unknown: a decision of the control arm's policy that was
        made under another number of shares."""
        return ticket.rival and self.home != 0 and ticket.home[1] != self.home >> NUMBER_BITS + SHARE_BITS

    def sign(self, decision: Signed, at: float) -> str:
        """Return the token of a decision; `at` is its time in unix seconds."""
        return self.sign_many((decision,), at)[0]

    def sign_many(self, decisions: Iterable[Signed], at: float) -> list[str]:
        """Return the tokens of decisions that were made at one time."""
        pack, copy, (store, mark, _) = _HEAD.pack, self._states[0].copy, self.life
        raw: list[bytes] = []
        lengths: list[int] = []
        for key, start, phase, number, session, evidence, seen, offer, page, arm, rival, ruled in decisions:
            slots = len(page) // SLOT
            word = start & STARTS | (phase & _PHASES) << START_BITS
            flags = evidence | arm << 1 | rival << 3 | ruled << 4
            numbered = number & _NUMBERS | (self.home if rival else 0)
            payload = pack(VERSION, flags, slots, seen, key, word, at, store, mark, numbered, session, offer & _WORDS) + page
            state = copy()
            state.update(payload)
            raw += (payload, state.digest())
            lengths.append(LENGTHS[slots])
        if not raw:
            return []
        # The bytes of a token are a multiple of three, so that all tokens can be encoded together.
        text = b2a_base64(b"".join(raw), newline=False).translate(_TO_URL).decode("ascii")
        if len(lengths) == 1:
            return [text]
        ends = list(accumulate(lengths, initial=0))
        return [text[start:end] for start, end in pairwise(ends)]

    def read(self, text: str) -> Ticket:
        """Return the content of a token; raises `Forged` unless one of the keys has signed exactly this text."""
        if len(text) not in LENGTHS or not text.isascii():
            raise Forged(
                f"the decision token has {len(text)} characters; it must be the text of an answer to rank, "
                f"{LENGTHS[0]} to {LENGTHS[-1]} ASCII characters"
            )
        try:
            raw = a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
        except Error:
            raise Forged("the decision token is not URL-safe base64; it must be the text of an answer to rank") from None
        payload, tag = raw[:-TAG], raw[-TAG:]
        if not any(compare_digest(tag, self._tag(state, payload)) for state in self._states):
            raise Forged("the decision token was not issued by this service, or was changed on the way")
        version, flags, slots, seen, key, word, at, store, life, number, session, offer = _HEAD.unpack_from(payload)
        if version != VERSION:
            raise Forged(f"the decision token has version {version}; this service reads version {VERSION}")
        page = _PAGES[slots].unpack_from(payload, _HEAD.size)
        home = number >> NUMBER_BITS
        return Ticket(
            key, word & STARTS, word >> START_BITS, at, store, life, number & _NUMBERS, session, bool(flags & 1), seen, offer,
            page[:slots], page[slots:], flags >> 1 & 3, bool(flags >> 3 & 1), bool(flags >> 4 & 1),
            (home & (1 << SHARE_BITS) - 1, home >> SHARE_BITS),
        )  # fmt: skip

    @staticmethod
    def _tag(state: hashlib.blake2b, payload: bytes) -> bytes:
        state = state.copy()
        state.update(payload)
        return state.digest()
