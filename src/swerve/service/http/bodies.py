"""Decodes and encodes the bodies of batches in short turns; see `swerve.service.turns`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from swerve.service.http.schemas import (
    ANYTHING,
    MANY_FEEDBACKS,
    MANY_RANKS,
    MANY_SIGNALS,
    ONE_FEEDBACK,
    ONE_RANK,
    ONE_SIGNAL,
    RAWS,
    decode,
    one_limit,
)
from swerve.service.turns import Turns
from swerve.serving.checks import Limits
from swerve.serving.feeds import SignalRequest
from swerve.serving.messages import Asked, FeedbackRequest, Refused, encode, misshapen

#: Bytes decoded or searched between two looks at the clock.
BYTES_PER_STEP = 32_768
#: Answers encoded between two looks at the clock.
ANSWERS_PER_STEP = 32
#: Entries decoded between two looks at the clock, however short they are.
ENTRIES_PER_STEP = 4 * ANSWERS_PER_STEP

Shape = TypeVar("Shape")
#: By byte: how much it changes the nesting depth.
DEPTH = np.zeros(256, np.int32)
DEPTH[[ord("["), ord("{")]], DEPTH[[ord("]"), ord("}")]] = 1, -1
QUOTE, COMMA = ord('"'), ord(",")
#: Greatest nesting depth that is searched; valid entries have five levels.
DEEPEST = 500
WHITE = b" \t\r\n"
#: An offset in an error message of the decoder.
OFFSET = re.compile(r"\(byte (\d+)\)")


async def ranks_in(body: bytes, limits: Limits, turns: Turns) -> list[Asked | Refused]:
    """Return the requests in a body of `POST /v1/rank/batch`, with a `Refused` for each entry of another shape."""
    return await _entries(body, MANY_RANKS, ONE_RANK, limits, turns)


async def feedbacks_in(body: bytes, limits: Limits, turns: Turns) -> list[FeedbackRequest | Refused]:
    """Return the requests in a body of `POST /v1/feedback/batch`, with a `Refused` for each entry of another shape."""
    return await _entries(body, MANY_FEEDBACKS, ONE_FEEDBACK, limits, turns)


async def signals_in(body: bytes, limits: Limits, turns: Turns) -> list[SignalRequest | Refused]:
    """Return the numbers in a body of `POST /v1/signals/batch`, with a `Refused` for each entry of another shape."""
    return await _entries(body, MANY_SIGNALS, ONE_SIGNAL, limits, turns)


async def beacon_in(body: bytes, limits: Limits, turns: Turns) -> list[FeedbackRequest | Refused]:
    """Return the feedback in the body of a beacon: one form, or a list of them."""
    if body[:BYTES_PER_STEP].lstrip(WHITE).startswith(b"["):
        return await feedbacks_in(body, limits, turns)
    return [decode(ONE_FEEDBACK, body)]


def loose_in(body: bytes) -> list[Any]:
    """Return the entries of a body in the form of others: one, or a list of them, of any shape."""
    try:
        found: Any = ANYTHING.decode(body)
    except msgspec.ValidationError:  # nothing else is wrong with a value of any shape
        raise Refused(400, "not_json", "a number in the body is out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
        raise misshapen(trouble, ANYTHING.type, body) from None
    return found if isinstance(found, list) else [found]


async def encode_list(answers: Sequence[Any], turns: Turns) -> bytes:
    """Return the answers as a JSON list."""
    parts = []
    for start in range(0, len(answers), ANSWERS_PER_STEP):
        await turns()
        parts.append(encode(answers[start : start + ANSWERS_PER_STEP])[1:-1])
    return b"[" + b",".join(parts) + b"]"


async def _entries(
    body: bytes, many: msgspec.json.Decoder[list[Shape]], one: msgspec.json.Decoder[Shape], limits: Limits, turns: Turns
) -> list[Shape | Refused]:
    if len(body) <= BYTES_PER_STEP:
        return await _decoded(body, 0, many, one, limits, turns)
    ends = await find_ends(body, limits.batch, turns)
    longest, out = one_limit(limits), list[Shape | Refused]()
    start = first = 0  # of the entries that are decoded together: their offset, and the index of the first
    while first < len(ends) - 1:
        last = first + 1  # the index behind the last
        while last < len(ends) - 1 and last - first < ENTRIES_PER_STEP and ends[last + 1] - ends[first] <= BYTES_PER_STEP:
            last += 1
        await turns()
        start, end = ends[first] + 1, ends[last]
        if end - start > longest:  # a single entry: several together have at most `BYTES_PER_STEP`
            out.append(Refused(413, "too_large", f"the entry is larger than the {longest} bytes that [limits] allows"))
        else:
            some = await _decoded(b"[" + body[start:end] + b"]", start - 1, many, one, limits, turns)
            if len(some) != last - first:
                raise Refused(400, "not_json", f"JSON is malformed: an entry is missing (byte {end})")
            out += some
        first = last
    return out


async def _decoded(
    body: bytes,
    skipped: int,
    many: msgspec.json.Decoder[list[Shape]],
    one: msgspec.json.Decoder[Shape],
    limits: Limits,
    turns: Turns,
) -> list[Shape | Refused]:
    """Decode a list at once. If an entry has another shape, decode entry by entry, so that the others are served.

    `skipped` is the offset of the list in the request's body, for error messages.
    """
    try:
        entries: list[Shape | Refused] = [*decode(many, body)]
    except Refused as refused:
        if refused.status == 400:
            raise moved(refused, skipped) from None
        raw = decode(RAWS, body)
        few(len(raw), limits.batch)
        entries = []
        for text in raw:
            await turns()
            try:
                entries.append(decode(one, bytes(text)))
            except Refused as why:
                entries.append(why)
    few(len(entries), limits.batch)
    return entries


def few(count: int, most: int, said: str = "") -> None:
    """Refuse a batch of more than `most` entries; `said` is its count in words, if it was not counted to the end."""
    if count > most:
        raise Refused(422, "too_many", f"the batch has {said or count} entries; at most {most} are allowed")


def moved(refused: Refused, by: int) -> Refused:
    """Return a refusal with the offset in its message raised by `by`, so that it counts from the beginning of the body."""
    message = OFFSET.sub(lambda found: f"(byte {int(found[1]) + by})", refused.message)
    return Refused(refused.status, refused.code, message, refused.field, refused.limit)


async def first_of(body: bytes, at: int, turns: Turns) -> int:
    """Return the offset of the first byte, from `at` on, that is not white space; the body's length if there is none."""
    while at < len(body):
        piece = body[at : at + BYTES_PER_STEP]
        rest = len(piece.lstrip(WHITE))
        if rest:
            return at + len(piece) - rest
        at += len(piece)
        await turns()
    return at


