"""Load from users who rank, click and look, and the record of it: the histories of all queries, and how long rankings took.

Every user has a thread, and a generator seeded with the run's seed and its number. Where users send to is a front: it knows which
ports are served, and which of them a fault disturbs.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from faults.history import Click, Crash, History, Read, judge
from service.running import Answer, Gone, Http, said_of

#: Seconds of the deadline of rankings, as the service is configured; and those that a busy machine may add. Whoever waited for a
#: server of the store would take longer: its calls take two seconds and more until they are given up.
DEADLINE, BUSY = 0.25, 1.5
#: Seconds that a user waits for an answer: longer than the longest pause.
PATIENCE = 60.0
#: Statuses of feedback that is in the record.
COUNTED = ("learned", "late")
ARMS = 4


class Stuck(AssertionError):  # noqa: N818 - what happened
    """Something did not come back after a fault."""


class Watch(threading.Thread):
    """Notes how long this process and those of the service had something to do and no processor to do it: on a machine that is busy
    with others, times that were measured then say nothing of the service. Linux counts it for each thread; for the one with the
    event loop it is in `/proc/PID/schedstat`."""

    #: Seconds between two looks, and of a wait that counts.
    LOOK, GAP = 0.05, 0.25

    def __init__(self, pids: Callable[[], list[int]] = list) -> None:
        super().__init__(name="watch", daemon=True)
        self.pids = pids
        self.gaps: list[tuple[float, float]] = []
        self.end = threading.Event()

    def run(self) -> None:
        before: dict[int, int] = {}
        last = time.monotonic()
        while not self.end.wait(self.LOOK):
            waited = {pid: count for pid in self.pids() if (count := waiting_of(pid)) is not None}
            now = time.monotonic()
            longest = max([(count - before.get(pid, count)) / 1e9 for pid, count in waited.items()], default=0.0)
            longest = max(longest, now - last - self.LOOK)
            if longest > self.GAP:
                self.gaps.append((now - longest, now))
            before, last = waited, now

    def within(self, began: float, ended: float) -> float:
        """Return the seconds between two moments in which somebody waited for a processor, as far as they count."""
        time.sleep(2 * self.LOOK)  # a wait that has just ended is noted
        found, until = 0.0, began
        for first, last in sorted(self.gaps):
            first, last = max(first, until), min(last, ended)
            if last > first:
                found, until = found + last - first, last
        return found


def waiting_of(pid: int) -> int | None:
    """Return the nanoseconds for which a process has waited for a processor; None if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return None


class Front(Protocol):
    """Where users send to."""

    def ports(self) -> list[int]:
        """Return the ports that answer rankings now."""

    def reading(self) -> int | None:
        """Return a port that knows the state of all queries now."""

    def pids(self) -> list[int]:
        """Return the processes of the service."""

    def calm(self, port: int, began: float, ended: float) -> bool:
        """Return whether no fault has kept a port from answering between two moments."""


@dataclass(eq=False, slots=True)
class Said:
    """A decision, and what a user says of it."""

    query: str
    token: str
    click: Click
    status: str = ""


@dataclass
class Record:
    """What has happened, seen from outside; thread-safe."""

    queries: list[str]
    histories: dict[str, History] = field(default_factory=dict)
    open: list[Said] = field(default_factory=list)  # without an acknowledgement
    done: list[Said] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of rankings whose port was calm
    wrong: list[str] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.histories = {query: History() for query in self.queries}

    def sending(self, query: str, token: str, candidate: str) -> Said:
        """Record that feedback is about to be sent for the first time."""
        said = Said(query, token, Click(candidate, time.monotonic()))
        with self.guard:
            self.histories[query].clicks.append(said.click)
            self.open.append(said)
        return said

    def acknowledged(self, said: Said, status: str) -> None:
        """Record an acknowledgement."""
        with self.guard:
            now = time.monotonic()
            if status not in COUNTED:
                self.wrong.append(f"feedback for {said.query} was answered {status!r}")
            elif said.click.acknowledged == math.inf:
                said.click.acknowledged, said.status = now, status
                self.counts["acknowledged"] += 1
                self.open.remove(said)
                self.done.append(said)
            elif status != said.status:
                self.wrong.append(f"feedback for {said.query} was answered {said.status!r}, and {status!r} when it was sent again")

    def read(self, query: str, sent: float, counts: dict[str, int]) -> None:
        with self.guard:
            self.histories[query].reads.append(Read(sent, time.monotonic(), counts))
            self.counts["reads"] += 1

    def crashed(self, began: float, queries: Callable[[str], bool] = lambda query: True) -> None:
        """Record that the process that has these queries was killed."""
        with self.guard:
            for query in filter(queries, self.queries):
                self.histories[query].crashes.append(Crash(began, time.monotonic()))

    def judge(self) -> list[str]:
        """Judge all histories, and begin new ones where these end: no request may be under way, and no click without its answer."""
        with self.guard:
            assert not self.open
            wrong = judge(self.histories) + self.wrong
            for query, history in self.histories.items():
                last = max(history.reads, key=lambda read: read.sent)
                self.histories[query] = History(before=last.counts)
            self.counts["judged"] += 1
            self.wrong, self.done = [], []
            return wrong


