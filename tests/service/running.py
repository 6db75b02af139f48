"""A real service in a separate process, and a plain client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import forking
from forking import ROOT as ROOT, SRC as SRC

COMMAND = (sys.executable, "-m", "swerve", "serve")
#: A policy that compiles in seconds; one capacity. The deadline is long, because reading a row may be slow on a busy machine.
SMALL: dict[str, dict[str, Any]] = {
    "server": {"port": 0, "deadline_ms": 2000.0},
    "policy": {"spec": "ts", "arms": 8},
    "store": {"flush_seconds": 0.2, "cache_mb": 16},
    "signals": {"numbers": {"news": "count", "given": "raw"}},
}
#: Seconds for a start: the first one compiles.
PATIENCE = 300.0


@dataclass(frozen=True)
class Answer:
    """An answer, and the seconds that it took."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Gone(Exception):  # noqa: N818 - what happened
    """There was no answer: whether the service carried out the request is unknown."""


class Http:
    """One connection, opened again after it breaks. Not thread-safe."""

    def __init__(self, port: int, key: str = "") -> None:
        self.port, self.key = port, key
        self._connection: http.client.HTTPConnection | None = None

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = 20.0
    ) -> Answer:
        """Send one request, once. A body that is not bytes is sent as JSON."""
        sent = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None:
            sent["Content-Type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        started = time.perf_counter()
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
                self._connection.connect()
            self._connection.request(method, path, body, {**sent, **(headers or {})})
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Gone from error
        if response.will_close:
            self.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, content, time.perf_counter() - started)

    def rank(self, query: str, candidates: list[Any], **more: Any) -> Answer:
        return self.call("POST", "/v1/rank", {"query": query, "candidates": candidates, **more})

    def feedback(self, decision: str, clicked: str | None) -> Answer:
        return self.call("POST", "/v1/feedback", said_of(decision, clicked))

    def events(self, decision: str, *events: dict[str, Any], **more: Any) -> Answer:
        return self.call("POST", "/v1/feedback", {"decision": decision, "events": list(events), **more})

    def query(self, text: str) -> Answer:
        return self.call("GET", f"/v1/queries/{quote(text, safe='')}")

    def clicks(self, text: str) -> dict[str, int]:
        """Return the lifetime clicks of a query by candidate, without zeros."""
        answer = self.query(text)
        assert answer.status == 200, answer
        return {arm["id"]: arm["clicks"] for arm in answer.json["arms"] if arm["clicks"]}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def said_of(decision: str, clicked: str | None) -> dict[str, Any]:
    """The body of feedback: one click, or that nobody clicked."""
    return {"decision": decision, "events": [] if clicked is None else [{"kind": "click", "result": clicked}]}


class Running:
    """`swerve serve` over a folder; it can be started, killed and started again."""

    def __init__(self, folder: Path, changes: dict[str, dict[str, Any]] | None = None, command: tuple[str, ...] = COMMAND) -> None:
        self.folder, self.command = folder, command
        self.state = folder / "state"
        self.state.mkdir(parents=True, exist_ok=True)
        self.database = self.state / "swerve.db"
        self.log = folder / "stderr.txt"
        self.file = folder / "swerve.toml"
        self.configure(changes or {})
        self.child: forking.Process | None = None
        self.port = 0
        self.said: list[str] = []
        self.clients: list[Http] = []

    def configure(self, changes: dict[str, dict[str, Any]]) -> None:
        """Write the small configuration with changes, for the next start."""
        tables = {name: dict(table) for name, table in SMALL.items()}
        tables["store"]["url"] = f"sqlite:///{self.database}"
        for name, table in changes.items():
            tables.setdefault(name, {}).update(table)
        self.file.write_text(as_toml(tables))

    @staticmethod
    def environment() -> dict[str, str]:
        """Return the environment of the service's process."""
        return {**os.environ, "PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1"}

    def start(self, *options: str, ready: bool = True) -> Running:
        """Start the process; return when it is ready or, without `ready`, when it listens."""
        env = self.environment()
        with self.log.open("ab") as errors:
            command = [*self.command, "--config", str(self.file), *options]
            self.child = forking.start(command, env, self.folder, errors)
        # bounds the wait for a line that never comes
        guard = threading.Timer(PATIENCE, self.child.kill)
        guard.start()
        try:
            assert self.child.stdout is not None
            wanted = "ready: " if ready else "http://"
            for line in self.child.stdout:
                self.said.append(line.rstrip("\n"))
                if wanted in line:
                    break
            else:
                raise AssertionError(f"the service ended with {self.child.wait()}: {self.stderr()[-2000:]}")
        finally:
            guard.cancel()
        self.port = int(next(word for line in self.said for word in line.split() if word.startswith("http://")).rpartition(":")[2])
        if ready:
            self._whole()
        return self

    def _whole(self) -> None:
        """Wait until every capacity is compiled; do not wait for a service in trouble."""
        probe = Http(self.port)
        try:
            until(lambda: "compiling" not in probe.call("GET", "/readyz").json, PATIENCE)
        except Gone:
            pass
        finally:
            probe.close()

    def client(self, key: str = "") -> Http:
        """Return a connection, which closes with the service at the latest."""
        self.clients.append(Http(self.port, key))
        return self.clients[-1]

    def stderr(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.child is not None:
            self.child.kill()
            self._reap()

    def stop(self, patience: float = 30.0) -> int:
        """Stop the process with SIGTERM; return its exit status."""
        assert self.child is not None
        self.child.send_signal(signal.SIGTERM)
        return self.wait(patience)

    def wait(self, patience: float = 30.0) -> int:
        """Wait for the end of the process; return its exit status."""
        assert self.child is not None
        guard = threading.Timer(patience, self.child.kill)
        guard.start()
        try:
            return self._reap()
        finally:
            guard.cancel()

    def _reap(self) -> int:
        assert self.child is not None
        assert self.child.stdout is not None
        self.said += self.child.stdout.read().splitlines()
        self.child.stdout.close()
        code = self.child.wait()
        self.child, self.said_last, self.said = None, self.said, []
        return code

    def memory(self) -> int:
        """Return the resident bytes of the process."""
        assert self.child is not None
        return int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def running(
    folder: Path, changes: dict[str, dict[str, Any]] | None = None, command: tuple[str, ...] = COMMAND
) -> Iterator[Running]:
    """Yield a service that is ready; end it afterwards."""
    service = Running(folder, changes, command)
    try:
        yield service.start()
    finally:
        service.kill()
        for client in service.clients:
            client.close()


def until(what: Callable[[], bool], patience: float = 10.0) -> float:
    """Wait until a condition holds; return the seconds that it took."""
    started = time.perf_counter()
    while not what():
        if time.perf_counter() - started > patience:
            raise AssertionError(f"not within {patience} s")
        time.sleep(0.02)
    return time.perf_counter() - started


def as_toml(tables: dict[str, dict[str, Any]]) -> str:
    """Return tables of plain values, lists and tables as TOML."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )


def _key(name: str) -> str:
    return name if name.replace("_", "a").isalnum() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
