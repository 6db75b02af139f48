"""The demo's server: a real service with its page, a small search engine behind it, and simulated users in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import multiprocessing
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from starlette.routing import Route

from swerve.core.errors import SwerveError
from swerve.dashboard import Hub, routes
from swerve.demo import play, scenarios
from swerve.demo.clock import SimulatedClock
from swerve.demo.corpus import documents, meanings, queries
from swerve.demo.intents import RESULTS
from swerve.demo.search import Search
from swerve.service.config.load import Config, resolve
from swerve.service.config.toml import Document
from swerve.service.http import routes as described
from swerve.service.http.endpoint import Endpoint
from swerve.service.http.handlers import JSON, Answer, Scope
from swerve.service.http.limits import parameters
from swerve.service.http.server import Extension, serve
from swerve.service.runtime import Service
from swerve.service.secrets import ApiKeys
from swerve.serving.checks import check_query
from swerve.serving.messages import Asked, Refused, encode

DEFAULT_PORT = 8350  # the service's default
SLOWEST, FASTEST = 1.0, 1000.0  # simulated minutes per second; beyond, a machine does not keep up
#: Seconds that the users' process has to send its summary: on a busy machine a step of it takes seconds.
SUMMARY_SECONDS = 20.0
LOOK_EVERY = 0.05  # seconds between looks at the users' process
DEADLINE_MS = 500.0  # the users keep the machine busy, and no person waits for these searches
CACHE_MB = 64  # more than the demo's few queries need
SERVICE_ARMS = 16  # results per query, with room for documents that are published later
FEEDBACK_WINDOW = 86_400.0  # seconds for feedback: a person who clicks takes real seconds, which are simulated hours
LONGEST_VALUE = 100  # characters of an order's value
#: The experiment of the demo: enough users are held out for a verdict within a scenario, and most see Swerve's ranking.
EXPERIMENT, TREATED = "demo", 0.8


class Options(NamedTuple):
    """The options of `swerve demo`."""

    scenario: str = "hurricane"
    speed: float = 200.0  # simulated minutes per second
    seed: int = 0
    port: int | None = None
    store: str | None = None
    seconds: float | None = None  # seconds of playing after which the demo ends by itself


class Order(Struct, forbid_unknown_fields=True):
    """A person's order to the simulation."""

    do: Literal["pause", "resume", "speed", "scenario", "shift"]
    value: Annotated[float, Meta(ge=SLOWEST, le=FASTEST)] | Annotated[str, Meta(max_length=LONGEST_VALUE)] | None = None

    def check(self) -> None:
        """Raise `Refused` if the value does not fit the order."""
        if self.do == "speed" and not isinstance(self.value, float):
            raise Refused(422, "invalid", f"value must be a number from {SLOWEST:g} to {FASTEST:g}", "value")
        if self.do == "scenario" and self.value not in scenarios.names():
            raise Refused(422, "invalid", f"value must be one of {', '.join(scenarios.names())}", "value")
        asked = {document.query for document in documents()}
        if self.do == "shift" and self.value is not None and self.value not in asked:
            raise Refused(422, "invalid", f"value must be a query that users ask: {', '.join(sorted(asked))}", "value")


_order = msgspec.json.Decoder(Order)


def config_of(options: Options, folder: Path, port: int) -> Config:
    """Return the service's configuration: the defaults, except where a demonstration needs other values."""
    tables: dict[str, Any] = {
        "server": {"port": port, "deadline_ms": DEADLINE_MS},
        "store": {"url": options.store or f"sqlite:///{folder}/demo.db", "store_queries": True, "cache_mb": CACHE_MB},
        "policy": {"arms": SERVICE_ARMS, "seed": options.seed},
        "feedback": {"window_seconds": FEEDBACK_WINDOW},
        "signals": {"numbers": {"news": "count"}},
        "log": {"level": "warning"},
        "experiment": {"name": EXPERIMENT, "treated": TREATED},
    }
    return resolve(Document("the demo", tables, {}))


