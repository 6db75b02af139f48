"""Decodes and encodes the bodies of batches in short turns; see `swerve.service.turns`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, TypeVar

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
    one_limit,
)
from swerve.service.ranking_batches import Batching, Part
from swerve.service.turns import Turns
from swerve.serving.checks import Limits
from swerve.serving.feeds import SignalRequest
from swerve.serving.messages import Asked, FeedbackRequest, Refused, decode, encode, misshapen

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


async def ranks_in(body: bytes, limits: Limits, turns: Turns) -> list[Asked | Refused]:
    """Return the requests in a body of `POST /v1/rank/batch`, with a `Refused` for each entry of another shape."""
    return await _entries(body, MANY_RANKS, ONE_RANK, limits, turns)


async def raws_in(body: bytes, limits: Limits, turns: Turns) -> list[bytes | Refused]:
    """Return the entries in the body of a batch as they are, with a `Refused` for each that is too large."""
    out = list[bytes | Refused]()
    async for piece in _pieces(body, limits, turns):
        if isinstance(piece, Refused):
            out.append(piece)
            continue
        try:
            out += piece.whole([bytes(raw) for raw in decode(RAWS, piece.text)])
        except Refused as refused:
            raise refused.moved(piece.skipped) from None
    few(len(out), limits.batch)
    return out


async def parts_in(body: bytes, batching: Batching, turns: Turns) -> list[Part]:
    """Return the parts of a body of `POST /v1/rank/batch`: in columns, where the service has any use for them."""
    limits = batching.ranking.limits
    if not batching.plain:
        return [Part(None, [*await ranks_in(body, limits, turns)])]
    parts = list[Part]()
    async for piece in _pieces(body, limits, turns):
        if isinstance(piece, Refused):
            parts.append(Part(None, [piece]))
            continue
        try:
            part = await batching.read(piece.text, turns)
        except Refused as refused:
            raise refused.moved(piece.skipped) from None
        if part is None:
            part = Part(None, [*await _decoded(piece.text, piece.skipped, MANY_RANKS, ONE_RANK, limits, turns)])
        piece.whole(part.entries)
        parts.append(part)
    few(sum(len(part.entries) for part in parts), limits.batch)
    return parts


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
    out = list[Shape | Refused]()
    async for piece in _pieces(body, limits, turns):
        if isinstance(piece, Refused):
            out.append(piece)
        else:
            out += piece.whole(await _decoded(piece.text, piece.skipped, many, one, limits, turns))
    return out


class Piece(NamedTuple):
    """A piece of a body, a list of whole entries."""

    text: bytes
    skipped: int  # offset in the body, for messages
    entries: int | None = None  # how many; None: it is not known

    def whole(self, entries: list[Shape]) -> list[Shape]:
        """Return the entries, if none is missing."""
        if self.entries is not None and len(entries) != self.entries:
            raise Refused(400, "not_json", f"JSON is malformed: an entry is missing (byte {self.skipped + len(self.text) - 1})")
        return entries


async def _pieces(body: bytes, limits: Limits, turns: Turns) -> AsyncIterator[Piece | Refused]:
    """Yield a body in pieces that can be decoded in one turn; a refusal for an entry that is too large."""
    if len(body) <= BYTES_PER_STEP:
        yield Piece(body, 0)
        return
    ends = await find_ends(body, limits.batch, turns)
    longest, first = one_limit(limits), 0  # the index of the first entry that is decoded next
    while first < len(ends) - 1:
        last = first + 1  # the index behind the last
        while last < len(ends) - 1 and last - first < ENTRIES_PER_STEP and ends[last + 1] - ends[first] <= BYTES_PER_STEP:
            last += 1
        await turns()
        start, end = ends[first] + 1, ends[last]
        if end - start > longest:  # a single entry: several together have at most `BYTES_PER_STEP`
            yield Refused(413, "too_large", f"the entry is larger than the {longest} bytes that [limits] allows")
        else:
            yield Piece(b"[" + body[start:end] + b"]", start - 1, last - first)
        first = last


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
            raise refused.moved(skipped) from None
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
