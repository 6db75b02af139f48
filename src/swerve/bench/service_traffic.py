"""The traffic of the service's benchmark, and the functions of the process that sends it.

The functions at the end run in the load's process, one after the other, on one `Traffic` that `begin` makes there.
"""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from swerve.bench.load import HEAD_END, HOST, Connection, Turn, drive
from swerve.core.errors import SwerveError

#: The numbers in each request; the server's configuration names them.
SIGNALS = ("news", "posts", "views", "errors")
CANDIDATES = 10  # of a query: a page of results
NUMBERS_BELOW = 100  # the numbers of a request are drawn from 0 up to this
RANK, RANK_BATCH, FEEDBACK = "/v1/rank", "/v1/rank/batch", "/v1/feedback"
QUERIES_DRAWN = 200_000  # requests before the sequence of queries repeats
RETURNING = 4  # one request in this many belongs to an earlier session
SESSION_GAP = 1001  # requests between the two queries of a session; odd, so that a first query is never a second one
SESSION_MASK = 0xFFFFFFFF  # session ids have 8 hexadecimal digits
SESSION_TAIL = 10  # bytes of a request from its session id to its end: 8 digits and '"}'
BATCH_ENTRIES = 100  # entries of a batch
MOST_TRIES = 1000  # requests for a query until the service decides it
RETRY_SECONDS = 0.01  # seconds between two tries: rows are loaded, or written to make room


def post(path: str, body: bytes) -> bytes:
    """Return a request in the bytes that are sent."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def batch_of(entries: Sequence[bytes]) -> bytes:
    """Return several entries as one batch request."""
    return post(RANK_BATCH, b"[" + b",".join(entries) + b"]")


def text_of(query: int) -> str:
    """Return the text of a query by its number; 0 is the most frequent."""
    return f"what is {query:06d}"


class Traffic:
    """Requests for `queries` queries; the k-th most frequent is asked 1/k as often as the first.

    One request in four belongs to a session that has asked before; if the earlier query was another one, it is a reformulation.

    >>> traffic = Traffic(3, candidates=2)
    >>> sessions = [request[-10:-2] for request in itertools.islice(traffic.requests(), 1004)]
    >>> sessions[2], sessions[1003], len(set(sessions))
    (b'00000002', b'00000002', 1003)
    """

    def __init__(self, queries: int, candidates: int = CANDIDATES, seed: int = 0) -> None:
        self.queries, self.candidates = queries, candidates
        rng = np.random.default_rng(seed)
        weights = 1.0 / np.arange(1.0, queries + 1.0)
        self.numbers = rng.integers(0, NUMBERS_BELOW, (queries, len(SIGNALS)))
        self.drawn = itertools.cycle(rng.choice(queries, QUERIES_DRAWN, p=weights / weights.sum()).tolist())
        self.sessions = itertools.count()
        self.heads: dict[tuple[int, int | None], bytes] = {}

    def entry(self, query: int, session: int, slots: int | None = None) -> bytes:
        """Return the JSON of one request; without `slots`, the service fills as many as it is configured for."""
        ids = ",".join(f'"doc-{query:06d}-{position:02d}"' for position in range(self.candidates))
        numbers = ",".join(f'"{name}":{value}.0' for name, value in zip(SIGNALS, self.numbers[query], strict=True))
        filled = "" if slots is None else f'"slots":{slots},'
        text = f'{{"query":"{text_of(query)}","candidates":[{ids}],"signals":{{{numbers}}},{filled}"session":"s{session:08x}"}}'
        return text.encode()

    def session(self) -> int:
        """Return the session of the next request."""
        count = next(self.sessions) & SESSION_MASK
        return count - SESSION_GAP if count % RETURNING == RETURNING - 1 and count > SESSION_GAP else count

    def requests(self, slots: int | None = None) -> Iterator[bytes]:
        """Yield requests without end. Everything except the session is made once per query."""
        heads = self.heads
        while True:
            query = next(self.drawn)
            head = heads.get((query, slots))
            if head is None:
                head = heads[query, slots] = post(RANK, self.entry(query, 0, slots))[:-SESSION_TAIL]
            yield head + b'%08x"}' % self.session()

    def batches(self) -> Iterator[bytes]:
        """Yield batches of requests without end."""
        entries = (request.partition(HEAD_END)[2] for request in self.requests())
        while True:
            yield batch_of(list(itertools.islice(entries, BATCH_ENTRIES)))


# in the load's process ------------------------------------------------------------------------------------------------------------

_traffic: Traffic
_feedback: list[bytes]


def begin(queries: int, candidates: int) -> None:
    """Make everything that requests share, so that no turn pays for it."""
    global _traffic, _feedback
    _traffic = Traffic(queries, candidates)
    _feedback = []
    for _ in zip(range(QUERIES_DRAWN), _traffic.requests(), strict=False):
        pass
    gc.collect()
    gc.freeze()
    gc.disable()  # turns create no reference cycles


def fill(port: int, start: int, stop: int, batch: int = BATCH_ENTRIES) -> int:
    """Ask each query from `start` to `stop` until it is decided; return how many had to be asked again."""
    line, again = Connection(port), 0
    for first in range(start, stop, batch):
        wanted = list(range(first, min(first + batch, stop)))
        for _ in range(MOST_TRIES):
            entries = [_traffic.entry(query, _traffic.session()) for query in wanted]
            answers: list[dict[str, Any]] = json.loads(line.call(batch_of(entries)))
            wanted = [query for query, answer in zip(wanted, answers, strict=True) if answer["degraded"]]
            again += len(wanted)
            if not wanted:
                break
            time.sleep(RETRY_SECONDS)
        else:
            raise SwerveError(f"the service gave the given order {MOST_TRIES} times for {len(wanted)} queries of the load")
    line.socket.close()
    return again


def rank_turn(port: int, connections: int, seconds: float, rate: float | None = None, slots: int | None = None) -> Turn:
    """Run a turn of `rank`, one query per request."""
    return drive(port, _traffic.requests(slots), connections, seconds, rate)


def batch_turn(port: int, connections: int, seconds: float) -> Turn:
    """Run a turn of `rank` in batches; its answers are batches."""
    return drive(port, _traffic.batches(), connections, seconds)


def decide(port: int, count: int) -> int:
    """Have decisions made and prepare a feedback for each, every second one with a click on the first result."""
    line = Connection(port)
    _feedback.clear()
    batches = _traffic.batches()
    while len(_feedback) < count:
        for answer in json.loads(line.call(next(batches))):
            if not answer["degraded"]:
                events = [{"kind": "click", "result": answer["ranking"][0]}] if len(_feedback) % 2 else []
                _feedback.append(post(FEEDBACK, json.dumps({"decision": answer["decision"], "events": events}).encode()))
    line.socket.close()
    return len(_feedback)


def feedback_turn(port: int, connections: int, seconds: float) -> Turn:
    """Run a turn of the prepared feedback, each sent once."""
    return drive(port, _feedback, connections, seconds)
