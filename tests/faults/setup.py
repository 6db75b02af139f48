"""What all setups have in common: processes of the service that faults kill and pause, the ports that users may use, and the times
that passed until somebody else had the queries."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from faults.load import DEADLINE, Load, Record, Stuck
from service.running import Gone, Http, Running

Line = dict[str, Any]
#: Seconds until a process serves.
PATIENCE = 60.0
#: Queries of a run.
QUERIES = tuple(f"query {number}" for number in range(24))
#: A small service: the policy compiles in seconds, and starts are short.
SERVICE: dict[str, dict[str, Any]] = {
    "server": {"deadline_ms": 1000.0 * DEADLINE, "drain_seconds": 5.0},
    "feedback": {"steady_seconds": 0.0},
}


@dataclass
class Disturbed:
    """When faults kept ports from answering."""

    spans: dict[int, list[list[float]]] = field(default_factory=dict)

    @contextlib.contextmanager
    def during(self, *ports: int) -> Iterator[None]:
        """Note that ports may not answer while this lasts."""
        mine = [self.begin(port) for port in ports]
        try:
            yield
        finally:
            for one in mine:
                one[1] = time.monotonic()

    def begin(self, port: int) -> list[float]:
        span = [time.monotonic(), float("inf")]
        self.spans.setdefault(port, []).append(span)
        return span

    def over(self, port: int) -> None:
        """Note that a port answers again."""
        for span in self.spans.get(port, ()):
            span[1] = min(span[1], time.monotonic())

    def between(self, port: int, began: float, ended: float) -> bool:
        return any(one[0] <= ended and one[1] >= began for one in self.spans.get(port, ()))


class Setup:
    """A service, perhaps with a server of its store, and the faults that can be done to them."""

    #: Each fault and its relative frequency.
    FAULTS: ClassVar[dict[str, float]] = {}

    def __init__(self, folder: Path, seed: int, users: int = 4) -> None:
        self.folder, self.seed = folder, seed
        self.record = Record(list(QUERIES))
        self.load = Load(self, self.record, seed, users)
        self.disturbed = Disturbed()
        self.kills: Counter[str] = Counter()  # of processes, by what they were
        self.faults: Counter[str] = Counter()
        self.took: dict[str, list[float]] = {}  # seconds until a click was acknowledged again, by fault
        self.history: list[Line] = []
        self.wrong: list[str] = []
        self.began = time.monotonic()

    # ------------------------------------------------------------------ for users
    def ports(self) -> list[int]:
        raise NotImplementedError

    def reading(self) -> int | None:
        raise NotImplementedError

    def pids(self) -> list[int]:
        raise NotImplementedError

    def calm(self, port: int, began: float, ended: float) -> bool:
        return not self.disturbed.between(port, began, ended)

    # ------------------------------------------------------------------ life
    def start(self) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        raise NotImplementedError

    def do(self, line: Line) -> None:
        """Do a fault, and what undoes it."""
        getattr(self, f"do_{line['fault'].replace('-', '_')}")(line)

    def whole(self) -> None:
        """Wait until everything serves again."""

    def logs(self) -> str:
        """Return what the service has logged."""
        raise NotImplementedError

    # ------------------------------------------------------------------ a run
    def run(self, lines: Iterator[Line], tell: Callable[[Line], None] = lambda line: None) -> list[str]:
        """Do faults under load, until there are no more or something is wrong; return what is wrong."""
        try:
            self.start()
            for query in QUERIES:
                self.load.clicked(query, self.ports)
            self.began = time.monotonic()
            self.load.start()
            for line in lines:
                time.sleep(line["after"])
                entry = {"at": round(time.monotonic() - self.began, 1), **line}
                self.history.append(entry)
                self.faults[line["fault"]] += 1
                self.do(line)
                entry["took"] = round(time.monotonic() - self.began - entry["at"], 1)
                tell(entry)
                if line["check"]:
                    self.check()
                if self.wrong:
                    return self.wrong
            self.check()
            self.load.stop()
            self.wrong += self.defects()
        except (Stuck, AssertionError, Gone) as error:
            self.wrong += [*self.record.wrong, f"{type(error).__name__}: {error}"]
        finally:
            self.load.end.set()
            self.load.go.set()
            self.load.watch.end.set()
            self.remove()
        return self.wrong

    def check(self) -> None:
        """Compare everything with the record, with no request under way."""
        self.load.rest()
        self.whole()
        self.wrong += self.load.check()
        self.load.go.set()

    def defects(self) -> list[str]:
        """Return lines of the service's log that tell of a defect."""
        found = []
        for line in self.logs().splitlines():
            try:
                said = json.loads(line)
            except ValueError:  # a line that a kill cut short, or a line of the interpreter
                said = {"level": "error", "error": line} if "Traceback" in line else {}
            if said.get("level") == "error" and "error" in said:
                found.append(f"the log tells of a defect: {said.get('message', '')}: {said['error'][-600:]}")
        return found

    def again(self, what: str, query: str, began: float, ports: Callable[[], list[int]] | None = None) -> None:
        """Measure how long after `began` a click on a query is acknowledged again."""
        self.load.clicked(query, ports or self.ports)
        ended = time.monotonic()
        if self.load.watch.within(began, ended):
            self.record.counts["not measured"] += 1  # the machine was busy with others
        else:
            self.took.setdefault(what, []).append(ended - began)

    def text(self) -> str:
        """Return what has happened, as text."""
        counts, seconds = self.record.counts, sorted(self.record.seconds)
        out = [
            f"{type(self).__name__.lower()}: seed {self.seed}, {time.monotonic() - self.began:.0f} s, {self.kills.total()} kills "
            f"({', '.join(f'{n} {name}' for name, n in sorted(self.kills.items())) or 'none'})",
            f"faults: {', '.join(f'{n} {name}' for name, n in sorted(self.faults.items()))}",
            f"{counts['rankings']:,} rankings ({counts['degraded']:,} in the given order), {counts['acknowledged']:,} clicks "
            f"acknowledged, {counts['reads']:,} reads, {counts['judged']} checks",
        ]
        if seconds:
            late = sum(one > DEADLINE + 0.1 for one in seconds)
            out.append(
                f"rankings of processes that ran: median {1000 * statistics.median(seconds):.1f} ms, 99.9th percentile "
                f"{1000 * seconds[int(len(seconds) * 0.999)]:.0f} ms, slowest {1000 * seconds[-1]:.0f} ms; {late} of "
                f"{len(seconds):,} took longer than the deadline of {1000 * DEADLINE:.0f} ms and 100 ms"
            )
        if gaps := [last - first for first, last in self.load.watch.gaps]:
            out.append(
                f"processes waited for a processor for {sum(gaps):.1f} s in all, {max(gaps):.1f} s at once; "
                f"{counts['not measured']} times that would be below are left out for that"
            )
        for what, took in sorted(self.took.items()):
            median = statistics.median(took)
            out.append(f"clicks acknowledged again after {what}: median {median:.2f} s, worst {max(took):.2f} s ({len(took)})")
        if self.wrong:
            out += [
                "WRONG:",
                *(f"  {line}" for line in self.wrong[:12]),
                "the last faults:",
                *(f"  {line}" for line in self.history[-12:]),
            ]
        else:
            out.append("no acknowledged click was lost, doubled or put into another record; every history is linearisable")
        return "\n".join(out)


