"""`swerve demo` in a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import forking
from service.running import PATIENCE, SRC, Http

COMMAND = (sys.executable, "-m", "swerve", "demo")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SRC, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **more}


def run(*args: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a demo that ends by itself; return its result."""
    return forking.run(*COMMAND, *args, cwd=cwd, timeout=PATIENCE, COLUMNS="200", **more)


class Playing:
    """A demo that runs until the test ends it."""

    def __init__(self, child: forking.Process, port: int) -> None:
        self.child, self.port = child, port
        self.http = Http(port)

    def report(self) -> dict[str, Any]:
        """Return the simulation's last report."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/live", timeout=10) as stream:
            found: dict[str, Any] = next(data for event, data in events(stream) if event == "demo")
        return found

    def order(self, do: str, value: Any = None) -> None:
        answer = self.http.call("POST", "/demo/control", {"do": do, "value": value})
        assert (answer.status, answer.json) == (200, {"ok": True}), answer

    def end(self) -> tuple[int, str]:
        """Send SIGINT; return the exit status and the output."""
        self.child.send_signal(signal.SIGINT)
        said, _ = self.child.communicate(timeout=30)
        return self.child.returncode, said


@contextlib.contextmanager
def playing(folder: Path, *args: str) -> Iterator[Playing]:
    """Yield a demo whose users have started; end it afterwards."""
    command = [*COMMAND, "--port", "0", *args]
    with (folder / "stderr.txt").open("w") as errors:
        child = forking.start(command, environment(), folder, errors)
    guard = threading.Timer(PATIENCE, child.kill)
    guard.start()
    try:
        assert child.stdout is not None
        port = 0
        for line in child.stdout:
            if line.startswith("the page: http://"):
                port = int(line.rpartition(":")[2])
                break
        assert port, (folder / "stderr.txt").read_text()
        guard.cancel()
        demo = Playing(child, port)
        yield demo
        demo.http.close()
    finally:
        guard.cancel()
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def events(lines: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    """Yield the server-sent events of a stream."""
    event = ""
    for line in lines:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            event = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield event, json.loads(text.removeprefix("data: "))
