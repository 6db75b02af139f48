"""Bodies of batches, read and written in short turns; see `swerve.service.turns`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from swerve.service.http.schemas import MANY_FEEDBACKS, MANY_RANKS, ONE_FEEDBACK, ONE_RANK, RAWS, decode, one_limit
from swerve.service.turns import Turns
from swerve.serving.checks import Limits
from swerve.serving.messages import Asked, FeedbackRequest, Refused, encode

#: Bytes that are decoded, or looked through, in one go.
PIECE = 32_768
#: Entries that are decoded one by one, or written, in one go.
GROUP = 32

Shape = TypeVar("Shape")
#: Byte → by how much it changes the depth of brackets.
DEPTH = np.zeros(256, np.int32)
DEPTH[[ord("["), ord("{")]], DEPTH[[ord("]"), ord("}")]] = 1, -1
QUOTE, COMMA = ord('"'), ord(",")
#: Brackets in each other; entries have five.
DEEPEST = 500
WHITE = b" \t\r\n"
PLACE = re.compile(r"\(byte (\d+)\)")


async def ranks_in(body: bytes, limits: Limits, turns: Turns) -> list[Asked | Refused]:
    """The requests in a body of `POST /v1/rank/batch`; in the place of one that has another shape, why it is refused."""
    return await _entries(body, MANY_RANKS, ONE_RANK, limits, turns)


async def feedbacks_in(body: bytes, limits: Limits, turns: Turns) -> list[FeedbackRequest | Refused]:
    """The requests in a body of `POST /v1/feedback/batch`; in the place of one that has another shape, why it is refused."""
    return await _entries(body, MANY_FEEDBACKS, ONE_FEEDBACK, limits, turns)


async def encode_list(answers: Sequence[Any], turns: Turns) -> bytes:
    """Answers as a JSON list."""
    parts = []
    for start in range(0, len(answers), GROUP):
        await turns()
        parts.append(encode(answers[start : start + GROUP])[1:-1])
    return b"[" + b",".join(parts) + b"]"


async def _entries(
    body: bytes, many: msgspec.json.Decoder[list[Shape]], one: msgspec.json.Decoder[Shape], limits: Limits, turns: Turns
) -> list[Shape | Refused]:
    if len(body) <= PIECE:
        return await _decoded(body, 0, many, one, limits, turns)
    ends = await find_ends(body, limits.batch, turns)
    longest, out = one_limit(limits), list[Shape | Refused]()
    start = first = 0  # of the group: where it starts, and which entry is its first
    while first < len(ends) - 1:
        last = first + 1  # the group ends before this one
        while last < len(ends) - 1 and last - first < GROUP * 4 and ends[last + 1] - ends[first] <= PIECE:
            last += 1
        await turns()
        start, end = ends[first] + 1, ends[last]
        if end - start > longest:  # it is alone
            out.append(Refused(413, "too_large", f"the entry is larger than {longest} bytes, which [limits] allows for it"))
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
    """A list decoded at once; entry by entry only when one of them has another shape, so that the rest is served."""
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
    """Refuse a batch of more entries than may be."""
    if count > most:
        raise Refused(422, "too_many", f"the batch has {said or count} entries; at most {most} are allowed")


def moved(refused: Refused, by: int) -> Refused:
    """A refusal whose place counts from the beginning of the body."""
    message = PLACE.sub(lambda found: f"(byte {int(found[1]) + by})", refused.message)
    return Refused(refused.status, refused.code, message, refused.field)


async def first_of(body: bytes, at: int, turns: Turns) -> int:
    """Return where the first byte from `at` on stands that is not white space; the body's length when there is none."""
    while at < len(body):
        piece = body[at : at + PIECE]
        rest = len(piece.lstrip(WHITE))
        if rest:
            return at + len(piece) - rest
        at += len(piece)
        await turns()
    return at


async def find_ends(body: bytes, most: int, turns: Turns) -> list[int]:
    """Where the entries of a list end: its opening bracket, the commas between them, its closing bracket; both brackets alone
    when it is empty.

    Nothing is decoded, and no more is looked at than it takes to find too many. Inside of an entry, what is no JSON goes unnoticed.
    """
    at = await first_of(body, 0, turns)
    if body[at : at + 1] != b"[":
        decode(RAWS, body[: at + PIECE])  # says what it is
        raise Refused(422, "invalid", "Expected `array`")
    ends, quoted, depth = [at], 0, 0
    while at < len(body):
        await turns()
        piece = body[at : at + PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what is escaped is looked at together with its backslash
            piece = body[at : at + PIECE + 1]
        plain = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in piece else piece
        text = np.frombuffer(plain, np.uint8)
        inside = (np.cumsum(text == QUOTE, dtype=np.int32) + quoted) & 1
        depths = np.cumsum(DEPTH[text] * (1 - inside), dtype=np.int32) + depth
        if depths.max() > DEEPEST:
            raise Refused(400, "not_json", "the body is nested too deeply")
        between = np.flatnonzero((text == COMMA) & (depths == 1) & (inside == 0))
        over = np.flatnonzero(depths == 0)
        closing = int(over[0]) if len(over) else len(piece)
        ends += [at + int(place) for place in between[: most + 1] if place < closing]
        few(len(ends), most, f"more than {most}")
        if len(over):
            end = at + closing
            if await first_of(body, end + 1, turns) != len(body) or body[end : end + 1] != b"]":
                raise Refused(400, "not_json", f"JSON is malformed: trailing characters (byte {end + 1})")
            return [*ends, end] if len(ends) > 1 or await first_of(body, ends[0] + 1, turns) < end else [ends[0]]
        quoted, depth, at = int(inside[-1]), int(depths[-1]), at + len(piece)
    raise Refused(400, "not_json", "Input data was truncated")
