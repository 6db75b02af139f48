"""A real Valkey server in a folder, which tests stop, kill and damage."""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from postgres import HERE, Place, end_with_parent, free_port as free_port

#: The program of the server: Valkey's own, or one that speaks the same protocol.
PROGRAM = shutil.which("valkey-server") or shutil.which("redis-server")
#: The settings without which the engine refuses a server.
SAFE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "save": ""}
#: Seconds for a start or an end of the server.
PATIENCE = 30.0

prefixes = itertools.count(1)


def needed() -> None:
    """Skip a test if the program or the client library is missing."""
    pytest.importorskip("valkey", reason="valkey is not installed: the extra `valkey`")
    if PROGRAM is None:
        pytest.skip("no valkey-server or redis-server is installed: `make test-engines` installs one as root")


class ValkeyServer:
    """A server over a folder; it can be killed and started again at the same port."""

    def __init__(self, folder: Path, program: str | None = None, place: Place = HERE, **settings: str) -> None:
        self.folder, self.port, self.place = folder, free_port(), place
        self.program = program or PROGRAM
        self.settings = {**SAFE, **{name.replace("_", "-"): value for name, value in settings.items()}}
        self.child: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def url(self, prefix: str = "") -> str:
        """Return the address of an empty store, or of one with a name."""
        prefix = prefix or f"store{next(prefixes)}"
        return f"valkey://{self.place.host}:{self.port}/0?prefix={prefix}"

    def client(self) -> Any:
        """Return a connection of another program."""
        from valkey import Valkey

        return Valkey(self.place.host, self.port, socket_timeout=10.0)

    def start(self) -> ValkeyServer:
        from valkey.exceptions import ValkeyError

        assert self.program is not None
        words = [word for name, value in self.settings.items() for word in (f"--{name}", value)]
        command = [self.program, "--port", str(self.port), "--bind", self.place.host, "--dir", str(self.folder), *words]
        with (self.folder / "server.log").open("ab") as out, self.place.enter():
            self.child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)
        until = time.monotonic() + PATIENCE
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return self
                except ValkeyError:
                    assert self.child.poll() is None, (self.folder / "server.log").read_text()[-2000:]
                    assert time.monotonic() < until
                    time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        assert self.child is not None
        self.child.send_signal(number)

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None

    def last_file(self) -> Path:
        """The append-only file that is written now."""
        return max((self.folder / "appendonlydir").glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))

    def remove(self) -> None:
        """End the server, and remove everything."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def shared() -> ValkeyServer:
    """Return a server that all tests of this process use; it ends with the process."""
    server = ValkeyServer(Path(tempfile.mkdtemp(prefix="swerve-valkey-"))).start()
    atexit.register(server.remove)
    return server


def fresh(folder: Path) -> str:
    """Return the address of an empty store on the shared server."""
    needed()
    return shared().url()
