"""Running the proxy: as a process of its own, or beside the service in its process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable

from swerve.proxy.server import Proxy, listening
from swerve.service import logs
from swerve.service.config.load import Config
from swerve.service.http.server import Extend, Extension, loop_factory
from swerve.service.runtime import Service
from swerve.version import __version__


def serve(config: Config, announce: Callable[[str], None] = print) -> None:
    """Run the proxy until SIGINT or SIGTERM; `announce` receives the lines for people."""
    logs.setup(config.log)
    opened, address = listening(config)
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, opened, address, announce))
    announce("stopped")


async def _serve(config: Config, opened: socket.socket, address: str, announce: Callable[[str], None]) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    proxy = Proxy(config)
    await proxy.start(opened)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    announce(f"swerve {__version__} proxy: {address}  engine {config.proxy.upstream}  service {config.proxy.service}")
    announce(f"ready: {address}")
    try:
        await ended.wait()
    finally:
        await proxy.stop(config.server.drain_seconds)


def beside(extend: Extend, announce: Callable[[str], None] = print) -> Extend:
    """Return the extension of a service by `extend`, with the proxy beside it where the configuration names an engine."""

    def both(service: Service, address: str) -> Extension:
        first = extend(service, address)
        if not service.config.proxy.upstream:
            return first
        opened, where = listening(service.config)

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
