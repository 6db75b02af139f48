"""The routes of the dashboard: the page, its files and the live stream; and the extension that adds them to a service."""

from __future__ import annotations

import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Route

from swerve.dashboard.assets import POLICY, Assets
from swerve.dashboard.hub import Hub
from swerve.dashboard.stream import Live
from swerve.service import logs
from swerve.service.http.endpoint import Endpoint, needed
from swerve.service.http.handlers import Scope
from swerve.service.http.routes import ROUTES
from swerve.service.http.server import Extension
from swerve.service.runtime import Service
from swerve.service.secrets import ApiKeys
from swerve.service.tracing import trace_of

INDEX_FILE = "index.html"
#: Headers of each file: browsers revalidate it every time, and receive it again only after a change.
HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"vary", b"accept-encoding"),
    (b"x-content-type-options", b"nosniff"),
]


class Files:
    """The page's files as an ASGI application. They contain no data, so they need no key."""

    def __init__(self, service: Service, assets: Assets) -> None:
        self.service, self.assets = service, assets

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        started = time.perf_counter()
        identity = logs.new_id(needed(scope["headers"])[2])
        logs.request_id.set(identity)
        logs.trace_id.set(trace_of(scope["headers"]))
        asset = await self.assets.get(scope["path_params"].get("file", INDEX_FILE))
        if asset is None:
            raise HTTPException(404)
        asked = dict(scope["headers"])
        packed = asset.packed is not None and accepts_gzip(asked.get(b"accept-encoding", b""))
        mark = f'"{asset.mark}-gzip"' if packed else f'"{asset.mark}"'
        headers = [*HEADERS, (b"etag", mark.encode()), (b"x-request-id", identity.encode())]
        status, content = 200, b""
        if mark in asked.get(b"if-none-match", b"").decode("latin-1"):
            status = 304
        else:
            content = asset.packed if packed and asset.packed is not None else asset.plain
            headers += [(b"content-type", asset.media.encode()), (b"content-length", b"%d" % len(content))]
            if packed:
                headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})
        self.service.metrics.request("page", status)
        logs.access("page", scope["method"], status, time.perf_counter() - started)


def accepts_gzip(header: bytes) -> bool:
    """Return whether a caller accepts gzip.

    >>> accepts_gzip(b"br, gzip;q=0.5"), accepts_gzip(b"gzip;q=0, br"), accepts_gzip(b"identity")
    (True, False, False)
    """
    for part in header.decode("latin-1").lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def routes(hub: Hub) -> list[Route]:
    """Return the routes of the page and of the live stream."""
    service, files = hub.service, Files(hub.service, Assets())
    (live,) = (route for route in ROUTES if route.name == "live")
    endpoint = Endpoint(service, ApiKeys(service.config.security.api_keys), live, Live(hub), None)
    return [
        Route(live.path, endpoint, methods=["GET"], name=live.name),
        Route("/", files, methods=["GET"], name="page"),
        Route("/page/{file}", files, methods=["GET"], name="file"),
    ]


def extend(service: Service, address: str = "") -> Extension:
    """Return the dashboard as an extension for `swerve.service.http.server.serve`."""
    hub = Hub(service)
    return Extension(routes(hub), hub.run, hub.close)