class User(threading.Thread):
    """Somebody who searches, clicks and looks; a thread with a connection to each port."""

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(name=f"user-{number}", daemon=True)
        self.load, self.record, self.front = load, load.record, load.front
        self.draw = random.Random(f"{load.seed}/{number}")
        self.clients: dict[int, Http] = {}
        self.stepping = threading.Lock()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.load.end.is_set():
                self.load.go.wait()
                with self.stepping:
                    if self.load.go.is_set() and not self.load.end.is_set():
                        self.step()
        except BaseException as error:  # reported by the thread that waits for this one
            self.failure = error
        finally:
            self.close()

    def close(self) -> None:
        for client in self.clients.values():
            client.close()

    def call(self, port: int, method: str, path: str, body: Any = None) -> Answer:
        client = self.clients.setdefault(port, Http(port))
        return client.call(method, path, body, timeout=PATIENCE)

    def step(self) -> None:
        draw, ports = self.draw, self.front.ports()
        if not ports:
            time.sleep(0.02)
            return
        kind = draw.choices(("rank", "new", "look", "again", "repeat"), (10, 1, 3, 2, 1))[0]
        try:
            if kind == "rank":
                self.rank(draw.choice(ports), draw.choice(self.record.queries))
            elif kind == "new":
                self.asked(draw.choice(ports), f"new {draw.getrandbits(60)}")
            elif kind == "look":
                self.look(draw.choice(self.record.queries))
            else:
                with self.record.guard:
                    some = self.record.open if kind == "again" else self.record.done
                    said = draw.choice(some) if some else None
                if said is not None:
                    self.tell(draw.choice(ports), said)
        except Gone:
            self.record.counts["broken"] += 1
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, 0.01))

    def asked(self, port: int, query: str) -> Any:
        """Ask for a ranking, and judge it; return it, or None if it is in the given order. A query that was never asked must be
        looked up in the store."""
        given = [f"{query}/{number}" for number in range(ARMS)]
        self.draw.shuffle(given)
        began, body = time.monotonic(), {"query": query, "candidates": given}
        try:
            try:
                answer = self.call(port, "POST", "/v1/rank", body)
            except Gone:  # a connection from before a kill, perhaps: as clients do, once more over a new one
                answer = self.call(port, "POST", "/v1/rank", body)
        except Gone:
            self.judge_answer(port, began, None)
            raise
        self.judge_answer(port, began, answer)
        if answer.status != 200:
            return None
        said = answer.json
        right = said["ranking"] == given if said["degraded"] else sorted(said["ranking"]) == sorted(given)
        if not right:
            self.record.wrong.append(f"{given} was ranked {said}")
        self.record.counts["rankings"] += 1
        self.record.counts["degraded"] += said["degraded"]
        return None if said["degraded"] else said

    def rank(self, port: int, query: str) -> bool:
        """Ask for a ranking, and mostly click; return whether the click was acknowledged."""
        said = self.asked(port, query)
        if said is None or self.draw.random() < 0.1:
            return False
        click = self.record.sending(query, said["decision"], said["ranking"][0 if self.draw.random() < 0.8 else 1])
        return self.tell(self.draw.choice(self.front.ports() or [port]), click)

    def judge_answer(self, port: int, began: float, answer: Answer | None) -> None:
        """A ranking is answered in its deadline, unless its own process was killed or stopped."""
        ended = time.monotonic()
        if not self.front.calm(port, began, ended):
            self.record.counts["disturbed"] += 1
            return
        self.record.seconds.append(ended - began)
        if answer is None or answer.status != 200:
            told = "there was no answer" if answer is None else f"{answer.status} {answer.body[:200]!r}"
            self.record.wrong.append(f"a ranking was not answered: {told}")
        elif ended - began > DEADLINE + BUSY and ended - began - self.load.watch.within(began, ended) > DEADLINE + BUSY:
            self.record.wrong.append(f"a ranking took {ended - began:.2f} s")

    def tell(self, port: int, said: Said) -> bool:
        """Send feedback; return whether it was acknowledged."""
        answer = self.call(port, "POST", "/v1/feedback", said_of(said.token, said.click.candidate))
        if answer.status == 503:
            self.record.counts["refused"] += 1
            return False
        status = answer.json["status"] if answer.status == 200 else answer.body.decode()[:200]
        if status == "expired" and port != self.front.reading():
            # an owner of before, which does not know it yet, and whose clock is behind that of the present one
            self.record.counts["expired elsewhere"] += 1
            return False
        self.record.acknowledged(said, status)
        return answer.status == 200

    def look(self, query: str) -> bool:
        """Read the state of a query; return whether there was an answer."""
        port = self.front.reading()
        if port is None:
            return False
        sent = time.monotonic()
        answer = self.call(port, "GET", f"/v1/queries/{quote(query, safe='')}")
        if answer.status not in (200, 404):
            return False
        arms = answer.json["arms"] if answer.status == 200 else []
        self.record.read(query, sent, {arm["id"]: arm["clicks"] for arm in arms if arm["clicks"]})
        return True


