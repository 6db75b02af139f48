"""The HTTP protocol of the server: uvicorn's, with a limit on what may come before a request's body."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Bytes of a request's line and headers; a little more may have arrived when it is noticed.
MOST_HEAD = 65_536
SAID = b"the path and the headers are longer than 64 kB"
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(SAID), SAID)
)


class Door(HttpToolsProtocol):
    """Without this, a head without an end is collected for ever, in quadratic time, before any key is asked for."""

    _head = 0  # bytes of an unfinished head in earlier pieces
    _in_head = True

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
