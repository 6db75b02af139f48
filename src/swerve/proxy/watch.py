"""The port for those who watch a proxy of its own process: /metrics for Prometheus, /healthz for probes, and nothing else.

It is never the port of the clients: every path there belongs to the engine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING

from swerve.proxy.heads import BadHead, RequestHead
from swerve.proxy.wire import Closed, Slow, TooLong, Wire
from swerve.service.http.gate import HOST_SYNTAX
from swerve.service.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from swerve.proxy.server import Proxy

#: Connections at most: a few scrapers and probes.
MOST = 64
#: Seconds that an idle connection is kept; scrapers come every 15 or 30 seconds.
KEEP_ALIVE = 75.0
JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"
PHRASES = {
    200: b"200 OK",
    400: b"400 Bad Request",
    404: b"404 Not Found",
    405: b"405 Method Not Allowed",
    421: b"421 Misdirected Request",
    503: b"503 Service Unavailable",
}


class Watch:
    """Answers on the port of `proxy.metrics`."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.wires: dict[Wire, asyncio.Task[None]] = {}
        self.server: asyncio.Server | None = None

    async def start(self, opened: socket.socket) -> None:
        """Answer on a listening socket."""
        self.server = await self.proxy.loop.create_server(lambda: Watcher(self), sock=opened)

    def stop(self) -> None:
        """Close everything."""
        if self.server is not None:
            self.server.close()
        for wire, task in list(self.wires.items()):
            wire.abort()
            task.cancel()

    async def talk(self, wire: Wire) -> None:
        """Answer requests until the connection closes."""
        try:
            closes = False
            while not wire.closed and not closes:
                head = RequestHead(await wire.head(KEEP_ALIVE))
                closes = head.closes or head.body != 0
                wire.write(written(*self.answer(head), closes=closes, head_only=head.method == b"HEAD"))
                await wire.drain(self.proxy.limits.unread_seconds)
        except (BadHead, TooLong):
            wire.write(written(400, b"the request cannot be read\n", TEXT, closes=True))
        except (Closed, Slow):
            wire.abort()
        finally:
            wire.close()

    def answer(self, head: RequestHead) -> tuple[int, bytes, bytes]:
        """Return the status, the body and the media type of an answer."""
        path = head.target.partition(b"?")[0]
        if path not in (b"/metrics", b"/healthz"):
            return 404, b"there are /metrics and /healthz\n", TEXT
        if head.method not in (b"GET", b"HEAD"):
            return 405, b"this path takes GET\n", TEXT
        if path == b"/healthz":  # probes send any name
            return 200, b'{"status":"ok"}', JSON
        host = head.one(b"host")
        if not (is_address(host) or self.proxy.names.knows(host)):
            return 421, b"the name in Host is not one of this proxy; proxy.hosts lists its names\n", TEXT
        return 200, self.proxy.metrics.render(), CONTENT_TYPE.encode()


def is_address(host: bytes | None) -> bool:
    """Return whether a value of `Host` is an address: no page can have one that leads here by a name of its own.

    >>> is_address(b"10.1.2.3:9281"), is_address(b"[::1]"), is_address(b"rebound.example:9281"), is_address(None)
    (True, True, False, False)
    """
    found = None if host is None else HOST_SYNTAX.fullmatch(host.decode("latin-1"))
    try:
        return found is not None and bool(ipaddress.ip_address(found[1].strip("[]")))
    except ValueError:
        return False


def written(status: int, body: bytes, media: bytes, *, closes: bool = False, head_only: bool = False) -> bytes:
    """Return the bytes of an answer."""
    lines = [b"HTTP/1.1 " + PHRASES[status], b"content-type: " + media, b"content-length: %d" % len(body)]
    if status == 405:
        lines.append(b"allow: GET, HEAD")
    if closes:
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"", b"" if head_only else body])


class Watcher(Wire):
    """A connection of a scraper or a probe."""

    __slots__ = ("watch",)

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch.proxy.loop)
        self.watch = watch

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.watch.wires) >= MOST:
            self.write(written(503, b"there are too many connections\n", TEXT, closes=True))
            self.close()
            return
        self.watch.wires[self] = self.watch.proxy.loop.create_task(self.watch.talk(self))

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        task = self.watch.wires.pop(self, None)
        if task is not None:
            task.cancel()