def free_port(wanted: int | None) -> int:
    """Return the port to listen on: `wanted` if given, else the default one, else 0 for any free one."""
    if wanted is not None:
        return wanted
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closing connections of an earlier run do not block the port
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise SwerveError(f"cannot listen on 127.0.0.1: {error.strerror or error}") from None
            return 0
    return DEFAULT_PORT


@contextlib.contextmanager
def folder_for(options: Options) -> Iterator[Path]:
    """Yield a temporary folder for the store."""
    try:
        made = tempfile.TemporaryDirectory(prefix="swerve-demo-")
    except OSError as error:
        message = f"cannot make a folder for the store: {error.strerror or error}; name another folder in TMPDIR"
        raise SwerveError(message) from None
    with made as name:
        yield Path(name)


class Demo:
    """The demo around a service: its users, their reports, and the controls. `state` is the last report."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.state: dict[str, Any] | None = None
        self.summary: dict[str, Any] | None = None
        self.failed: str | None = None
        self.address = ""
        self.service: Service | None = None
        self.hub: Hub | None = None
        self.search = Search()
        self._documents = {document.id: document for document in documents()}
        self._context = multiprocessing.get_context("spawn")
        self.time: Any = self._context.Value("d", scenarios.load(options.scenario).begins, lock=False)
        self._pipe: Connection | None = None
        self._began: float | None = None  # when playing began
        self._ending = False
        self._bye = asyncio.Event()

    # ------------------------------------------------------------------ start and end
    def run(self) -> None:
        """Serve until the demo ends."""
        with folder_for(self.options) as folder:
            config = config_of(self.options, folder, free_port(self.options.port))
            serve(config, lambda line: None, extend=self.extend, clock=SimulatedClock(self.time))
        if self.failed is not None:
            raise SwerveError(self.failed)

    def extend(self, service: Service, address: str) -> Extension:
        """Return the dashboard with the routes of the simulation."""
        self.service, self.address = service, address
        self.hub = hub = Hub(service)
        hub.demo = {
            "titles": {
                document.id: {"title": document.title, "text": document.text, "meaning": document.meaning}
                for document in documents()
            },
            "scenarios": [
                {"name": one.name, "title": one.title, "story": one.story} for one in map(scenarios.load, scenarios.names())
            ],
            "meanings": {query: meanings(query) for query in queries()},
            "speed": self.options.speed,
            "scenario": self.options.scenario,
            "queries": [story.query for story in scenarios.load(self.options.scenario).queries],
        }
        for story in scenarios.load(self.options.scenario).queries:
            hub.watch(story.query)
        keys = ApiKeys(service.config.security.api_keys)
        own = (
            (described.Route("get", "/demo/search", "demo_search", "Search, and rank the results", "rank"), self._search),
            (described.Route("post", "/demo/control", "demo_control", "Direct the users", "feedback", Order), self._control),
        )
        made = [
            Route(route.path, Endpoint(service, keys, route, handler, None), methods=[route.method.upper()], name=route.name)
            for route, handler in own
        ]
        return Extension([*routes(hub), *made], self._beside, self._close)

    def _close(self) -> None:
        """End the users' process first, while the service still answers it."""
        assert self.hub is not None
        self.hub.close()
        self._ending = True
        self._send({"do": "end"})

    def _send(self, order: dict[str, Any]) -> bool:
        """Send an order to the users' process; return whether it is there."""
        if self._pipe is None:
            return False
        try:
            self._pipe.send(order)
        except OSError:
            return False
        return True

    async def _beside(self) -> None:
        assert self.hub is not None
        sampling = asyncio.create_task(self.hub.run(), name="swerve-dashboard")
        users = self._start()
        try:
            await self._users(users)
        finally:
            sampling.cancel()
            await self._farewell(users)

    def _start(self) -> Any:
        ours, theirs = self._context.Pipe()
        orders = play.Orders(self.address, self.options.scenario, self.options.seed, self.options.speed)
        users = self._context.Process(target=play.main, args=(orders, self.time, theirs), name="swerve-users", daemon=True)
        users.start()
        theirs.close()
        self._pipe = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._received)
        return users

    async def _users(self, users: Any) -> None:
        """Wait until the demo is over: the time is up, the users' process has ended, or the server cancels the wait.

        When the server is stopping, only the cancellation ends the wait: it would otherwise reach `_farewell` and cut that short.
        """
        seconds, waiting = self.options.seconds, True
        while self.failed is None:
            await asyncio.sleep(LOOK_EVERY)
            if self._ending:
                continue
            if waiting and self.service is not None and self.service.ranker.rows.ready and self.service.availability.compiled:
                waiting = not self._send({"do": "begin"})
            if not users.is_alive() and self._pipe is not None and not self._pipe.poll():
                self.failed = self.failed or f"the simulated users are gone (exit status {users.exitcode})"
            ended = self.state is not None and bool(self.state["ended"])
            if seconds is not None and self._began is not None and (ended or time.monotonic() - self._began >= seconds):
                break
        if not self._ending:
            await self._farewell(users)
            signal.raise_signal(signal.SIGINT)  # the same way out as Ctrl-C

    async def _farewell(self, users: Any) -> None:
        """Ask for the summary, and end the users' process."""
        if self._pipe is None:
            return
        pipe = self._pipe
        heard = self.state is not None and self.failed is None and not self._bye.is_set()
        if heard and (self._ending or self._send({"do": "end"})):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bye.wait(), SUMMARY_SECONDS)
        self._pipe = None
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()
        users.terminate()
        users.join()

    def _received(self) -> None:
        pipe = self._pipe
        try:
            while pipe is not None and pipe.poll():
                message = pipe.recv()
                if "report" in message:
                    self.state = message["report"]
                    if self._began is None:
                        self._began = time.monotonic()
                    assert self.hub is not None
                    self.hub.publish("demo", self.state or {})
                elif "summary" in message:
                    assert self.service is not None
                    self.summary = {**message["summary"], "experiment": msgspec.to_builtins(self.service.experiments.report())}
                    self._bye.set()
                elif "failed" in message:
                    self.failed = message["failed"]
        except (EOFError, OSError):
            if pipe is not None:
                asyncio.get_running_loop().remove_reader(pipe.fileno())

    # ------------------------------------------------------------------ routes
    async def _search(self, scope: Scope, body: bytes) -> Answer:
        """Search for a person: the engine finds, the service ranks, and the ranking counts as an impression."""
        asked = parameters(scope["query_string"])
        text = asked.get("q", "")
        assert self.service is not None
        check_query(text, self.service.config.limits)
        found = self.search.find(text, RESULTS, self._published())
        if not found:
            return 200, encode({"query": text, "decision": None, "phase": None, "degraded": False, "results": []}), JSON
        session = asked.get("session") or None
        ids = msgspec.Raw(encode([document.id for document in found]))
        ranked = await self.service.ranking.rank_one(Asked(text, ids, session=session))
        results = [
            {"id": one.id, "title": one.title, "text": one.text, "meaning": one.meaning}
            for one in (self._documents[name] for name in ranked.ranking)
        ]
        answer = {"query": text, "decision": ranked.decision, "phase": ranked.phase, "degraded": ranked.degraded}
        return 200, encode({**answer, "results": results}), JSON

    def _published(self) -> frozenset[str]:
        """Return the keys published by now."""
        if self.state is None:
            return scenarios.load(self.options.scenario).known(0.0)
        return scenarios.load(self.state["scenario"]).known(self.state["now"] - self.state["began"])

    async def _control(self, scope: Scope, body: bytes) -> Answer:
        try:
            order = _order.decode(body)
        except msgspec.MsgspecError as error:
            raise Refused(422 if isinstance(error, msgspec.ValidationError) else 400, "invalid", str(error)) from None
        order.check()
        if self.state is None:
            raise Refused(503, "starting", "the simulated users are not there yet")
        if order.do == "scenario" and self.hub is not None:
            for story in scenarios.load(str(order.value)).queries:
                self.hub.watch(story.query)
        if not self._send(msgspec.to_builtins(order)):
            raise Refused(503, "gone", "the simulated users are gone")
        return 200, encode({"ok": True}), JSON