class Load:
    """Users, and one more who is driven by the thread that injects faults."""

    def __init__(self, front: Front, record: Record, seed: int, users: int = 4) -> None:
        self.front, self.record, self.seed = front, record, seed
        self.go, self.end, self.watch = threading.Event(), threading.Event(), Watch(front.pids)
        self.users = [User(self, number) for number in range(users)]
        self.own = User(self, users)  # never started

    def start(self) -> None:
        self.watch.start()
        for user in self.users:
            user.start()
        self.go.set()

    def rest(self) -> None:
        """Let all users rest; returns when no request is under way."""
        self.go.clear()
        for user in self.users:
            if not user.stepping.acquire(timeout=2 * PATIENCE):
                raise Stuck(f"{user.name} waits for an answer")
            user.stepping.release()
            if user.failure is not None:
                raise user.failure

    def stop(self) -> None:
        """End all users."""
        self.end.set()
        self.watch.end.set()
        self.go.set()
        for user in self.users:
            if user.ident is not None:
                user.join(2 * PATIENCE)
        self.own.close()
        for user in self.users:
            if user.failure is not None:
                raise user.failure

    def clicked(self, query: str, ports: Callable[[], list[int]], patience: float = 60.0) -> float:
        """Rank and click until a click is acknowledged; return the seconds that it took."""
        began = time.monotonic()
        while time.monotonic() < began + patience:
            for port in ports():
                try:
                    if self.own.rank(port, query):
                        return time.monotonic() - began
                except Gone:
                    pass
            time.sleep(0.01)
        raise Stuck(f"no click on {query} was acknowledged within {patience:.0f} s")

    def check(self, patience: float = 90.0) -> list[str]:
        """With all users at rest, send what has no acknowledgement again until it has, read all queries, and judge."""
        self.rest()
        until = time.monotonic() + patience
        while self.record.open:
            if time.monotonic() > until:
                raise Stuck(f"{len(self.record.open)} clicks are still refused after {patience:.0f} s")
            for said in list(self.record.open):
                self._patiently(lambda said=said: self.own.tell(random.choice(self.front.ports() or [0]), said))
        for query in self.record.queries:
            while not self._patiently(lambda query=query: self.own.look(query)):
                if time.monotonic() > until:
                    raise Stuck(f"{query} cannot be read")
        return self.record.judge()

    @staticmethod
    def _patiently(what: Callable[[], bool]) -> bool:
        try:
            done = what()
        except Gone:
            done = False
        if not done:
            time.sleep(0.02)
        return done
