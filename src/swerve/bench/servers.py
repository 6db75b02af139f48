"""Servers as child processes, for measurements from outside."""

from __future__ import annotations

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

READY = re.compile(rf"^ready: http://{re.escape(HOST)}:(\d+)$")
LISTENS = re.compile(rf"http://{re.escape(HOST)}:(\d+)\b")


class Memory(NamedTuple):
    """Bytes of a process in memory, now and at most so far."""

    now: int
    peak: int


class Server:
    """A command that serves on a port of the loopback and says so in its output, from `with` to the end of it.

    It is there once a line of its output has its address; `ready` waits for the line that begins with that word.
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
        raise SwerveError(f"{' '.join(self.command[1:4])} ended before it served: {' '.join(said) or 'it said nothing'}")

    def ready(self) -> Self:
        """Wait until it serves as it should."""
        self._line(READY)
        return self

    def whole(self, patience: float = 600.0) -> Self:
        """Wait until it serves queries with any number of candidates: what it compiles must not be measured."""
        ends = time.perf_counter() + patience
        while b"compiling" in urllib.request.urlopen(f"http://{HOST}:{self.port}/readyz", timeout=30).read():
            if time.perf_counter() > ends:
                raise SwerveError(f"the service still compiles after {patience:g} seconds")
            time.sleep(0.1)
        return self

    def metric(self, name: str) -> float:
        """A number of its /metrics."""
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[1])
        raise SwerveError(f"/metrics has no {name}")

    def settle(self, patience: float = 120.0) -> None:
        """Wait until everything is written: nobody else's turn is to pay for it."""
        ends = time.perf_counter() + patience
        while self.metric("swerve_pending_rows") > 0:
            if time.perf_counter() > ends:
                raise SwerveError(f"the service still has unwritten rows after {patience:g} seconds without load")
            time.sleep(0.1)

    def memory(self) -> Memory | None:
        """What it takes in memory; None where the system does not say."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        sizes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", status, re.MULTILINE))
        return Memory(int(sizes["VmRSS"]) * 1024, int(sizes["VmHWM"]) * 1024) if len(sizes) == 2 else None


def echo(kind: str, folder: Path) -> Server:
    """The yardstick."""
    return Server([sys.executable, "-m", "swerve.bench.echo", kind], folder / f"echo-{kind}.log")


def service(folder: Path, config: str) -> Server:
    """`swerve serve` on a store in the folder."""
    file = folder / "swerve.toml"
    file.write_text(config)
    command = [sys.executable, "-m", "swerve", "serve", "--config", str(file), "--port", "0"]
    return Server([*command, "--store", f"sqlite:///{folder / 'swerve.db'}"], folder / "swerve.log")
