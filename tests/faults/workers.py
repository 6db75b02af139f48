"""Several workers over SQLite on one machine, which are killed and stopped."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import ClassVar

from faults.disk import Disk
from faults.load import Stuck
from faults.setup import PATIENCE, SERVICE, Line, Setup, children, gone, ready, send, until
from service.crewed import free_ports
from service.running import Running

from swerve.service.http.supervisor import STEADY

WORKERS = 4


class Workers(Setup):
    """`swerve serve --workers 4`."""

    ROOM = 0  # megabytes of the disk of the store, if it is a small one
    FAULTS: ClassVar = {"worker": 10, "two-workers": 2, "newborn": 3, "pause": 3, "all": 2, "supervisor": 1, "stop": 0.5}

    def __init__(self, folder: Path, seed: int, users: int = 4) -> None:
        super().__init__(folder, seed, users)
        self.first = free_ports(WORKERS)
        server = {**SERVICE["server"], "workers": WORKERS, "worker_ports": self.first}
        self.disk = Disk(folder / "state", self.ROOM) if self.ROOM else None
        self.service = Running(folder, {**SERVICE, "server": server})
        self.owners: dict[str, int] = {}
        self.away: set[int] = set()  # workers that a fault has killed or paused
        self.known: dict[int, int] = {}
        self.read = 0  # bytes of the log that were read
        self.died: dict[int, float] = {}  # when each worker was killed last

    # ------------------------------------------------------------------ for users
    def ports(self) -> list[int]:
        return [self.first + worker for worker in range(WORKERS) if worker not in self.away]

    def reading(self) -> int | None:
        ports = self.ports()
        return ports[time.monotonic_ns() // 1000 % len(ports)] if ports else None

    # ------------------------------------------------------------------ life
    def start(self) -> None:
        self.service.start()
        self.away.clear()
        for query in self.record.queries:
            answer = self.load.own.call(self.first, "POST", "/v1/rank", {"query": query, "candidates": [f"{query}/0"]})
            self.owners[query] = int(answer.headers["swerve-partition"]) % WORKERS

    def remove(self) -> None:
        self.service.kill()
        for client in self.service.clients:
            client.close()
        if self.disk is not None:
            self.disk.remove()

    def logs(self) -> str:
        return self.service.stderr()

    def whole(self) -> None:
        for worker in range(WORKERS):
            until(lambda worker=worker: ready(self.first + worker), about=f"worker {worker}")

    def pids(self) -> list[int]:
        return list(self.known.values())

    def workers(self) -> dict[int, int]:
        """Return the processes of the workers that were ready last."""
        with self.service.log.open("rb") as file:
            file.seek(self.read)
            lines = file.read()
        lines = lines[: lines.rfind(b"\n") + 1]
        self.read += len(lines)
        for line in lines.splitlines():
            if b'"a worker is ready"' in line:
                said = json.loads(line)
                self.known[said["worker"]] = said["pid"]
        return dict(self.known)

    def query_of(self, worker: int) -> str:
        """Return a query of a worker; those of a run are enough for each to have some."""
        return next(query for query, owner in self.owners.items() if owner == worker)

    # ------------------------------------------------------------------ faults
    def killed(self, *workers: int) -> float:
        """Kill workers; return when."""
        before, began = self.workers(), time.monotonic()
        self.spans = {worker: self.disturbed.begin(self.first + worker) for worker in workers}
        self.before = {worker: before[worker] for worker in workers}
        self.away |= set(workers)
        self.died |= dict.fromkeys(workers, began)
        for pid in self.before.values():
            self.kill(pid)
        self.record.crashed(began, lambda query: self.owners[query] in workers)
        return began

    def kill(self, pid: int, what: str = "workers") -> None:
        send(pid, signal.SIGKILL)
        until(lambda: gone(pid), about=f"the end of process {pid}, which was killed")
        self.kills[what] += 1

    def back(self) -> None:
        """Wait until the workers that were killed serve again."""
        for worker, before in self.before.items():
            until(lambda: self.workers()[worker] != before, about=f"worker {worker} was killed, and is not started again")  # noqa: B023
            until(lambda: ready(self.first + worker), about=f"worker {worker}")  # noqa: B023
            self.away.discard(worker)
            self.spans[worker][1] = time.monotonic()

    def do_worker(self, line: Line) -> None:
        """Kill one."""
        worker = int(line["which"] * WORKERS)
        soon = time.monotonic() - self.died.get(worker, 0.0) < STEADY + 1.0
        began = self.killed(worker)
        what = "a worker was killed"
        self.again(f"{what} that had died within ten seconds" if soon else what, self.query_of(worker), began)
        self.back()

    def do_two_workers(self, line: Line) -> None:
        """Kill two at once."""
        first = int(line["which"] * WORKERS)
        second = (first + 1) % WORKERS
        began = self.killed(first, second)
        self.again("two workers were killed", self.query_of(second), began)
        self.back()

    def do_newborn(self, line: Line) -> None:
        """Kill one, and the one that is started in its place while it starts."""
        worker = int(line["which"] * WORKERS)
        old = set(self.workers().values())
        began = self.killed(worker)
        assert self.service.child is not None
        supervisor = self.service.child.pid
        until(lambda: bool(set(children(supervisor)) - old), about=f"worker {worker} is not started again")
        time.sleep(line["for"] / 8)
        for pid in set(children(supervisor)) - old:
            crashed = time.monotonic()
            self.before[worker] = pid
            self.kill(pid)
            self.record.crashed(crashed, lambda query: self.owners[query] == worker)
        self.again("a worker and its successor were killed", self.query_of(worker), began)
        self.back()

    def do_pause(self, line: Line) -> None:
        """Stop one for a while."""
        worker = int(line["which"] * WORKERS)
        pid = self.workers()[worker]
        self.away.add(worker)
        with self.disturbed.during(self.first + worker):
            send(pid, signal.SIGSTOP)
            time.sleep(line["for"])
            send(pid, signal.SIGCONT)
            until(lambda: ready(self.first + worker), about=f"worker {worker}, which was paused")
        self.away.discard(worker)

    def all_away(self) -> float:
        self.away |= set(range(WORKERS))
        self.spans = {worker: self.disturbed.begin(self.first + worker) for worker in range(WORKERS)}
        return time.monotonic()

    def begin_again(self, what: str, began: float) -> None:
        self.record.crashed(began)
        self.died.clear()
        self.service.start()
        self.whole()
        self.away.clear()
        for span in self.spans.values():
            span[1] = time.monotonic()
        self.again(what, self.query_of(0), began)

    def do_all(self, line: Line) -> None:
        """Kill all processes of the service at once."""
        began = self.all_away()
        assert self.service.child is not None
        pids = [self.service.child.pid, *children(self.service.child.pid)]
        for pid in pids:
            send(pid, signal.SIGKILL)
        self.service.kill()
        until(lambda: all(map(gone, pids)), about="the end of a service that was killed")
        self.kills["services"] += 1
        self.begin_again("all processes were killed", began)

    def do_supervisor(self, line: Line) -> None:
        """Kill the supervisor: the workers end by themselves, in order."""
        began = self.all_away()
        self.service.kill()
        self.kills["supervisors"] += 1
        self.begin_again("the supervisor was killed", began)

    def do_stop(self, line: Line) -> None:
        """Stop all in order."""
        began = self.all_away()
        code = self.service.stop(PATIENCE)
        if code:
            raise Stuck(f"the service was stopped, and ended with {code}")
        self.begin_again("a stop in order", began)


class SmallDisk(Workers):
    """Several workers whose disk is full now and then, also while one of them is started again."""

    ROOM = 256
    FAULTS: ClassVar = {"full": 4, "full-and-worker": 3, "worker": 3, "all": 1}

    def do_full(self, line: Line) -> None:
        """Leave no room for a while."""
        assert self.disk is not None
        with self.disk.full():
            time.sleep(line["for"])
        self.again("the disk was full for up to three seconds", self.query_of(0), time.monotonic())

    def do_full_and_worker(self, line: Line) -> None:
        """Kill a worker while there is no room: it is started again until it can write."""
        assert self.disk is not None
        worker = int(line["which"] * WORKERS)
        with self.disk.full():
            time.sleep(line["for"] / 2)
            self.killed(worker)
            time.sleep(line["for"] / 2)
        began = time.monotonic()
        self.back()
        self.again("the disk was full and a worker killed meanwhile", self.query_of(worker), began)
