"""Sibling workers: requests to them over kept-alive connections, each answered within a time or given up. Those of the same machine
are reached on their sockets, those of others over TCP, after a handshake (`swerve.service.handshake`).

A connection carries one request at a time, so that no answer waits for another one. Nothing here knows what is asked.

Tests: tests/service/test_siblings.py.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import httptools

from swerve.service import handshake

#: Connections to one sibling at most; more requests at once than that are given up at once.
MOST_LINES = 512
#: Pieces of an answer that wait to be read at most, or a few more.
MOST_PIECES = 64
#: Seconds after which a connection whose answer nobody waits for any more is closed.
LATE_SECONDS = 10.0
#: Seconds between two attempts to reach a sibling that was not there for requests that have less time than this: meanwhile they are
#: given up at once.
AWAY_SECONDS, HURRIED_SECONDS = 0.05, 10.0
#: The status with which a worker answers what came too late to be of use.
TOO_LATE = 504
#: The header with the time until which an answer is of use, on the clock that all processes of the caller's machine share. Other
#: machines know from the handshake how far theirs is from it; clocks drift, so that no connection to them is used longer than this.
UNTIL, LONGEST_SECONDS = b"swerve-until", 60.0


class Away(Exception):  # noqa: N818 - it names what happened
    """A sibling is not there, or has not answered in time."""


class Reply(NamedTuple):
    """The answer of a sibling."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


#: Receives the answer; None: the sibling is away, or it took too long.
Done = Callable[[Reply | None], None]
Headers = Iterable[tuple[bytes, bytes]]
#: Where a worker is: its socket, or host and port on another machine; None: nobody knows.
Place = Path | tuple[str, int] | None


