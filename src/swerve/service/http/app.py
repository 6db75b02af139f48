"""The routes of the service as one application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swerve.service import logs, tracing
from swerve.service.http import routes
from swerve.service.http.endpoint import Endpoint, needed
from swerve.service.http.gate import VARY, Gate
from swerve.service.http.handlers import Handlers, Scope, problem
from swerve.service.http.inner import inner_routes
from swerve.service.http.porter import Porter
from swerve.service.http.short import InnerWay, ShortWay
from swerve.service.http.spread import Spread
from swerve.service.runtime import Service
from swerve.service.secrets import ApiKeys
from swerve.serving.messages import Refused


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
        keys, metrics = self.keys, service.metrics
        handlers = Handlers(service, live) if service.crew is None else Spread(service, live)
        self.gate, self.porter = Gate(service.config), Porter(service.config.limits, metrics)
        self.at_once = ShortWay(service, keys, self.gate).at_once
        self.inner: Starlette | None = None
        if service.crew is not None:
            self.inner_at_once = InnerWay(service, keys, self.gate).at_once
            self.inner = Inner(inner_routes(service, keys, extra_routes), self)
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
        if scope.get("inner") and self.inner is not None:
            return await self.inner(scope, receive, send)
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


class Inner(Starlette):
    """The routes for other workers."""

    def __init__(self, served: list[Route], app: App) -> None:
        super().__init__(routes=served)
        self.router.redirect_slashes = False
        self.transport_of = lambda scope: app.transport_of(scope)  # the server sets it later


def adding(send: Any, more: list[tuple[bytes, bytes]]) -> Any:
    """Return an ASGI `send` that adds headers to an answer."""

    async def wrapped(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *more]
        await send(message)

    return wrapped
