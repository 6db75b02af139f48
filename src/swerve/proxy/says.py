"""Answers of the proxy itself, in the form of the engine's own errors, and compression for clients that accept it."""

from __future__ import annotations

import gzip

from swerve.proxy.paths import encode

#: Status → its reason phrase, and the type of the error as clients of the engine read it.
STATUSES = {
    400: (b"Bad Request", "bad_request"),
    408: (b"Request Timeout", "request_timeout"),
    421: (b"Misdirected Request", "misdirected_request"),
    431: (b"Request Header Fields Too Large", "headers_too_large"),
    502: (b"Bad Gateway", "bad_gateway"),
    503: (b"Service Unavailable", "too_many_connections"),
    504: (b"Gateway Timeout", "gateway_timeout"),
}
#: Answers smaller than this are not worth compressing; and the level, which is the fastest.
LEAST_PACKED, LEVEL = 1024, 1
#: Larger ones are not compressed: that would hold the event loop too long.
MOST_PACKED = 262_144


def refusal(status: int, why: str, *, head_only: bool = False) -> bytes:
    """Return an answer of the proxy itself; the connection closes after it."""
    phrase, kind = STATUSES[status]
    reason = {"type": kind, "reason": f"swerve proxy: {why}"}
    said = encode({"error": {"root_cause": [reason], **reason}, "status": status})
    head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (status, phrase, len(said)) + (b"" if head_only else said)


def accepts_gzip(values: list[bytes]) -> bool:
    """Return whether `Accept-Encoding` allows gzip.

    >>> accepts_gzip([b"br, gzip;q=0.5"]), accepts_gzip([b"gzip;q=0, *"]), accepts_gzip([b"deflate"]), accepts_gzip([])
    (True, False, False, False)
    """
    for part in b",".join(values).lower().split(b","):
        name, _, quality = part.partition(b";")
        if name.strip() in (b"gzip", b"x-gzip"):
            weight = quality.strip().removeprefix(b"q=").strip()
            return not weight or weight.strip(b"0.") != b""
    return False


def packed(body: bytes) -> bytes:
    """Return a body compressed with gzip, without a time in it."""
    return gzip.compress(body, LEVEL, mtime=0)
