"""Measure several workers: processor time of a ranking with two of them against one, and how long a killed one is missed.

    python tools/measure_crew.py [REQUESTS] [KILLS]

Rounds of the three set-ups take turns; the processor time is that of the service's processes. Docs: docs/service.md, "Several
workers".
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CONFIG = """
[server]
port = {port}
worker_ports = {ports}
workers = {workers}
deadline_ms = 1000.0
[log]
level = "info"
"""
QUERIES, CANDIDATES, ROUNDS = 400, 10, 5
#: Seconds between two kills: a worker that dies again at once is started again later each time.
STEADY = 11.0
TICKS = os.sysconf("SC_CLK_TCK")


class Service:
    """A running service, and a connection to each worker."""

    def __init__(self, folder: Path, workers: int, port: int) -> None:
        self.folder, self.workers, self.port = folder, workers, port
        ports = port + 1 if workers > 1 else 0
        (folder / "swerve.toml").write_text(CONFIG.format(port=port, ports=ports, workers=workers))
        self.log = (folder / "log").open("w")
        command = [sys.executable, "-m", "swerve", "serve", "--config", "swerve.toml"]
        self.child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=self.log, text=True)
        assert self.child.stdout is not None
        if not any("ready:" in line for line in self.child.stdout):
            raise SystemExit((folder / "log").read_text()[-2000:])
        self.sockets = [
            socket.create_connection(("127.0.0.1", ports + worker if workers > 1 else port)) for worker in range(workers)
        ]

    def pids(self) -> dict[int, int]:
        """Return the processes that serve."""
        if self.workers == 1:
            return {0: self.child.pid}
        said = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        return {line["worker"]: line["pid"] for line in said if line["message"] == "a worker is ready"}

    def seconds(self) -> float:
        """Return the processor time that they have used."""
        total = 0
        for pid in self.pids().values():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def ask(self, worker: int, body: bytes) -> tuple[bytes, bytes]:
        """Send a ranking to a worker; return head and body of the answer."""
        sock = self.sockets[worker]
        head = b"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        sock.sendall(head % len(body) + body)
        data = b""
        while b"\r\n\r\n" not in data:
            data += sock.recv(65536)
        said, _, rest = data.partition(b"\r\n\r\n")
        length = int(next(line for line in said.split(b"\r\n") if line.lower().startswith(b"content-length")).split(b":")[1])
        while len(rest) < length:
            rest += sock.recv(65536)
        return said, rest

    def stop(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.child.terminate()
        self.child.wait(30.0)
        self.log.close()


def body_of(query: int, session: int = 0) -> bytes:
    names = [f"result-{query}-{number}" for number in range(CANDIDATES)]
    return json.dumps({"query": f"query {query}", "candidates": names, "session": f"s{session}"}).encode()


@contextlib.contextmanager
def served(workers: int, port: int) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder), workers, port)
        try:
            yield service
        finally:
            service.stop()


def owners(service: Service) -> list[int]:
    """Ask every query until it is decided; return the worker that has each."""
    found = []
    for query in range(QUERIES):
        head, body = service.ask(0, body_of(query))
        while json.loads(body)["degraded"]:  # it still compiles
            time.sleep(0.1)
            head, body = service.ask(0, body_of(query))
        told = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"swerve-partition")), b"x:0")
        found.append(int(told.split(b":")[1]) % service.workers)
    return found


def spent(service: Service, requests: int, where: list[int], shift: int) -> float:
    """Return the processor time of a ranking, in microseconds; every `shift`-th request goes to another worker than its own."""
    before = service.seconds()
    for number in range(requests):
        query = number % QUERIES
        wrong = shift and number // QUERIES % shift == shift - 1
        head, _ = service.ask((where[query] + bool(wrong)) % service.workers, body_of(query, number + 1))
        if b" 200 " not in head:
            raise SystemExit(head.decode())
    return (service.seconds() - before) / requests * 1e6


def main() -> None:
    requests, kills = (int(word) for word in [*sys.argv[1:], "4000", "5"][:2])
    with served(1, 8471) as one, served(2, 8474) as two:
        alone, where = owners(one), owners(two)
        found: dict[str, list[float]] = {"one worker": [], "two, sent to the owner": [], "two, sent to either": []}
        for _ in range(ROUNDS):
            found["one worker"].append(spent(one, requests, alone, 0))
            found["two, sent to the owner"].append(spent(two, requests, where, 0))
            found["two, sent to either"].append(spent(two, requests, where, 2))
        base = statistics.median(found["one worker"])
        for name, values in found.items():
            middle = statistics.median(values)
            print(f"{name}: {middle:.0f} us of processor time per ranking, {middle / base:.2f} of one worker")
        query = where.index(1)
        missed = []
        for _ in range(kills):
            while json.loads(two.ask(0, body_of(query))[1])["degraded"]:
                time.sleep(0.01)
            time.sleep(STEADY)
            os.kill(two.pids()[1], signal.SIGKILL)
            began = time.perf_counter()
            while not json.loads(two.ask(0, body_of(query))[1])["degraded"] and time.perf_counter() - began < 0.2:
                pass
            while json.loads(two.ask(0, body_of(query))[1])["degraded"]:
                time.sleep(0.005)
            missed.append(time.perf_counter() - began)
            print(f"a killed worker decides again after {missed[-1]:.2f} s")
        print(f"median {statistics.median(missed):.2f} s, most {max(missed):.2f} s")


if __name__ == "__main__":
    main()
