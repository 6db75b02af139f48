"""A bounded load of HTTP requests from one process: keep-alive connections, prepared requests, minimal work per request.

A closed loop sends a connection's next request when the previous one is answered; it measures throughput. With a rate, requests
are due at even intervals, regardless of the answers, and latency counts from the time at which a request was due: the latency of a
server that falls behind includes the wait of its requests.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from swerve.core.errors import SwerveError

HOST = "127.0.0.1"
HANGING_SECONDS = 30.0  # without any answer after which the server counts as hanging
HEAD_END, LENGTH_HEADER, OK_LINE, DEGRADED = b"\r\n\r\n", b"content-length:", b"HTTP/1.1 200", b'"degraded":true'
READ_BYTES = 1 << 18  # a whole batch of answers in one call
REFUSAL_SHOWN = 400  # bytes of a refusal that the error shows
QUANTILES = (0.5, 0.99)
LEAST_SECONDS = 1e-9  # seconds: keeps the rate of an empty turn finite


class Turn(NamedTuple):
    """The result of one period of load."""

    answers: int
    seconds: float
    p50: float  # seconds
    p99: float
    cpu: float  # share of a core that the load itself took
    degraded: int

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.answers / self.seconds


class Connection:
    """One keep-alive connection."""

    __slots__ = ("buffer", "due", "socket", "whole")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=HANGING_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.whole = -1  # length of the current answer, once its head has arrived
        self.due = 0.0

    def receive(self) -> bytes | None:
        """Read available bytes; return the answer once it is complete."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise SwerveError("the server closed a connection in the middle of the load")
        if self.buffer:
            data = self.buffer + data
        if self.whole < 0:
            end = data.find(HEAD_END)
            if end < 0:
                self.buffer = data
                return None
            at = data.find(LENGTH_HEADER, 0, end)
            if at < 0:
                raise SwerveError(f"the server gave no content-length: {data[:end]!r}")
            stop = data.find(b"\r", at)
            self.whole = end + len(HEAD_END) + int(data[at + len(LENGTH_HEADER) : stop])
        if len(data) < self.whole:
            self.buffer = data
            return None
        self.buffer, self.whole = b"", -1
        return data

    def call(self, request: bytes) -> bytes:
        """Send one request and return the body of the answer."""
        self.socket.sendall(request)
        answer = None
        while answer is None:
            answer = self.receive()
        return checked(answer).partition(HEAD_END)[2]


def checked(answer: bytes) -> bytes:
    """Return the answer; raise if it is a refusal."""
    if not answer.startswith(OK_LINE):
        raise SwerveError(f"the server refused a request of the load: {answer[:REFUSAL_SHOWN].decode('latin-1')}")
    return answer


def drive(port: int, requests: Iterable[bytes], connections: int, seconds: float, rate: float | None = None) -> Turn:
    """Send `requests` for `seconds`, or until they run out; in a closed loop, or at `rate` requests per second."""
    with contextlib.ExitStack() as stack:
        lines = [Connection(port) for _ in range(connections)]
        for line in lines:
            stack.enter_context(line.socket)
        return _drive({line.socket.fileno(): line for line in lines}, iter(requests), seconds, rate)


def _drive(lines: dict[int, Connection], requests: Iterator[bytes], seconds: float, rate: float | None) -> Turn:
    idle, busy = list(lines.values()), set[int]()
    latencies = array("d")
    degraded = sent = 0
    clock, wait = time.perf_counter, select.select
    begun, cpu = clock(), time.process_time()
    ends, now, last = begun + seconds, begun, begun
    more = True
    while True:
        while more and idle and (rate is None or begun + sent / rate <= now):
            # with a rate, requests that were due before the end are sent, even if this process gets its turn late
            request = next(requests, None) if (now if rate is None else begun + sent / rate) < ends else None
            if request is None:
                more = False
                break
            line = idle.pop()
            line.due = now if rate is None else begun + sent / rate
            line.socket.sendall(request)
            busy.add(line.socket.fileno())
            sent += 1
        if not busy and not more:
            break
        # select waits with microsecond resolution; poll has milliseconds
        pause = HANGING_SECONDS if rate is None or not more or not idle else max(begun + sent / rate - clock(), 0.0)
        ready = wait(busy, (), (), pause)[0]
        now = clock()
        for number in ready:
            line = lines[number]
            answer = line.receive()
            if answer is not None:
                degraded += DEGRADED in checked(answer)
                latencies.append(now - line.due)
                busy.discard(number)
                idle.append(line)
                last = now
        if not ready and busy and now - last > HANGING_SECONDS:
            raise SwerveError(f"the server has not answered for {HANGING_SECONDS:g} seconds")
    took = max(now - begun, LEAST_SECONDS)
    share = (time.process_time() - cpu) / took
    p50, p99 = np.quantile(latencies, QUANTILES).tolist() if latencies else (0.0, 0.0)
    return Turn(len(latencies), took, p50, p99, share, degraded)
