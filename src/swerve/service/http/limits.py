"""Limits at the door: how large a body may be, and how many parameters an address may have.

How long a query may be and how many candidates it may have is checked with the request itself, in `swerve.service.http.schemas`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from swerve.serving.messages import Refused

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

MOST_PARAMETERS = 32


class ClientGone(Exception):  # noqa: N818 - it names what happened
    """The caller went away before its request was complete: there is nobody to answer."""


def too_large(limit: int) -> Refused:
    """The refusal of a body over the limit."""
    return Refused(
        413, "too_large", f"the body is larger than {limit} bytes, which [limits] allows for it; send less, or in several batches"
    )


def parameters(query_string: bytes) -> dict[str, str]:
    """The parameters behind a path; refused when there are so many that reading them takes long."""
    try:
        return dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS))
    except ValueError:
        raise Refused(422, "too_many", f"there are more than {MOST_PARAMETERS} parameters") from None


def declared(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The length that a request declares, or −1. What is no number is left to the count of bytes."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value[:19])  # more digits are too many in any case, and Python reads no more than 4300
    return -1


async def read_body(headers: Iterable[tuple[bytes, bytes]], receive: Receive, limit: int) -> bytes:
    """The body of an ASGI request, refused as soon as it is known to be larger than `limit`: never more than that is kept."""
    if declared(headers) > limit:
        raise too_large(limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if len(body) > limit:
        raise too_large(limit)
    if not message.get("more_body", False):
        return body
    parts, size = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise too_large(limit)
    return b"".join(parts)
