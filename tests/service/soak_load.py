"""Random load of the soak test: users who ask and click at once, later, twice or not at all, and callers that send batches.

Every step of a worker has its own generator, seeded with the run's seed, the worker and the step: the answers to earlier steps do
not change the draws of later ones.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from service.running import Answer, Gone, Http, Running, said_of
from service.soak_ledger import ABSENT, COUNTED, MAYBE, Click, Ledger

ARMS = 8  # candidates of a query: so few that none is evicted, and every click has its arm
PATIENCE = 15.0  # seconds for an answer; the longest pause of the process is shorter
KEPT = 300  # acknowledged clicks that a worker may send again


def names_of(queries: int) -> dict[str, list[str]]:
    """Return the queries with their candidates, whose ids begin with the query's name and have different hashes."""
    out = {}
    for number in range(queries):
        query, seen = f"query {number}", set[int]()
        candidates: list[str] = []
        for each in itertools.count():
            name = f"{query}/{each}"
            if (short := zlib.crc32(name.encode()) & 0xFFFFFF) not in seen:  # the bits by which a decision names a candidate
                seen.add(short)
                candidates.append(name)
            if len(candidates) == ARMS:
                break
        out[query] = candidates
    return out


@dataclass
class Traffic:
    """The state that workers share."""

    service: Running
    ledger: Ledger
    seed: int
    names: dict[str, list[str]]
    wrong: list[str] = field(default_factory=list)  # answers that are not allowed
    counts: Counter[str] = field(default_factory=Counter)
    go: threading.Event = field(default_factory=threading.Event)
    end: threading.Event = field(default_factory=threading.Event)


