"""Several machines that serve one store: each is a supervisor with a folder, a port, and an address for the others of its own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from service.crewed import free_ports
from service.running import Gone, Http, Running, until
from service.soak_ledger import Click, Ledger
from service.soak_load import names_of

from swerve.store.directory import Seen, divided
from swerve.store.urls import open_directory

#: The secrets that all machines have.
SECRETS = {"SWERVE_TOKEN_KEY": "5a" * 32, "SWERVE_QUERY_KEY": "6b" * 32}


#: Ports that machines of this process have, also while they use only some.
_taken: set[int] = set()


def ports_of_its_own(count: int) -> int:
    """Return the first of so many free ports that no other machine of the tests has."""
    while True:
        first = free_ports(count)
        ports = set(range(first, first + count))
        if not ports & _taken:
            _taken.update(ports)
            return first


class Member(Running):
    """One machine."""

    def __init__(self, folder: Path, url: str, shares: int, workers: int, more: dict[str, dict[str, Any]]) -> None:
        self.url, self.shares = url, shares
        self.address = f"127.0.0.1:{ports_of_its_own(shares)}"
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

        def are() -> bool:
            found = seen(self.url)
            if any(member.address not in found.machines for member in members):
                return False
            workers = {member.address: found.machines[member.address].workers for member in members}
            holders = {share: owner.machine for share, owner in found.owners.items() if owner.there}
            return len(holders) == self.shares and holders == divided(self.shares, workers, holders)

        took = until(are, patience)
        for client in [member.client() for member in members]:  # and every worker knows it
            until(lambda client=client: all(knows(client, f"of none {number}") for number in range(16)))
        return took

    def end(self) -> None:
        for member in self.members:
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


def knows(client: Http, query: str) -> bool:
    """Return whether a machine has an answer about a query that nobody has asked."""
    try:
        return client.query(query).status == 404
    except Gone:  # its first worker does not listen yet
        return False


class Load:
    """People who ask any of some machines, and click; with a ledger of the clicks. Every request must be answered."""

    def __init__(self, shares: int, members: list[Member], queries: int = 12) -> None:
        self.shares, self.members, self.names = shares, list(members), names_of(queries)
        self.ledger = Ledger(3600.0)
        self.open: list[Click] = []  # sent without an answer
        self.broken: Counter[str] = Counter()  # connections that broke, by machine
        self.slowest = 0.0
        self.decided: dict[int, list[float]] = {share: [] for share in range(shares)}  # when queries of a share were decided,
        self.given: dict[int, list[float]] = {share: [] for share in range(shares)}  # and when the given order was shown
        self.guard = threading.Lock()

    def work(self, seed: int) -> Callable[[threading.Event], None]:
        def run(ended: threading.Event) -> None:
            draw, clients = random.Random(seed), dict[str, Http]()
            while not ended.is_set():
                member = draw.choice(self.members)
                client = clients.setdefault(member.address, Http(member.port))
                try:
                    self._step(draw, client)
                except Gone:
                    with self.guard:
                        self.broken[member.address] += 1
                    time.sleep(0.02)
            for client in clients.values():
                client.close()

        return run

    def _step(self, draw: random.Random, client: Http) -> None:
        query = draw.choice(list(self.names))
        answer = client.rank(query, self.names[query])
        assert answer.status == 200 and sorted(answer.json["ranking"]) == sorted(self.names[query]), answer
        share = int(answer.headers["swerve-partition"]) % self.shares
        with self.guard:
            self.slowest = max(self.slowest, answer.seconds)
            (self.given if answer.json["degraded"] else self.decided)[share].append(time.monotonic())
        if answer.json["degraded"]:
            time.sleep(0.01)
        else:
            ranking = answer.json["ranking"]
            self.tell(client, self.ledger.decided(answer.json["decision"], query, draw.choice([*ranking[:3], None])))
        if self.open and draw.random() < 0.3:
            with self.guard:
                click = self.open.pop(draw.randrange(len(self.open))) if self.open else None
            if click is not None:
                self.tell(client, click)

    def tell(self, client: Http, click: Click) -> None:
        """Send feedback; what is not acknowledged is to be sent again."""
        (sent,), status = self.ledger.sending([click]), None
        try:
            answer = client.feedback(click.token, click.clicked)
            assert answer.status in (200, 503), answer
            status = answer.json["status"] if answer.status == 200 else None
        finally:
            self.ledger.answered(sent, status)
            if status is None:
                with self.guard:
                    self.open.append(click)

    @contextlib.contextmanager
    def running(self, people: int = 3) -> Iterator[None]:
        """Ask and click until the end of the block."""
        with threads([self.work(number) for number in range(people)]):
            yield

    def wait(self, clicks: int) -> None:
        """Wait for so many more clicks that are acknowledged."""
        wanted = self.ledger.acknowledged + clicks
        until(lambda: self.ledger.acknowledged >= wanted, 60.0)

    def back(self, share: int, since: float) -> float | None:
        """Return for how long a share had no owner that decided, since a moment; None: it has none yet."""
        times = [at for at in self.decided[share] if at > since]
        return times[0] - since if times else None

    def check(self, client: Http) -> None:
        """Send what was not answered again until it is; then compare what the store has."""
        ends = time.monotonic() + 60.0
        while self.open:
            assert time.monotonic() < ends
            waiting, self.open = self.open, []
            for click in waiting:
                self.tell(client, click)
        until(lambda: all(client.query(query).status in (200, 404) for query in self.names))
        answers = {query: client.query(query) for query in self.names}
        found = {query: client.clicks(query) for query, answer in answers.items() if answer.status == 200}
        assert self.ledger.wrong == [] and self.ledger.unknown() == 0
        assert self.ledger.compare(found) == []
        assert sum(sum(counts.values()) for counts in found.values()) == self.ledger.acknowledged > 0


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