def schedule(setup: type[Setup], seed: int, faults: tuple[str, ...] = (), most: int | None = None) -> Iterator[Line]:
    """Yield faults: the pause before it, its details, and whether everything is checked after it."""
    draw = random.Random(f"faults of {seed}")
    names = faults or tuple(setup.FAULTS)
    number = 0
    while most is None or number < most:
        fault = draw.choices(names, [setup.FAULTS[name] for name in names])[0]
        yield {
            "number": number,
            "after": round(draw.uniform(0.05, 1.0), 2),
            "fault": fault,
            "for": round(draw.uniform(0.1, 3.0), 2),
            "which": round(draw.random(), 3),
            "wait": draw.random() < 0.7,
            "check": draw.random() < 0.1,
        }
        number += 1


def ready(port: int) -> bool:
    """Return whether a process serves at a port."""
    client = Http(port)
    try:
        return client.call("GET", "/readyz", timeout=5.0).status == 200
    except Gone:
        return False
    finally:
        client.close()


def until(what: Callable[[], bool], patience: float = PATIENCE, about: str = "") -> None:
    """Wait until a condition holds."""
    ends = time.monotonic() + patience
    while not what():
        if time.monotonic() > ends:
            raise Stuck(f"not within {patience:.0f} s: {about or what}")
        time.sleep(0.02)


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, from any of its threads."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, path.read_text().split())
    return found


def started(service: Running, *options: str) -> Callable[[], None]:
    """Start a process that may have to wait; return a function that returns once it serves."""
    trouble: list[BaseException] = []

    def work() -> None:
        try:
            service.start(*options)
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def serves() -> None:
        thread.join(PATIENCE)
        if trouble or thread.is_alive():
            raise Stuck(f"a process does not serve: {trouble}")

    return serves
