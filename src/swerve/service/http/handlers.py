"""The handlers of the routes: a request's body to a call of the service, and its result to an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from swerve.service import logs
from swerve.service.availability import Unavailable
from swerve.service.http import arrow, openapi
from swerve.service.http.bodies import beacon_in, encode_list, feedbacks_in, loose_in, parts_in, signals_in
from swerve.service.http.limits import parameters
from swerve.service.http.routes import ARROW, LINES
from swerve.service.http.schemas import (
    read_audit,
    read_delete,
    read_experiment,
    read_experiments,
    read_export,
    read_feedback,
    read_list,
    read_number,
    read_observe,
    read_parts,
    read_rank,
    read_rule,
    read_shift,
    read_signal,
)
from swerve.service.metrics import CONTENT_TYPE
from swerve.service.namespaces import require, require_all
from swerve.service.runtime import Service
from swerve.service.throttle import Throttle
from swerve.service.tracing import inside
from swerve.service.turns import Turns
from swerve.serving.checks import check_parts, check_query
from swerve.serving.control import ShadowReport
from swerve.serving.messages import Error, Health, Problem, Refused, encode

JSON, STREAM = b"application/json", ARROW.encode()

Scope = dict[str, Any]
#: A streamed body: called with ASGI's `receive` and `send`, and returns when the caller has gone.
Pieces = Callable[[Any, Any], Awaitable[None]]
#: Status, body and media type of an answer.
Answer = tuple[int, bytes | Pieces, bytes]
Handler = Callable[[Scope, bytes], Awaitable[Answer]]


def problem(status: int, code: str, message: str, field: str | None = None, limit: int | None = None) -> tuple[int, bytes, bytes]:
    """Return the answer to a request that was refused or could not be served."""
    return status, encode(Problem(Error(code, message, field, logs.request_id.get() or None, limit))), JSON


UNAVAILABLE = "unavailable", "the store cannot be written now; send it again"
#: The answer to an entry of a batch that the store cannot take now.
AWAY = Problem(Error(*UNAVAILABLE))


class Handlers:
    """The handlers of the routes, named like the operations of the OpenAPI document."""

    def __init__(self, service: Service, live: bool = False, throttle: Throttle | None = None) -> None:
        self.service, self.limits, self.has_live = service, service.config.limits, live
        self.throttle = throttle or service.throttle
        self.inspection = service.inspection
        self._description: bytes | None = None

    async def rank(self, scope: Scope, body: bytes) -> Answer:
        asked = read_rank(body)
        require(scope["within"], asked.namespace)
        with inside("rank"):
            answer = await self.service.ranking.rank_one(asked)
        return 200, encode(answer), JSON

    async def rank_batch(self, scope: Scope, body: bytes) -> Answer:
        turns, batching, columns = Turns(), self.service.batching, scope.get("kind") == STREAM
        parts = await (arrow.parts_of if columns else parts_in)(body, batching, turns)
        count = sum(len(part.entries) for part in parts)
        self._count(scope, count)
        with inside("rank", entries=count):
            if columns:
                pieces = await batching.pieces(parts, turns, scope["within"], arrow.Columns())
                return 200, await arrow.stream_of(pieces, turns), STREAM
            return 200, await batching.answer(parts, turns, scope["within"]), JSON

    async def feedback(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(await self.service.feedback.one(read_feedback(body), scope["within"])), JSON

    async def feedback_batch(self, scope: Scope, body: bytes) -> Answer:
        turns = Turns()
        entries = await feedbacks_in(body, self.limits, turns)
        self._count(scope, len(entries))
        answers = await self.service.many_feedbacks.many(entries, turns, scope["within"])
        if answers and all(answer is None for answer in answers):
            raise Unavailable
        said = [AWAY if one is None else refusal(one) if isinstance(one, Refused) else one for one in answers]
        return 200, await encode_list(said, turns), JSON

    async def beacon(self, scope: Scope, body: bytes) -> Answer:
        entries = await beacon_in(body, self.limits, Turns())
        self._count_from(scope, len(entries))
        await self.service.beacons.take(entries)
        return 204, b"", JSON

    async def ubi_events(self, scope: Scope, body: bytes) -> Answer:
        await self.service.ubi.events(self._collected(scope, body))
        return 204, b"", JSON

    async def ubi_queries(self, scope: Scope, body: bytes) -> Answer:
        self.service.ubi.queries(self._collected(scope, body))
        return 204, b"", JSON

    def _collected(self, scope: Scope, body: bytes) -> list[Any]:
        entries = loose_in(body)
        self._count_from(scope, len(entries))
        return entries

    async def observe(self, scope: Scope, body: bytes) -> Answer:
        request = read_observe(body)
        require(scope["within"], request.namespace)
        return 200, encode(await self.service.observing.one(request)), JSON

    async def signals(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(self.service.feeding.push(read_signal(body), scope["within"])), JSON

    async def signals_batch(self, scope: Scope, body: bytes) -> Answer:
        turns = Turns()
        entries = await signals_in(body, self.limits, turns)
        self._count(scope, len(entries))
        said: list[Any] = []
        for entry in entries:
            await turns()
            try:
                if isinstance(entry, Refused):
                    raise entry
                said.append(self.service.feeding.push(entry, scope["within"]))
            except Refused as refused:
                said.append(refusal(refused))
        return 200, await encode_list(said, turns), JSON

    async def queries(self, scope: Scope, body: bytes) -> Answer:
        asked = read_list(parameters(scope["query_string"]))
        require(scope["within"], asked.namespace)
        found = await self.inspection.queries(asked.order, asked.limit, asked.namespace, scope["within"])
        return 200, encode(found), JSON

    async def query(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(await self.inspection.explain(self._text(scope), self._parts(scope), scope["within"])), JSON

    async def shift(self, scope: Scope, body: bytes) -> Answer:
        read_shift(body)
        found = await self.inspection.shift(self._text(scope), self._parts(scope), scope["caller"], scope["within"])
        return 200, encode(found), JSON

    async def rules(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(self.service.control.listed(scope["within"])), JSON

    async def set_rule(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(await self.service.control.set(read_rule(body), scope["caller"], scope["within"])), JSON

    async def remove_rule(self, scope: Scope, body: bytes) -> Answer:
        number = read_number(scope["path_params"]["id"])
        return 200, encode(await self.service.control.remove(number, scope["caller"], scope["within"])), JSON

    async def shadow(self, scope: Scope, body: bytes) -> Answer:
        limit, shadow = read_audit(parameters(scope["query_string"])).limit, self.service.ranking.shadow
        if shadow is None:
            return 200, encode(ShadowReport("serve", None, 0, 0, 0, [])), JSON
        return 200, encode(shadow.report(limit, self.service.ranker.text_of)), JSON

    async def experiments(self, scope: Scope, body: bytes) -> Answer:
        require_all(scope["within"], "an experiment")  # it compares all traffic, and names its queries
        limit = read_experiments(parameters(scope["query_string"])).limit
        return 200, encode(await self.service.experiments.reported(limit)), JSON

    async def set_experiment(self, scope: Scope, body: bytes) -> Answer:
        require_all(scope["within"], "an experiment")
        return 200, encode(await self.service.experiments.set(read_experiment(body), scope["caller"])), JSON

    async def audit(self, scope: Scope, body: bytes) -> Answer:
        limit = read_audit(parameters(scope["query_string"])).limit
        return 200, encode(self.service.control.audit(limit, scope["within"])), JSON

    async def delete(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(await self.service.erasing.one(read_delete(body), scope["caller"], scope["within"])), JSON

    async def export(self, scope: Scope, body: bytes) -> Answer:
        asked = read_export(parameters(scope["query_string"]))
        require(scope["within"], asked.namespace)
        self.service.availability.require()

        async def pieces(receive: Any, send: Any) -> None:
            async for piece in self.service.exporting.pieces(asked.namespace, asked.brief, scope["within"]):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        return 200, pieces, LINES.encode()

    def _count(self, scope: Scope, entries: int) -> None:
        """Count the entries of a batch for the rate of its caller; raises `TooMany` for the batch as a whole."""
        caller = scope["caller"] or ""
        self.throttle.check(caller, entries)
        self.throttle.take(caller, entries)

    def _count_from(self, scope: Scope, entries: int) -> None:
        """Count the entries of a request for the rate of its address, the first of which is counted; raises `TooMany`."""
        if entries > 1:
            self.service.addresses.check(scope["address"], entries - 1)

    def _text(self, scope: Scope) -> str:
        text: str = scope["path_params"]["query"]
        check_query(text, self.limits)
        return text

    def _parts(self, scope: Scope) -> dict[str, str]:
        parts = read_parts(parameters(scope["query_string"]))
        check_parts(self.limits, **parts)
        require(scope["within"], parts.get("namespace"))
        self.service.namespaces.known(parts.get("namespace"))
        return parts

    async def healthz(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(Health("ok")), JSON

    async def readyz(self, scope: Scope, body: bytes) -> Answer:
        if self.service.availability.stopping:
            return 503, encode(Health("stopping")), JSON
        trouble = self.service.availability.trouble()
        if trouble is None:
            left = [shelf.arms for shelf in self.service.ranker.rows.shelves if not shelf.ready]
            return 200, encode(Health("ok", compiling=left or None)), JSON
        return 503, encode(Health("starting" if trouble == "starting" else "unavailable", trouble)), JSON

    async def metrics(self, scope: Scope, body: bytes) -> Answer:
        self.service.metrics.evicted.value = self.service.ranker.arms.evicted
        return 200, self.service.metrics.render(), CONTENT_TYPE.encode()

    async def openapi(self, scope: Scope, body: bytes) -> Answer:
        if self._description is None:
            self._description = encode(openapi.document(self.service.config, self.has_live))
        return 200, self._description, JSON

    async def docs(self, scope: Scope, body: bytes) -> Answer:
        return 200, openapi.docs_page().encode(), b"text/html; charset=utf-8"


def refusal(refused: Refused) -> Problem:
    """Return the answer to a refused entry of a batch."""
    return Problem(refused.error)
