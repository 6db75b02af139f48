"""Limits on the size of a body and on the number of parameters of a URL.

`swerve.serving.checks` checks the lengths of queries, ids and sessions and the number of candidates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from swerve.serving.messages import Refused

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

#: Parameters of a URL that are parsed. The routes have two; more would only take time.
MOST_PARAMETERS = 32
#: Digits of a `Content-Length` that are read: enough for any limit, and Python refuses more than 4300.
MOST_DIGITS = 19


class ClientGone(Exception):  # noqa: N818 - it names what happened
    """The caller closed the connection before its request was complete, so there is no answer."""


def too_large(limit: int) -> Refused:
    """Return the refusal of a body over the limit."""
    return Refused(
        413, "too_large", f"the body is larger than {limit} bytes, the most that [limits] allows; send less, or several batches"
    )


def parameters(query_string: bytes) -> dict[str, str]:
    """Parse the parameters of a URL; refuses more than `MOST_PARAMETERS`."""
    try:
        return dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS))
    except ValueError:
        raise Refused(422, "too_many", f"there are more than {MOST_PARAMETERS} parameters") from None


def declared(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the declared length of a body, or −1. A length that is not a number is ignored: the bytes are counted too."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value[:MOST_DIGITS])
    return -1


async def read_body(headers: Iterable[tuple[bytes, bytes]], receive: Receive, limit: int) -> bytes:
    """Return the body of an ASGI request. Refuses it as soon as it exceeds `limit`, so that no more is ever kept."""
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
