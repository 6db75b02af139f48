"""The routes of a worker for its siblings, on a socket that no other user can open: the public routes, answered for its own queries
alone, and the messages between workers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.routing import Route

from swerve.service.availability import Unavailable
from swerve.service.config.callers import Limits
from swerve.service.http.endpoint import Endpoint
from swerve.service.http.handlers import Handlers
from swerve.service.http.limits import ClientGone, read_body
from swerve.service.http.routes import ROUTES
from swerve.service.runtime import Service
from swerve.service.secrets import ApiKeys
from swerve.service.spreading import PATH
from swerve.service.throttle import Throttle
from swerve.service.together import DECISIONS, DELETE, EXCHANGE, STATE

log = logging.getLogger("swerve.service")

#: Bytes of a message between workers at most.
MOST_BYTES = 1 << 28


class Message:
    """An ASGI application that takes messages of other workers."""

    def __init__(self, take: Callable[[bytes], Awaitable[bytes]]) -> None:
        self.take = take

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        try:
            status, content = 200, await self.take(await read_body(scope["headers"], receive, MOST_BYTES))
        except ClientGone:
            return
        except Unavailable:
            status, content = 503, b""
        except Exception:
            log.exception("a message of another worker failed")
            status, content = 500, b""
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(content))]})
        await send({"type": "http.response.body", "body": content})


def inner_routes(service: Service, keys: ApiKeys, extra_routes: Sequence[Route]) -> list[Route]:
    """Return the routes. Requests on them count against no rate, and are not passed on again."""
    assert service.together is not None
    together, free = service.together, Throttle((), Limits(), service.clock.now)
    handlers = Handlers(service, throttle=free)

    async def hear(body: bytes) -> bytes:
        return together.hear(body)

    async def take(body: bytes) -> bytes:
        await together.take_body(body)
        return b""

    messages = {PATH: together.spreading.take, EXCHANGE: hear, STATE: take, DELETE: together.delete, DECISIONS: together.decisions}
    routes = [Route(path.decode(), Message(work), methods=["POST"]) for path, work in messages.items()]
    for route in ROUTES:
        if route.name not in ("live", "page", "file", "openapi", "docs"):
            endpoint = Endpoint(service, keys, route, getattr(handlers, route.name), None, inner=True)
            path = route.path.replace("{query}", "{query:text}")
            routes.append(Route(path, endpoint, methods=[route.method.upper()], name=route.name))
    for extra in extra_routes:
        if isinstance(extra.endpoint, Endpoint):
            endpoint = Endpoint(service, keys, extra.endpoint.route, extra.endpoint.handler, None, inner=True)
            routes.append(Route(extra.path, endpoint, methods=["GET"], name=extra.name))
    return sorted(routes, key=lambda route: -len(route.path))
