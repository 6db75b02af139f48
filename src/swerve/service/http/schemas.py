"""Decoding of request bodies.

A request is refused in two steps. The decoder refuses bodies that are not JSON (400) and fields of another type (422);
`swerve.serving.checks` refuses values that are too long, empty, repeated or not text (422). All numbers are finite: JSON has no
NaN, and the decoder refuses numbers that overflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from swerve.core.errors import shown
from swerve.serving.checks import Limits
from swerve.serving.control import AuditRequest, DeleteRequest, ExportRequest, RuleRequest
from swerve.serving.experiment import ExperimentList, ExperimentRequest
from swerve.serving.feeds import SignalRequest
from swerve.serving.messages import (
    Asked,
    FeedbackRequest,
    ListRequest,
    ObserveRequest,
    Parts,
    Refused,
    ShiftRequest,
    decode,
    encode,
    misshapen,
    read_asked,
)

Shape = TypeVar("Shape")

ONE_RANK = msgspec.json.Decoder(Asked)
MANY_RANKS = msgspec.json.Decoder(list[Asked])
ONE_FEEDBACK = msgspec.json.Decoder(FeedbackRequest)
MANY_FEEDBACKS = msgspec.json.Decoder(list[FeedbackRequest])
ONE_SIGNAL = msgspec.json.Decoder(SignalRequest)
MANY_SIGNALS = msgspec.json.Decoder(list[SignalRequest])
_shift = msgspec.json.Decoder(ShiftRequest)
_observe = msgspec.json.Decoder(ObserveRequest)
_rule = msgspec.json.Decoder(RuleRequest)
_experiment = msgspec.json.Decoder(ExperimentRequest)
_delete = msgspec.json.Decoder(DeleteRequest)
ANYTHING = msgspec.json.Decoder()
RAWS = msgspec.json.Decoder(list[msgspec.Raw])

#: Bytes of a character at most: two escapes such as `\\ud83c\\udf00`. And bytes for field names, dates, numbers and white space.
CHARACTER_BYTES, OTHER_BYTES = 12, 65_536
#: Texts of up to `query_chars` characters in a request: query, locale, filter, segment; a namespace is short.
QUERY_PARTS = 4
#: Texts of up to `session_chars` characters: session, unit.
SESSIONS = 2
#: Digits of the id of a rule.
MOST_DIGITS = 15


def read_rank(body: bytes) -> Asked:
    """Decode the body of `POST /v1/rank`."""
    return read_asked(body)


def read_feedback(body: bytes) -> FeedbackRequest:
    """Decode the body of `POST /v1/feedback`."""
    return decode(ONE_FEEDBACK, body)


def read_signal(body: bytes) -> SignalRequest:
    """Decode the body of `POST /v1/signals`."""
    return decode(ONE_SIGNAL, body)


def read_observe(body: bytes) -> ObserveRequest:
    """Decode the body of `POST /v1/observe`."""
    return decode(_observe, body)


def read_shift(body: bytes) -> None:
    """Check the body of an operator's shift: none, or an empty object."""
    if body:
        decode(_shift, body)


def read_rule(body: bytes) -> RuleRequest:
    """Decode the body of `POST /v1/rules`."""
    return decode(_rule, body)


def read_export(parameters: Mapping[str, str]) -> ExportRequest:
    """Decode the parameters of `GET /v1/export`."""
    return _converted(parameters, ExportRequest)


def read_delete(body: bytes) -> DeleteRequest:
    """Decode the body of `POST /v1/delete`."""
    return decode(_delete, body)


def read_audit(parameters: Mapping[str, str]) -> AuditRequest:
    """Decode the parameters of `GET /v1/audit`."""
    return _converted(parameters, AuditRequest)


def read_experiment(body: bytes) -> ExperimentRequest:
    """Decode the body of `PUT /v1/experiments`."""
    return decode(_experiment, body)


def read_experiments(parameters: Mapping[str, str]) -> ExperimentList:
    """Decode the parameters of `GET /v1/experiments`."""
    return _converted(parameters, ExperimentList)


def read_number(text: str) -> int:
    """Decode the id of a rule in a path."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise Refused(422, "invalid", f"id = {shown(text)} is not allowed; it must be the number of a rule", "id")
    return int(text)


def read_list(parameters: Mapping[str, str]) -> ListRequest:
    """Decode the parameters of `GET /v1/queries`."""
    return _converted(parameters, ListRequest)


def read_parts(parameters: Mapping[str, str]) -> dict[str, str]:
    """Decode the parameters that name the parts of a query's key."""
    parts: dict[str, str] = msgspec.to_builtins(_converted(parameters, Parts))
    return parts


def _converted(parameters: Mapping[str, str], shape: type[Shape]) -> Shape:
    try:
        return msgspec.convert(dict(parameters), shape, strict=False)
    except msgspec.ValidationError as trouble:
        raise misshapen(trouble, shape, encode(parameters)) from None


def one_limit(limits: Limits) -> int:
    """Return the greatest number of bytes that one request can need under the limits on its parts.

    Larger bodies are refused unread: decoding them would hold the event loop for milliseconds.
    """
    texts = QUERY_PARTS * limits.query_chars + SESSIONS * limits.session_chars + limits.candidates * limits.id_chars
    return OTHER_BYTES + CHARACTER_BYTES * texts
