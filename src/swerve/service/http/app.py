"""The routes of the service: check API keys and bodies, call the service, and turn results and errors into HTTP answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swerve.service import logs
from swerve.service.availability import Unavailable
from swerve.service.groups import Written
from swerve.service.http import openapi
from swerve.service.http.bodies import encode_list, feedbacks_in, ranks_in
from swerve.service.http.gate import VARY, Gate
from swerve.service.http.limits import ClientGone, parameters, read_body
from swerve.service.http.porter import Porter
from swerve.service.http.schemas import (
    one_limit,
    read_feedback,
    read_list,
    read_observe,
    read_parts,
    read_rank,
    read_ranks,
    read_shift,
)
from swerve.service.metrics import CONTENT_TYPE, Histogram
from swerve.service.runtime import Service
from swerve.service.secrets import ApiKeys, Denied
from swerve.service.turns import Turns
from swerve.serving.checks import check_parts, check_query
from swerve.serving.messages import Error, Health, Problem, Refused, encode

log = logging.getLogger("swerve.service")

JSON = b"application/json"
#: Seconds after which a caller may try again; the store is probed more often.
RETRY_AFTER = b"1"
#: Headers of streamed bodies: proxies must not cache or buffer them.
ENDLESS = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))

Scope = dict[str, Any]
#: A streamed body: called with ASGI's `receive` and `send`, and returns when the caller has gone.
Pieces = Callable[[Any, Any], Awaitable[None]]
#: Status, body and media type of an answer.
Answer = tuple[int, bytes | Pieces, bytes]
Handler = Callable[[Scope, bytes], Awaitable[Answer]]


def problem(status: int, code: str, message: str, field: str | None = None) -> tuple[int, bytes, bytes]:
    """Return the answer to a request that was refused or could not be served."""
    return status, encode(Problem(Error(code, message, field, logs.request_id.get() or None))), JSON


UNAVAILABLE = "unavailable", "the store cannot be written now; send it again"
#: The answer to an entry of a batch that the store cannot take now.
AWAY = Problem(Error(*UNAVAILABLE))
#: Entries of a batch that the short way ranks without a pause: more would hold the event loop for milliseconds.
MOST_ON_SHORT_WAY = 128


class Endpoint:
    """One route as an ASGI application: checks the key, reads the body, calls the handler, answers, counts and logs."""

    def __init__(self, service: Service, keys: ApiKeys, route: openapi.Route, handler: Handler, seconds: Histogram | None) -> None:
        self.service, self.keys, self.route, self.handler, self.seconds = service, keys, route, handler, seconds
        self.reads = route.method == "post"
        self.takes = {kind.encode() for kind in route.takes}
        limits = service.config.limits
        self.limit = limits.body_bytes if route.many else min(limits.body_bytes, one_limit(limits))

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        started = time.perf_counter()
        presented, kind, sent_id = needed(scope["headers"])
        identity = logs.new_id(sent_id)
        logs.request_id.set(identity)
        caller = ""
        try:
            if self.route.scope is not None:
                caller = self.keys.check(presented, self.route.scope)
            if self.reads:
                if kind is None or kind.split(b";")[0].strip().lower() not in self.takes:
                    declared = " or ".join(self.route.takes)
                    raise Refused(
                        415, "not_json", f"the request must have the header Content-Type: {declared}, even without a body"
                    )
                body = await read_body(scope["headers"], receive, self.limit)
            else:
                body = b""
            status, content, media = await self.handler(scope, body)
        except (Refused, Denied) as refused:
            status, content, media = problem(refused.status, refused.code, refused.message, getattr(refused, "field", None))
        except Unavailable:
            status, content, media = problem(503, *UNAVAILABLE)
        except ClientGone:
            return
        except Exception:
            log.exception("a request failed")
            status, content, media = problem(500, "internal", "a defect of the service; its log has details under this request id")
        headers = [(b"content-type", media), (b"x-request-id", identity.encode())]
        if isinstance(content, bytes):
            headers.append((b"content-length", b"%d" % len(content)))
        else:
            headers += ENDLESS
        if status == 503:
            headers.append((b"retry-after", RETRY_AFTER))
        elif status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if media.startswith(b"text/html"):
            headers.append((b"content-security-policy", openapi.docs_policy().encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if isinstance(content, bytes):
            await send({"type": "http.response.body", "body": content})
        elif scope["method"] == "HEAD":
            await send({"type": "http.response.body"})
        else:
            await content(receive, send)
        took = time.perf_counter() - started
        self.service.metrics.request(self.route.name, status)
        if self.seconds is not None:
            self.seconds.observe(took)
        logs.access(self.route.name, scope["method"], status, took, caller)


def needed(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str | None, bytes | None, str | None]:
    """Return the API key, the content type and the request id of a request's headers."""
    key = kind = identity = None
    for name, value in headers:
        if name == b"authorization":
            key = bearer(value)
        elif name == b"content-type":
            kind = value
        elif name == b"x-request-id":
            identity = value.decode("latin-1")
    return key, kind, identity


