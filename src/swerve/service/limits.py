"""Limits at the door: how large a body may be, and how many queries may be new in a minute.

How long a query may be and how many candidates it may have is checked with the request itself, in `swerve.service.schemas`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from swerve.service.schemas import Refused

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

MOST_PARAMETERS = 32


class ClientGone(Exception):  # noqa: N818 - it names what happened
    """The caller went away before its request was complete: there is nobody to answer."""


class NewQueries:
    """A bucket of permits for queries that were never seen before: `per_minute` flow in, and at most as many are kept.

    >>> bucket = NewQueries(60, now=0.0)
    >>> sum(bucket.allow(now=0.0) for _ in range(100))
    60
    >>> bucket.allow(now=0.5), bucket.allow(now=1.0), bucket.allow(now=1.0)
    (False, True, False)
    """

    __slots__ = ("left", "per_minute", "since")

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = float(per_minute)
        self.left = self.per_minute
        self.since = now

    def allow(self, now: float) -> bool:
        """Take a permit if there is one. A clock that goes back gives none, and takes none away."""
        if now > self.since:
            self.left = min(self.per_minute, self.left + (now - self.since) * self.per_minute / 60.0)
        self.since = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def wait(self) -> float:
        """Seconds until there is a permit again: what Retry-After says."""
        return max(0.0, (1.0 - self.left) * 60.0 / self.per_minute)


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
