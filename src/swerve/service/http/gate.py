"""Checks of `Host`, `Origin` and `Sec-Fetch-Site`: which names the service answers to, and which pages may call it.

A browser lets any page send requests to this machine. `Host` exposes pages whose name was made to resolve to this machine (DNS
rebinding). `Origin` and `Sec-Fetch-Site`, which no page can forge, expose pages of other origins. Programs send neither of them.
The exceptions are columns of `routes.ROUTES`; a path that is not in that table is checked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from swerve.service.config.sections import Config
from swerve.service.http.routes import ROUTES
from swerve.serving.messages import Refused

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
#: The syntax of `Host`: a name or an address, and perhaps a port.
HOST_SYNTAX = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{0,5}))?")
#: Accepted values of `Host` that are remembered at most.
MOST_GOOD = 256
#: Characters of a header value that an error message repeats.
MOST_SHOWN = 60
DEFAULT_PORTS = {"http": "80", "https": "443"}
#: Paths that are answered under any name, and paths that a link on another site may lead to.
UNGUARDED = frozenset(route.path for route in ROUTES if not route.guarded)
LINKABLE = frozenset(route.path for route in ROUTES if route.page)

Headers = Iterable[tuple[bytes, bytes]]
#: Headers of a preflight's answer, and the answer headers that a page of a listed origin may read.
ALLOWED = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, last-event-id, traceparent, tracestate, x-request-id"),
    (b"access-control-max-age", b"600"),
)
EXPOSED = (b"access-control-expose-headers", b"retry-after, x-request-id")
VARY = (b"vary", b"origin")


class Asking(NamedTuple):
    """The headers of a request that the gate checks."""

    hosts: list[bytes]
    origins: list[bytes]
    site: bytes
    mode: bytes
    preflight: bool


def asking(headers: Headers) -> Asking:
    """Collect the headers that the gate checks, in one pass."""
    hosts: list[bytes] = []
    origins: list[bytes] = []
    site = mode = b""
    preflight = False
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"origin":
            origins.append(value)
        elif name == b"sec-fetch-site":
            site = value
        elif name == b"sec-fetch-mode":
            mode = value
        elif name == b"access-control-request-method":
            preflight = True
    return Asking(hosts, origins, site, mode, preflight)


def name_of(text: str) -> str:
    """Return a name or an address in the form in which names are compared: lower case; IPv6 in brackets and shortest form.

    >>> name_of("LocalHost"), name_of("::1"), name_of("[0:0::1]"), name_of("10.0.0.1")
    ('localhost', '[::1]', '[::1]', '10.0.0.1')
    """
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return text.lower()
    return f"[{address}]" if address.version == 6 else str(address)


def authority(scheme: str, host: str) -> str:
    """Return the value of `Host` in the form of an origin: lower case, without the default port of the scheme."""
    host = host.lower()
    return host.removesuffix(f":{DEFAULT_PORTS[scheme]}")


class Gate:
    """Checks requests against the names of the service and the allowed origins."""

    def __init__(self, config: Config) -> None:
        self.names = {name_of(name) for name in (*LOOPBACK, *config.server.hosts)}
        self.any = "*" in self.names
        self.origins = frozenset(origin.lower().encode() for origin in config.server.origins)
        self.good: set[bytes] = set()
        self.also(config.server.host)

    def also(self, address: str) -> None:
        """Add the address that the service is bound to as a name, unless it is a wildcard address (`0.0.0.0`, `::`)."""
        try:
            if ipaddress.ip_address(address.strip("[]")).is_unspecified:
                return
        except ValueError:
            pass
        self.names.add(name_of(address))

    def knows(self, host: bytes) -> bool:
        """Return whether a `Host` value has a name of the service. Any port is accepted, because port forwarders use their own."""
        if host in self.good:
            return True
        written = HOST_SYNTAX.fullmatch(host.decode("latin-1"))
        if written is None or not (self.any or name_of(written[1]) in self.names):
            return False
        if len(self.good) >= MOST_GOOD:
            self.good.clear()
        self.good.add(host)
        return True

    def check(self, scope: dict[str, Any]) -> list[tuple[bytes, bytes]]:
        """Return the headers to add to the answer; raises `Refused`."""
        said = asking(scope["headers"])
        if len(said.hosts) > 1 or (not said.hosts and scope["http_version"] == "1.1"):
            how = "two Host headers" if said.hosts else "no Host header"
            raise Refused(400, "host", f"the request has {how}; there must be one")
        if scope["path"] in UNGUARDED:
            return []
        if not said.hosts or not self.knows(said.hosts[0]):
            sent = shortened(said.hosts[0]) if said.hosts else "no Host header"
            raise Refused(421, "host", f"the name in Host ({sent}) is not one of this service; server.hosts lists its names")
        return self._from(scope, said)

    def _from(self, scope: dict[str, Any], said: Asking) -> list[tuple[bytes, bytes]]:
        if said.origins:
            origin = said.origins[0]
            if len(said.origins) == 1 and origin.lower() in self.origins:
                return [(b"access-control-allow-origin", origin), EXPOSED]
            if len(said.origins) == 1 and self._same(origin, said):
                return []
            sent = shortened(origin)
        elif said.site not in (b"cross-site", b"same-site"):
            return []
        elif scope["path"] in LINKABLE and said.mode == b"navigate" and scope["method"] in ("GET", "HEAD"):
            return []  # a link on another site leads here
        else:
            sent = f"Sec-Fetch-Site: {said.site.decode()}"
        raise Refused(
            403, "origin", f"a page of another origin ({sent}) may not call this service; server.origins lists the origins that may"
        )

    def _same(self, origin: bytes, said: Asking) -> bool:
        """Return whether an origin is the service's own. Behind a TLS proxy the schemes differ, and `Sec-Fetch-Site` decides."""
        scheme, _, rest = origin.decode("latin-1").lower().partition("://")
        if scheme not in DEFAULT_PORTS or authority(scheme, rest) != authority(scheme, said.hosts[0].decode("latin-1")):
            return False
        return scheme == "http" or said.site == b"same-origin"

    def preflight(self, scope: dict[str, Any]) -> list[tuple[bytes, bytes]] | None:
        """Return the headers of the answer to a CORS preflight from a listed origin; None for all other requests."""
        if scope["method"] != "OPTIONS":
            return None
        said = asking(scope["headers"])
        listed = len(said.origins) == 1 and said.origins[0].lower() in self.origins
        return list(ALLOWED) if said.preflight and listed else None


def shortened(value: bytes) -> str:
    """Return a header value for an error message: printable ASCII, cut short."""
    text = value.decode("latin-1")
    text = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
