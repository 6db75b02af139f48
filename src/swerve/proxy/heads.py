"""Heads of requests and answers: read strictly, kept as bytes, and passed on without what belongs to one connection.

Whatever two readers could understand differently is refused: that is how requests are smuggled past a proxy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Bytes of a head, and of the trailers of a body.
MOST_HEAD = 65_536
#: Digits of a `Content-Length`: enough for any body.
MOST_DIGITS = 18
END = b"\r\n\r\n"
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") (/[\x21-\x7e\x80-\xff]*|\*) HTTP/1\.([01])")
STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
#: A header as one line: a name, a colon at once behind it, and a value without control characters.
HEADER = re.compile(rb"(" + TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
#: Headers of one connection, besides those that `Connection` names.
HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"upgrade"))
#: Headers that `Connection` must not name: without them the next reader would read another request.
NEVER_DROPPED = frozenset(
    (b"content-length", b"transfer-encoding", b"host", b"authorization", b"content-type", b"content-encoding")
)
#: Framing of a body: no body, chunks, or until the connection closes; else its length.
CHUNKED, UNTIL_CLOSE = -1, -2
NO_BODY = frozenset((204, 304))


class BadHead(Exception):  # noqa: N818 - names what came
    """A head that is refused; the message says why."""


class Head:
    """A head: its first line, and its headers as they came."""

    __slots__ = ("connection", "first", "http_1_0", "lines", "names", "raw", "values")

    def __init__(self, raw: bytes) -> None:
        """Read a head without its final empty line."""
        if b"\x00" in raw or raw.count(b"\n") != raw.count(b"\r") or raw.count(b"\r\n") != raw.count(b"\r"):
            raise BadHead("a line of the head does not end in CR LF")
        first, *lines = raw.split(b"\r\n")
        self.raw, self.first, self.lines = raw, first, lines
        self.names: list[bytes] = []
        self.values: list[bytes] = []
        self.connection: frozenset[bytes] = frozenset()
        self.http_1_0 = False
        match, names, values = HEADER.fullmatch, self.names, self.values
        for line in lines:
            found = match(line)
            if found is None:
                raise BadHead("a header is folded over two lines" if line[:1] in b" \t" else "a header has a wrong form")
            names.append(found[1].lower())
            values.append(found[2].rstrip(b" \t"))
        if b"connection" in names:
            self.connection = frozenset(part.strip().lower() for part in b",".join(self.all(b"connection")).split(b","))
            if self.connection & NEVER_DROPPED:
                raise BadHead("Connection names a header that belongs to the request")

    def all(self, name: bytes) -> list[bytes]:
        """Return every value of a header; its name is in lower case."""
        return [value for own, value in zip(self.names, self.values, strict=True) if own == name] if name in self.names else []

    def one(self, name: bytes) -> bytes | None:
        """Return the first value of a header, or None."""
        return self.values[self.names.index(name)] if name in self.names else None

    def kept(self, without: Iterable[bytes] = (), more: Sequence[bytes] = (), first: bytes | None = None) -> bytes:
        """Return the head for the next connection, with its empty line: without the headers of this connection and those named,
        with `more` lines at the end. A head in which nothing changes keeps its bytes."""
        dropped = HOP_BY_HOP | self.connection if self.connection else HOP_BY_HOP
        if without:
            dropped = dropped.union(without)
        if first is None and not more and dropped.isdisjoint(self.names):
            return self.raw + END
        lines = [line for line, name in zip(self.lines, self.names, strict=True) if name not in dropped]
        return b"\r\n".join((self.first if first is None else first, *lines, *more, b"", b""))

    def length(self) -> int | None:
        """Return the framing that the headers state: a length, `CHUNKED`, or None where they state none."""
        lengths, codings = self.all(b"content-length"), self.all(b"transfer-encoding")
        if codings:
            if lengths:
                raise BadHead("there are both Content-Length and Transfer-Encoding")
            if len(codings) > 1 or codings[0].lower() != b"chunked":
                raise BadHead("Transfer-Encoding is not chunked alone")
            if self.http_1_0:
                raise BadHead("Transfer-Encoding is unknown in HTTP/1.0")
            return CHUNKED
        if not lengths:
            return None
        value = lengths[0]
        if len(lengths) > 1 or not value.isdigit() or len(value) > MOST_DIGITS:
            raise BadHead("Content-Length is not one number")
        return int(value)


class RequestHead(Head):
    """The head of a request."""

    __slots__ = ("body", "method", "target")

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        found = REQUEST_LINE.fullmatch(self.first)
        if found is None:
            raise BadHead("the first line is not a method, a path and HTTP/1.1")
        self.method, self.target, self.http_1_0 = found[1], found[2], found[3] == b"0"
        if self.target == b"*" and self.method != b"OPTIONS":
            raise BadHead("the first line is not a method, a path and HTTP/1.1")
        hosts = self.all(b"host")
        if len(hosts) > 1 or (not hosts and not self.http_1_0):
            raise BadHead("there must be one Host header")
        self.body = self.length() or 0

    @property
    def closes(self) -> bool:
        """Whether the connection closes after the answer."""
        return self.http_1_0 or b"close" in self.connection


class AnswerHead(Head):
    """The head of an answer to a request with the given method."""

    __slots__ = ("body", "status")

    def __init__(self, raw: bytes, method: bytes) -> None:
        super().__init__(raw)
        found = STATUS_LINE.fullmatch(self.first)
        if found is None:
            raise BadHead("the first line is no status")
        self.http_1_0, self.status = found[1] == b"0", int(found[2])
        stated = self.length()
        if method == b"HEAD" or self.status < 200 or self.status in NO_BODY:
            self.body = 0
        else:
            self.body = UNTIL_CLOSE if stated is None else stated

    @property
    def closes(self) -> bool:
        """Whether the engine closes the connection after the answer."""
        return self.body == UNTIL_CLOSE or b"close" in self.connection or (self.http_1_0 and b"keep-alive" not in self.connection)
