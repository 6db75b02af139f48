"""The proxy: a listening socket, the conversations with its clients, and an orderly end."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from pathlib import Path
from urllib.parse import urlsplit

from swerve.core.errors import SwerveError
from swerve.proxy.conversation import Conversation
from swerve.proxy.deciding import Decider, Inside, Outside
from swerve.proxy.heads import RequestHead
from swerve.proxy.orders import Orders
from swerve.proxy.pool import DEFAULT_PORTS, Pool, address_of
from swerve.proxy.reranking import Reranking
from swerve.proxy.rules import Rules
from swerve.proxy.says import refusal
from swerve.proxy.wire import Wire
from swerve.service.config.sections import Config
from swerve.service.http.gate import HOST_SYNTAX, LOOPBACK, name_of
from swerve.service.http.server import listen
from swerve.service.metrics import ProxyMetrics
from swerve.service.runtime import Service
from swerve.service.tracing import Tracing

log = logging.getLogger("swerve.proxy")

MB = 1 << 20
#: Connections that the system queues while the event loop is busy.
BACKLOG = 2048
#: Values of `Host` that are remembered at most.
MOST_GOOD = 256
#: Seconds between two looks at the open requests when the proxy stops.
STOPPING = 0.05
#: Seconds in which refusals and failures of one status are logged once.
QUIET = 1.0
#: Outcomes of requests: streamed as they came; re-ranked; answered in the engine's order, because nothing was decided; asked again
#: as they came, because the answer could not be read; refused; failed on the engine's side.
OUTCOMES = ("streamed", "reranked", "engine_order", "unreadable", "refused", "failed")


class Names:
    """The names that requests may have in `Host`."""

    def __init__(self, names: list[str]) -> None:
        self.names = {name_of(name) for name in (*LOOPBACK, *names)}
        self.any = "*" in self.names
        self.good: set[bytes] = set()

    def knows(self, host: bytes | None) -> bool:
        """Return whether a request with this `Host` is answered; with any port."""
        if self.any or host in self.good:
            return True
        written = None if host is None else HOST_SYNTAX.fullmatch(host.decode("latin-1"))
        if host is None or written is None or name_of(written[1]) not in self.names:
            return False
        if len(self.good) >= MOST_GOOD:
            self.good.clear()
        self.good.add(host)
        return True


def secret_in(path: str, what: str) -> str:
    """Return the secret in a file; the error never shows it."""
    if not path:
        return ""
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain ASCII"
        raise SwerveError(f"{what} = {path!r} cannot be read: {reason}") from None
    if not text or not text.isprintable():
        raise SwerveError(f"{what} = {path!r} must have one line")
    return text


#: Hints for a port that is taken: for `swerve proxy`, inside `swerve serve`, and for the port of the metrics.
TAKEN = (
    "another port: --listen 127.0.0.1:0 takes any free one; or `swerve serve` already runs the proxy: it does where "
    "proxy.upstream is set"
)
TAKEN_INSIDE = (
    "proxy.listen names another port; or `swerve proxy` already runs there: then leave proxy.upstream out of the service's "
    "configuration"
)
TAKEN_METRICS = "proxy.metrics names another port, empty for none"
#: Names of this machine that lead to an address which is listened on, beside itself.
REACHED = {
    "localhost": ("127.0.0.1", "[::1]"),
    "127.0.0.1": ("localhost",),
    "[::1]": ("localhost",),
    "0.0.0.0": ("localhost", "127.0.0.1"),
    "[::]": ("localhost", "127.0.0.1", "[::1]"),
}


def same_place(url: str, listen: str) -> bool:
    """Return whether a URL leads to an address that is listened on, as far as the names tell.

    >>> same_place("http://localhost:9280", "127.0.0.1:9280"), same_place("http://127.0.0.1:9280/", "0.0.0.0:9280")
    (True, True)
    >>> same_place("https://127.0.0.1", "127.0.0.1:80"), same_place("http://engine:9280", "127.0.0.1:9280")
    (False, False)
    """
    place, (host, _, port) = urlsplit(url), listen.rpartition(":")
    if (place.port or DEFAULT_PORTS[place.scheme]) != int(port):
        return False
    here, there = name_of(host), name_of(place.hostname or "")
    return here == there or there in REACHED.get(here, ())


def listening(config: Config, inside: bool = False) -> tuple[socket.socket, str]:
    """Return a listening socket and its address, after a check of everything that can be wrong before the start; `inside` says
    whether it is for a proxy in the service's process."""
    own = config.proxy
    if not own.upstream:
        raise SwerveError("there is no engine: set proxy.upstream, or give --upstream")
    secret_in(own.authorization_file, "proxy.authorization_file")
    secret_in(own.api_key_file, "proxy.api_key_file")
    address_of(own.upstream, own.ca_file)
    for name, url in (("upstream", own.upstream), ("service", "" if inside else own.service)):
        if url and same_place(url, own.listen):
            raise SwerveError(f"proxy.{name} = {url!r} is where the proxy itself listens (proxy.listen = {own.listen!r})")
    return bound_to(own.listen, TAKEN_INSIDE if inside else TAKEN)


