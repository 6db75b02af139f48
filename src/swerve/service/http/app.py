"""The routes of the service: check API keys and bodies, call the service, and turn results and errors into HTTP answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swerve.service import logs, tracing
from swerve.service.availability import Unavailable
from swerve.service.http import openapi, routes
from swerve.service.http.gate import VARY, Gate
from swerve.service.http.handlers import UNAVAILABLE, Handler, Handlers, Scope, problem
from swerve.service.http.limits import ClientGone, read_body
from swerve.service.http.porter import Porter, grouped
from swerve.service.http.schemas import one_limit
from swerve.service.http.short import ShortWay, bearer
from swerve.service.metrics import Histogram
from swerve.service.namespaces import require_all
from swerve.service.runtime import Service
from swerve.service.secrets import ApiKeys, Denied
from swerve.service.throttle import TooMany
from swerve.serving.messages import Refused

log = logging.getLogger("swerve.service")

#: Seconds after which a caller may try again; the store is probed more often.
RETRY_AFTER = b"1"
#: Headers of streamed bodies: proxies must not cache or buffer them.
ENDLESS = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))

#: Routes without spans: probes, scrapes, pages, and streams without an end.
UNTRACED = frozenset(("healthz", "readyz", "metrics", "openapi", "docs", "live"))


class Endpoint:
    """One route as an ASGI application: checks the key, reads the body, calls the handler, answers, counts and logs."""

    def __init__(self, service: Service, keys: ApiKeys, route: routes.Route, handler: Handler, seconds: Histogram | None) -> None:
        self.service, self.keys, self.route, self.handler, self.seconds = service, keys, route, handler, seconds
        self.reads = route.method in ("post", "put")
        self.takes = {kind.encode() for kind in route.takes}
        limits = service.config.limits
        self.limit = limits.body_bytes if route.many else min(limits.body_bytes, one_limit(limits))
        if route.by_address:
            self.limit = limits.beacon_bytes
        self.traced = route.name not in UNTRACED
        self.off = False
        if route.switch:
            section, _, field = route.switch.partition(".")
            self.off = not getattr(getattr(service.config, section), field)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        started = time.perf_counter()
        presented, kind, sent_id = needed(scope["headers"])
        identity = logs.new_id(sent_id)
        logs.request_id.set(identity)
        parent, made = tracing.parent_in(scope["headers"]), self.service.tracing if self.traced else None
        if made is None:
            logs.trace_id.set("" if parent is None else parent.trace)
            await self._answer(scope, receive, send, presented, kind, identity, started)
            return
        span = made.request(scope["method"], self.route.path, parent)
        logs.trace_id.set(span.trace)
        tracing.current.set(span)
        status = 0
        try:
            status = await self._answer(scope, receive, send, presented, kind, identity, started)
        finally:
            span.end(status, "" if status else "gone", request_id=identity)

    async def _answer(
        self, scope: Scope, receive: Any, send: Any, presented: str | None, kind: bytes | None, identity: str, started: float
    ) -> int:
        """Answer a request and return the status; 0 if the caller has gone."""
        caller, retry, code = "", RETRY_AFTER, None
        try:
            if self.route.scope is not None:
                caller = self.keys.check(presented, self.route.scope)
                self._admit(caller)
            elif self.off:
                raise Refused(404, "off", f"this route is off; {self.route.switch} = true in the configuration turns it on")
            elif self.route.by_address:
                scope["address"] = grouped(scope["client"][0] if scope.get("client") else "")
                self.service.addresses.check(scope["address"])
            scope["caller"], scope["within"] = caller or None, self.keys.within.get(caller)
            if self.reads:
                scope["kind"] = b"" if kind is None else kind.split(b";")[0].strip().lower()
                if scope["kind"] not in self.takes:
                    declared = " or ".join(self.route.takes)
                    raise Refused(
                        415, "not_json", f"the request must have the header Content-Type: {declared}, even without a body"
                    )
                body = await read_body(scope["headers"], receive, self.limit)
            else:
                body = b""
            status, content, media = await self.handler(scope, body)
        except (Refused, Denied) as refused:
            more = (refused.field, refused.limit) if isinstance(refused, Refused) else ()
            status, content, media = problem(refused.status, code := refused.code, refused.message, *more)
            retry = b"%d" % refused.retry if isinstance(refused, TooMany) else retry
            if self.route.by_address:
                self.service.metrics.beacons(self.route.name, refused.code).value += 1
            elif status == 429:
                self.service.metrics.throttled(caller).value += 1
        except Unavailable:
            status, content, media = problem(503, *UNAVAILABLE)
            code = UNAVAILABLE[0]
        except ClientGone:
            return 0
        except Exception:
            log.exception("a request failed")
            status, content, media = problem(500, "internal", "a defect of the service; its log has details under this request id")
        headers = [(b"x-request-id", identity.encode())]
        if status != 204:
            headers.append((b"content-type", media))
        if isinstance(content, bytes):
            if status != 204:  # which has no body
                headers.append((b"content-length", b"%d" % len(content)))
        else:
            headers += ENDLESS
        if status in (429, 503):
            headers.append((b"retry-after", retry))
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
        logs.access(self.route.name, scope["method"], status, took, caller, code=code)
        return status

    def _admit(self, caller: str) -> None:
        """Refuse a caller above its rate, and one whose key is bound to namespaces where the answer concerns all of them."""
        throttle = self.service.throttle
        if not self.route.many:  # the entries of a batch are counted when it is decoded
            throttle.check(caller)
            throttle.take(caller)
        if self.route.whole:
            require_all(self.keys.within.get(caller), f"{self.route.method.upper()} {self.route.path}")


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


async def not_found(request: Request, error: Exception) -> Response:
    """Answer a request that no route takes, in the form of all other errors."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    logs.request_id.set(logs.new_id(request.headers.get("x-request-id")))
    logs.trace_id.set(tracing.trace_of(request.scope["headers"]))
    words = {404: ("not_found", "there is no such path; /docs lists all paths"), 405: ("method", "this path takes another method")}
    status, content, _ = problem(status, *words.get(status, ("refused", "the request was refused")))
    headers = dict(getattr(error, "headers", None) or {})
    if status == 405 and (methods := SEVERAL.get(request.url.path)) is not None:  # the framework knows those of one route
        headers["Allow"] = methods
    return Response(content, status, headers, media_type="application/json")


