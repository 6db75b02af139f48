"""Several machines that serve one store: each is a supervisor with a folder, a port, and an address for the others of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from service.crewed import free_ports
from service.running import Http, Running, until

from swerve.store.directory import Seen
from swerve.store.urls import open_directory

#: The secrets that all machines have.
SECRETS = {"SWERVE_TOKEN_KEY": "5a" * 32, "SWERVE_QUERY_KEY": "6b" * 32}


class Member(Running):
    """One machine."""

    def __init__(self, folder: Path, url: str, shares: int, workers: int, more: dict[str, dict[str, Any]]) -> None:
        self.url, self.shares = url, shares
        self.address = f"127.0.0.1:{free_ports(shares)}"
        changes = {name: dict(table) for name, table in more.items()}
        changes.setdefault("store", {}).update(url=url, shares=shares)
        changes.setdefault("server", {}).update(workers=workers, crew_address=self.address)
        super().__init__(folder, changes)

    @staticmethod
    def environment() -> dict[str, str]:
        return Running.environment() | SECRETS

    def _whole(self) -> None:
        """Nothing: what is compiled is there for all workers when they are ready."""

    def pids(self) -> list[int]:
        """Return the processes of the machine: the supervisor and all below it."""
        assert self.child is not None
        return [self.child.pid, *below(self.child.pid)]

    def worker_pids(self) -> dict[int, int]:
        """Return the processes of the workers that were ready last."""
        said = (json.loads(line) for line in self.stderr().splitlines())
        return {line["worker"]: line["pid"] for line in said if line["message"] == "a worker is ready"}

    def owned(self) -> set[int]:
        """Return the shares that the directory says are owned here."""
        return {share for share, owner in seen(self.url).owners.items() if owner.there and owner.machine == self.address}

    def all(self, number: signal.Signals) -> None:
        """Send a signal to every process of the machine."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill every process of the machine with SIGKILL."""
        if self.child is None:
            return
        for _ in range(2):  # whoever was forked meanwhile
            for pid in (pids := self.pids()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        until(lambda: not any(alive(pid) for pid in pids[1:]))
        super().kill()


def below(pid: int) -> list[int]:
    """Return the processes below one."""
    found, parents = list[int](), dict[int, list[int]]()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        some = parents.get(waiting.pop(), [])
        found += some
        waiting += some
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs: it is there, and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def seen(url: str) -> Seen:
    """Return what the directory of a store has."""
    with open_directory(url) as directory:
        found: Seen = directory.look()
    return found


class Machines:
    """Machines over one store."""

    def __init__(self, folder: Path, url: str, shares: int, more: dict[str, dict[str, Any]]) -> None:
        self.folder, self.url, self.shares, self.more = folder, url, shares, more
        self.members: list[Member] = []

    def add(self, workers: int = 1, *options: str) -> Member:
        """Start another machine; return it when it is ready."""
        made = Member(self.folder / f"machine{len(self.members)}", self.url, self.shares, workers, self.more)
        self.members.append(made)
        made.start(*options)
        return made

    def settled(self, *members: Member, patience: float = 30.0) -> float:
        """Wait until these machines own all shares, each its fair part; return the seconds that it took."""
        least, most = self.shares // len(members), -(-self.shares // len(members))
        owned = lambda: [member.owned() for member in members]  # noqa: E731
        return until(
            lambda: sum(map(len, found := owned())) == self.shares and all(least <= len(part) <= most for part in found), patience
        )

    def end(self) -> None:
        for member in self.members:
            with contextlib.suppress(AssertionError):
                member.all(signal.SIGCONT) if member.child is not None else None
            member.kill()
            for client in member.clients:
                client.close()


@contextlib.contextmanager
def machines(folder: Path, url: str, shares: int, more: dict[str, dict[str, Any]] | None = None) -> Iterator[Machines]:
    """Yield machines over a store, none so far."""
    made = Machines(folder, url, shares, more or {})
    try:
        yield made
    finally:
        made.end()


def decides(client: Http, query: str) -> bool:
    """Return whether the owner of a query decides it."""
    return not client.rank(query, ["a", "b"]).json["degraded"]


@contextlib.contextmanager
def threads(works: list[Callable[[threading.Event], None]]) -> Iterator[threading.Event]:
    """Run functions in threads until the end of the block; raises what one of them has raised."""
    ended, failures = threading.Event(), list[BaseException]()

    def run(work: Callable[[threading.Event], None]) -> None:
        try:
            work(ended)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in running:
        thread.start()
    try:
        yield ended
    finally:
        ended.set()
        for thread in running:
            thread.join(60.0)
    assert not failures, failures
