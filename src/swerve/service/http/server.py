"""Running the service: one process, one event loop, a socket, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from swerve.core.errors import SwerveError
from swerve.service import logs
from swerve.service.clock import Clock
from swerve.service.config.load import Config, may_bind
from swerve.service.crew import Crew, Post
from swerve.service.dividing import Dividing
from swerve.service.handshake import Knock
from swerve.service.http.app import App
from swerve.service.http.door import Door, InnerDoor
from swerve.service.http.handlers import Scope
from swerve.service.runtime import Service
from swerve.service.secrets import Secrets, SecretsError, are_there, load_secrets, put_back, secrets_path
from swerve.service.tracing import tracing_of
from swerve.serving.messages import Refused
from swerve.store import Store
from swerve.store.sqlite import SQLiteStore
from swerve.store.urls import open_store, server_of, shares_at, shown_url
from swerve.version import __version__

log = logging.getLogger("swerve.service")

#: Seconds after which an idle connection is closed: longer than clients keep theirs, because the side that closes first can lose a
#: request of the other.
KEEP_ALIVE = 75
#: Connections that the system queues while the event loop is busy: uvicorn's own default.
BACKLOG = 2048
#: Seconds between two looks, during a start, whether the supervisor has gone.
ORPHANED_SECONDS = 0.5


async def nothing() -> None:
    """Do nothing: the default of `Extension.run`."""


class Extension(NamedTuple):
    """An extension of a service, such as the dashboard.

    `routes` are its own routes. `run` runs beside the service and is cancelled before the service stops. `close` is called first
    when the server stops: it must end streams, because the server waits until all connections are closed.
    """

    routes: Sequence[Route] = ()
    run: Callable[[], Awaitable[None]] = nothing
    close: Callable[[], None] = lambda: None


#: Makes an extension for a service and its address.
Extend = Callable[[Service, str], Extension]


class Server(uvicorn.Server):
    """A uvicorn server that stops in order on a signal. uvicorn's own raises the signal again after the stop and dies of it."""

    def __init__(
        self, config: uvicorn.Config, ending: Callable[[], None], crew: Crew | None = None, inner: socket.socket | None = None
    ) -> None:
        super().__init__(config)
        self.ending, self.crew, self.inner = ending, crew, inner  # `inner` is the socket for workers of other machines

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.crew is None:
            return
        loop, crew, state, knocking = asyncio.get_running_loop(), self.crew, self.lifespan.state, [0]
        path = crew.post.socket_of(crew.index)
        path.unlink(missing_ok=True)  # of a worker that was killed

        def door(ahead: float = 0.0) -> asyncio.Protocol:
            return InnerDoor(self.config, self.server_state, state, ahead)

        def refused(address: str) -> None:
            app: Any = self.config.app
            app.porter.turned_away("crew", address=address)

        self.servers.append(await loop.create_unix_server(door, str(path), backlog=BACKLOG))
        if self.inner is not None:
            self.servers.append(
                await loop.create_server(lambda: Knock(crew.key, crew.index, door, refused, knocking), sock=self.inner)
            )

    def orphaned(self, life_line: int) -> None:
        """Stop, because the supervisor has gone."""
        asyncio.get_running_loop().remove_reader(life_line)
        log.error("the supervisor has gone: this worker stops too")
        self.handle_exit(signal.SIGTERM, None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.ending()
        await super().shutdown(sockets)

    def transport_of(self, scope: Scope) -> asyncio.Transport:
        """Return the connection of a request that is being answered, so that a stream can end it and see that it was closed."""
        for connection in self.server_state.connections:
            if isinstance(connection, Door) and connection.scope is scope:
                return connection.transport
        raise Refused(422, "pipelined", "a request for a stream must be the last one on its connection")

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


def listen(host: str, port: int, free: str = "another port: --port 0 takes any free one", *, shared: bool = False) -> socket.socket:
    """Return a listening socket, which other processes of the user can share; raises `SwerveError`, with the hint `free` when the
    address is taken."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shared)
    except OSError as error:
        hint = f"; {free}" if error.errno in (errno.EACCES, errno.EADDRINUSE) else ""
        raise SwerveError(f"cannot listen on {host} port {port}: {error.strerror or error}{hint}") from None


def open_owned(
    config: Config,
    *,
    new_store: bool = False,
    new_log: bool = False,
    waiting: Callable[[str], None] | None = None,
    begin: bool | None = None,
) -> tuple[Store, Secrets]:
    """Open the store and the secrets.

    A missing store is created only at the very first start, or with `new_store`; a log that is missing or damaged is replaced by a
    new one only with `new_log`. With `waiting`, the end of another process that owns the store is awaited. `begin` says whether
    this is the very first start of a share of a store on a server; of a store, its secrets say it.
    """
    path, url, shown = secrets_path(config), config.store.url, shown_url(config.store.url)
    if path is None:
        load_secrets(None)  # before a store is made
    store = open_store(
        url, new=new_store, most=config.store.max_mb << 20, new_log=new_log, may_lose_clicks=config.store.may_lose_clicks,
        waiting=waiting, begin=not are_there(path, url) if begin is None else begin,
    )  # before the secrets: a second process fails here  # fmt: skip
    try:
        secrets = load_secrets(path, make=store.count() == 0)
        if not store.claim(secrets.fingerprint()):
            raise SecretsError(
                f"the queries of {shown} are stored under other secrets than {path or 'those of the environment'}: none of them "
                "could be found; restore the secrets of this store, or move the store away to start a new one"
            )
        return store, secrets
    except BaseException:
        store.close()
        raise


def open_service(
    config: Config,
    clock: Clock | None = None,
    *,
    new_store: bool = False,
    new_log: bool = False,
    waiting: Callable[[str], None] | None = None,
    crew: Crew | None = None,
) -> Service:
    """Open the store and the secrets, see `open_owned`, and return a service over them. Without a crew the service has all shares
    of the store: one that was divided is made whole."""
    may_bind(config.server.host, config)
    path = secrets_path(config)
    begin = None if crew is None or crew.board is None else crew.begins()
    store, secrets = open_owned(config, new_store=new_store, new_log=new_log, waiting=waiting, begin=begin)
    try:
        if crew is not None:
            crew.prove_with(secrets.query_key)
            crew.enter(store.epoch)
        elif server_of(config.store.url) is not None and (shares := shares_at(config.store.url)) and shares.of > 1:
            raise SwerveError(
                f"{shown_url(config.store.url)} has {shares.of} shares, which workers serve: `swerve serve` with store.shares = "
                f"{shares.of}"
            )
        if isinstance(store, SQLiteStore):
            if crew is None:
                Dividing(config, store, secrets, 1).run()
            elif store.share != crew.share:
                raise SwerveError(f"{store.given} is {store.share} of a store, and not {crew.share}: put the right file back")

        def put_secrets_back() -> None:
            try:
                if path is not None:
                    put_back(path, secrets)
            except OSError as error:
                log.error("the secrets could not be written again: %s", error)

        return Service(config, store, secrets, clock=clock, restored=put_secrets_back, crew=crew)
    except BaseException:
        store.close()
        raise


@contextlib.contextmanager
def until_opened(post: Post | None) -> Iterator[None]:
    """End this process if its supervisor goes while the store is being opened, which may wait for the owner before."""
    if post is None or post.life_line < 0:
        yield
        return
    done = threading.Event()

    def look() -> None:
        while not done.wait(ORPHANED_SECONDS):
            if select.select([post.life_line], [], [], 0.0)[0]:
                os._exit(1)

    thread = threading.Thread(target=look, name="swerve-life-line", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def lifespan(
    service: Service, ready: Callable[[], None], ended: Callable[[bool], None], run: Callable[[], Awaitable[None]] = nothing
) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    """Return the lifespan that starts the service in the background and stops it after the server.

    `ready` is called when the service is ready, `ended` with whether all changes were written.
    """

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        tasks = loop.create_task(begin(service, ready), name="swerve-start"), loop.create_task(beside(run), name="swerve-beside")
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            ended(await service.stop())

    return life


async def begin(service: Service, ready: Callable[[], None]) -> None:
    """Start the service and call `ready` when it is."""
    since = time.perf_counter()
    try:
        await service.start()
    except SwerveError as error:  # such as a disk without room: no defect, and the message says what to do
        log.error("the service could not start: %s", error)
        os._exit(1)  # no feedback has been acknowledged yet
    except Exception:
        log.exception("the service could not start")
        os._exit(1)
    log.info("ready", extra={"seconds": round(time.perf_counter() - since, 2)})
    ready()


async def beside(run: Callable[[], Awaitable[None]]) -> None:
    """Run an extension; when it fails, log that and go on without it."""
    try:
        await run()
    except Exception:
        log.exception("the extension of the service failed")


def serve(
    config: Config,
    announce: Callable[[str], None] = print,
    *,
    extend: Extend | None = None,
    clock: Clock | None = None,
    new_store: bool = False,
    new_log: bool = False,
    post: Post | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `announce` receives the lines for people, `extend` makes the extension. With a `post` the
    process is a worker: it ends with its supervisor, and `announce` tells that one.

    With `store.standby`, and as a worker over a store on a server, it listens once it owns the store: until then health checks
    cannot take it for the service.
    """
    logs.setup(config.log)
    may_bind(config.server.host, config)
    tracing = tracing_of(config.tracing, "swerve")
    with contextlib.ExitStack() as undo:  # closes what is open if a later step of the start fails
        among = None if post is None else post.among
        standby, sockets, inner = config.store.standby or among is not None, list[socket.socket](), None

        def listening() -> socket.socket:
            if post is not None and config.server.worker_ports:
                port = config.server.worker_ports + post.share.number
                sockets.append(undo.enter_context(listen(config.server.host, port, "another server.worker_ports")))
            return undo.enter_context(listen(config.server.host, config.server.port, shared=post is not None))

        if not standby:  # the socket comes first: a port that is taken must not leave a store and a secrets file behind
            sock = listening()

        def waiting(why: str) -> None:
            announce(f"standby: waiting, and not listening yet: {why}")

        crew = None if post is None else Crew(post)
        with until_opened(post):
            service = open_service(
                config, clock, new_store=new_store, new_log=new_log, waiting=waiting if standby else None, crew=crew
            )
        undo.callback(service.store.close)
        if standby:
            sock = listening()
        if post is not None and post.reached is not None:
            inner = undo.enter_context(listen(*post.reached, "another server.crew_address"))
        sockets.insert(0, sock)
        service.tracing = tracing
        host, port = sock.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        extension = Extension() if extend is None else extend(service, address)
        undo.pop_all()
    metrics = service.metrics
    metrics.info(__version__, config.policy.spec, config.store.url.partition(":")[0]).value = 1
    metrics.started.value = time.time()
    announce(f"swerve {__version__}: {address}  store {shown_url(config.store.url)}  policy {config.policy.spec}")
    app = App(service, extension.routes)
    app.gate.also(host)
    app.porter.fit()
    if ipaddress.ip_address(host).is_unspecified and not config.server.hosts:
        log.warning("listening on all addresses, but server.hosts is empty: only requests to localhost are answered")
    written: list[bool] = []
    app.router.lifespan_context = lifespan(service, lambda: announce(f"ready: {address}"), written.append, extension.run)
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
            timeout_keep_alive=KEEP_ALIVE,
            server_header=False,
            proxy_headers=False,  # anybody can write such a header; the address counts for limits
        ),
        extension.close,
        crew,
        inner,
    )
    app.transport_of = server.transport_of
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory()) as runner:
        if post is not None:
            runner.get_loop().add_reader(post.life_line, server.orphaned, post.life_line)
        runner.run(server.serve(sockets=sockets))
    if crew is not None:
        crew.leave()
    if tracing is not None:
        tracing.stop()
    if written != [True]:
        raise SwerveError("stopped, but not everything could be written; the log says why")
    announce("stopped: everything is written")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory if uvloop is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
