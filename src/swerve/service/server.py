"""Running the service: one process, one event loop, a socket, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from starlette.applications import Starlette

from swerve.core.errors import SwerveError
from swerve.service import logs
from swerve.service.app import App
from swerve.service.config import Config
from swerve.service.door import Door
from swerve.service.secrets import load_secrets, may_bind, put_back, secrets_path
from swerve.service.service import Service
from swerve.store import open_store
from swerve.version import __version__

log = logging.getLogger("swerve.service")


class Server(uvicorn.Server):
    """A server that takes a signal as the wish to end in order; uvicorn's own raises it again afterwards, and ends by it."""

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


def open_service(config: Config) -> Service:
    """A service over its store and secrets."""
    may_bind(config.server.host, config)
    store = open_store(config.store.url)  # before the secrets: its folder is made here, and a second process ends here
    try:
        path = secrets_path(config)
        secrets = load_secrets(path)

        def put_secrets_back() -> None:
            try:
                put_back(path, secrets)
            except OSError as error:
                log.error("the secrets could not be written again: %s", error)

        return Service(config, store, secrets, restored=put_secrets_back)
    except BaseException:
        store.close()
        raise


def lifespan(
    service: Service, told: Callable[[], None], ended: Callable[[bool], None]
) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    """Start with the server, without keeping requests waiting: until all is compiled they get the given order. End after it."""

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        started = asyncio.get_running_loop().create_task(begin(service, told), name="swerve-start")
        try:
            yield
        finally:
            started.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await started
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


def serve(config: Config, told: Callable[[str], None] = print) -> None:
    """Serve until SIGINT or SIGTERM; `told` gets the lines for people."""
    logs.setup(config.log)
    service = open_service(config)
    try:
        sock = listen(config.server.host, config.server.port)
    except BaseException:
        service.store.close()
        raise
    host, port = sock.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    metrics = service.metrics
    metrics.info(__version__, config.policy.spec, config.store.url.partition(":")[0]).value = 1
    metrics.started.value = time.time()
    told(f"swerve {__version__}: {address}  store {config.store.url}  policy {config.policy.spec}")
    app = App(service)
    written: list[bool] = []
    app.router.lifespan_context = lifespan(service, lambda: told(f"ready: {address}"), written.append)
    server = Server(
        uvicorn.Config(
            app,
            http=Door,
            lifespan="on",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=max(1, round(config.server.drain_seconds)),
            limit_concurrency=10_000,
            server_header=False,
            proxy_headers=False,  # nothing here asks who the caller is
        )
    )
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
