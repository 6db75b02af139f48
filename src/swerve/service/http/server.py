"""Running the service: one process, one event loop, a socket, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from swerve.core.errors import SwerveError
from swerve.service import logs
from swerve.service.clock import Clock
from swerve.service.config.load import Config, may_bind
from swerve.service.http.app import App, Scope
from swerve.service.http.door import Door
from swerve.service.runtime import Service
from swerve.service.secrets import SecretsError, load_secrets, put_back, secrets_path
from swerve.service.secrets import beside as beside_store
from swerve.serving.messages import Refused
from swerve.store import open_store, store_path
from swerve.version import __version__

log = logging.getLogger("swerve.service")


async def nothing() -> None:
    """Do nothing."""


class Extension(NamedTuple):
    """What is built on top of a service.

    Routes of its own; what runs beside the service, cancelled before that ends; and what to do first of all when the server is to
    end: connections that would stay open for ever must be let go of, because the server waits for the others.
    """

    routes: Sequence[Route] = ()
    run: Callable[[], Awaitable[None]] = nothing
    close: Callable[[], None] = lambda: None


#: Makes an extension, of the service and the address that it will answer at.
Extend = Callable[[Service, str], Extension]


class Server(uvicorn.Server):
    """A server that takes a signal as the wish to end in order; uvicorn's own raises it again afterwards, and ends by it."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self.ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.ending()
        await super().shutdown(sockets)

    def transport_of(self, scope: Scope) -> asyncio.Transport:
        """The connection of a request that is being answered: to cut it off, and to see that it was closed."""
        for connection in self.server_state.connections:
            if isinstance(connection, Door) and connection.scope is scope:
                return connection.transport
        raise Refused(422, "pipelined", "nothing may be sent on this connection behind a request for an answer without an end")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def listen(host: str, port: int) -> socket.socket:
    """A socket for the address; a readable refusal when it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        hint = "; another port: --port 0 takes any free one" if error.errno in (13, 98, 48) else ""
        raise SwerveError(f"cannot listen on {host} port {port}: {error.strerror or error}{hint}") from None


def open_service(config: Config, clock: Clock | None = None, *, new_store: bool = False) -> Service:
    """A service over its store and secrets; a store that is missing is begun anew only at the very first start, or when the
    operator says so."""
    may_bind(config.server.host, config)
    path, database = secrets_path(config), store_path(config.store.url)
    if not new_store and not database.exists() and beside_store(config.store.url).exists():
        raise SwerveError(
            f"there is no store {database}, and its secrets are there; put it back, restore a backup of it, "
            "or begin a new one with --new-store"
        )
    store = open_store(
        config.store.url, new=new_store, most=config.store.max_mb << 20
    )  # before the secrets: a second process ends here
    try:
        secrets = load_secrets(path, make=store.count() == 0)
        if not store.claim(secrets.fingerprint()):
            raise SecretsError(
                f"the queries of {database} are kept under other secrets than {path}: none of them could be found; bring back the "
                "secrets that belong to this store, or move the store away to begin a new one"
            )

        def put_secrets_back() -> None:
            try:
                put_back(path, secrets)
            except OSError as error:
                log.error("the secrets could not be written again: %s", error)

        return Service(config, store, secrets, clock=clock, restored=put_secrets_back)
    except BaseException:
        store.close()
        raise


def lifespan(
    service: Service, told: Callable[[], None], ended: Callable[[bool], None], run: Callable[[], Awaitable[None]] = nothing
) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    """Start with the server, without keeping requests waiting: until all is compiled they get the given order. End after it."""

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        tasks = loop.create_task(begin(service, told), name="swerve-start"), loop.create_task(beside(run), name="swerve-beside")
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            ended(await service.stop())

    return life


async def begin(service: Service, told: Callable[[], None]) -> None:
    """Compile, then say so."""
    since = time.perf_counter()
    try:
        await service.start()
    except Exception:
        log.exception("the service could not start")
        os._exit(1)  # nothing has been acknowledged yet
    log.info("ready", extra={"seconds": round(time.perf_counter() - since, 2)})
    told()


async def beside(run: Callable[[], Awaitable[None]]) -> None:
    """Run an extension: the service goes on without it when it fails."""
    try:
        await run()
    except Exception:
        log.exception("what runs beside the service failed")


def serve(
    config: Config,
    told: Callable[[str], None] = print,
    *,
    extend: Extend | None = None,
    clock: Clock | None = None,
    new_store: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; `told` gets the lines for people, `extend` adds what is built on top."""
    logs.setup(config.log)
    may_bind(config.server.host, config)
    with contextlib.ExitStack() as undo:  # closes what is open if a later step of the start fails
        # The socket comes first: a port that is taken must not leave a store and a secrets file behind.
        sock = undo.enter_context(listen(config.server.host, config.server.port))
        service = open_service(config, clock, new_store=new_store)
        undo.callback(service.store.close)
        host, port = sock.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        extension = Extension() if extend is None else extend(service, address)
        undo.pop_all()
    metrics = service.metrics
    metrics.info(__version__, config.policy.spec, config.store.url.partition(":")[0]).value = 1
    metrics.started.value = time.time()
    told(f"swerve {__version__}: {address}  store {config.store.url}  policy {config.policy.spec}")
    app = App(service, extension.routes)
    app.gate.also(host)
    app.porter.fit()
    if ipaddress.ip_address(host).is_unspecified and not config.server.hosts:
        log.warning("on all addresses, but server.hosts is empty: only callers who ask for localhost are answered")
    written: list[bool] = []
    app.router.lifespan_context = lifespan(service, lambda: told(f"ready: {address}"), written.append, extension.run)
    server = Server(
        uvicorn.Config(
            app,
            http=Door,
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=max(1, round(config.server.drain_seconds)),
            headers=[("vary", "origin")] if config.server.origins else [],
            timeout_keep_alive=75,  # longer than callers keep theirs: who closes first loses a request now and then
            server_header=False,
            proxy_headers=False,  # nothing here asks who the caller is
        ),
        extension.close,
    )
    app.transport_of = server.transport_of
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(server.serve(sockets=[sock]))
    if written != [True]:
        raise SwerveError("stopped, but not everything could be written; the log says why")
    told("stopped: everything is written")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
