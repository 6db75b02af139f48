"""The HTTP protocol of the server: uvicorn's, with limits at the door, answers in one piece, a short way for the busy routes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from swerve.service.turns import Turns
from swerve.serving.messages import Error, Problem, encode

if TYPE_CHECKING:
    from swerve.service.http.porter import Porter

#: Bytes of a request's line and headers, and of chunk sizes and trailers; a little more may have arrived when it is noticed.
MOST_HEAD = 65_536
#: Bytes that are parsed before the protocol looks at the clock: so few that the small requests in them take about a millisecond.
PIECE = 2048
LINES = {
    200: b"200 OK",
    400: b"400 Bad Request",
    408: b"408 Request Timeout",
    413: b"413 Request Entity Too Large",
    431: b"431 Request Header Fields Too Large",
    503: b"503 Service Unavailable",
}
#: A status, a body and the request's id.
Answer = tuple[int, bytes, str]
SHORT = (b"/v1/rank", b"/v1/feedback", b"/v1/rank/batch")
#: Where a connection is: between requests, in the head of one, in its body.
IDLE, HEAD, BODY = 0, 1, 2


def refusal(status: int, code: str, message: str) -> bytes:
    """A refusal as it goes over the wire; the connection ends with it."""
    said = encode(Problem(Error(code, message)))
    retry = b"retry-after: 1\r\n" if status == 503 else b""
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (LINES[status], retry, len(said)) + said


class Joined:
    """A transport that sends the head of an answer together with its body: a system call, and the waking of a caller, less."""

    __slots__ = ("door", "get_extra_info", "held", "is_closing", "paused", "send", "transport")

    def __init__(self, transport: asyncio.Transport, door: Door) -> None:
        self.transport, self.door, self.held, self.paused = transport, door, b"", False
        # those that every request asks for, without a detour
        self.send, self.is_closing, self.get_extra_info = transport.write, transport.is_closing, transport.get_extra_info

    def write(self, data: bytes) -> None:
        if self.held:
            if len(data) > MOST_HEAD:  # a large one is not copied for each who asks for it
                self.flush()
            else:
                data, self.held = self.held + data, b""
        elif data.startswith(b"HTTP/1.1 2"):
            self.held = data
            return
        self.send(data)

    def flush(self) -> None:
        """Send a head that has no body."""
        if self.held:
            self.send(self.held)
            self.held = b""

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def pause_reading(self) -> None:
        self.paused = True
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on; what was read and not parsed comes first."""
        self.paused = False
        if self.door.rest:
            self.door.loop.call_soon(self.door.go_on_reading)
        else:
            self.transport.resume_reading()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class Pending:
    """What the protocol sees in place of a request's cycle while its answer waits for the store: those behind it must wait too."""

    __slots__ = ("disconnected", "keep_alive", "message_event", "response_complete", "response_started")

    def __init__(self) -> None:
        self.response_complete, self.response_started, self.disconnected, self.keep_alive = False, False, False, True
        self.message_event = NOBODY


class Nobody:
    """An event that nobody waits for."""

    def set(self) -> None:
        """Nothing."""


NOBODY = Nobody()


