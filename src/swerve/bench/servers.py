"""Servers as child processes, measured from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from swerve.bench.load import HOST
from swerve.core.errors import SwerveError

POLL = 0.1  # seconds between two looks at a waiting server
HTTP_SECONDS = 30  # for an answer of /readyz or /metrics: a busy machine may be slow
COMPILE_SECONDS = 600.0  # for all capacities to be compiled, on a slow machine
SETTLE_SECONDS = 120.0  # for rows to be written after the load
KIB = 1024  # /proc counts in these

READY = re.compile(rf"^ready: http://{re.escape(HOST)}:(\d+)$")
LISTENS = re.compile(rf"http://{re.escape(HOST)}:(\d+)\b")


class Memory(NamedTuple):
    """Bytes of a process in memory, now and at its peak."""

    now: int
    peak: int


class Server:
    """A command that serves on a port of the loopback, running inside a `with` block.

    The block begins once a line of the command's output contains the address; `ready` waits for the line that begins with "ready".
    """

    def __init__(self, command: list[str], errors: Path) -> None:
        self.command, self.errors = command, errors
        self.port = 0
        self.started = 0.0  # by time.perf_counter

    def __enter__(self) -> Self:
        self.started = time.perf_counter()
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            self.port = self._line(LISTENS)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM if kind is None else signal.SIGKILL)
        if self.process.stdout is not None:
            self.process.stdout.read()
            self.process.stdout.close()
        self.process.wait()

    def _line(self, wanted: re.Pattern[str]) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = wanted.search(line.rstrip())
            if found:
                return int(found[1])
        said = self.errors.read_text().strip().splitlines()[-1:]
        raise SwerveError(f"{' '.join(self.command[1:4])} ended before it served: {' '.join(said) or 'no message'}")

    def ready(self) -> Self:
        """Wait until the server is ready."""
        self._line(READY)
        return self

    def whole(self, patience: float = COMPILE_SECONDS) -> Self:
        """Wait until every capacity is compiled, because compilation must not be measured."""
        ends = time.perf_counter() + patience
        while b"compiling" in urllib.request.urlopen(f"http://{HOST}:{self.port}/readyz", timeout=HTTP_SECONDS).read():
            if time.perf_counter() > ends:
                raise SwerveError(f"the service still compiles after {patience:g} seconds")
            time.sleep(POLL)
        return self

    def metric(self, name: str) -> float:
        """Return a number from /metrics."""
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/metrics", timeout=HTTP_SECONDS) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[1])
        raise SwerveError(f"/metrics has no {name}")

    def settle(self, patience: float = SETTLE_SECONDS) -> None:
        """Wait until every changed row is written, so that the next turn does not pay for it."""
        ends = time.perf_counter() + patience
        while self.metric("swerve_pending_rows") > 0:
            if time.perf_counter() > ends:
                raise SwerveError(f"the service still has unwritten rows after {patience:g} seconds without load")
            time.sleep(POLL)

    def cpu(self) -> float | None:
        """Return the seconds of processor time that the process has used; None if the system does not report it."""
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return None
        user, system = text.rpartition(")")[2].split()[11:13]  # behind the name, which may have blanks
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> Memory | None:
        """Return the memory of the process; None if the system does not report it."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        sizes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", status, re.MULTILINE))
        return Memory(int(sizes["VmRSS"]) * KIB, int(sizes["VmHWM"]) * KIB) if len(sizes) == 2 else None


def echo(kind: str, folder: Path) -> Server:
    """Return a reference server."""
    return Server([sys.executable, "-m", "swerve.bench.echo", kind], folder / f"echo-{kind}.log")


def service(folder: Path, config: str, store: str = "") -> Server:
    """Return `swerve serve` on a store in the folder, or on another one."""
    file = folder / "swerve.toml"
    file.write_text(config)
    command = [sys.executable, "-m", "swerve", "serve", "--config", str(file), "--port", "0"]
    return Server([*command, "--store", store or f"sqlite:///{folder / 'swerve.db'}"], folder / "swerve.log")
