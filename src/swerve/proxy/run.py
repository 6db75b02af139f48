"""Running the proxy: as a process of its own, or beside the service in its process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable

from swerve.proxy.looking import look
from swerve.proxy.server import TAKEN_METRICS, Proxy, bound_to, listening
from swerve.proxy.watch import Watch
from swerve.service import logs
from swerve.service.config.load import Config
from swerve.service.http.server import Extend, Extension, loop_factory
from swerve.service.runtime import Service
from swerve.service.tracing import Tracing, tracing_of
from swerve.version import __version__


def serve(config: Config, announce: Callable[[str], None] = print) -> None:
    """Run the proxy until SIGINT or SIGTERM; `announce` receives the lines for people."""
    logs.setup(config.log)
    tracing = tracing_of(config.tracing, "swerve-proxy")
    opened, address = listening(config)
    watched = bound_to(config.proxy.metrics, TAKEN_METRICS) if config.proxy.metrics else None
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, opened, address, watched, tracing, announce))
    if tracing is not None:
        tracing.stop()
    announce("stopped")


async def _serve(
    config: Config,
    opened: socket.socket,
    address: str,
    watched: tuple[socket.socket, str] | None,
    tracing: Tracing | None,
    announce: Callable[[str], None],
) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    proxy = Proxy(config, tracing=tracing)
    proxy.metrics.started.value = time.time()
    await proxy.start(opened)
    watch = Watch(proxy)
    if watched is not None:
        await watch.start(watched[0])
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    announce(f"swerve {__version__} proxy: {address}  engine {config.proxy.upstream}  service {config.proxy.service}")
    if watched is not None:
        announce(f"metrics: {watched[1]}/metrics")
    announce(f"ready: {address}")
    looking = loop.create_task(look(config.proxy.service), name="swerve-look")
    try:
        await ended.wait()
    finally:
        looking.cancel()
        await proxy.stop(config.server.drain_seconds)
        watch.stop()


def beside(extend: Extend, announce: Callable[[str], None] = print) -> Extend:
    """Return the extension of a service by `extend`, with the proxy beside it where the configuration names an engine."""

    def both(service: Service, address: str) -> Extension:
        first = extend(service, address)
        if not service.config.proxy.upstream:
            return first
        opened, where = listening(service.config, inside=True)

        async def run() -> None:
            proxy = Proxy(service.config, service)
            await proxy.start(opened)
            announce(f"proxy: {where}  engine {service.config.proxy.upstream}")
            try:
                await first.run()
                await asyncio.Event().wait()
            finally:
                await proxy.stop(service.config.server.drain_seconds)

        return first._replace(run=run)

    return both
