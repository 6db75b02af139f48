"""A service with several workers: each worker's own port, and its process."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.running import Http, Running, running


def free_ports(count: int) -> int:
    """Return the first of so many free ports in a row."""
    draw = random.SystemRandom()
    while True:
        first = draw.randrange(20_000, 32_000)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first


class Crewed:
    """A running service with workers."""

    def __init__(self, service: Running, workers: int, ports: int) -> None:
        self.service, self.workers, self.ports = service, workers, ports
        self.clients = [service.client() for _ in range(workers)]
        for index, client in enumerate(self.clients):
            client.port = ports + index

    def pids(self) -> dict[int, int]:
        """Return the processes of the workers that were ready last."""
        found = {}
        for line in self.service.stderr().splitlines():
            said = json.loads(line)
            if said["message"] == "a worker is ready":
                found[said["worker"]] = said["pid"]
        return found

    def owner(self, query: str) -> int:
        """Return the worker that has a query."""
        answer = self.clients[0].call("POST", "/v1/rank", {"query": query, "candidates": ["a"]})
        return int(answer.headers["swerve-partition"]) % self.workers

    def queries_of(self, worker: int, count: int) -> list[str]:
        """Return the texts of queries that a worker has: which these are depends on the secrets."""
        texts = (f"query {number}" for number in itertools.count())
        return list(itertools.islice((text for text in texts if self.owner(text) == worker), count))

    def each(self) -> Iterator[Http]:
        """Yield a connection to each worker."""
        yield from self.clients


@contextlib.contextmanager
def crewed(folder: Path, workers: int, changes: dict[str, dict[str, Any]] | None = None) -> Iterator[Crewed]:
    """Yield a service with several workers."""
    ports = free_ports(workers)
    changes = {name: dict(table) for name, table in (changes or {}).items()}
    changes.setdefault("server", {}).update(workers=workers, worker_ports=ports)
    with running(folder, changes) as service:
        yield Crewed(service, workers, ports)
