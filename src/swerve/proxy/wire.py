"""One side of the proxy: a connection with a bounded buffer, and waits that end in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from swerve.proxy.heads import END, MOST_HEAD

#: Bytes of the buffer beyond which nothing more is read from the socket until some are taken.
HIGH = 262_144


class Closed(Exception):  # noqa: N818 - names what happened
    """The other side closed the connection, or it broke."""


class Slow(Exception):  # noqa: N818 - names what happened
    """The other side sent nothing, or took nothing, in the time that it has."""


class TooLong(Exception):  # noqa: N818 - names what came
    """A head without an end."""


class Wire(asyncio.Protocol):
    """A connection, used by one task at a time in each direction. `lost` is called when it closes."""

    __slots__ = ("_paused", "_readable", "_room", "_writable", "buffer", "closed", "loop", "lost", "pooled", "since", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, lost: Callable[[Wire], None] | None = None) -> None:
        self.loop, self.lost = loop, lost
        self.buffer = bytearray()
        self.closed, self._paused, self._writable = False, False, True
        self._readable: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.pooled, self.since = False, 0.0  # whether it lies in the pool, and when it was last used
        self.transport: asyncio.Transport

    # ------------------------------------------------------------------ called by the event loop
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is of a class of its own

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > HIGH and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        wake(self._readable)

    def eof_received(self) -> None:
        """Close: a search engine takes a half-closed connection for a closed one too."""

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        wake(self._readable)
        wake(self._room)
        if self.lost is not None:
            self.lost(self)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        wake(self._room)

    # ------------------------------------------------------------------ called by tasks
    async def more(self, seconds: float) -> None:
        """Wait until the buffer has grown. Raises `Closed` or `Slow`."""
        before = len(self.buffer)
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        while len(self.buffer) == before:
            if self.closed:
                raise Closed
            self._readable = self.loop.create_future()
            await self._within(self._readable, seconds)

    async def drain(self, seconds: float) -> None:
        """Wait until the other side has taken what was written. Raises `Closed` or `Slow`."""
        while not self._writable:
            if self.closed:
                raise Closed
            self._room = self.loop.create_future()
            await self._within(self._room, seconds)
        if self.closed:
            raise Closed

    async def _within(self, future: asyncio.Future[None], seconds: float) -> None:
        timer = self.loop.call_later(seconds, late, future)
        try:
            await future
        finally:
            timer.cancel()

    def take(self, count: int) -> bytes:
        """Take bytes from the front of the buffer."""
        if count == len(self.buffer):
            taken = bytes(self.buffer)
            self.buffer.clear()
            return taken
        taken = bytes(memoryview(self.buffer)[:count])
        del self.buffer[:count]
        return taken

    async def head(self, seconds: float) -> bytes:
        """Read a head, without its final empty line. Raises `Closed`, `Slow` or `TooLong`."""
        begun = self.loop.time()
        while True:
            end = self.buffer.find(END)
            if 0 <= end <= MOST_HEAD:
                head = self.take(end + len(END))
                return head[: -len(END)]
            if end > MOST_HEAD or len(self.buffer) > MOST_HEAD:
                raise TooLong
            left = seconds - (self.loop.time() - begun)
            if left <= 0:
                raise Slow
            await self.more(left)

    def write(self, data: bytes) -> None:
        """Write; what a closed connection cannot take is dropped."""
        if not self.closed:
            self.transport.write(data)

    async def linger(self, seconds: float) -> None:
        """Close so that the other side can read what was written, although it still sends: what it sends is dropped for a while."""
        until = self.loop.time() + seconds
        try:
            if not self.closed and self.transport.can_write_eof():
                self.transport.write_eof()
            while (left := until - self.loop.time()) > 0:
                self.buffer.clear()
                await self.more(left)
        except (Closed, Slow, OSError, RuntimeError):
            pass

    def close(self) -> None:
        """Close after what was written."""
        if not self.closed:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if not self.closed:
            self.transport.abort()


def wake(future: asyncio.Future[None] | None) -> None:
    """Let the task go on that waits."""
    if future is not None and not future.done():
        future.set_result(None)


def late(future: asyncio.Future[None]) -> None:
    """Tell the task that waits that its time is over."""
    if not future.done():
        future.set_exception(Slow())
