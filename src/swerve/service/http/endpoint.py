"""One route: checks the API key and the body, calls the handler, and turns results and errors into HTTP answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from swerve.service import logs, tracing
from swerve.service.availability import Unavailable
from swerve.service.http import openapi, routes
from swerve.service.http.handlers import UNAVAILABLE, Handler, Scope, problem
from swerve.service.http.limits import ClientGone, read_body
from swerve.service.http.porter import grouped
from swerve.service.http.schemas import one_limit
from swerve.service.http.short import bearer
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

    def __init__(
        self, service: Service, keys: ApiKeys, route: routes.Route, handler: Handler, seconds: Histogram | None, inner: bool = False
    ) -> None:
        self.service, self.keys, self.route, self.handler, self.seconds = service, keys, route, handler, seconds
        self.inner = inner  # whether another worker has counted the request, and logs it
        self.reads = route.method in ("post", "put")
        self.takes = {kind.encode() for kind in route.takes}
        limits = service.config.limits
        self.limit = limits.body_bytes if route.many else min(limits.body_bytes, one_limit(limits))
        if route.by_address:
            self.limit = limits.beacon_bytes
        if inner:
            self.limit *= 2
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
        headers = [(b"x-request-id", identity.encode()), *scope.get("more", ())]
        if status != 204:
            headers.append((b"content-type", media))
        if isinstance(content, bytes):
            if status != 204:  # which has no body
                headers.append((b"content-length", b"%d" % len(content)))
        else:
            headers += ENDLESS
        if status in (429, 503):
            headers.append((b"retry-after", scope.get("retry", retry)))
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
        if self.inner:
            return status
        took = time.perf_counter() - started
        self.service.metrics.request(self.route.name, status)
        if self.seconds is not None:
            self.seconds.observe(took)
        logs.access(self.route.name, scope["method"], status, took, caller, code=code)
        return status

    def _admit(self, caller: str) -> None:
        """Refuse a caller above its rate, and one whose key is bound to namespaces where the answer concerns all of them."""
        throttle = self.service.throttle
        if not self.route.many and not self.inner:  # the entries of a batch are counted when it is decoded
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
