"""One client's connection: its requests, one after the other, each streamed to the engine and back, or re-ranked."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from swerve.proxy.framing import BadBody, Chunks, body_of
from swerve.proxy.heads import UNTIL_CLOSE, AnswerHead, BadHead, RequestHead
from swerve.proxy.pool import Away, final_head
from swerve.proxy.says import refusal
from swerve.proxy.wire import Closed, Slow, TooLong, Wire
from swerve.service import logs, tracing

if TYPE_CHECKING:
    from swerve.proxy.server import Proxy

log = logging.getLogger("swerve.proxy")

#: Seconds that an idle connection is kept.
KEEP_ALIVE = 75.0
#: Seconds in which a client that still sends may read why it was refused.
LINGER = 1.0
#: Methods that spans name.
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))
#: Methods that may be sent again on another connection when the first one broke off before an answer.
SAFE = (b"GET", b"HEAD", b"OPTIONS")


class Gone(Exception):  # noqa: N818 - names what happened
    """The client is gone, or its answer broke off."""


class Over(Exception):  # noqa: N818 - names what happened
    """The request was answered, and the connection closes; `lingers` if the client may still be sending."""

    def __init__(self, lingers: bool = False) -> None:
        super().__init__()
        self.lingers = lingers


class Conversation:
    """The requests of one client's connection."""

    def __init__(self, proxy: Proxy, wire: Wire) -> None:
        self.proxy, self.wire, self.limits = proxy, wire, proxy.limits
        self.status, self.outcome = 0, ""  # of the present answer
        self.begun = False  # whether something of the present answer was sent
        self.idle = True  # whether it is between two requests

    async def run(self) -> None:
        """Answer requests until the connection closes."""
        wire = self.wire
        try:
            while not wire.closed and not self.proxy.stopping:
                await self._one()
        except Over as over:
            if over.lingers:
                await wire.linger(LINGER)
        except (Closed, Gone, Slow):
            wire.abort()
        except Exception:
            log.exception("a request failed")
            if not self.begun:
                wire.write(refusal(502, "an internal error"))
        finally:
            wire.close()

    def answered(self, status: int, outcome: str) -> None:
        """Note and count what became of a request."""
        self.status, self.outcome = status, outcome
        self.proxy.count(outcome)

    def refuse(self, status: int, why: str, head: RequestHead | None = None) -> NoReturn:
        """Answer with an error of the proxy itself and close. Nothing is added to an answer that has begun: it breaks off."""
        self.answered(status, "refused" if status < 500 else "failed")
        self.proxy.tell(status, why)
        if self.begun:
            self.wire.abort()
            raise Gone
        self.wire.write(refusal(status, why, head_only=head is not None and head.method == b"HEAD"))
        raise Over(lingers=True)

    async def _one(self) -> None:
        """Read one request and answer it."""
        wire, proxy = self.wire, self.proxy
        self.begun, self.idle, self.status, self.outcome = False, True, 0, ""
        while not wire.buffer or wire.buffer.startswith(b"\r\n"):  # an empty line before a request is ignored
            if wire.buffer:
                wire.take(2)
                continue
            try:
                await wire.more(KEEP_ALIVE)
            except Slow:
                raise Over from None
        self.idle = False
        try:
            head = RequestHead(await wire.head(self.limits.head_seconds))
        except BadHead as error:
            self.refuse(400, str(error))
        except TooLong:
            self.refuse(431, "the head is too long")
        except Slow:
            self.refuse(408, "the head did not arrive in time")
        if proxy.tracing is None and b"traceparent" not in head.names:
            await self._answer(head)
        else:
            await self._traced(head)
        if head.closes:
            raise Over

    async def _traced(self, head: RequestHead) -> None:
        """Answer a request inside a trace: the caller's, or a new one."""
        parent = tracing.parent_in(zip(head.names, head.values, strict=True))
        span = None
        if self.proxy.tracing is not None:
            method = head.method.decode("latin-1")
            span = self.proxy.tracing.request(method if method in METHODS else "_OTHER", "", parent)
        logs.trace_id.set(span.trace if span is not None else "" if parent is None else parent.trace)
        tracing.current.set(span)
        tracing.taken_over.set(b"" if parent is None else parent.sent)
        try:
            await self._answer(head)
        finally:
            logs.trace_id.set("")
            tracing.current.set(None)
            tracing.taken_over.set(b"")
            if span is not None:
                span.end(self.status, "" if self.status else "gone", outcome=self.outcome or "gone")

    async def _answer(self, head: RequestHead) -> None:
        """Answer one request."""
        proxy = self.proxy
        if not proxy.names.knows(head.one(b"host")):
            self.refuse(421, "the name in Host is not one of this proxy; proxy.hosts lists its names", head)
        if head.body <= proxy.buffer and proxy.rules.concern(head):
            raw, whole, said = await self._buffered(head)
            if not whole or not await proxy.reranking.answer(self, head, raw, said):
                await self.stream(head, raw, whole)
        else:
            await self.stream(head, b"", head.body == 0)

    async def _buffered(self, head: RequestHead) -> tuple[bytes, bool, bytes]:
        """Read a body up to the limit: its bytes as they came, whether they are all, and what they say."""
        wire, most = self.wire, self.proxy.buffer
        until = wire.loop.time() + self.limits.body_seconds
        try:
            if head.body >= 0:
                while len(wire.buffer) < head.body:
                    await wire.more(max(until - wire.loop.time(), 0.0))
                raw = wire.take(head.body)
                return raw, True, raw
            said, came = bytearray(), bytearray()
            chunks = Chunks(said)
            while True:
                came += wire.take(chunks.feed(wire.buffer))
                if chunks.done:
                    return bytes(came), True, bytes(said)
                if len(came) > most:
                    return bytes(came), False, b""
                await wire.more(max(until - wire.loop.time(), 0.0))
        except Slow:
            self.refuse(408, "the body did not arrive in time", head)
        except BadBody as error:
            self.refuse(400, str(error), head)

    # ------------------------------------------------------------------ stream
    async def stream(
        self, head: RequestHead, raw: bytes, whole: bool, sent: bytes | None = None, outcome: str = "streamed"
    ) -> None:
        """Stream a request to the engine, and its answer to the client.

        `raw` are the bytes of its body that were read, `whole` whether they are all; `sent` is another request in its place.
        """
        outer = tracing.current.get()
        span = None if outer is None else outer.child("engine", "client")
        try:
            await self._stream(head, raw, whole, sent, outcome)
        finally:
            if span is not None:
                span.end(self.status, "" if self.status else "gone")

    async def _stream(self, head: RequestHead, raw: bytes, whole: bool, sent: bytes | None, outcome: str) -> None:
        proxy = self.proxy
        request = proxy.head_for(head) + raw if sent is None else sent
        again = whole and (head.method in SAFE or proxy.rules.concern(head))
        for last in (False, True):
            try:
                upstream, used = await proxy.engine.take(fresh=last)
            except Away as error:
                self.refuse(502, f"the engine cannot be reached: {error}", head)
            pump: asyncio.Task[tuple[int, str] | None] | None = None
            try:
                upstream.write(request)
                if not whole:
                    pump = asyncio.get_running_loop().create_task(self._pump(head, raw, upstream))
                answer = await final_head(upstream, head.method, proxy.timeout, self._interim)
                await self._relay(head, answer, upstream, pump, outcome)
                return
            except Closed:
                if self.wire.closed:
                    raise Gone from None
                if used and again and not last and not self.begun and not upstream.buffer:
                    continue  # it was closed while it was idle
                if pump is not None and pump.done() and (failed := pump.result()) is not None:
                    self.refuse(*failed, head)
                self.refuse(502, "the engine closed the connection", head)
            except Slow:
                self.refuse(504, f"the engine sent nothing for {proxy.timeout:g} seconds", head)
            except (BadHead, BadBody) as error:
                self.refuse(502, f"the answer of the engine cannot be read: {error}", head)
            finally:
                if pump is not None:
                    pump.cancel()
                if not upstream.pooled:
                    upstream.abort()

    def _interim(self, head: AnswerHead) -> None:
        self.wire.write(head.kept())

    async def _pump(self, head: RequestHead, raw: bytes, upstream: Wire) -> tuple[int, str] | None:
        """Stream the rest of a request's body to the engine; return why it could not be, after the engine's connection closed:
        the engine must not take a part of a request for the whole."""
        wire, body = self.wire, body_of(head.body)
        try:
            body.feed(raw)
            while True:
                if taken := body.feed(wire.buffer):
                    upstream.write(wire.take(taken))
                    await upstream.drain(self.proxy.timeout)
                if body.done:
                    return None
                await wire.more(self.limits.body_seconds)
        except BadBody as error:
            upstream.abort()
            return 400, str(error)
        except Slow:
            upstream.abort()
            return 408, "the body did not arrive in time"
        except Closed:
            upstream.abort()
            return None

    async def _relay(
        self,
        head: RequestHead,
        answer: AnswerHead,
        upstream: Wire,
        pump: asyncio.Task[tuple[int, str] | None] | None,
        outcome: str,
    ) -> None:
        """Stream an answer to the client, and give the connection back."""
        wire, body = self.wire, body_of(answer.body)
        closing = head.closes or answer.body == UNTIL_CLOSE or (pump is not None and not pump.done())
        data = answer.kept(more=(b"connection: close",)) if closing else answer.kept()
        self.begun = True
        self.answered(answer.status, outcome)
        while True:
            if upstream.buffer and (taken := body.feed(upstream.buffer)):
                data += upstream.take(taken)
            if data:
                wire.write(data)
                data = b""
            if body.done:
                break
            try:
                await wire.drain(self.limits.unread_seconds)
            except Slow:
                wire.abort()
                raise Gone from None
            try:
                await upstream.more(self.proxy.timeout)
            except Closed:
                if answer.body == UNTIL_CLOSE:
                    raise Over from None
                raise
        unfinished = pump is not None and not pump.done()
        if answer.closes or unfinished:
            upstream.abort()
        else:
            self.proxy.engine.give(upstream)
        if closing:
            raise Over(lingers=unfinished)
