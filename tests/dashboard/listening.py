"""A plain reader of server-sent events, and a service in this process, which needs no compilation."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import uvicorn

from swerve.dashboard import Hub, routes
from swerve.service.config.load import Config, Policy, Store
from swerve.service.http.app import App
from swerve.service.http.door import Door
from swerve.service.http.server import Server, listen, open_service

T = TypeVar("T")


class Event(NamedTuple):
    """One message."""

    id: str | None
    name: str
    data: Any

    @property
    def number(self) -> int:
        return int((self.id or "").rpartition("-")[2])


class Listener:
    """One connection to `/v1/live`."""

    def __init__(self, port: int, query: str | None = None, last: str = "", key: str = "", timeout: float = 10.0) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        headers = {"Accept": "text/event-stream"}
        if last:
            headers["Last-Event-ID"] = last
        if key:
            headers["Authorization"] = f"Bearer {key}"
        path = "/v1/live" if query is None else f"/v1/live?query={quote(query, safe='')}"
        self.connection.request("GET", path, headers=headers)
        self.socket = self.connection.sock
        self.response = self.connection.getresponse()
        self.comments = 0
        self.retry = 0

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.response.close()
        self.connection.close()

    def next(self) -> Event:
        """Return the next message; raise EOFError at the end."""
        identity, name, data = None, "message", []
        while True:
            line = self.response.readline().decode()
            if not line:
                raise EOFError
            field, _, value = line.rstrip("\n").partition(": ")
            if line == "\n":
                if data:
                    return Event(identity, name, json.loads("\n".join(data)))
            elif line.startswith(":"):
                self.comments += 1
            elif field == "id":
                identity = value
            elif field == "event":
                name = value
            elif field == "retry":
                self.retry = int(value)
            else:
                assert field == "data", line
                data.append(value)

    def until(self, name: str, count: int = 1) -> list[Event]:
        """Read until `count` messages of a name have come; return them."""
        found: list[Event] = []
        while len(found) < count:
            event = self.next()
            if event.name == name:
                found.append(event)
        return found


class Site:
    """A hub behind a real server in a separate thread. It never ticks by itself; `do` runs functions on its loop."""

    def __init__(self, folder: Path) -> None:
        store = Store(url=f"sqlite:///{folder / 'swerve.db'}", cache_mb=16)
        self.service = open_service(Config(policy=Policy(spec="ts", arms=8), store=store))
        self.sock: socket.socket = listen("127.0.0.1", 0)
        self.port: int = self.sock.getsockname()[1]
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.hub = Hub(self.service)
        app = App(self.service, routes(self.hub))
        config = uvicorn.Config(app, http=Door, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=5)
        self.server = Server(config, self.hub.close)
        self.server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
        app.transport_of = self.server.transport_of
        self.service.committer.begin()  # the log of a new store has nothing to play
        self._started.set()
        await self.server.serve([self.sock])
        await self.service.stop()

    def __enter__(self) -> Site:
        self._thread.start()
        assert self._started.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    def do(self, what: Callable[[], T]) -> T:
        """Call a function on the service's event loop; return its result."""

        async def call() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(20)

    def publish(self, *values: int) -> None:
        """Publish messages of the name `demo`."""
        for value in values:
            self.do(lambda value=value: self.hub.publish("demo", {"value": value, "events": ["heavy"]}))

    def listen(self, query: str | None = None, last: str = "", **more: Any) -> Listener:
        return Listener(self.port, query, last, **more)