class TextConvertor(PathConvertor):
    """A query in the path: like `path` it may contain slashes, and also line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("text", TextConvertor())


#: The methods of paths that have several routes.
SEVERAL = {
    path: ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    for path in {route.path for route in routes.ROUTES}
    if len(methods := {route.method.upper() for route in routes.ROUTES if route.path == path}) > 1
}


class App(Starlette):
    """The ASGI application of a service.

    POST requests to fixed paths are dispatched here by their path, without the framework's routing and middleware. All other
    requests go through Starlette. `extra_routes` are the routes of extensions.
    """

    #: Returns the connection of a request, for streamed bodies; set by the server that runs the application.
    transport_of: Callable[[Scope], asyncio.Transport | None] = staticmethod(lambda scope: None)

    def __init__(self, service: Service, extra_routes: Sequence[Route] = (), **named: Any) -> None:
        self.service, self.keys = service, ApiKeys(service.config.security.api_keys)
        live = any(route.name == "live" for route in extra_routes)
        keys, handlers, metrics = self.keys, Handlers(service, live), service.metrics
        self.gate, self.porter = Gate(service.config), Porter(service.config.limits, metrics)
        self.at_once = ShortWay(service, keys, self.gate).at_once
        served = list(extra_routes)
        self.busy: dict[str, Endpoint] = {}
        for route in routes.ROUTES:
            if route.name in ("live", "page", "file") or (route.name in ("openapi", "docs") and not service.config.server.docs):
                continue
            endpoint = Endpoint(service, keys, route, getattr(handlers, route.name), metrics.seconds(route.name))
            path = route.path.replace("{query}", "{query:text}")
            served.append(Route(path, endpoint, methods=[route.method.upper()], name=route.name))
            if route.method == "post":
                self.busy[path] = endpoint
        # A query may contain slashes, so longer paths are matched first.
        served.sort(key=lambda route: -len(route.path))
        super().__init__(routes=served, exception_handlers={HTTPException: not_found}, **named)
        self.router.redirect_slashes = False  # a redirect would lead to the name in the caller's `Host`

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
        logs.trace_id.set(tracing.trace_of(scope["headers"]))
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
