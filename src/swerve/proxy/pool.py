"""Connections to the engine, and to the service: kept alive, used again, never shared by two requests at once."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from swerve.core.errors import SwerveError
from swerve.proxy.framing import BadBody, Chunks, Counted
from swerve.proxy.heads import CHUNKED, UNTIL_CLOSE, AnswerHead, BadHead
from swerve.proxy.wire import Closed, Slow, TooLong, Wire

#: Seconds after which an idle connection is not used again.
IDLE_SECONDS = 30.0
#: Idle connections that are kept.
MOST_IDLE = 256
#: Interim answers (1xx) before the final one.
MOST_INTERIM = 16
DEFAULT_PORTS = {"http": 80, "https": 443}


class Away(Exception):  # noqa: N818 - names what happened
    """The other side cannot be reached, or broke off before its answer; the message says how."""


class TooLarge(Exception):  # noqa: N818 - names what came
    """An answer that is larger than what may be kept in memory."""


class Address(NamedTuple):
    """Where to connect to."""

    host: str
    port: int
    tls: ssl.SSLContext | None


def address_of(url: str, ca_file: str = "") -> Address:
    """Return the address in a URL that was checked by its pattern."""
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        tls = ssl.create_default_context(cafile=ca_file or None) if parts.scheme == "https" else None
    except (OSError, ValueError, KeyError) as error:
        raise SwerveError(f"the address {url} cannot be used: {error}") from None
    return Address(parts.hostname or "", port, tls)


class Answer(NamedTuple):
    """A whole answer that was kept in memory; `body` is without chunks."""

    head: AnswerHead
    body: bytes


class Pool:
    """Connections to one address."""

    def __init__(self, address: Address, connect_seconds: float, timeout_seconds: float) -> None:
        self.address, self.connect_seconds, self.timeout = address, connect_seconds, timeout_seconds
        self.idle: list[Wire] = []
        self.loop = asyncio.get_running_loop()

    async def take(self, fresh: bool = False) -> tuple[Wire, bool]:
        """Return a connection, and whether it was used before. Raises `Away`."""
        now = self.loop.time()
        while self.idle and not fresh:
            wire = self.idle.pop()
            wire.pooled = False
            if wire.closed or wire.buffer or wire.transport.is_closing() or now - wire.since > IDLE_SECONDS:
                wire.abort()
                continue
            return wire, True
        host, port, tls = self.address
        try:
            async with asyncio.timeout(self.connect_seconds):
                _, wire = await self.loop.create_connection(lambda: Wire(self.loop), host, port, ssl=tls)
        except TimeoutError:
            raise Away(f"no connection within {self.connect_seconds:g} seconds") from None
        except (OSError, ssl.SSLError) as error:
            raise Away(error.strerror.lower() if error.strerror and "Errno" not in error.strerror else "no connection") from None
        return wire, False

    def give(self, wire: Wire) -> None:
        """Take a connection back after a complete answer."""
        if wire.closed or wire.buffer or len(self.idle) >= MOST_IDLE:  # bytes that nobody asked for: the next answer would be wrong
            wire.abort()
            return
        wire.pooled, wire.since = True, self.loop.time()
        self.idle.append(wire)

    def close(self) -> None:
        """Close the idle connections."""
        for wire in self.idle:
            wire.abort()
        self.idle.clear()

    async def ask(self, request: bytes, most: int, seconds: float | None = None) -> Answer:
        """Send a request that may be repeated, and return its whole answer.

        Raises `Away`, `Slow`, `TooLarge`, and `BadHead` or `BadBody` for what is no answer.
        """
        seconds = self.timeout if seconds is None else seconds
        for last in (False, True):
            wire, used = await self.take(fresh=last)
            try:
                wire.write(request)
                head = await final_head(wire, b"POST", seconds)
                answer = Answer(head, await self._body(wire, head, most, seconds))
            except (Closed, Away):
                wire.abort()
                if used and not last:
                    continue  # it was closed while it was idle
                raise Away("the connection broke off") from None
            except BaseException:
                wire.abort()
                raise
            if head.closes:
                wire.abort()
            else:
                self.give(wire)
            return answer
        raise AssertionError("unreachable")

    async def _body(self, wire: Wire, head: AnswerHead, most: int, seconds: float) -> bytes:
        if head.body >= 0:
            if head.body > most:
                raise TooLarge
            while len(wire.buffer) < head.body:
                await wire.more(seconds)
            return wire.take(head.body)
        content = bytearray()
        if head.body == CHUNKED:
            chunks = Chunks(content)
            while True:
                wire.take(chunks.feed(wire.buffer))
                if len(content) > most:
                    raise TooLarge
                if chunks.done:
                    return bytes(content)
                await wire.more(seconds)
        assert head.body == UNTIL_CLOSE
        while True:
            content += wire.take(len(wire.buffer))
            if len(content) > most:
                raise TooLarge
            try:
                await wire.more(seconds)
            except Closed:
                return bytes(content)


async def final_head(
    wire: Wire, method: bytes, seconds: float, interim: Callable[[AnswerHead], None] = lambda head: None
) -> AnswerHead:
    """Read the head of an answer; interim ones are handed to `interim`. Raises `Closed`, `Slow` and `BadHead`."""
    for _ in range(MOST_INTERIM):
        try:
            head = AnswerHead(await wire.head(seconds), method)
        except TooLong:
            raise BadHead("the head of the answer is too long") from None
        if head.status >= 200:
            return head
        if head.status == 101:
            raise BadHead("the protocol would change")
        interim(head)
    raise BadHead("there are too many interim answers")


__all__ = ["Address", "Answer", "Away", "BadBody", "BadHead", "Counted", "Pool", "Slow", "TooLarge", "address_of", "final_head"]
