"""The answers of a batch in one compiled call: tokens are signed and encoded, and the JSON of each answer is put together.

The bytes are those of `Tokens.sign` and of the encoder of `RankResponse`. Ids of results are copied from the request's body.

Tests: tests/serving/test_sealing.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swerve.core.blake2b import BLOCK, BLOCK_BYTES, STATE, compress
from swerve.core.decisions import START_BITS, STARTS
from swerve.core.engine import Entry
from swerve.core.examination import SLOTS
from swerve.core.verbs import inlined, kernel
from swerve.serving import tokens
from swerve.serving.columns import SHORTS
from swerve.serving.kernels import (
    ANSWERED_ORDER,
    CANDIDATES,
    CHANCES,
    EVIDENCE,
    EXPLORED,
    FILLED,
    NUMBER,
    OFFER,
    PAGE,
    PHASE,
    ROW,
    SEEN,
    START,
    SWAPPED,
)
from swerve.serving.scanning import OWNED, OWNED_2, PERSON, RAW_AT, letters

HEAD = tokens.HEAD_BYTES  # bytes of a token before its page
LONGEST = HEAD + tokens.SLOT * SLOTS  # bytes of a token without its tag
ALPHABET = letters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
NAME_BYTES = tokens.NAME_BITS // 8
NUMBERS = np.uint64((1 << tokens.NUMBER_BITS) - 1)
PHASES = (1 << 64 - START_BITS) - 1
#: Offsets in a token, see `swerve.serving.tokens`.
VERSION_AT, FLAGS_AT, SLOTS_AT, SEEN_AT, KEY_AT, START_AT, TIME_AT, STORE_AT, LIFE_AT, NUMBER_AT, SESSION_AT, OFFER_AT = (
    0, 1, 2, 3, 5, 21, 29, 37, 45, 53, 61, 69,
)  # fmt: skip

DECISION, RANKING, PROPENSITIES = letters('{"decision":"'), letters('","ranking":['), letters('],"propensities":[')
NO_PROPENSITIES, EXPLORED_AT, PHASE_AT = letters('],"propensities":null'), letters(',"explored":'), letters(',"phase":')
DECIDED, SWAPPED_AT, NULL = letters(',"degraded":false'), letters(',"swapped":['), letters("null")
COMMA, OPEN_LIST, CLOSE_LIST, CLOSE, ZERO, DOT, LOWER_E, MINUS = (ord(sign) for sign in ",[]}0.e-")
BILLION = 1e9  # propensities are multiples of a billionth
BILLIONTHS = 9  # digits after the point
FIXED_DIGITS = 5  # smaller numbers than 10 to the power of minus this are written with an exponent
#: Bytes of an answer at most, besides the ids of its results and their commas.
MOST_BYTES = 1024


class Said(NamedTuple):
    """Answers in columns, see `answer_columns`."""

    signed: NDArray[np.uint8]
    ends: NDArray[np.int32]
    texts: NDArray[np.uint8]
    text_ends: NDArray[np.int32]
    shares: NDArray[np.float64]
    swaps: NDArray[np.int64]


class Seal:
    """What signing needs: the state after the token key, and scratch space."""

    def __init__(self, state: NDArray[np.uint64]) -> None:
        self.state = state
        self.words = np.zeros(2 * BLOCK + STATE, np.uint64)  # two blocks, and a state
        self.bytes = self.words.view(np.uint8)
        self.spots = np.zeros(64, np.uint8)  # by arm: its position in the given order


@inlined
def put_word(out, at, word):
    """Write a word, its lowest byte first."""
    for i in range(8):
        out[at + i] = np.uint8(word >> np.uint64(8 * i) & np.uint64(255))


@kernel
def put_text(out, at, text):
    """Write a text; return the offset behind it."""
    for i in range(len(text)):
        out[at + i] = text[i]
    return at + len(text)


@kernel
def put_number(out, at, number):
    """Write a whole number that is not negative; return the offset behind it."""
    size, rest = 1, number
    while rest >= 10:
        rest //= 10
        size += 1
    rest = number
    for i in range(size - 1, -1, -1):
        out[at + i] = ZERO + rest % 10
        rest //= 10
    return at + size


@kernel
def put_share(out, at, share):
    """Write a number from 0 to 1 that is a multiple of a billionth, with the fewest digits; return the offset behind it."""
    parts = np.int64(share * BILLION + 0.5)
    if parts == 0 or parts >= 1_000_000_000:
        out[at] = ZERO + (1 if parts > 0 else 0)
        out[at + 1] = DOT
        out[at + 2] = ZERO
        return at + 3
    digits = BILLIONTHS  # after the point
    while parts % 10 == 0:
        parts //= 10
        digits -= 1
    size, rest = 1, parts  # the digits of `parts`
    while rest >= 10:
        rest //= 10
        size += 1
    if digits - size >= FIXED_DIGITS:
        first = parts
        for _ in range(size - 1):
            first //= 10
        out[at] = ZERO + first
        at += 1
        if size > 1:
            out[at] = DOT
            rest = parts
            for i in range(size - 1, 0, -1):
                out[at + i] = ZERO + rest % 10
                rest //= 10
            at += size
        out[at] = LOWER_E
        out[at + 1] = MINUS
        return put_number(out, at + 2, digits - size + 1)
    out[at] = ZERO
    out[at + 1] = DOT
    rest = parts
    for i in range(digits - 1, -1, -1):
        out[at + 2 + i] = ZERO + rest % 10
        rest //= 10
    return at + 2 + digits


@kernel
def put_token(out, at, state, words, payload, length):
    """Sign the first `length` bytes of `payload`, which are the first of `words`, and write the token; return the offset behind it.

    The tag is written behind the payload. The bytes of a token are a multiple of three.
    """
    for i in range(length, 2 * BLOCK_BYTES):
        payload[i] = 0
    made = words[2 * BLOCK :]
    for i in range(STATE):
        made[i] = state[i]
    if length > BLOCK_BYTES:
        compress(made, words[:BLOCK], 2 * BLOCK_BYTES, False)
        compress(made, words[BLOCK : 2 * BLOCK], BLOCK_BYTES + length, True)
    else:
        compress(made, words[:BLOCK], BLOCK_BYTES + length, True)
    put_word(payload, length, made[0])
    put_word(payload, length + 8, made[1])
    for i in range(0, length + tokens.TAG, 3):
        group = np.int64(payload[i]) << 16 | np.int64(payload[i + 1]) << 8 | np.int64(payload[i + 2])
        out[at] = ALPHABET[group >> 18]
        out[at + 1] = ALPHABET[group >> 12 & 63]
        out[at + 2] = ALPHABET[group >> 6 & 63]
        out[at + 3] = ALPHABET[group & 63]
        at += 4
    return at


@kernel
def begin_payload(payload, fixed):
    """Write what the tokens of a call have in common; `fixed` has the bits of the time, the store and the life."""
    payload[VERSION_AT] = tokens.VERSION
    put_word(payload, TIME_AT, fixed[0])
    put_word(payload, STORE_AT, fixed[1])
    put_word(payload, LIFE_AT, fixed[2])


@kernel
def put_payload(payload, entry, ask, order, column):
    """Write what the token of a decision says; return how many bytes that is. `column` are the columns of its row."""
    filled = ask[FILLED]
    payload[FLAGS_AT] = ask[EVIDENCE]
    payload[SLOTS_AT] = filled
    payload[SEEN_AT] = ask[SEEN] & 255
    payload[SEEN_AT + 1] = ask[SEEN] >> 8
    put_word(payload, KEY_AT, np.uint64(entry[OWNED]))
    put_word(payload, KEY_AT + 8, np.uint64(entry[OWNED_2]))
    put_word(payload, START_AT, np.uint64(ask[START] & STARTS | (ask[PHASE] & PHASES) << START_BITS))
    put_word(payload, NUMBER_AT, np.uint64(ask[NUMBER]) & NUMBERS)
    put_word(payload, SESSION_AT, np.uint64(entry[PERSON]))
    put_word(payload, OFFER_AT, np.uint64(ask[OFFER]))
    at = HEAD
    for slot in range(filled):
        payload[at] = ask[PAGE + slot] & 255
        payload[at + 1] = ask[PAGE + slot] >> 8
        at += 2
    for slot in range(filled):
        short = column[SHORTS + order[ANSWERED_ORDER + slot]]
        for byte in range(NAME_BYTES):
            payload[at + byte] = np.uint8(short >> np.uint64(8 * byte) & np.uint64(255))
        at += NAME_BYTES
    return at


@Entry
def answer(body, entries, asks, orders, facts, columns, spans, state, words, payload, spots, fixed, estimated, out):
    """Write the answers to entries that were decided, with commas between them; return the bytes that were written.

    `columns` and `spans` are those of the shelf, `fixed` has the bits of the time, the store and the life; `words` and `payload`
    are the same scratch space. Every entry must have a page.
    """
    end = 0
    begin_payload(payload, fixed)
    for k in range(len(asks)):
        ask, entry = asks[k], entries[k]
        i, filled, size = ask[ROW], ask[FILLED], ask[CANDIDATES]
        if k > 0:
            out[end] = COMMA
            end += 1
        at = put_payload(payload, entry, ask, orders[k], columns[i])
        end = put_text(out, end, DECISION)
        end = put_token(out, end, state, words, payload, at)
        end = put_text(out, end, RANKING)
        for position in range(size):
            spots[orders[k, position]] = position
        for position in range(size):
            if position > 0:
                out[end] = COMMA
                end += 1
            spot = spots[orders[k, ANSWERED_ORDER + position]]
            begin = entry[RAW_AT] + spans[i, 2 * spot]
            for byte in range(spans[i, 2 * spot + 1]):
                out[end + byte] = body[begin + byte]
            end += spans[i, 2 * spot + 1]
        if estimated:
            end = put_text(out, end, PROPENSITIES)
            for slot in range(filled):
                if slot > 0:
                    out[end] = COMMA
                    end += 1
                end = put_share(out, end, facts[k, CHANCES + slot])
            out[end] = CLOSE_LIST
            end += 1
        else:
            end = put_text(out, end, NO_PROPENSITIES)
        end = put_text(out, end, EXPLORED_AT)
        if ask[EXPLORED] >= 0:
            end = put_number(out, end, ask[EXPLORED] + 1)
        else:
            end = put_text(out, end, NULL)
        end = put_text(out, end, PHASE_AT)
        end = put_number(out, end, ask[PHASE])
        end = put_text(out, end, DECIDED)
        if ask[SWAPPED] > 0:
            end = put_text(out, end, SWAPPED_AT)
            end = put_number(out, end, ask[SWAPPED] & 15)
            out[end] = COMMA
            end = put_number(out, end + 1, ask[SWAPPED] >> 4)
            out[end] = CLOSE_LIST
            end += 1
        out[end] = CLOSE
        end += 1
    return end


#: The lines of `ends` in `answer_columns`: where texts of decisions, lists of results, of propensities and of swaps end.
TOKEN_ENDS, RESULT_ENDS, SHARE_ENDS, SWAP_ENDS, ENDS = range(5)


@Entry
def answer_columns(
    body, entries, asks, orders, facts, columns, spans, state, words, payload, spots, fixed, signed, ends, texts, text_ends, shares,
    swaps,
):  # fmt: skip
    """Write the answers to entries that were decided into columns; return how many bytes the ids of results take.

    `signed` gets the tokens, `texts` the ids of results and `text_ends` where each ends, `shares` the propensities, `swaps` the
    positions that changed places, `ends` see above; the others are those of `answer`.
    """
    begin_payload(payload, fixed)
    token = text = result = share = swap = 0
    for k in range(len(asks)):
        ask, entry = asks[k], entries[k]
        i, filled, size = ask[ROW], ask[FILLED], ask[CANDIDATES]
        length = put_payload(payload, entry, ask, orders[k], columns[i])
        token = put_token(signed, token, state, words, payload, length)
        for position in range(size):
            spots[orders[k, position]] = position
        for position in range(size):
            spot = spots[orders[k, ANSWERED_ORDER + position]]
            begin = entry[RAW_AT] + spans[i, 2 * spot] + 1  # behind the quote
            for byte in range(spans[i, 2 * spot + 1] - 2):
                texts[text + byte] = body[begin + byte]
            text += spans[i, 2 * spot + 1] - 2
            result += 1
            text_ends[result] = text
        for slot in range(filled):
            shares[share] = facts[k, CHANCES + slot]
            share += 1
        if ask[SWAPPED] > 0:
            swaps[swap], swaps[swap + 1] = ask[SWAPPED] & 15, ask[SWAPPED] >> 4
            swap += 2
        ends[TOKEN_ENDS, k + 1], ends[RESULT_ENDS, k + 1] = token, result
        ends[SHARE_ENDS, k + 1], ends[SWAP_ENDS, k + 1] = share, swap
    return text
