"""Stores in PostgreSQL, another process that owns one, and a cable that can be cut."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest

from swerve.store import Entries, Store, StoreError, open_store


@pytest.fixture
def url(tmp_path) -> str:
    return postgres.fresh(tmp_path)


@pytest.fixture
def server() -> Iterator[postgres.Postgres]:
    """A server of the test's own, which it may break."""
    postgres.needed()
    made = postgres.Postgres().made()
    yield made
    made.remove()


@contextlib.contextmanager
def opened(url: str, **more: object) -> Iterator[Store]:
    store = open_store(url, **more)  # type: ignore[arg-type]
    try:
        yield store
    finally:
        store.close()


def entries(store: Store, start: int | None = None) -> list[bytes]:
    """Return the entries of the log, which have eight bytes each."""
    return [block.content[at : at + 8] for block in store.tail(start) for at in range(0, len(block.content), 8)]


def entry(number: int) -> Entries:
    return Entries(number.to_bytes(8, "big"), 1)


def kind(call, *arguments) -> str:
    with pytest.raises(StoreError) as caught:
        call(*arguments)
    return caught.value.kind


def until(what, patience: float = 30.0) -> None:
    ends = time.monotonic() + patience
    while not what():
        assert time.monotonic() < ends, "not within the patience"
        time.sleep(0.02)


def expected(error: StoreError) -> list[Entries]:
    """Raise an error that is not due to a server that was killed; return nothing more to append."""
    if error.kind not in ("gone", "io", "slow"):
        raise error
    return []


def healed(store: Store) -> bool:
    with contextlib.suppress(StoreError):
        return store.reopen()
    return False


OWNER = """
import sys
from swerve.store import Batch, Entries, open_store
store = open_store(sys.argv[1])
number = store.end
print("owner", flush=True)
for line in sys.stdin:
    try:
        if line.startswith("stop"):
            with store._writing() as connection:
                print("inside", flush=True)
                sys.stdin.readline()
            print("written", flush=True)
        elif line.startswith("append"):
            number = store.append([Entries(number.to_bytes(8, "big"), 1)], 1.0)
            print(number, flush=True)
        else:
            store.checkpoint(Batch(used=[(7, 7)]))
            print("written", flush=True)
    except Exception as error:
        print(type(error).__name__, getattr(error, "kind", ""), flush=True)
"""


class Owner:
    """Another process that owns a store."""

    def __init__(self, url: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.line() == "owner"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, what: str) -> str:
        assert self.process.stdin is not None
        print(what, file=self.process.stdin, flush=True)
        return self.line()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout):
            assert file is not None
            file.close()


class Cable:
    """A cable to a server that can be cut, before what is said arrives or before the answer does."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.deaf = self.mute = False  # whether what the client, or the server, says is swallowed
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listening.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                self.pairs.append((near, far))
                threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError), selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for found, _ in ready.select():
                    said = found.fileobj.recv(65536)
                    if not said:
                        self._cut(near, far)
                        return
                    if not (self.deaf if found.fileobj is near else self.mute):
                        found.data.sendall(said)

    @staticmethod
    def _cut(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        for pair in self.pairs:
            self._cut(*pair)
        self.pairs.clear()

    def close(self) -> None:
        self.listening.close()
        self.cut()


@pytest.fixture
def cable(url) -> Iterator[Cable]:
    made = Cable(postgres.shared().port)
    yield made
    made.close()


def through(cable: Cable, url: str) -> str:
    return re.sub(r":\d+/", f":{cable.port}/", url)