def bound_to(address: str, free: str) -> tuple[socket.socket, str]:
    """Return a socket that listens on an address and a port, and its URL; `free` is the hint where the port is taken."""
    host, _, port = address.rpartition(":")
    opened = listen(host.strip("[]"), int(port), free)
    bound, number = opened.getsockname()[:2]
    return opened, f"http://{f'[{bound}]' if ':' in bound else bound}:{number}"


class Proxy:
    """A proxy in front of one engine. Made inside a running event loop; `service` decides, or one at an address does."""

    def __init__(self, config: Config, service: Service | None = None, tracing: Tracing | None = None) -> None:
        own = config.proxy
        self.config, self.limits = config, config.limits
        self.buffer, self.timeout = own.buffer_bytes, own.timeout_seconds
        self.loop = asyncio.get_running_loop()
        self.names = Names([*own.hosts, own.listen.rpartition(":")[0]])
        self.rules = Rules(own.rules, config.limits.candidates)
        self.engine = Pool(address_of(own.upstream, own.ca_file), own.connect_seconds, own.timeout_seconds)
        decider = self._decider(service)
        self.reranking = Reranking(self, decider, Orders(own.paging_mb * MB, own.paging_seconds, self.loop.time))
        authorization = secret_in(own.authorization_file, "proxy.authorization_file")
        replaced = {b"host": own.host_header, b"authorization": authorization}
        self.replaced = tuple(name for name, value in replaced.items() if value)
        self.added = tuple(name.title() + b": " + value.encode() for name, value in replaced.items() if value)
        self.tracing = tracing if service is None else service.tracing
        self.stopping = False
        self._told: dict[int, tuple[float, int]] = {}  # by status: when it was logged last, and how many were not since
        self.metrics = ProxyMetrics() if service is None else service.metrics
        self.metrics.proxy_connections.ask = lambda: len(self.talks)
        self._counts = {outcome: self.metrics.proxied(outcome) for outcome in OUTCOMES}
        self.talks: dict[Wire, tuple[Conversation, asyncio.Task[None]]] = {}
        self.server: asyncio.Server | None = None

    def count(self, outcome: str) -> None:
        """Count a request by its outcome."""
        self._counts[outcome].value += 1

    def tell(self, status: int, why: str) -> None:
        """Log a refusal or a failure, at most one of a status in a second: an engine that is down must not fill the disk."""
        now = self.loop.time()
        last, more = self._told.get(status, (-QUIET, 0))
        if now - last < QUIET:
            self._told[status] = last, more + 1
            return
        self._told[status] = now, 0
        level, what = (logging.INFO, "refused") if status < 500 else (logging.WARNING, "the engine failed")
        log.log(level, what, extra={"status": status, "reason": why, "more_since": more})

    def _decider(self, service: Service | None) -> Decider:
        own = self.config.proxy
        seconds = own.deadline_ms / 1000.0
        if service is not None:
            return Inside(service, seconds, self.rules.shrink)
        key = secret_in(own.api_key_file, "proxy.api_key_file")
        pool = Pool(address_of(own.service), seconds, seconds)
        most = self.limits.session_chars
        return Outside(pool, urlsplit(own.service).netloc.encode(), key, seconds, self.rules.shrink, most)

    def head_for(
        self, head: RequestHead, without: tuple[bytes, ...] = (), more: tuple[bytes, ...] = (), target: bytes | None = None
    ) -> bytes:
        """Return the head of a request as the engine gets it."""
        first = None if target is None or target == head.target else b"%b %b HTTP/1.1" % (head.method, target)
        return head.kept((*without, *self.replaced), (*self.added, *more), first)

    # ------------------------------------------------------------------ start and stop
    async def start(self, opened: socket.socket) -> None:
        """Answer on a listening socket."""
        address = str(opened.getsockname()[0])
        if not ipaddress.ip_address(address).is_unspecified:
            self.names.names.add(name_of(address))
        elif not self.config.proxy.hosts:
            log.warning("the proxy listens on all addresses, but proxy.hosts is empty: only requests to localhost are answered")
        self.server = await self.loop.create_server(self._wire, sock=opened, backlog=BACKLOG)

    def _wire(self) -> Wire:
        return Opened(self)

    async def stop(self, seconds: float) -> None:
        """Stop listening, let open requests finish for some seconds, and close everything."""
        self.stopping = True
        if self.server is not None:
            self.server.close()
        until = self.loop.time() + seconds
        while self.talks:
            over = self.loop.time() >= until
            for wire, (talk, task) in list(self.talks.items()):
                if talk.idle or over:
                    wire.abort()
                    task.cancel()
            await asyncio.sleep(STOPPING)
        self.engine.close()
        self.reranking.decider.close()


class Opened(Wire):
    """A client's connection."""

    __slots__ = ("proxy",)

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy.loop)
        self.proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        proxy = self.proxy
        if len(proxy.talks) >= proxy.limits.connections:
            self.write(refusal(503, "there are too many connections"))
            self.close()
            return
        talk = Conversation(proxy, self)
        task = proxy.loop.create_task(talk.run())
        proxy.talks[self] = talk, task

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        _, task = self.proxy.talks.pop(self, (None, None))
        if task is not None:
            task.cancel()  # the engine's connection closes with it, and the engine stops searching
