"""The short way: rankings of rows in memory, and feedback, answered without a task and without the framework."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from swerve.service import logs, siblings as sib, tracing
from swerve.service.config.callers import Limits
from swerve.service.crew import PARTITION_LINES
from swerve.service.groups import Written
from swerve.service.http.gate import Gate
from swerve.service.http.handlers import JSON, UNAVAILABLE
from swerve.service.http.schemas import read_feedback
from swerve.service.namespaces import may
from swerve.service.runtime import Service
from swerve.service.secrets import ApiKeys, Denied
from swerve.service.siblings import Sibling
from swerve.service.throttle import Throttle
from swerve.serving.messages import Asked, Error, Problem, Refused, encode, read_asked
from swerve.serving.tokens import Forged
from swerve.store.shares import partition_of

#: Entries of a batch that are ranked without a pause: more would hold the event loop for milliseconds.
MOST_ENTRIES = 128
#: The paths of the short way, and the names of their routes.
RANK, RANK_BATCH, FEEDBACK = "rank", "rank_batch", "feedback"
ROUTES = {b"/v1/rank": RANK, b"/v1/rank/batch": RANK_BATCH, b"/v1/feedback": FEEDBACK}
PATHS = {route: path for path, route in ROUTES.items()}
#: A status, a body, the request's id, and further header lines.
Reply = tuple[int, bytes, str, bytes]
Later = Callable[[Reply], None]


def bearer(value: bytes) -> str | None:
    """Return the key in an `Authorization` header, or None."""
    scheme, _, text = value.decode("latin-1").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


class Request:
    """A request on the short way, until its answer is counted and logged."""

    __slots__ = ("caller", "identity", "more", "route", "span", "started", "trace")

    def __init__(self, route: str, started: float, identity: str | None, span: tracing.Span | None, trace: bytes = b"") -> None:
        self.route, self.started, self.identity, self.span, self.caller = route, started, identity, span, ""
        self.trace = trace if span is None else span.traceparent  # for the worker that the request is passed on to
        self.more = b""


class ShortWay:
    """Answers requests at once, or leaves them to their route."""

    def __init__(self, service: Service, keys: ApiKeys, gate: Gate) -> None:
        self.service, self.keys, self.gate, self.throttle, self.crew = service, keys, gate, service.throttle, service.crew
        self.at_most = min(MOST_ENTRIES, service.config.limits.batch)
        metrics = service.metrics
        self._seconds = {route: spread for route in ROUTES.values() if (spread := metrics.seconds(route)) is not None}

    def at_once(self, path: bytes, headers: list[tuple[bytes, bytes]], body: bytes, later: Later) -> Reply | tuple[()] | None:
        """Answer a request without a task: a `rank` or a batch whose rows are in memory, or feedback that needs no reading.

        Returns the answer of a `rank` or a batch. Returns `()` for feedback, and calls `later` with the answer when the feedback is
        durable. Returns None for requests that must go through their route, refused ones included. `Door` calls this before it
        makes a task.
        """
        started = time.perf_counter()
        host = kind = presented = sent_id = sent_trace = None
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"host":
                if host is not None:
                    return None
                host = value
            elif name == b"authorization":
                presented = bearer(value)
            elif name == b"x-request-id":
                sent_id = value.decode("latin-1")
            elif name == b"traceparent":
                sent_trace = value if sent_trace is None else b""  # two are malformed
            elif name == b"origin" or name == b"sec-fetch-site":
                return None  # from a browser: the gate must check the page's origin
        if kind != JSON or not self._named(host):
            return None
        made = self.service.tracing
        if sent_trace is None and made is None:
            return self._answer(Request(ROUTES[path], started, sent_id, None), body, presented, later)
        parent, span = tracing.parent_of(sent_trace or b""), None
        if made is not None:
            span = made.request("POST", path.decode(), parent)
        token = logs.trace_id.set(span.trace if span is not None else parent.trace if parent is not None else "")
        try:
            return self._answer(Request(ROUTES[path], started, sent_id, span, sent_trace or b""), body, presented, later)
        finally:  # the connection's next request has another trace
            logs.trace_id.reset(token)

    def _named(self, host: bytes | None) -> bool:
        return host in self.gate.good

    def _answer(self, request: Request, body: bytes, presented: str | None, later: Later) -> Reply | tuple[()] | None:
        """Do the work of `at_once`. A span of a request that goes through its route is dropped: that one makes its own."""
        try:
            request.caller = self.keys.check(presented, "feedback" if request.route is FEEDBACK else "rank")
            if not self.throttle.allows(request.caller):
                return None
            if request.route is FEEDBACK:
                return self._feedback(request, body, presented, later)
            content = self._rank(request, body, presented, later)
        except (Refused, Denied):
            return None
        return self._reply(request, 200, content) if isinstance(content, bytes) else content

    def _rank(self, request: Request, body: bytes, presented: str | None, later: Later) -> bytes | tuple[()] | None:
        """Return the answer to one request or to a batch; None if it must go through its route."""
        service, within = self.service, self.keys.within.get(request.caller)
        if request.route is RANK_BATCH:
            return self._batch(request, body) if may(within, None) else None
        asked = read_asked(body)
        if within is not None and not may(within, asked.namespace):
            return None
        if self.crew is not None:
            key = service.ranking.key_in(asked)
            request.more = PARTITION_LINES[partition_of(key)]
            if (sibling := self.crew.foreign(key)) is not None:
                self._pass_on(request, sibling, body, presented, later, asked)
                return ()
        deciding = None if request.span is None else request.span.child("rank", entries=1)
        answer = service.ranking.at_once(asked)
        if answer is None:
            return None
        if deciding is not None:
            deciding.end()
        self.throttle.take(request.caller, 1)
        return encode(answer)

    def _pass_on(
        self, request: Request, sibling: Sibling, body: bytes, presented: str | None, later: Later, asked: Asked | None = None
    ) -> None:
        """Ask the worker that has the query; `later` gets its answer. A ranking (`asked`) whose worker does not answer in time has
        the given order; feedback is to be sent again."""
        service = self.service
        self.throttle.take(request.caller)
        request.identity = logs.new_id(request.identity)
        within = None if asked is None else service.ranking.deadline

        def done(reply: sib.Reply | None) -> None:
            if reply is not None and reply.status != sib.TOO_LATE:
                service.metrics.passed_on("answered").value += 1
                if (retry := reply.headers.get(b"retry-after")) is not None and reply.status != 503:
                    request.more += b"retry-after: %b\r\n" % retry
                return later(self._reply(request, reply.status, reply.body))
            service.metrics.passed_on("given_up").value += 1
            if asked is None:
                return later(self._reply(request, 503, encode(Problem(Error(*UNAVAILABLE, request_id=request.identity)))))
            try:
                return later(self._reply(request, 200, encode(service.ranking.ownerless(asked))))
            except Refused as refused:
                told = Error(refused.code, refused.message, refused.field, request.identity, refused.limit)
                return later(self._reply(request, refused.status, encode(Problem(told))))

        headers = [(b"content-type", JSON), (b"x-request-id", request.identity.encode())]
        if presented is not None:
            headers.append((b"authorization", b"Bearer %b" % presented.encode("latin-1")))
        if request.trace:
            headers.append((b"traceparent", request.trace))
        if within is not None:
            headers.append(sib.deadline(within))
        sibling.send(sib.written(b"POST", PATHS[request.route], headers, body), done, within)

    def _batch(self, request: Request, body: bytes) -> bytes | None:
        """Return the answer to a batch; None if it must go through its route."""
        service = self.service
        read = service.batching.ready(body, self.at_most)
        if read is None or not self.throttle.allows(request.caller, len(read)):
            return None
        deciding = None if request.span is None else request.span.child("rank", entries=len(read))
        content = service.batching.at_once(read)
        if deciding is not None:
            deciding.end()
        self.throttle.take(request.caller, len(read))
        return content

    def _feedback(self, request: Request, body: bytes, presented: str | None, later: Later) -> Reply | tuple[()] | None:
        """Count feedback; its answer goes to `later` when it is durable."""
        service, read, ticket = self.service, read_feedback(body), None
        if self.crew is not None:
            try:
                ticket = service.tokens.read(read.decision)
            except Forged:
                return None
            if (sibling := self.crew.having(ticket)) is not None:
                self._pass_on(request, sibling, body, presented, later)
                return ()
        counted: Any = service.feedback.at_once(read, self.keys.within.get(request.caller), ticket)
        if counted is None:
            return None
        response, written = counted
        self.throttle.take(request.caller)
        if written is None:  # a repeat whose first one is durable
            return self._reply(request, 200, encode(service.feedback.answer(response)))
        writing = None if request.span is None else request.span.child("store.commit")
        request.identity = logs.new_id(request.identity)

        def durable(done: Written) -> None:
            kept = not done.cancelled() and done.exception() is None
            if writing is not None:
                writing.end(error="" if kept else "Unavailable")
            if kept:
                later(self._reply(request, 200, encode(service.feedback.answer(response))))
            else:
                later(self._reply(request, 503, encode(Problem(Error(*UNAVAILABLE, request_id=request.identity)))))

        written.add_done_callback(durable)
        return ()

    def _reply(self, request: Request, status: int, content: bytes) -> Reply:
        """Count and log an answer, and return it."""
        took = time.perf_counter() - request.started
        route, identity = request.route, logs.new_id(request.identity)
        self.service.metrics.request(route, status)
        self._seconds[route].observe(took)
        logs.access(route, "POST", status, took, request.caller, identity)
        if request.span is not None:
            request.span.end(status, request_id=identity)
        return status, content, identity, request.more


class InnerWay(ShortWay):
    """The short way of requests that another worker passes on: that one has counted and checked them, and logs them."""

    def __init__(self, service: Service, keys: ApiKeys, gate: Gate) -> None:
        super().__init__(service, keys, gate)
        self.throttle, self.crew = Throttle((), Limits(), service.clock.now), None

    def at_once(self, path: bytes, headers: list[tuple[bytes, bytes]], body: bytes, later: Later) -> Reply | tuple[()] | None:
        for name, value in headers:
            if name == sib.UNTIL and float(value) < time.monotonic():
                return sib.TOO_LATE, b"", "", b""
        return super().at_once(path, headers, body, later)

    def _named(self, host: bytes | None) -> bool:
        return True

    def _reply(self, request: Request, status: int, content: bytes) -> Reply:
        if request.span is not None:
            request.span.end(status, request_id=request.identity)
        return status, content, request.identity or "", b""