class Door(HttpToolsProtocol):
    """What arrives is limited in size and time, and what needs no waiting, or only for the store, takes a short way.

    Without the limits, a head without an end is collected for ever, in quadratic time, before any key is asked for. And a request
    whose row is in memory waits for nothing: it needs no task, no queue of messages, no framework. It is held back until its body
    is there, and answered on the spot; whatever is unusual about it goes the usual way, from its beginning.
    """

    rest: bytes = b""  # what was read and not parsed yet
    _stage = IDLE
    _got = 0  # bytes of an unfinished request in earlier pieces
    _since: float | None = None  # when what is unfinished was begun
    _unread, _unread_since = -1, 0.0  # bytes that wait for the caller to read them, and since when there are so many
    _asked = False  # whether there was a request on this connection
    _upgrade = False  # whether the caller asks for another protocol, which it does not get
    _body: list[bytes] | None = None  # of a request that is held back
    _size = 0
    _porter: Porter | None = None
    _most = 2 * MOST_HEAD  # bytes of a request in all

    def connection_made(self, transport: Any) -> None:
        self._joined = Joined(transport, self)
        self._at_once = getattr(self.app, "at_once", None)
        super().connection_made(self._joined)  # type: ignore[arg-type]
        self._porter = getattr(self.app, "porter", None)
        if self._porter is not None:
            self._most += 2 * self._porter.limits.body_bytes
            self._made = self.loop.time()
            why = self._porter.enter(self, self.client[0] if self.client else "")
            if why is not None:
                setting = "limits.connections" if why == "connections" else "limits.connections_per_address"
                self._turn_away(503, why, f"there are too many connections ({setting})")

    def connection_lost(self, exc: Exception | None) -> None:
        self.rest = b""
        if self._porter is not None:
            self._porter.leave(self)
        super().connection_lost(exc)

    # ------------------------------------------------------------------ what arrives
    def data_received(self, data: bytes) -> None:
        if self.rest:  # it was told to wait, and this was on its way
            self.rest += data
            self.transport.pause_reading()
        elif len(data) <= PIECE:
            self._take(data)
        else:
            self.rest = data
            self.go_on_reading()

    def go_on_reading(self) -> None:
        """Parse what was read, piece by piece, as long as nobody else has to wait for that."""
        transport = self._joined.transport
        turns = Turns()
        while self.rest and not transport.is_closing():
            if self._joined.paused:
                return  # until `resume_reading`
            if turns.over():
                transport.pause_reading()
                self.loop.call_soon(self.go_on_reading)
                return
            piece, self.rest = self.rest[:PIECE], self.rest[PIECE:]
            self._take(piece)
        self.rest = b""
        if not self._joined.paused and not transport.is_closing():
            transport.resume_reading()

    def _take(self, data: bytes) -> None:
        if self._stage == IDLE:
            self._stage = HEAD
        elif self._got > (MOST_HEAD if self._stage == HEAD else self._most):
            if not self.transport.is_closing():
                if self._stage == HEAD:
                    self._turn_away(431, "head_bytes", "the path and the headers are longer than 64 kB")
                else:
                    self._turn_away(413, "request_bytes", f"the request as a whole is longer than {self._most} bytes")
            return
        self._got += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as end:
            self._stay(data[end.args[0] :])
        except httptools.HttpParserError:
            if not self.transport.is_closing():
                self._turn_away(400, "malformed", "this is no HTTP that the service understands")
        if self._stage and self._since is None:
            self._since = self.loop.time()

    def on_message_begin(self) -> None:
        self._stage = HEAD
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage != HEAD:
            return  # behind a body in chunks: a key, a length or a name of ours has no place there
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._upgrade = True
            return
        if self.url in SHORT and self._plain():
            self._body, self._size = [], 0
        else:
            if not self.url.startswith(b"/"):
                self._take_host(httptools.parse_url(self.url))
            super().on_headers_complete()
        self._stage, self._since, self._asked = BODY, None, True

    def _take_host(self, target: Any) -> None:
        """The name in a whole address takes the place of that in `Host`."""
        places = [place for place, (name, _) in enumerate(self.headers) if name == b"host"]
        if target.host is not None and len(places) == 1:
            name = b"[%b]" % target.host if b":" in target.host else target.host
            self.headers[places[0]] = b"host", name if target.port is None else b"%b:%d" % (name, target.port)

    def _stay(self, behind: bytes) -> None:
        """The caller would go on in another protocol (HTTP/2, web sockets). It may ask, and is answered in HTTP/1.1."""
        self._upgrade = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            return self._turn_away(400, "malformed", "this service is no proxy")
        lines = [b"%b %b HTTP/%b\r\n" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                kept = [word for word in value.split(b",") if word.strip().lower() not in (b"upgrade", b"http2-settings")]
                value = b",".join(kept)
            if name not in (b"upgrade", b"http2-settings") and value:
                lines.append(b"%b: %b\r\n" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.rest = b"".join(lines) + b"\r\n" + behind + self.rest
        self._stage, self._got = IDLE, 0
        self.loop.call_soon(self.go_on_reading)

    def _plain(self) -> bool:
        """Whether nothing about the request is unusual, and nothing before it is still to be answered."""
        parser, cycle = self.parser, self.cycle
        return (
            self._at_once is not None
            and parser.get_method() == b"POST"
            and not self.expect_100_continue
            and (cycle is None or cycle.response_complete)
            and not self.flow.write_paused
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
        )

    def on_body(self, body: bytes) -> None:
        if self._body is None:
            return super().on_body(body)
        self._body.append(body)
        self._size += len(body)
        if self._size > MOST_HEAD:
            self._go_on()

    def on_message_complete(self) -> None:
        if self._upgrade:
            return
        self._stage, self._got, self._since = IDLE, 0, None
        if self._body is not None:
            assert self._at_once is not None
            answer = self._at_once(self.url, self.headers, b"".join(self._body), self._later)
            if answer is not None:
                self._body = None
                if answer:
                    self._joined.send(self._written(answer))
                    return super().on_response_complete()
                self._pending = self.cycle = Pending()  # type: ignore[assignment]
                return
            self._go_on()
        super().on_message_complete()

    def _go_on(self) -> None:
        """The usual way, from the beginning."""
        body, self._body = self._body or [], None
        super().on_headers_complete()
        for piece in body:
            super().on_body(piece)

    # ------------------------------------------------------------------ the end of a connection
    def overdue(self, now: float) -> None:
        """End the connection if what it has begun to say takes too long. Idle ones, and answers under way, have other limits."""
        assert self._porter is not None
        if self.flow.write_paused:
            size = self._joined.transport.get_write_buffer_size()
            if size != self._unread:
                self._unread, self._unread_since = size, now
            elif now - self._unread_since > self._porter.limits.unread_seconds:
                self._porter.turned_away("unread_seconds", address=self.client[0] if self.client else "")
                self._joined.transport.abort()
                return
        if self._since is None:
            if not self._asked and now - self._made > self.timeout_keep_alive and not self.transport.is_closing():
                self._porter.turned_away("silent", address=self.client[0] if self.client else "")
                self.transport.close()
            return
        cycle, limits = self.cycle, self._porter.limits
        waiting = cycle is not None and not cycle.response_complete
        if self._joined.paused or self.rest or self.pipeline or (waiting and self._stage == HEAD):
            self._since = now  # it waits for us, not we for it
        elif self._stage == HEAD and now - self._since > limits.head_seconds:
            self._turn_away(408, "head_seconds", f"the headers took longer than {limits.head_seconds:g} s (limits.head_seconds)")
        elif self._stage == BODY and now - self._since > limits.body_seconds:
            self._turn_away(408, "body_seconds", f"the body took longer than {limits.body_seconds:g} s (limits.body_seconds)")

    def _turn_away(self, status: int, reason: str, message: str) -> None:
        """Answer, if nothing else is being answered, and end the connection."""
        if self._porter is not None:
            self._porter.turned_away(reason, address=self.client[0] if self.client else "")
        cycle = self.cycle
        if self._stage == BODY and self._body is None:  # the last cycle is that of this request
            answering = bool(self.pipeline) or cycle.response_started
        else:
            answering = cycle is not None and not cycle.response_complete
        if not answering:
            self._joined.send(refusal(status, reason, message))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self._body, self.rest = None, b""
        self.transport.close()

    def shutdown(self) -> None:
        if self._body is not None:  # a request under way is answered
            self._go_on()
        super().shutdown()

    # ------------------------------------------------------------------ answers of the short way
    def _later(self, answer: Answer) -> None:
        """The answer to a request that had to wait for the store."""
        pending = self._pending  # the protocol's own cycle may be that of a request behind it by now
        pending.response_complete = True
        if self.transport.is_closing() or pending.disconnected:
            return
        self._joined.send(self._written(answer))
        if pending.keep_alive:
            super().on_response_complete()
        else:  # the server is stopping
            self.transport.close()

    def _written(self, answer: Answer) -> bytes:
        """An answer as it goes over the wire."""
        status, content, identity = answer
        lines = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        if status == 503:
            lines.append(b"retry-after: 1\r\n")
        head = LINES[status], b"".join(lines), len(content), identity.encode()
        return b"HTTP/1.1 %b\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n\r\n" % head + content

    def on_response_complete(self) -> None:
        self._joined.flush()
        super().on_response_complete()
