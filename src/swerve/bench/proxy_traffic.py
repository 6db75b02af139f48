"""The load of the proxy's benchmark: searches as an application sends them, and a request that nothing concerns."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from swerve.bench.load import Turn, drive

#: Queries of the traffic, and the exponent of their frequencies.
QUERIES, ZIPF = 1000, 1.0
SEED = 16
_sessions = itertools.count()


def search(query: int, session: str) -> bytes:
    """Return a search of a session."""
    body = b'{"query":{"multi_match":{"query":"query %d","fields":["title","text"]}},"size":10}' % query
    return (
        b"POST /shop/_search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Swerve-Session: %b\r\n"
        b"Content-Length: %d\r\n\r\n" % (session.encode(), len(body))
    ) + body


def searches() -> Iterator[bytes]:
    """Yield searches, each by a session of its own."""
    rng = random.Random(SEED + next(_sessions))
    weights = [1 / (rank + 1) ** ZIPF for rank in range(QUERIES)]
    while True:
        for query in rng.choices(range(QUERIES), weights, k=1000):
            yield search(query, f"s{next(_sessions)}")


def plain() -> Iterator[bytes]:
    """Yield requests that no rule concerns."""
    return itertools.repeat(b"GET /shop/_doc/1 HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n")


def fill(port: int) -> None:
    """Search each query once."""
    drive(port, (search(query, "fill") for query in range(QUERIES)), 4, 600.0)


def turn(port: int, kind: str, connections: int, seconds: float, rate: float | None = None) -> Turn:
    """Send one kind of requests for some seconds."""
    return drive(port, searches() if kind == "search" else plain(), connections, seconds, rate)
