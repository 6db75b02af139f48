"""Requests as they come in: bodies are decoded, and refused when they are not what the service takes.

A request is refused in two steps. The decoder refuses what is not JSON (400) and what has another shape (422);
`swerve.serving.checks` refuses what is too long, empty, repeated or not text (422). Numbers are finite after that: JSON has no NaN,
and the decoder refuses what overflows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from swerve.serving.checks import Limits
from swerve.serving.messages import Asked, FeedbackRequest, ListRequest, ShiftRequest, encode, misshapen

Shape = TypeVar("Shape")


ONE_RANK = msgspec.json.Decoder(Asked)
MANY_RANKS = msgspec.json.Decoder(list[Asked])
ONE_FEEDBACK = msgspec.json.Decoder(FeedbackRequest)
MANY_FEEDBACKS = msgspec.json.Decoder(list[FeedbackRequest])
_shift = msgspec.json.Decoder(ShiftRequest)
RAWS = msgspec.json.Decoder(list[msgspec.Raw])


def read_rank(body: bytes) -> Asked:
    """The request in a body of `POST /v1/rank`."""
    return decode(ONE_RANK, body)


def read_feedback(body: bytes) -> FeedbackRequest:
    """The request in a body of `POST /v1/feedback`."""
    return decode(ONE_FEEDBACK, body)


def read_ranks(body: bytes) -> list[Asked]:
    """The requests in a body of `POST /v1/rank/batch`, if all of them have their shape; `bodies` reads the others."""
    return decode(MANY_RANKS, body)


def read_shift(body: bytes) -> None:
    """The body of an operator's shift: none, or an empty object."""
    if body:
        decode(_shift, body)


def read_list(parameters: Mapping[str, str]) -> ListRequest:
    """The parameters of `GET /v1/queries`."""
    try:
        return msgspec.convert(dict(parameters), ListRequest, strict=False)
    except msgspec.ValidationError as trouble:
        raise misshapen(trouble, ListRequest, encode(parameters)) from None


def one_limit(limits: Limits) -> int:
    """Bytes that one request needs at most: twelve for a character, as half pairs are escaped, and room for the rest.

    More would take milliseconds to read, for nothing.
    """
    return 65_536 + 12 * (limits.query_chars + limits.session_chars + limits.candidates * limits.id_chars)


def decode(decoder: msgspec.json.Decoder[Shape], body: bytes) -> Shape:
    """What a body holds; raises `Refused`."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as trouble:
        raise misshapen(trouble, decoder.type, body) from None
