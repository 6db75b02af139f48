"""The HTTP protocol of the server: uvicorn's, with limits at the door, answers in one piece, a short way for the busy routes."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Bytes of a request's line and headers; a little more may have arrived when it is noticed.
MOST_HEAD = 65_536
LINES = {200: b"200 OK", 503: b"503 Service Unavailable"}
#: A status, a body and the request's id.
Answer = tuple[int, bytes, str]
SHORT = (b"/v1/rank", b"/v1/feedback", b"/v1/rank/batch")
SAID = b"the path and the headers are longer than 64 kB"
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(SAID), SAID)
)


class Joined:
    """A transport that sends the head of an answer together with its body: a system call, and the waking of a caller, less."""

    __slots__ = ("get_extra_info", "held", "is_closing", "send", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport, self.held = transport, b""
        # those that every request asks for, without a detour
        self.send, self.is_closing, self.get_extra_info = transport.write, transport.is_closing, transport.get_extra_info

    def write(self, data: bytes) -> None:
        if self.held:
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class Pending:
    """What the protocol sees in place of a request's cycle while its answer waits for the store: those behind it must wait too."""

    __slots__ = ("disconnected", "keep_alive", "message_event", "response_complete")

    def __init__(self) -> None:
        self.response_complete, self.disconnected, self.keep_alive = False, False, True
        self.message_event = NOBODY


class Nobody:
    """An event that nobody waits for."""

    def set(self) -> None:
        """Nothing."""


NOBODY = Nobody()


class Door(HttpToolsProtocol):
    """What comes before a body is limited, and what needs no waiting, or only for the store, takes a short way.

    Without the limit, a head without an end is collected for ever, in quadratic time, before any key is asked for. And a request
    whose row is in memory waits for nothing: it needs no task, no queue of messages, no framework. It is held back until its body
    is there, and answered on the spot; whatever is unusual about it goes the usual way, from its beginning.
    """

    _head = 0  # bytes of an unfinished head in earlier pieces
    _in_head = True
    _body: list[bytes] | None = None  # of a request that is held back
    _size = 0

    def connection_made(self, transport: Any) -> None:
        self._joined = Joined(transport)
        self._at_once = getattr(self.app, "at_once", None)
        super().connection_made(self._joined)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            if self._head > MOST_HEAD:
                if not self.transport.is_closing():
                    self.transport.write(TOO_LARGE)
                    self.transport.close()
                return
            self._head += len(data)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        if self.url in SHORT and self._plain():
            self._body, self._size = [], 0
        else:
            super().on_headers_complete()

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
            and not parser.should_upgrade()
        )

    def on_body(self, body: bytes) -> None:
        if self._body is None:
            return super().on_body(body)
        self._body.append(body)
        self._size += len(body)
        if self._size > MOST_HEAD:
            self._go_on()

    def on_message_complete(self) -> None:
        self._in_head, self._head = True, 0
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

    def shutdown(self) -> None:
        if self._body is not None:  # a request under way is answered
            self._go_on()
        super().shutdown()

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
