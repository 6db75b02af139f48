"""Requests that another worker answers: they are passed on once, unchanged, and so are the answers."""

from __future__ import annotations

from typing import Any

from swerve.service import logs
from swerve.service.availability import Unavailable
from swerve.service.crew import Crew
from swerve.service.http.handlers import Answer, Scope
from swerve.service.metrics import Metrics
from swerve.service.siblings import TOO_LATE, Away, Reply, Sibling, deadline

#: Headers of a request that are passed on: its answer may depend on them.
KEPT = (b"authorization", b"content-type", b"traceparent", b"last-event-id")
#: Seconds for a request without a deadline.
PATIENCE = 30.0


class Passing:
    """Passes requests on to siblings."""

    def __init__(self, crew: Crew, metrics: Metrics) -> None:
        self.crew, self.metrics = crew, metrics

    async def ask(
        self, sibling: Sibling, scope: Scope, path: bytes, body: bytes, within: float | None = None, method: bytes = b"POST"
    ) -> Reply | None:
        """Return a sibling's answer to a request; None if it does not answer in time. `within` is the request's deadline in
        seconds, which the sibling is told."""
        headers = heads(scope)
        if within is not None:
            headers.append(deadline(within))
        try:
            reply = await sibling.ask(method, path, headers, body, PATIENCE if within is None else within)
        except Away:
            reply = None
        if reply is not None and reply.status == TOO_LATE:
            reply = None
        self.metrics.passed_on("given_up" if reply is None else "answered").value += 1
        return reply

    async def on(self, sibling: Sibling, scope: Scope, body: bytes, within: float | None = None) -> Answer:
        """Pass a request on as it is, and return its answer. Raises `Unavailable` if there is none."""
        reply = await self.ask(sibling, scope, path_of(scope), body, within, scope["method"].encode())
        if reply is None:
            raise Unavailable
        return answered(scope, reply)

    async def stream(self, sibling: Sibling, scope: Scope) -> Answer:
        """Pass a request on, and its answer piece by piece, as that arrives. Raises `Unavailable` if there is none."""
        try:
            reply, rest = await sibling.stream(scope["method"].encode(), path_of(scope), heads(scope))
        except Away:
            raise Unavailable from None
        if reply.headers.get(b"content-length") is not None:
            body = b"".join([piece async for piece in rest])
            return answered(scope, reply._replace(body=body))

        async def pieces(receive: Any, send: Any) -> None:
            try:
                async for piece in rest:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except Away:
                pass  # the stream ends here: its reader connects again
            await send({"type": "http.response.body", "body": b""})

        return reply.status, pieces, reply.headers.get(b"content-type", b"")


def heads(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers with which a request is passed on."""
    kept = [(name, value) for name, value in scope["headers"] if name in KEPT]
    return [*kept, (b"x-request-id", logs.request_id.get().encode())]


def path_of(scope: Scope) -> bytes:
    """Return the path of a request, with its parameters."""
    raw, query = scope["raw_path"], scope["query_string"]
    return bytes(raw + b"?" + query if query else raw)


def answered(scope: Scope, reply: Reply) -> Answer:
    """Return a sibling's answer as the answer to the request."""
    if (retry := reply.headers.get(b"retry-after")) is not None:
        scope["retry"] = retry
    return reply.status, reply.body, reply.headers.get(b"content-type", b"")