class Worker(threading.Thread):
    """A thread with one connection at a time, and its pending clicks."""

    def __init__(self, traffic: Traffic, number: int) -> None:
        super().__init__(name=f"soak-{number}", daemon=True)
        self.traffic, self.number = traffic, number
        self.ledger = traffic.ledger
        self.queries = list(traffic.names)
        self.client = Http(0)
        self.stepping = threading.Lock()  # held during a step
        self.later: list[tuple[float, int, Click]] = []  # not sent yet: due time, order, click
        self.open: list[Click] = []  # sent without an answer; will be sent again
        self.kept: list[Click] = []  # acknowledged; sent again now and then
        self.order = itertools.count()
        self.failure: BaseException | None = None

    # ------------------------------------------------------------------ life
    def run(self) -> None:
        try:
            step = 0
            while not self.traffic.end.is_set():
                self.traffic.go.wait()
                with self.stepping:
                    if self.traffic.go.is_set() and not self.traffic.end.is_set():  # it may have been cleared since
                        self.step(random.Random(f"{self.traffic.seed}/{self.number}/{step}"))
                        step += 1
        except BaseException as error:  # reported by the thread that waits for this one
            self.failure = error
        finally:
            self.client.close()

    def rested(self, patience: float) -> bool:
        """Wait until no step is under way; return False if that takes too long. While `go` is cleared, no further one begins."""
        if not self.stepping.acquire(timeout=patience):
            return False
        self.stepping.release()
        return True

    def step(self, draw: random.Random) -> None:
        """Send feedback that is due, then take one random action."""
        try:
            if self.open and draw.random() < 0.5:
                self.again(self.open, min(len(self.open), draw.choice([1, 5, 400])))
            if self.later and self.later[0][0] <= time.monotonic():
                self.due(draw)
            kind = draw.choices(("one", "many", "again", "look", "shift"), (60, 12, 12, 8, 1))[0]
            if kind == "one":
                self.one(draw)
            elif kind == "many":
                self.many(draw)
            elif kind == "again" and self.kept:
                some = draw.sample(self.kept, min(len(self.kept), draw.choice([1, 3, 200])))
                self.tell(some * draw.choice([1, 1, 2]), together=len(some) > 1)
            elif kind == "look":
                self.look(self.pick(draw))
            elif kind == "shift":
                self.shift(self.pick(draw))
            time.sleep(draw.uniform(0.0, 0.02))
        except Gone:
            self.traffic.counts["broken"] += 1
            time.sleep(0.05)

    # ------------------------------------------------------------------ rankings
    def call(self, method: str, path: str, body: Any = None) -> Answer:
        """Send one request once."""
        if self.client.port != self.traffic.service.port:
            self.client.close()
            self.client = Http(self.traffic.service.port)
        self.traffic.counts["requests"] += 1
        answer = self.client.call(method, path, body, timeout=PATIENCE)
        if answer.status not in (200, 403, 404, 503):  # the ledger checks whether 403 is allowed
            self.traffic.wrong.append(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        return answer

    def pick(self, draw: random.Random) -> str:
        return self.queries[int(len(self.queries) * draw.random() ** 1.5)]

    def asked(self, draw: random.Random, query: str) -> dict[str, Any]:
        request: dict[str, Any] = {"query": query, "candidates": draw.sample(self.traffic.names[query], draw.randint(2, ARMS))}
        user = draw.random()
        if user < 0.7:  # a new user, who never returns
            request["session"] = f"{self.number}-{draw.getrandbits(60):x}"
        elif user < 0.8:  # a returning user
            request["session"] = f"{self.number}-{draw.randrange(5)}"
        return request

    def ranked(self, draw: random.Random, request: dict[str, Any], answer: Any) -> Click | None:
        """Check a ranking; return the click that follows from it, or None if it is degraded or gets no feedback."""
        given: list[str] = request["candidates"]
        ranking, top = answer.get("ranking", []), draw.random()
        self.traffic.counts["rankings"] += 1
        wrong = ranking != given if answer.get("degraded", True) else sorted(ranking) != sorted(given)
        if wrong:
            self.traffic.wrong.append(f"{request['query']}: {given} was ranked {answer}")
        if wrong or answer["degraded"]:
            self.traffic.counts["degraded"] += not wrong
            return None
        clicked = ranking[0] if top < 0.7 else ranking[1] if top < 0.8 else None
        return self.ledger.decided(answer["decision"], request["query"], clicked) if top < 0.9 else None

    def one(self, draw: random.Random) -> None:
        """Act as a user: ask for a ranking, and send or postpone its feedback."""
        request, soon, repeat = self.asked(draw, self.pick(draw)), draw.random(), draw.random() < 0.1
        answer = self.call("POST", "/v1/rank", request)
        if answer.status != 200:
            self.traffic.wrong.append(f"rank was answered {answer.status}: {answer.body[:300]!r}")
            return
        click = self.ranked(draw, request, answer.json)
        if click is None:
            return
        if soon < 0.7:
            self.tell([click] * (2 if repeat else 1), together=False)
        else:
            self.put_off(draw, click)

    def many(self, draw: random.Random) -> None:
        """Act as a caller with batches: rankings together, then their clicks together, some of them later."""
        count, soon = draw.choice([3, 20, 100, 400]), draw.random()
        requests = [self.asked(draw, self.pick(draw)) for _ in range(count)]
        answer = self.call("POST", "/v1/rank/batch", requests)
        if answer.status != 200:
            self.traffic.wrong.append(f"a batch of rankings was answered {answer.status}: {answer.body[:300]!r}")
            return
        clicks = [self.ranked(draw, request, one) for request, one in zip(requests, answer.json, strict=True)]
        told = [click for click in clicks if click is not None]
        if soon < 0.4:
            self.tell(told + told[: len(told) // 10], together=True)
        else:
            for click in told:
                self.put_off(draw, click)

    def put_off(self, draw: random.Random, click: Click) -> None:
        delay = draw.expovariate(1 / 3.0) if draw.random() < 0.9 else draw.uniform(5.0, 60.0)
        heapq.heappush(self.later, (time.monotonic() + delay, next(self.order), click))

    def due(self, draw: random.Random) -> None:
        """Send the feedback that is due, one by one or together."""
        now, most = time.monotonic(), draw.choice([1, 10, 500])
        some = []
        while self.later and self.later[0][0] <= now and len(some) < most:
            some.append(heapq.heappop(self.later)[2])
        self.tell(some, together=len(some) > 1)

    def again(self, waiting: list[Click], count: int) -> None:
        some = [waiting.pop() for _ in range(count)]
        self.tell(some, together=count > 1)

    def look(self, query: str) -> None:
        answer = self.call("GET", f"/v1/queries/{quote(query, safe='')}")
        if answer.status == 200:
            strange = [arm["id"] for arm in answer.json["arms"] if not arm["id"].startswith(f"{query}/")]
            if strange:
                self.traffic.wrong.append(f"{query} has candidates of others: {strange}")

    def shift(self, query: str) -> None:
        self.call("POST", f"/v1/queries/{quote(query, safe='')}/shift", {})

    # ------------------------------------------------------------------ feedback
    def tell(self, clicks: list[Click], *, together: bool) -> None:
        """Send feedback once for each entry of the list, and record the answers.

        A click leaves the ledger only after its last request: until then a restore sets it back, and a repeat counts again.
        """
        last: dict[Click, str | None] = {}
        try:
            for some in [clicks] if together else [[click] for click in clicks]:
                sent = self.ledger.sending(some)
                statuses: list[str | None] = [None] * len(some)
                try:
                    entries = [said_of(click.token, click.clicked) for click in some]
                    if together:
                        answer = self.call("POST", "/v1/feedback/batch", entries)
                        if answer.status == 200:
                            statuses = [self.status_of(one) for one in answer.json]
                    else:
                        answer = self.call("POST", "/v1/feedback", entries[0])
                        if answer.status != 503:
                            statuses = [self.status_of(answer.json)]
                finally:
                    for one, status in zip(sent, statuses, strict=True):
                        self.ledger.answered(one, status)
                    last |= zip(some, statuses, strict=True)
        finally:
            for click, status in last.items():
                self.sort(click, status)

    def status_of(self, answer: Any) -> str | None:
        """Return the status of one answer; None if the feedback must be sent again."""
        if "status" in answer:
            self.traffic.counts[answer["status"]] += 1
            return str(answer["status"])
        code = answer["error"]["code"]
        self.traffic.counts[code] += 1
        return None if code == "unavailable" else str(code)

    def sort(self, click: Click, status: str | None) -> None:
        """Put a sent click into the right list."""
        if status is not None and status not in COUNTED:  # expired or refused: a repeat would get the same answer
            if click in self.kept:
                self.kept.remove(click)
            self.ledger.leave(click)
        elif status is None or click.state == MAYBE:
            if click not in self.open and click not in self.kept:
                self.open.append(click)
        elif click not in self.kept:
            if zlib.crc32(click.token.encode()) % 10:
                self.ledger.leave(click)
                return
            self.kept.append(click)
            if len(self.kept) > KEPT:
                self.ledger.leave(self.kept.pop(0))

    # ------------------------------------------------------------------ the end
    def drain(self, patience: float) -> None:
        """With the thread stopped, send all pending feedback until every answer has come or the time is up."""
        until = time.monotonic() + patience
        while self.later:
            self.open.append(heapq.heappop(self.later)[2])
        for click in [click for click in self.kept if click.state in (ABSENT, MAYBE)]:
            self.kept.remove(click)
            self.open.append(click)
        while self.open and time.monotonic() < until:
            try:
                self.again(self.open, min(len(self.open), 100))
            except Gone:
                time.sleep(0.05)