def bearer(value: bytes) -> str | None:
    """Return the key in an `Authorization` header, or None."""
    scheme, _, text = value.decode("latin-1").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


class Handlers:
    """The handlers of the routes, named like the operations of the OpenAPI document."""

    def __init__(self, service: Service, live: bool = False) -> None:
        self.service, self.limits, self.has_live = service, service.config.limits, live
        self.inspection = service.inspection
        self._description: bytes | None = None

    async def rank(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(await self.service.ranking.rank_one(read_rank(body))), JSON

    async def rank_batch(self, scope: Scope, body: bytes) -> Answer:
        turns = Turns()
        answers = await self.service.ranking.rank(await ranks_in(body, self.limits, turns), turns)
        said = [refusal(answer) if isinstance(answer, Refused) else answer for answer in answers]
        return 200, await encode_list(said, turns), JSON

    async def feedback(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(await self.service.feedback.one(read_feedback(body))), JSON

    async def feedback_batch(self, scope: Scope, body: bytes) -> Answer:
        turns = Turns()
        answers = await self.service.feedback.many(await feedbacks_in(body, self.limits, turns), turns)
        if answers and all(answer is None for answer in answers):
            raise Unavailable
        said = [AWAY if one is None else refusal(one) if isinstance(one, Refused) else one for one in answers]
        return 200, await encode_list(said, turns), JSON

    async def observe(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(await self.service.observing.one(read_observe(body))), JSON

    async def queries(self, scope: Scope, body: bytes) -> Answer:
        asked = read_list(parameters(scope["query_string"]))
        return 200, encode(await self.inspection.queries(asked.order, asked.limit)), JSON

    async def query(self, scope: Scope, body: bytes) -> Answer:
        return 200, encode(await self.inspection.explain(self._text(scope), self._parts(scope))), JSON

    async def shift(self, scope: Scope, body: bytes) -> Answer:
        read_shift(body)
        return 200, encode(await self.inspection.shift(self._text(scope), self._parts(scope))), JSON

    def _text(self, scope: Scope) -> str:
        text: str = scope["path_params"]["query"]
        check_query(text, self.limits)
        return text

    def _parts(self, scope: Scope) -> dict[str, str]:
        parts = read_parts(parameters(scope["query_string"]))
        check_parts(self.limits, **parts)
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
    return Problem(Error(refused.code, refused.message, refused.field))


async def not_found(request: Request, error: Exception) -> Response:
    """Answer a request that no route takes, in the form of all other errors."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    logs.request_id.set(logs.new_id(request.headers.get("x-request-id")))
    words = {404: ("not_found", "there is no such path; /docs lists all paths"), 405: ("method", "this path takes another method")}
    status, content, _ = problem(status, *words.get(status, ("refused", "the request was refused")))
    headers = dict(getattr(error, "headers", None) or {})
    return Response(content, status, headers, media_type="application/json")


class TextConvertor(PathConvertor):
    """A query in the path: like `path` it may contain slashes, and also line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("text", TextConvertor())


#: The routes that `App.at_once` may answer.
SHORT_ROUTES = {b"/v1/rank": "rank", b"/v1/rank/batch": "rank_batch", b"/v1/feedback": "feedback"}
#: A status, a body and the request's id.
Reply = tuple[int, bytes, str]


class App(Starlette):
    """The ASGI application of a service.

    POST requests to fixed paths are dispatched here by their path, without the framework's routing and middleware. All other
    requests go through Starlette. `extra_routes` are the routes of extensions.
    """

    #: Returns the connection of a request, for streamed bodies; set by the server that runs the application.
    transport_of: Callable[[Scope], asyncio.Transport | None] = staticmethod(lambda scope: None)

    def __init__(self, service: Service, extra_routes: Sequence[Route] = (), **named: Any) -> None:
        self.service, self.keys = service, ApiKeys(service.config.security.api_keys)
        self.at_most = min(MOST_ON_SHORT_WAY, service.config.limits.batch)
        live = any(route.name == "live" for route in extra_routes)
        keys, handlers, metrics = self.keys, Handlers(service, live), service.metrics
        self.gate, self.porter = Gate(service.config), Porter(service.config.limits, metrics)
        self.seconds = {route: spread for route in SHORT_ROUTES.values() if (spread := metrics.seconds(route)) is not None}
        routes = list(extra_routes)
        self.busy: dict[str, Endpoint] = {}
        for route in openapi.ROUTES:
            if route.name in ("live", "page", "file") or (route.name in ("openapi", "docs") and not service.config.server.docs):
                continue
            endpoint = Endpoint(service, keys, route, getattr(handlers, route.name), metrics.seconds(route.name))
            path = route.path.replace("{query}", "{query:text}")
            routes.append(Route(path, endpoint, methods=[route.method.upper()], name=route.name))
            if endpoint.reads:
                self.busy[path] = endpoint
        # A query may contain slashes, so longer paths are matched first.
        routes.sort(key=lambda route: -len(route.path))
        super().__init__(routes=routes, exception_handlers={HTTPException: not_found}, **named)
        self.router.redirect_slashes = False  # a redirect would lead to the name in the caller's `Host`

    def at_once(
        self, path: bytes, headers: list[tuple[bytes, bytes]], body: bytes, later: Callable[[Reply], None]
    ) -> Reply | tuple[()] | None:
        """Answer a request without a task: a `rank` or a batch whose rows are in memory, or feedback that needs no reading.

        Returns the answer of a `rank` or a batch. Returns `()` for feedback, and calls `later` with the answer when the feedback is
        durable. Returns None for requests that must go through their route, refused ones included. `Door` calls this before it
        makes a task.
        """
        started = time.perf_counter()
        host = kind = presented = sent_id = None
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
            elif name == b"origin" or name == b"sec-fetch-site":
                return None  # from a browser: the gate must check the page's origin
        if kind != JSON or host not in self.gate.good:
            return None
        service, route = self.service, SHORT_ROUTES[path]
        seconds = self.seconds[route]
        answer: Any = None
        try:
            caller = self.keys.check(presented, "feedback" if route == "feedback" else "rank")
            if route == "feedback":
                waiting = service.feedback.at_once(read_feedback(body))
            elif route == "rank":
                answers = service.ranking.at_once([read_rank(body)])
                answer = answers[0] if answers else None
            else:
                entries = read_ranks(body)
                answer = service.ranking.at_once(entries) if len(entries) <= self.at_most else None
        except (Refused, Denied):
            return None
        identity = logs.new_id(sent_id)

        def reply(status: int, content: bytes) -> Reply:
            took = time.perf_counter() - started
            service.metrics.request(route, status)
            seconds.observe(took)
            logs.access(route, "POST", status, took, caller)
            return status, content, identity

        if route != "feedback":
            return None if answer is None else reply(200, encode(answer))
        if waiting is None:
            return None
        response, written = waiting
        if written is None:  # a repeat whose first one is durable
            return reply(200, encode(service.feedback.answer(response)))

        def durable(done: Written) -> None:
            if done.cancelled() or done.exception() is not None or not done.result():
                later(reply(503, encode(Problem(Error(*UNAVAILABLE, request_id=identity)))))
            else:
                later(reply(200, encode(service.feedback.answer(response))))

        written.add_done_callback(durable)
        return ()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:  # type: ignore[override]
        if scope["type"] == "http":
            try:
                more = self.gate.check(scope)
            except Refused as refused:
                return await self._turn_away(scope, send, refused)
            if more:
                send = adding(send, more)
                if (allowed := self.gate.preflight(scope)) is not None:
                    await send({"type": "http.response.start", "status": 204, "headers": allowed})
                    await send({"type": "http.response.body"})
                    return
            if scope["method"] == "POST" and (endpoint := self.busy.get(scope["path"])) is not None:
                return await endpoint(scope, receive, send)
        await super().__call__(scope, receive, send)

    async def _turn_away(self, scope: Scope, send: Any, refused: Refused) -> None:
        """Answer a request that the gate refuses."""
        identity = logs.new_id(needed(scope["headers"])[2])
        logs.request_id.set(identity)
        self.porter.turned_away(refused.code, why=refused.message)
        status, content, media = problem(refused.status, refused.code, refused.message)
        headers = [(b"content-type", media), (b"x-request-id", identity.encode()), (b"content-length", b"%d" % len(content))]
        if not self.gate.origins:  # with listed origins, the server adds `Vary` to every answer
            headers.append(VARY)
        if status == 400:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def adding(send: Any, more: list[tuple[bytes, bytes]]) -> Any:
    """Return an ASGI `send` that adds headers to an answer."""

    async def wrapped(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *more]
        await send(message)

    return wrapped