def written(method: bytes, path: bytes, headers: Headers, body: bytes) -> bytes:
    """Return the bytes of a request."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    return b"%b %b HTTP/1.1\r\nhost: worker\r\n%bcontent-length: %d\r\n\r\n" % (method, path, lines, len(body)) + body


class Pieces(asyncio.Queue[Any]):
    """An answer that is read as it comes: its head, pieces of its body, and at the end None or `Away`."""

    line: Line | None = None

    async def next(self) -> Any:
        """Return the next one; reading pauses while many wait."""
        if self.line is not None and self.qsize() <= MOST_PIECES // 2:
            self.line.transport.resume_reading()
        return await self.get()

    def add(self, piece: Any) -> None:
        """Add a piece."""
        self.put_nowait(piece)
        if self.line is not None and self.qsize() > MOST_PIECES:
            self.line.transport.pause_reading()


class Line(asyncio.Protocol):
    """One connection to a sibling."""

    def __init__(self, sibling: Sibling) -> None:
        self.sibling, self.ends = sibling, math.inf
        self._parser: Any = None
        self._done: Done | None = None
        self._pieces: Pieces | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport

    def send(self, data: bytes, done: Done, within: float | None, pieces: Pieces | None = None) -> None:
        """Send a request. `pieces` gets the answer's head, and its body as it arrives; `done` is called at the end."""
        self._parser, self._busy = httptools.HttpResponseParser(self), True
        self._done, self._pieces = done, pieces
        if pieces is not None:
            pieces.line = self
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        if within is not None:
            self._timer = asyncio.get_running_loop().call_later(within, self._late)
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if not self._busy:  # nothing was asked
            return self.transport.abort()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._pieces is not None:
            self._pieces.add(Reply(self._parser.get_status_code(), self._headers, b""))

    def on_body(self, body: bytes) -> None:
        if self._pieces is not None:
            self._pieces.add(body)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        keep, status = self._parser.should_keep_alive(), self._parser.get_status_code()
        self._busy = False
        if keep and not self.transport.is_closing() and time.monotonic() < self.ends:
            self.sibling.free.append(self)
        else:
            self.transport.close()
        self._tell(Reply(status, self._headers, b"".join(self._body)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.sibling.lost(self, self._busy)
        self._busy = False
        self._tell(None)

    def _late(self) -> None:
        """Give up; the connection can be used again when its answer has come."""
        self._timer = asyncio.get_running_loop().call_later(LATE_SECONDS, self.transport.abort)
        done, self._done = self._done, None
        if done is not None:
            done(None)

    def _tell(self, reply: Reply | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        done, self._done = self._done, None
        if self._pieces is not None:
            self._pieces.line = None
            self._pieces.add(None if reply is not None else Away())
            self._pieces = None
        if done is not None:
            done(reply)


class Sibling:
    """Another worker, by its place. `key` is that of the handshake with a worker of another machine; `look` looks its place up, and
    is called when it cannot be reached."""

    def __init__(self, index: int, place: Place, key: bytes = b"", look: Callable[[], None] = lambda: None) -> None:
        self.index, self.place, self.key, self.look = index, place, key, look
        self.free: list[Line] = []
        self.lines: set[Line] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._away_until = 0.0

    def send(self, data: bytes, done: Done, within: float | None = None) -> None:
        """Send a request; `done` gets its answer, None if the sibling is away or takes more than `within` seconds."""
        self._send(data, done, within, None)

    def _send(self, data: bytes, done: Done, within: float | None, pieces: Pieces | None) -> None:
        while self.free:
            line = self.free.pop()
            if not line.transport.is_closing():
                return line.send(data, done, within, pieces)
        loop = asyncio.get_running_loop()
        hurried = within is not None and within < HURRIED_SECONDS
        if len(self.lines) + len(self._opening) >= MOST_LINES or (hurried and loop.time() < self._away_until):
            if pieces is not None:
                pieces.add(Away())
            loop.call_soon(done, None)  # never before this call returns
            return None
        task = loop.create_task(self._open(data, done, within, pieces), name="swerve-sibling")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return None

    async def _open(self, data: bytes, done: Done, within: float | None, pieces: Pieces | None) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(within):
                line = await self._connected()
        except (OSError, TimeoutError):
            self._away_until = loop.time() + AWAY_SECONDS
            if pieces is not None:
                pieces.add(Away())
            return done(None)
        self.lines.add(line)
        line.send(data, done, None if within is None else max(within - (loop.time() - began), 0.0), pieces)

    async def _connected(self) -> Line:
        """Return a new connection. Raises `OSError`, or `TimeoutError`."""
        try:
            return await self._connected_to(self.place)
        except OSError:
            before = self.place
            self.look()
            if self.place == before:
                raise
        return await self._connected_to(self.place)

    async def _connected_to(self, place: Place) -> Line:
        line = Line(self)
        if isinstance(place, Path):
            await asyncio.get_running_loop().create_unix_connection(lambda: line, str(place))
        elif place is not None:
            await handshake.call(*place, self.key, self.index, lambda: line)
            line.ends = time.monotonic() + LONGEST_SECONDS
        else:
            raise ConnectionError("nobody has this share now")
        if place != self.place:  # it has moved meanwhile
            line.transport.abort()
            raise ConnectionError("another one has this share now")
        return line

    def move(self, place: Place) -> None:
        """Take note of where the worker is now; requests that wait for the one before are given up."""
        if place != self.place:
            self.place, self._away_until = place, 0.0
            for line in list(self.lines):
                line.transport.abort()

    def lost(self, line: Line, busy: bool) -> None:
        """Forget a connection that has ended."""
        self.lines.discard(line)
        if line in self.free:
            self.free.remove(line)
        if busy:
            self._away_until = asyncio.get_running_loop().time() + AWAY_SECONDS

    async def ask(self, method: bytes, path: bytes, headers: Headers = (), body: bytes = b"", within: float | None = None) -> Reply:
        """Send a request and return its answer. Raises `Away`."""
        answered: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

        def done(reply: Reply | None) -> None:
            if not answered.done():
                answered.set_result(reply)

        self.send(written(method, path, headers, body), done, within)
        reply = await answered
        if reply is None:
            raise Away
        return reply

    async def stream(self, method: bytes, path: bytes, headers: Headers = ()) -> tuple[Reply, AsyncIterator[bytes]]:
        """Send a request and return the head of its answer, and its body as it comes, without an end in time. Raises `Away`, also
        in the middle of the body."""
        pieces = Pieces()
        self._send(written(method, path, headers, b""), lambda reply: None, None, pieces)
        head = await pieces.next()
        if isinstance(head, Away):
            raise head

        async def rest() -> AsyncIterator[bytes]:
            ended = False
            try:
                while (piece := await pieces.next()) is not None:
                    if isinstance(piece, Away):
                        raise piece
                    yield piece
                ended = True
            finally:
                if not ended and (line := pieces.line) is not None:  # nobody reads on
                    line.transport.abort()

        return head, rest()

    def close(self) -> None:
        """Close all connections."""
        for task in list(self._opening):
            task.cancel()
        for line in list(self.lines):
            line.transport.abort()


def deadline(within: float) -> tuple[bytes, bytes]:
    """Return the header that says until when an answer is of use."""
    return UNTIL, b"%.6f" % (time.monotonic() + within)
