"""The HTTP protocol of the server: uvicorn's, with a limit on what may come before a body, and answers sent in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Bytes of a request's line and headers; a little more may have arrived when it is noticed.
MOST_HEAD = 65_536
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


class Door(HttpToolsProtocol):
    """Without this, a head without an end is collected for ever, in quadratic time, before any key is asked for."""

    _head = 0  # bytes of an unfinished head in earlier pieces
    _in_head = True

    def connection_made(self, transport: Any) -> None:
        self._joined = Joined(transport)
        super().connection_made(self._joined)  # type: ignore[arg-type]

    def on_response_complete(self) -> None:
        self._joined.flush()
        super().on_response_complete()

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
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head = True, 0
        super().on_message_complete()
