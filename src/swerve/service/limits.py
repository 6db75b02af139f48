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
MOST_ASKED = 100_000  # queries without a row that are known to have been asked


class ClientGone(Exception):  # noqa: N818 - it names what happened
    """The caller went away before its request was complete: there is nobody to answer."""


class Doorkeeper:
    """Who asked a query that has no row first: of at least the last `most` / 2 of them, and of at most `most`.

    One session has a tenth of the room at most, so that a flood from one does not make the others' be forgotten.

    >>> door = Doorkeeper()
    >>> door.several(b"jaguar", 1), door.several(b"jaguar", 1), door.several(b"jaguar", 2)
    (False, False, True)
    """

    __slots__ = ("_each", "_half", "_old", "_share", "_young")

    def __init__(self, most: int = MOST_ASKED) -> None:
        self._half, self._share = most // 2, most // 20
        # two tables, the older of which is let go when the younger is full
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}
        self._each: dict[int, int] = {}  # entries of each session in the younger

    def several(self, key: bytes, session: int) -> bool:
        """Whether another session has asked this query before; notes that this one does, if nobody has."""
        first = self._young.get(key)
        if first is None:
            first = self._old.get(key)
        if first is not None:
            return first != session
        if len(self._young) >= self._half:
            self._old, self._young, self._each = self._young, {}, {}
        count = self._each.get(session, 0)
        if count < self._share:
            self._each[session] = count + 1
            self._young[key] = session
        return False


class NewQueries:
    """A bucket of permits for queries that were never seen before: `per_minute` flow in, and at most as many are kept.

    The upper half is for anybody. The lower half is for queries that several sessions ask: one that asks for new queries without
    end takes none from those. Requests without a session are one session.

    >>> bucket = NewQueries(60, now=0.0)
    >>> sum(bucket.allow(number.to_bytes(2, "big"), 1, now=0.0) for number in range(100))
    30
    >>> bucket.allow(b"irma", 2, now=0.0), bucket.allow(b"irma", 3, now=0.0)
    (False, True)
    """

    __slots__ = ("door", "left", "per_minute", "reserve", "since")

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = float(per_minute)
        self.reserve = float(per_minute // 2)
        self.left = self.per_minute
        self.since = now
        self.door = Doorkeeper()

    def allow(self, key: bytes, session: int, now: float, *, several: bool = False) -> bool:
        """Take a permit for a query if there is one; `several` sessions ask it at this very moment. A clock that goes back gives
        none, and takes none away."""
        if now > self.since:
            self.left = min(self.per_minute, self.left + (now - self.since) * self.per_minute / 60.0)
        self.since = now
        if self.left < self.reserve + 1.0 and not several and not self.door.several(key, session):
            return False
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


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