async def find_ends(body: bytes, most: int, turns: Turns) -> list[int]:
    """Return the offsets around the entries of a list: its opening bracket, the commas between entries, its closing bracket.

    An empty list gives its opening bracket alone. The search decodes nothing, and stops at the first entry beyond `most`. It does
    not notice malformed JSON inside an entry.
    """
    at = await first_of(body, 0, turns)
    if body[at : at + 1] != b"[":
        decode(RAWS, body[: at + BYTES_PER_STEP])  # raises with the reason
        raise Refused(422, "invalid", "Expected `array`")
    ends, quoted, depth = [at], 0, 0
    while at < len(body):
        await turns()
        piece = body[at : at + BYTES_PER_STEP]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # a backslash and the byte that it escapes belong together
            piece = body[at : at + BYTES_PER_STEP + 1]
        plain = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in piece else piece
        text = np.frombuffer(plain, np.uint8)
        inside = (np.cumsum(text == QUOTE, dtype=np.int32) + quoted) & 1
        depths = np.cumsum(DEPTH[text] * (1 - inside), dtype=np.int32) + depth
        if depths.max() > DEEPEST:
            raise Refused(400, "not_json", "the body is nested too deeply")
        between = np.flatnonzero((text == COMMA) & (depths == 1) & (inside == 0))
        over = np.flatnonzero(depths == 0)
        closing = int(over[0]) if len(over) else len(piece)
        ends += [at + int(comma) for comma in between[: most + 1] if comma < closing]
        few(len(ends), most, f"more than {most}")
        if len(over):
            end = at + closing
            if await first_of(body, end + 1, turns) != len(body) or body[end : end + 1] != b"]":
                raise Refused(400, "not_json", f"JSON is malformed: trailing characters (byte {end + 1})")
            return [*ends, end] if len(ends) > 1 or await first_of(body, ends[0] + 1, turns) < end else [ends[0]]
        quoted, depth, at = int(inside[-1]), int(depths[-1]), at + len(piece)
    raise Refused(400, "not_json", "Input data was truncated")
