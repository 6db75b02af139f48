"""`export` of both clients: everything learnt as a stream of lines, in constant memory; a stream that was cut is an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from swerve_client.forms import ServiceAway
from swerve_client.operating import AllCalls

if TYPE_CHECKING:
    import httpx

#: One line of an export: its `kind` is `query`, `candidate`, `shared` or, for the last one, `end`.
Line = dict[str, Any]


class Lines:
    """The lines of a stream that comes in pieces; the last one says that nothing is missing."""

    def __init__(self, exchange: AllCalls) -> None:
        self._exchange, self._rest, self._ended = exchange, b"", False

    def feed(self, piece: bytes) -> list[Line]:
        """Return the lines that a piece completes."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        lines = [self._exchange.line(text) for text in whole if text]
        self._ended = self._ended or any(line.get("kind") == "end" for line in lines)
        return lines

    def close(self) -> None:
        """Raise `ServiceAway` if the stream was cut."""
        if not self._ended or self._rest:
            raise ServiceAway("the export was cut: its last line is missing; begin it again")


class Exports:
    """The export of `Client`."""

    _exchange: AllCalls
    _http: httpx.Client

    def export(self, *, namespace: str | None = None, brief: bool = False) -> Iterator[Line]:
        """Yield everything that the service has learnt, line by line; the last line, of the kind `end`, has the counts.

        `brief` leaves out the policy's own numbers. Needs `operate`. Raises `ServiceAway` where the stream ends too early.
        """
        lines = Lines(self._exchange)
        try:
            with self._http.stream(**self._exchange.export(namespace, brief)) as response:
                if response.status_code != self._exchange.httpx.codes.OK:
                    self._exchange.refused(response.status_code, response.read())
                for piece in response.iter_bytes():
                    yield from lines.feed(piece)
        except self._exchange.httpx.HTTPError as trouble:
            raise ServiceAway(f"the export was cut: {trouble or type(trouble).__name__}; begin it again") from None
        lines.close()


class AsyncExports:
    """The export of `AsyncClient`."""

    _exchange: AllCalls
    _http: httpx.AsyncClient

    async def export(self, *, namespace: str | None = None, brief: bool = False) -> AsyncIterator[Line]:
        """Yield everything that the service has learnt, line by line; see `Client.export`."""
        lines = Lines(self._exchange)
        try:
            async with self._http.stream(**self._exchange.export(namespace, brief)) as response:
                if response.status_code != self._exchange.httpx.codes.OK:
                    self._exchange.refused(response.status_code, await response.aread())
                async for piece in response.aiter_bytes():
                    for line in lines.feed(piece):
                        yield line
        except self._exchange.httpx.HTTPError as trouble:
            raise ServiceAway(f"the export was cut: {trouble or type(trouble).__name__}; begin it again") from None
        lines.close()
