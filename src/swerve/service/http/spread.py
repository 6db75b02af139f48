"""The handlers of a worker that has siblings: a request about one query goes to the worker that has it, a request about all queries
to all workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from swerve.service import logs
from swerve.service.availability import Unavailable
from swerve.service.crew import PARTITION
from swerve.service.http import arrow
from swerve.service.http.bodies import parts_in, raws_in
from swerve.service.http.handlers import JSON, STREAM, Answer, Handlers, Scope
from swerve.service.http.limits import parameters
from swerve.service.http.merging import End, labelled, lists_of, shadows_of
from swerve.service.http.passing import Passing
from swerve.service.http.routes import LINES
from swerve.service.http.schemas import (
    RAWS,
    read_audit,
    read_export,
    read_feedback,
    read_list,
    read_observe,
    read_rank,
    read_signal,
)
from swerve.service.metrics import CONTENT_TYPE
from swerve.service.namespaces import Within, checked, require
from swerve.service.ranking import SLICE
from swerve.service.ranking_batches import Part
from swerve.service.runtime import Service
from swerve.service.siblings import Sibling
from swerve.service.throttle import Throttle
from swerve.service.tracing import inside
from swerve.service.turns import Turns
from swerve.serving.bulk import JSON as JSON_FORM
from swerve.serving.messages import Asked, Health, Problem, RankResponse, Refused, decode, encode
from swerve.serving.tokens import Forged
from swerve.store.shares import partition_of

#: Seconds that a sibling has for its part of an answer about all queries.
PART_SECONDS = 5.0
#: How the answer to a refused entry of a batch begins.
ERROR = b'{"error"'
#: Answers, decoded.
_answer, _problem = msgspec.json.Decoder(RankResponse), msgspec.json.Decoder(Problem)


class Spread(Handlers):
    """The handlers of the public routes, over all workers."""

    def __init__(self, service: Service, live: bool = False, throttle: Throttle | None = None) -> None:
        super().__init__(service, live, throttle)
        assert service.crew is not None
        self.crew, self.passing = service.crew, Passing(service.crew, service.metrics)

    # ------------------------------------------------------------------ single queries
    async def rank(self, scope: Scope, body: bytes) -> Answer:
        asked = read_rank(body)
        require(scope["within"], asked.namespace)
        sibling = self._having(scope, self.service.ranking.key_in(asked))
        if sibling is None:
            return await super().rank(scope, body)
        deadline = self.service.ranking.deadline
        with inside("pass_on"):
            try:
                return await self.passing.on(sibling, scope, body, deadline)
            except Unavailable:
                return 200, encode(self.service.ranking.ownerless(asked)), JSON

    async def feedback(self, scope: Scope, body: bytes) -> Answer:
        try:
            ticket = self.service.tokens.read(read_feedback(body).decision)
        except Forged:
            return await super().feedback(scope, body)
        if (sibling := self.crew.having(ticket)) is not None:
            return await self.passing.on(sibling, scope, body)
        return await super().feedback(scope, body)

    async def observe(self, scope: Scope, body: bytes) -> Answer:
        request = read_observe(body)
        key = self.service.ranking.key_of(request.query, request.locale, request.filter, request.segment, request.namespace)
        if (sibling := self._having(scope, key)) is not None:
            return await self.passing.on(sibling, scope, body)
        return await super().observe(scope, body)

    async def query(self, scope: Scope, body: bytes) -> Answer:
        if (sibling := self._having(scope, self.service.ranker.key_from(self._text(scope), self._parts(scope)))) is not None:
            return await self.passing.on(sibling, scope, body)
        return await super().query(scope, body)

    async def shift(self, scope: Scope, body: bytes) -> Answer:
        if (sibling := self._having(scope, self.service.ranker.key_from(self._text(scope), self._parts(scope)))) is not None:
            return await self.passing.on(sibling, scope, body)
        return await super().shift(scope, body)

    async def signals(self, scope: Scope, body: bytes) -> Answer:
        request = read_signal(body)
        if request.query is None:
            return await self._everywhere(scope, body, super().signals)
        key = self.service.ranking.key_of(request.query, request.locale, request.filter, request.segment, request.namespace)
        if (sibling := self._having(scope, key)) is not None:
            return await self.passing.on(sibling, scope, body)
        return await super().signals(scope, body)

    async def signals_batch(self, scope: Scope, body: bytes) -> Answer:
        """Give the whole batch to all workers: each uses the numbers of its own queries, and those for many queries."""
        return await self._everywhere(scope, body, super().signals_batch)

    async def _everywhere(self, scope: Scope, body: bytes, here: Callable[[Scope, bytes], Any]) -> Answer:
        """Give a request to all workers, and return the answer of this one; raises `Unavailable` if one of them does not answer."""
        answer: Answer = await here(scope, body)
        if answer[0] == 200:
            await asyncio.gather(*(self.passing.on(sibling, scope, body) for sibling in self.crew))
        return answer

    def _having(self, scope: Scope, key: bytes) -> Sibling | None:
        """Return the sibling that has a query, None if this worker has it; put the partition into the answer's headers."""
        scope["more"] = [(PARTITION, b"%d" % partition_of(key))]
        return self.crew.foreign(key)

    # ------------------------------------------------------------------ batches
    async def rank_batch(self, scope: Scope, body: bytes) -> Answer:
        turns, columns = Turns(), scope.get("kind") == STREAM
        raws: list[bytes | Refused]
        if columns:
            raws = [
                encode(one) if isinstance(one, Asked) else one
                for part in await arrow.parts_of(body, self.service.batching, turns)
                for one in await self._asked(part, turns)
            ]
        else:
            raws = await raws_in(body, self.limits, turns)
        self._count(scope, len(raws))
        with inside("rank", entries=len(raws)):
            answers = await self._spread(scope, raws, turns)
        if not columns:
            return 200, b"[" + b",".join(answers) + b"]", JSON
        form, pieces = arrow.Columns(), list[Any]()
        for answer in answers:
            await turns()
            pieces.append(form.one((_problem if answer.startswith(ERROR) else _answer).decode(answer)))
        return 200, await arrow.stream_of(pieces, turns), STREAM

    async def _asked(self, part: Part, turns: Turns) -> list[Asked | Refused]:
        """Return the entries of a part, decoded."""
        out = list[Asked | Refused]()
        for index, entry in enumerate(part.entries):
            await turns()
            if entry is None:
                assert part.read is not None
                entry = self.service.batching.decoded(part.read, index)
            out.append(entry)
        return out

    async def _spread(self, scope: Scope, raws: list[bytes | Refused], turns: Turns) -> list[bytes]:
        """Return the answers to entries, each as JSON. The entries of one worker are sent to it as one batch, in their order."""
        within: Within = scope["within"]
        groups: dict[Sibling | None, list[int]] = {}
        out: list[bytes] = [b""] * len(raws)
        known: dict[int, Asked] = {}
        for at, raw in enumerate(raws):
            await turns()
            if isinstance(raw, Refused):
                out[at] = encode(Problem(raw.error))
                continue
            try:
                asked = checked(read_rank(raw), within)
                if isinstance(asked, Refused):
                    raise asked
                groups.setdefault(self.crew.foreign(self.service.ranking.key_in(asked)), []).append(at)
                known[at] = asked
            except Refused as refused:
                out[at] = encode(Problem(refused.error))

        async def one(sibling: Sibling | None, places: list[int]) -> None:
            answers = await self._part(scope, sibling, b"[" + b",".join(raws[at] for at in places) + b"]", len(places))  # type: ignore[misc]
            for index, at in enumerate(places):
                out[at] = self._ownerless(known[at]) if answers is None else answers[index]

        await asyncio.gather(*(one(sibling, places) for sibling, places in groups.items()))
        return out

    async def _part(self, scope: Scope, sibling: Sibling | None, body: bytes, count: int) -> list[bytes] | None:
        """Return the answers to the entries of one worker; None if it does not answer in time."""
        turns, batching = Turns(), self.service.batching
        if sibling is None:
            parts = await parts_in(body, batching, turns)
            answer = b"[" + b",".join(await batching.pieces(parts, turns, scope["within"], JSON_FORM)) + b"]"
        else:
            within = self.service.ranking.deadline * max(1.0, count / SLICE)
            asking = {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"content-type"]}
            asking["headers"].append((b"content-type", JSON))
            reply = await self.passing.ask(sibling, asking, b"/v1/rank/batch", body, within)
            if reply is None or reply.status != 200:
                return None
            answer = reply.body
        return [bytes(raw) for raw in decode(RAWS, answer)]

    def _ownerless(self, asked: Asked) -> bytes:
        """Return the answer to an entry whose worker does not answer in time."""
        try:
            return encode(self.service.ranking.ownerless(asked))
        except Refused as refused:
            return encode(Problem(refused.error))

    # ------------------------------------------------------------------ operators
    async def _at_first(self, scope: Scope, body: bytes, here: Callable[[Scope, bytes], Any]) -> Answer:
        """Let the first worker answer, which keeps what operators set."""
        if (first := self.crew.first) is not None:
            return await self.passing.on(first, scope, body)
        answer: Answer = await here(scope, body)
        return answer

    async def set_rule(self, scope: Scope, body: bytes) -> Answer:
        return await self._at_first(scope, body, super().set_rule)

    async def remove_rule(self, scope: Scope, body: bytes) -> Answer:
        return await self._at_first(scope, body, super().remove_rule)

    async def experiments(self, scope: Scope, body: bytes) -> Answer:
        return await self._at_first(scope, body, super().experiments)

    async def set_experiment(self, scope: Scope, body: bytes) -> Answer:
        return await self._at_first(scope, body, super().set_experiment)

    async def audit(self, scope: Scope, body: bytes) -> Answer:
        return await self._at_first(scope, body, super().audit)

    async def delete(self, scope: Scope, body: bytes) -> Answer:
        return await self._at_first(scope, body, super().delete)

    # ------------------------------------------------------------------ what concerns all queries
    async def _all(self, scope: Scope, body: bytes, here: Callable[[Scope, bytes], Any]) -> list[bytes]:
        """Return the bodies of all workers' answers, this worker's first. Raises `Unavailable` if one does not answer."""
        (_, mine, _), *others = await asyncio.gather(
            here(scope, body), *(self.passing.on(sibling, scope, body, PART_SECONDS) for sibling in self.crew)
        )
        for status, content, _ in others:
            if status != 200 or not isinstance(content, bytes):
                raise Unavailable
        return [mine, *(content for _, content, _ in others)]

    async def queries(self, scope: Scope, body: bytes) -> Answer:
        asked = read_list(parameters(scope["query_string"]))
        return 200, encode(lists_of(await self._all(scope, body, super().queries), asked.order, asked.limit)), JSON

    async def shadow(self, scope: Scope, body: bytes) -> Answer:
        limit = read_audit(parameters(scope["query_string"])).limit
        return 200, encode(shadows_of(await self._all(scope, body, super().shadow), limit)), JSON

    async def metrics(self, scope: Scope, body: bytes) -> Answer:
        """Return the metrics of all workers that answer, each sample with the number of its worker."""
        path = scope["raw_path"]
        replies = await asyncio.gather(
            *(self.passing.ask(sibling, scope, path, b"", PART_SECONDS, b"GET") for sibling in self.crew)
        )
        mine: Any = (await super().metrics(scope, body))[1]
        texts: dict[int, bytes | None] = {self.crew.index: mine}
        for sibling, reply in zip(self.crew, replies, strict=True):
            texts[sibling.index] = reply.body if reply is not None and reply.status == 200 else None
        return 200, labelled(texts), CONTENT_TYPE.encode()

    async def healthz(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(Health("ok", away=self._away())), JSON

    async def readyz(self, scope: Scope, body: bytes) -> Answer:
        status, content, media = await super().readyz(scope, body)
        assert isinstance(content, bytes)
        health = msgspec.json.decode(content, type=Health)
        health.away = self._away()
        return status, encode(health), media

    def _away(self) -> list[int] | None:
        """Return the workers that did not answer the last exchange: a probe does not wait for other workers."""
        assert self.service.together is not None
        return sorted(self.service.together.away) or None

    async def export(self, scope: Scope, body: bytes) -> Answer:
        """Stream what all workers have learnt, one after the other; the records that all queries share come from this one."""
        asked = read_export(parameters(scope["query_string"]))
        require(scope["within"], asked.namespace)
        self.service.availability.require()
        identity = logs.request_id.get()
        parts: list[AsyncIterator[bytes]] = [self.service.exporting.pieces(asked.namespace, asked.brief, scope["within"])]
        for sibling in self.crew:
            answer = await self.passing.stream(sibling, scope)
            if answer[0] != 200 or isinstance(answer[1], bytes):
                raise Unavailable
            parts.append(collected(answer[1]))

        async def pieces(receive: Any, send: Any) -> None:
            logs.request_id.set(identity)
            end = End()
            for number, part in enumerate(parts):
                async for lines in end.without(part, shared=number == 0):
                    await send({"type": "http.response.body", "body": lines, "more_body": True})
                if not end.ended:
                    break  # a worker has died: the export ends without its last line, by which readers know that it is cut
            else:
                await send({"type": "http.response.body", "body": end.line(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        return 200, pieces, LINES.encode()


def collected(pieces: Any) -> AsyncIterator[bytes]:
    """Return the pieces of a streamed answer as they come."""

    async def read() -> AsyncIterator[bytes]:
        waiting: asyncio.Queue[bytes | None] = asyncio.Queue(1)

        async def send(message: dict[str, Any]) -> None:
            if message.get("body"):
                await waiting.put(message["body"])

        async def run() -> None:
            try:
                await pieces(None, send)
            finally:
                await waiting.put(None)

        task = asyncio.get_running_loop().create_task(run(), name="swerve-export")
        try:
            while (piece := await waiting.get()) is not None:
                yield piece
        finally:
            task.cancel()

    return read()
