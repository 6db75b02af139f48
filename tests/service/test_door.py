"""The short way for rank and feedback: requests in one or several pieces, and pipelined ones, are answered in order."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from service.running import said_of
from uvicorn.server import ServerState

from swerve.service.http.door import Door, InnerDoor

CANDIDATES = ["a", "b", "c"]


def message(path: str, body: Any, *more: str) -> bytes:
    content = json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(content)}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def rank(query: str) -> bytes:
    return message("/v1/rank", {"query": query, "candidates": CANDIDATES})


def answers(connection: socket.socket, count: int) -> list[tuple[int, dict[str, str], Any]]:
    """Return the next `count` answers of a connection, in order."""
    out = []
    reader = connection.makefile("rb")
    for _ in range(count):
        status = int(reader.readline().split()[1])
        if status == 100:
            reader.readline()
            status = int(reader.readline().split()[1])
        headers = http.client.parse_headers(reader)
        body = reader.read(int(headers["Content-Length"]))
        out.append((status, {name.lower(): value for name, value in headers.items()}, json.loads(body)))
    return out


@pytest.fixture
def connection(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as made:
        yield made


@pytest.fixture
def decision(client):
    """Return a decision for a query, which is in memory from now on."""
    client.rank("door", CANDIDATES)
    return client.rank("door", CANDIDATES).json


def test_the_short_way_answers_as_the_long_one(connection, decision):
    connection.sendall(rank("door"))
    connection.sendall(message("/v1/rank", {"query": "door", "candidates": CANDIDATES}, "Expect: 100-continue"))
    short, long = answers(connection, 2)
    assert short[0] == long[0] == 200
    assert short[1].keys() == long[1].keys()
    assert short[2].keys() == long[2].keys()


@pytest.mark.parametrize("size", [1, 7, 60])
def test_a_request_in_pieces(connection, decision, size):
    sent = rank("door")
    for start in range(0, len(sent), size):
        connection.sendall(sent[start : start + size])
    ((status, _, body),) = answers(connection, 1)
    assert (status, body["degraded"]) == (200, False)


def test_requests_one_behind_the_other_are_answered_in_order(connection, client, decision):
    """Feedback waits for the disk, and requests behind it wait too, on the short way and on the long way."""
    tokens = [client.rank("door", CANDIDATES).json for _ in range(6)]
    sent, expected = b"", []
    for number, token in enumerate(tokens):
        sent += message("/v1/feedback", said_of(token["decision"], token["ranking"][0]), f"X-Request-Id: f{number}")
        sent += message(
            "/v1/rank", {"query": f"door {number}", "candidates": CANDIDATES}, f"X-Request-Id: n{number}"
        )  # the query is not in memory
        sent += message("/v1/rank", {"query": "door", "candidates": CANDIDATES}, f"X-Request-Id: r{number}")
        sent += message("/v1/feedback", said_of("forged", None), f"X-Request-Id: x{number}")
        expected += [(f"f{number}", 200), (f"n{number}", 200), (f"r{number}", 200), (f"x{number}", 403)]
    connection.sendall(sent)
    found = answers(connection, len(expected))
    assert [(headers["x-request-id"], status) for status, headers, _ in found] == expected
    assert all(body == {"status": "learned"} for _, headers, body in found if headers["x-request-id"].startswith("f"))
    arms = client.query("door").json["arms"]
    assert sum(arm["clicks"] for arm in arms) >= len(tokens)


def test_what_is_refused_is_refused_in_words(connection, decision):
    for body, status, code in (
        ({"query": "door", "candidates": []}, 422, "empty"),
        ({"query": "door", "candidates": ["a", "a"]}, 422, "repeated"),
        ({"query": "door"}, 422, "invalid"),
        ({"query": "door", "candidates": CANDIDATES, "signals": {"nobody": 1.0}}, 422, "unknown_signal"),
    ):
        connection.sendall(message("/v1/rank", body))
        ((found, _, said),) = answers(connection, 1)
        assert (found, said["error"]["code"]) == (status, code)


def test_a_caller_that_hangs_up_is_counted_all_the_same(served, client, decision):
    """Feedback that was read counts even if the caller has hung up; its repeat gets the same answer."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as gone:
        gone.sendall(message("/v1/feedback", said_of(decision["decision"], decision["ranking"][0])))
    assert client.feedback(decision["decision"], decision["ranking"][0]).json == {"status": "learned"}


# ---------------------------------------------------------------- idle connections


class Clock:
    """An event loop in which time passes when the test says so."""

    def __init__(self) -> None:
        self.now, self.timers = 0.0, list[tuple[float, Any]]()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, what: Any) -> Any:
        timer = self.now + delay, what
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer[0] <= self.now]:
            self.timers.remove(timer)
            timer[1]()


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.sent, self.closed = list[bytes](), False
        self.pause_reading = self.resume_reading = lambda: None

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def close(self) -> None:
        self.closed = True


def test_a_connection_is_closed_when_it_was_idle_for_the_whole_time():
    """One timer serves all requests of the short way: it runs out while the connection is in use, and looks again later."""
    app = SimpleNamespace(at_once=lambda *asked: (200, b"{}", "id", b""))
    config = uvicorn.Config(app, http=Door, ws="none", lifespan="off", log_config=None, timeout_keep_alive=10)
    config.load()
    config.loaded_app = app
    clock, wire = Clock(), Wire()
    door = Door(config, ServerState(), {}, _loop=clock)  # type: ignore[arg-type]
    door.connection_made(wire)
    for _ in range(9):
        door.data_received(rank("idle"))
        clock.sleep(4.0)
        assert len(clock.timers) == 1
    assert len(wire.sent) == 9 and not wire.closed
    clock.sleep(5.5)
    assert not wire.closed  # 9.5 seconds after the last answer
    door.data_received(rank("idle")[:20])  # a request has begun
    clock.sleep(11.0)
    assert not wire.closed and not clock.timers
    door.data_received(rank("idle")[20:])
    assert len(wire.sent) == 10
    clock.sleep(9.5)
    assert not wire.closed
    clock.sleep(1.0)
    assert wire.closed


@pytest.mark.parametrize(("ahead", "read"), [(0.0, "100.500000"), (-40.0, "60.500000"), (5000.0, "5100.500000")])
def test_the_time_of_another_machines_clock_is_read_as_one_of_our_own(ahead, read):
    """An answer that came too late is known as such whatever the clocks of the machines say."""

    async def run() -> None:
        door = InnerDoor(uvicorn.Config(lambda: None), ServerState(), {}, ahead)
        door.on_message_begin()
        for name, value in ((b"Swerve-Until", b"100.500000"), (b"x-request-id", b"r")):
            door.on_header(name, value)
        assert door.headers == [(b"swerve-until", read.encode()), (b"x-request-id", b"r")]

    asyncio.run(run())
