"""The server's HTTP protocol: uvicorn's, with limits on size and time, answers in one write, a short way for the busy routes."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from swerve.service.http.joined import MOST_COPIED, Joined, Pending
from swerve.service.http.limits import declared
from swerve.service.siblings import UNTIL
from swerve.service.turns import Turns
from swerve.serving.messages import Error, Problem, encode

if TYPE_CHECKING:
    from swerve.service.http.porter import Porter

#: Bytes of a request's line and headers, or of its chunk sizes and trailers. A little more may have arrived when the limit applies.
MOST_HEAD = 65_536
#: Bytes parsed between two looks at the clock: so few that answering the small requests in them takes about a millisecond.
PARSED_AT_ONCE = 2048
#: Status lines of the answers that this module writes.
STATUS_LINES = {
    200: b"200 OK",
    400: b"400 Bad Request",
    408: b"408 Request Timeout",
    413: b"413 Request Entity Too Large",
    431: b"431 Request Header Fields Too Large",
    503: b"503 Service Unavailable",
}
#: The same of answers that another worker has given.
STATUS_LINES |= {status.value: b"%d %b" % (status, status.phrase.encode()) for status in HTTPStatus if status not in STATUS_LINES}

#: A status, a body, the request's id, and further header lines.
Answer = tuple[int, bytes, str, bytes]
#: The routes that can take the short way.
SHORT_PATHS = (b"/v1/rank", b"/v1/feedback", b"/v1/rank/batch")
#: Stages of a connection: between requests, in the head of a request, in its body.
IDLE, HEAD, BODY = 0, 1, 2


def refusal(status: int, code: str, message: str) -> bytes:
    """Return the bytes of a refusal; the connection closes after it."""
    said = encode(Problem(Error(code, message)))
    retry = b"retry-after: 1\r\n" if status == 503 else b""
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (STATUS_LINES[status], retry, len(said)) + said


class Door(HttpToolsProtocol):
    """Limits requests in size and time, and answers plain requests for rows in memory, and feedback, on a short way.

    Without the limits, uvicorn collects a head without an end for ever, in quadratic time, before any API key is checked. A request
    for a row in memory waits for nothing and needs no task, no message queue and no framework: the protocol keeps its body until
    it is complete, and answers at once. Unusual requests take the long way, through the framework, from their beginning.
    """

    rest: bytes = b""  # bytes that were read and not parsed yet
    _stage = IDLE
    _got = 0  # bytes of the unfinished request that were parsed
    _since: float | None = None  # when the unfinished head or body began
    _unread, _unread_since = -1, 0.0  # answer bytes that the caller has not read, and since when their number is the same
    _asked = False  # whether this connection had a request
    _upgrade = False  # whether the caller asks for another protocol, which the service never grants
    _body: list[bytes] | None = None  # of a request on the short way
    _size, _expected = 0, 0  # bytes in `_body`, and how many there will be, which are parsed together; −1: it is not known
    _idle_since = 0.0  # when the last answer was sent
    _given: list[tuple[bytes, bytes]] | None = None  # the headers of every answer,
    _lines = b""  # and the same as they are sent
    _porter: Porter | None = None
    _inner = False  # whether another worker of this service calls
    _most = 2 * MOST_HEAD  # bytes of a whole request: head, chunk sizes and trailers; twice the body's limit is added

    def connection_made(self, transport: Any) -> None:
        self._joined = Joined(transport, self)
        self._at_once = getattr(self.app, "inner_at_once" if self._inner else "at_once", None)
        super().connection_made(self._joined)  # type: ignore[arg-type]
        self._porter = None if self._inner else getattr(self.app, "porter", None)
        if self._porter is not None:
            self._most += 2 * self._porter.limits.body_bytes
            self._made = self.loop.time()
            why = self._porter.enter(self, self.client[0] if self.client else "")
            if why is not None:
                setting = "limits.connections" if why == "connections" else "limits.connections_per_address"
                self._turn_away(503, why, f"there are too many connections; {setting} limits them")

    def connection_lost(self, exc: Exception | None) -> None:
        self.rest = b""
        if self._porter is not None:
            self._porter.leave(self)
        super().connection_lost(exc)

    # ------------------------------------------------------------------ reading
    def data_received(self, data: bytes) -> None:
        if self.rest:  # reading is paused, and these bytes were already under way
            self.rest += data
            self.transport.pause_reading()
        elif len(data) <= PARSED_AT_ONCE:
            self._take(data)
        else:
            self.rest = data
            self.go_on_reading()

    def go_on_reading(self) -> None:
        """Parse the bytes that were read, piece by piece; yield to other connections when the turn is over."""
        transport = self._joined.transport
        turns = Turns()
        while self.rest and not transport.is_closing():
            if self._joined.paused:
                return  # until `resume_reading`
            if turns.over():
                transport.pause_reading()
                self.loop.call_soon(self.go_on_reading)
                return
            size = max(PARSED_AT_ONCE, min(self._expected - self._size, MOST_COPIED)) if self._body is not None else PARSED_AT_ONCE
            piece, self.rest = self.rest[:size], self.rest[size:]
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
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as end:
            self._stay(data[end.args[0] :])
        except httptools.HttpParserError:
            if not self.transport.is_closing():
                self._turn_away(400, "malformed", "the request is not valid HTTP/1.1")
        if self._stage and self._since is None:
            self._since = self.loop.time()

    def on_message_begin(self) -> None:
        self._stage = HEAD
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage != HEAD:
            return  # a trailer behind a chunked body must not set the API key, the length or `Host`
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._upgrade = True
            return
        if self.url in SHORT_PATHS and self._plain():
            self._body, self._size, self._expected = [], 0, declared(self.headers)
        else:
            if not self.url.startswith(b"/"):
                self._take_host(httptools.parse_url(self.url))
            self._begin_long_way()
        self._stage, self._since, self._asked = BODY, None, True

    def _begin_long_way(self) -> None:
        """Pass the head of the request on to the framework. The short way needs no scope, so it is made here."""
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expect
        self.scope["headers"] = headers
        if self._inner:
            self.scope["inner"] = True  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def _take_host(self, target: Any) -> None:
        """Replace the value of `Host` by the host of an absolute request target."""
        found = [index for index, (name, _) in enumerate(self.headers) if name == b"host"]
        if target.host is not None and len(found) == 1:
            name = b"[%b]" % target.host if b":" in target.host else target.host
            self.headers[found[0]] = b"host", name if target.port is None else b"%b:%d" % (name, target.port)

    def _stay(self, behind: bytes) -> None:
        """Parse a request again without its upgrade to another protocol (HTTP/2, web sockets); it is answered in HTTP/1.1."""
        self._upgrade = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            return self._turn_away(400, "malformed", "the service is not a proxy: it does not take CONNECT")
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
        """Return whether the request is an ordinary one, and all requests before it are answered."""
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
        if self._size > MOST_COPIED:
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
                    return self._answered()
                self._pending = self.cycle = Pending()  # type: ignore[assignment]
                return
            self._go_on()
        super().on_message_complete()

    def _go_on(self) -> None:
        """Pass the request on to the long way, from its beginning."""
        body, self._body = self._body or [], None
        self._begin_long_way()
        for piece in body:
            super().on_body(piece)

    # ------------------------------------------------------------------ the end of a connection
    def overdue(self, now: float) -> None:
        """End the connection if its request takes too long to arrive, or if the caller does not read its answer.

        Connections that are idle between requests fall under uvicorn's own timeout.
        """
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
            self._since = now  # the caller waits for the service: its time does not run
        elif self._stage == HEAD and now - self._since > limits.head_seconds:
            self._turn_away(408, "head_seconds", f"the headers took longer than {limits.head_seconds:g} s (limits.head_seconds)")
        elif self._stage == BODY and now - self._since > limits.body_seconds:
            self._turn_away(408, "body_seconds", f"the body took longer than {limits.body_seconds:g} s (limits.body_seconds)")

    def _turn_away(self, status: int, reason: str, message: str) -> None:
        """Refuse and end the connection. The refusal is not sent while another answer is being sent."""
        if self._porter is not None:
            self._porter.turned_away(reason, address=self.client[0] if self.client else "")
        cycle = self.cycle
        if self._stage == BODY and self._body is None:  # the last cycle belongs to this request
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
        if self._body is not None:  # a request that is still arriving will be answered
            self._go_on()
        super().shutdown()

    # ------------------------------------------------------------------ answers of the short way
    def _later(self, answer: Answer) -> None:
        """Send the answer to a request that has waited for the store."""
        pending = self._pending  # not `self.cycle`, which may belong to a later request by now
        pending.response_complete = True
        if self.transport.is_closing() or pending.disconnected:
            return
        self._joined.send(self._written(answer))
        if pending.keep_alive:
            self._answered()
        else:  # the server is stopping
            self.transport.close()

    def _written(self, answer: Answer) -> bytes:
        """Return the bytes of an answer."""
        status, content, identity, more = answer
        given = self.server_state.default_headers
        if given is not self._given:  # the server makes a new list every second, because of the date
            self._given, self._lines = given, b"".join([b"%b: %b\r\n" % header for header in given])
        retry = b"retry-after: 1\r\n" if status == 503 else b""
        head = STATUS_LINES[status], self._lines + retry + more, len(content), identity.encode()
        return b"HTTP/1.1 %b\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n\r\n" % head + content

    def _answered(self) -> None:
        """Go on after an answer of the short way. A timer for idle connections that runs is left alone: another one for each
        request would cost more than reading its head."""
        if self.timeout_keep_alive_task is None or self.flow.read_paused or self.pipeline:
            return self.on_response_complete()
        self.server_state.total_requests += 1
        self._idle_since = self.loop.time()

    def on_response_complete(self) -> None:
        self._joined.flush()
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it has been idle for long; if it has not, look again when it will have been."""
        self.timeout_keep_alive_task = None
        cycle = self.cycle
        if self._stage != IDLE or (cycle is not None and not cycle.response_complete):
            return  # the answer sets the timer again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0.0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()


class InnerDoor(Door):
    """The door for other workers; `ahead` are the seconds by which this clock is ahead of theirs."""

    _inner = True

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], ahead: float = 0.0) -> None:
        super().__init__(config, server_state, app_state)
        self.ahead = ahead

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.ahead and name.lower() == UNTIL:
            value = b"%.6f" % (float(value) + self.ahead)
        super().on_header(name, value)
