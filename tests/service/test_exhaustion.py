"""Callers that send without end, too slowly, or over too many connections are cut off, told why and counted; others are served."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from service.running import Http, Running, running, until

from swerve.service.secrets import new_key

KEY = new_key("all")
CONFIG = {
    "limits": {
        "body_bytes": 65536,
        "head_seconds": 1.0,
        "body_seconds": 2.0,
        "unread_seconds": 2.0,
        "connections": 60,
        "connections_per_address": 40,
    },
    "security": {"api_keys": [{"name": "all", "hash": KEY.entry.hash}]},
}
POST = b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
AUTH = b"Authorization: Bearer " + KEY.text.encode() + b"\r\n"
ASK = b'{"query": "q", "candidates": ["a", "b"]}'
CHUNK = b"%x\r\n%b\r\n" % (len(ASK), ASK)


@contextlib.contextmanager
def connected(served: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        yield connection


def all_of(connection: socket.socket) -> bytes:
    """Return all bytes until the connection closes, as it must."""
    seen = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            seen += piece
    return seen


def pour(connection: socket.socket, piece: bytes, most: int) -> int:
    """Send until the connection is cut off; return the bytes that were sent."""
    sent = 0
    with contextlib.suppress(OSError):
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    return sent


def count(client: Http, reason: str) -> float:
    text = client.call("GET", "/metrics").body.decode()
    return sum(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith(f'swerve_turned_away_total{{reason="{reason}"}}')
    )


def told(served: Running, reason: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, served.stderr().splitlines()) if line.get("reason") == reason]


@pytest.fixture
def client(served: Running) -> Iterator[Http]:
    made = served.client(KEY.text)
    yield made
    made.close()


ENDLESS = {
    "trailers": (CHUNKED + CHUNK + b"0\r\n", b"x-trailer: " + b"y" * 1000 + b"\r\n"),
    "one trailer": (CHUNKED + CHUNK + b"0\r\nx-trailer: ", b"y" * 65536),
    "a chunk's extension": (CHUNKED + b"5;", b"y" * 65536),
    "tiny chunks": (CHUNKED, b"1\r\nx\r\n" * 10_000),
    "trailers after an answer": (
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"a: b\r\n" * 10_000,
    ),
    "a body after a refusal": (POST + b"Content-Length: 1000000000\r\n\r\n", b"x" * 65536),
    "empty lines": (b"", b"\r\n" * 30_000),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_no_part_of_a_request_is_without_an_end(served: Running, client: Http, what: str):
    """The service has not checked a key yet, so anybody can send such requests."""
    start, piece = ENDLESS[what]
    before = served.memory()
    with connected(served) as connection:
        connection.sendall(start)
        sent = pour(connection, piece, 64 << 20)
        assert client.call("GET", "/healthz").seconds < 1.0
    assert sent < 16 << 20  # the difference is in the system's buffers
    assert served.memory() - before < 8 << 20


def test_trailers_are_no_headers(served: Running):
    """A trailer sets neither the API key, nor the content type, nor `Host`."""
    for head, trailer, status in (
        (CHUNKED, AUTH, b"401"),
        (b"GET /v1/queries HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", AUTH, b"401"),
        (CHUNKED.replace(b"Content-Type: application/json", AUTH[:-2]), b"Content-Type: application/json\r\n", b"415"),
        (CHUNKED.replace(b"Host: localhost\r\n", AUTH), b"Host: localhost\r\n", b"400"),
        (CHUNKED.replace(b"\r\n\r\n", b"\r\n" + AUTH + b"\r\n"), b"Host: evil\r\nOrigin: http://evil\r\n", b"200"),
    ):
        for _ in range(2):  # the second request finds the query in memory
            with connected(served) as connection:
                connection.sendall(head + CHUNK + b"0\r\n" + trailer + b"Connection: close\r\n\r\n")
                assert connection.recv(65536).split()[1] == status, (head, trailer)


UNFINISHED = {
    "nothing but a line": (b"GET /healthz HTTP/1.1\r\n", "head_seconds"),
    "half a line": (b"GET /", "head_seconds"),
    "an empty line": (b"\r\n", "head_seconds"),
    "half a body": (POST + AUTH + b"Content-Length: 50\r\n\r\n{", "body_seconds"),
    "half a body without a key": (POST.replace(b"rank", b"feedback/batch") + b"Content-Length: 50\r\n\r\n{", "body_seconds"),
    "chunks": (POST + AUTH + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "body_seconds"),
    "a batch": (POST.replace(b"rank", b"rank/batch") + AUTH + b"Content-Length: 50\r\n\r\n[", "body_seconds"),
    "what was announced": (POST + AUTH + b"Expect: 100-continue\r\nContent-Length: 50\r\n\r\n", "body_seconds"),
    "trailers": (POST + AUTH + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNK + b"0\r\nx: y\r\n", "body_seconds"),
}


def test_what_is_never_finished_is_cut_off(served: Running, client: Http):
    """All kinds of unfinished requests at once, one with a byte now and then; log and metrics count them."""
    before = {reason: count(client, reason) for reason in ("head_seconds", "body_seconds")}
    with contextlib.ExitStack() as stack:
        open_ = {what: stack.enter_context(connected(served)) for what in UNFINISHED}
        started = time.perf_counter()
        for what, connection in open_.items():
            connection.sendall(UNFINISHED[what][0])
        ended: dict[str, float] = {}
        answers = dict.fromkeys(open_, b"")
        while len(ended) < len(open_) and time.perf_counter() - started < 10:
            left = {connection: what for what, connection in open_.items() if what not in ended}
            for connection in select.select(list(left), [], [], 0.1)[0]:
                what = left[connection]
                try:
                    piece = connection.recv(65536)
                except ConnectionError:
                    piece = b""
                answers[what] += piece
                if not piece:
                    ended[what] = time.perf_counter() - started
            if "half a line" not in ended:
                with contextlib.suppress(OSError):
                    open_["half a line"].sendall(b"T")  # a byte now and then does not extend the time
    assert ended.keys() == open_.keys()
    for what, (_, reason) in UNFINISHED.items():
        least, most = (0.9, 4.0) if reason == "head_seconds" else (1.9, 6.0)
        assert least < ended[what] < most, what
        if what == "half a body without a key":
            assert answers[what].startswith(b"HTTP/1.1 401")
        else:
            last = answers[what].rpartition(b"HTTP/1.1 ")[2]
            assert last.startswith(b"408") and reason.encode() in last, (what, answers[what])
    for reason, earlier in before.items():
        assert count(client, reason) - earlier == sum(one == reason for _, one in UNFINISHED.values())
        assert told(served, reason)[-1]["address"] == "127.0.0.1"


def test_idle_connections_and_answers_under_way_are_left_alone(served: Running, client: Http):
    """Idle connections and streams outlive every limit on a request."""
    idle = served.client(KEY.text)
    assert idle.rank("q", ["a", "b"]).status == 200
    port = idle._connection.sock.getsockname()  # type: ignore[union-attr]
    with connected(served) as live, connected(served) as fresh:
        live.sendall(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n" + AUTH + b"\r\n")
        seen = live.recv(65536)
        assert seen.startswith(b"HTTP/1.1 200")
        time.sleep(3.5)
        live.setblocking(False)
        later = 0
        with contextlib.suppress(BlockingIOError):
            while piece := live.recv(65536):
                later += len(piece)
            raise AssertionError("the stream was cut off")
        assert later > 0
        assert idle.rank("q", ["a", "b"]).status == 200
        assert idle._connection.sock.getsockname() == port  # type: ignore[union-attr]
        fresh.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")  # silent since it was opened
        assert fresh.recv(65536).startswith(b"HTTP/1.1 200")


def test_answers_that_nobody_reads_are_neither_kept_nor_waited_for(served: Running, client: Http):
    """Many callers request the page's largest file, which needs no key, and read nothing."""
    client.call("GET", "/page/plotly.js")
    before, cut = served.memory(), count(client, "unread_seconds")
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", served.port))
            connection.sendall(b"GET /page/plotly.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1.0)
        assert served.memory() - before < 30 << 20  # the file has 4 MB
        until(lambda: count(client, "unread_seconds") - cut == 30)
    assert told(served, "unread_seconds")


def test_one_address_has_its_share_and_others_the_rest(served: Running, client: Http):
    """127.0.0.1 fills its share of the connections; 127.0.0.2, another address of this machine, is served."""
    client.call("GET", "/healthz")
    before = count(client, "address"), count(client, "connections")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(served)) for _ in range(100)]
        refused = 0
        for connection in held:
            if select.select([connection], [], [], 0.2 if not refused else 0.05)[0]:
                answer = all_of(connection)
                assert answer.startswith(b"HTTP/1.1 503") and b"limits.connections_per_address" in answer
                refused += 1
        assert 60 <= refused <= 64
        assert client.call("GET", "/healthz").status == 200  # this connection existed before
        others = []
        for _ in range(30):
            other = stack.enter_context(
                socket.create_connection(("127.0.0.1", served.port), timeout=5, source_address=("127.0.0.2", 0))
            )
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            others.append(other.recv(65536).split()[1])
        assert others[:18] == [b"200"] * 18
        assert others[-5:] == [b"503"] * 5
    assert count(client, "address") - before[0] == refused
    assert count(client, "connections") - before[1] >= 5
    assert told(served, "address") and told(served, "connections")
    fresh = http.client.HTTPConnection("127.0.0.1", served.port, timeout=5)
    fresh.request("GET", "/healthz")
    assert fresh.getresponse().status == 200
    fresh.close()


@pytest.mark.slow
def test_a_thousand_unfinished_requests_close_the_door_for_nobody(tmp_path):
    """With default limits except for the times: new connections are accepted again without a restart."""
    with running(tmp_path, {"limits": {"head_seconds": 3.0}}) as service, contextlib.ExitStack() as stack:
        held = []
        for _ in range(1200):
            try:
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=5))
                connection.sendall(b"POST /v1/rank HTTP/1.1\r\n")
            except OSError:
                continue
            held.append(connection)
        other = stack.enter_context(
            socket.create_connection(("127.0.0.1", service.port), timeout=5, source_address=("127.0.0.2", 0))
        )
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert other.recv(1000).startswith(b"HTTP/1.1 200")
        time.sleep(6)
        assert service.client().call("GET", "/healthz").status == 200
        assert told(service, "head_seconds") and told(service, "address")


# other protocols ------------------------------------------------------------------------------------------------------------------

UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
    "websocket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n",
    "anything": b"Connection: upgrade\r\nUpgrade: TLS/1.0, IRC/6.9\r\n",
}


@pytest.mark.parametrize("what", UPGRADES)
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_who_asks_for_another_protocol_is_answered_in_this_one(served: Running, what: str, size: int):
    """The request has a body, in one or several pieces, and is followed by another request."""
    body = b"Content-Length: %d\r\n\r\n%b" % (len(ASK), ASK)
    sent = POST + AUTH + UPGRADES[what] + body
    sent += CHUNKED[:-2] + AUTH + UPGRADES[what] + b"\r\n" + CHUNK + b"0\r\n\r\n"
    sent += b"GET /v1/queries/q HTTP/1.1\r\nHost: localhost\r\n" + AUTH + UPGRADES[what] + b"\r\n"
    sent += POST + AUTH + body
    sent += b"GET /v1/live HTTP/1.1\r\nHost: evil.example\r\n" + AUTH + UPGRADES[what] + b"\r\n"
    with connected(served) as connection:
        reader = connection.makefile("rb")
        for start in range(0, len(sent), size):
            connection.sendall(sent[start : start + size])
        for status in (200, 200, 200, 200, 421):
            line = reader.readline()
            assert int(line.split()[1]) == status, line
            headers = http.client.parse_headers(reader)
            assert "upgrade" not in headers
            json.loads(reader.read(int(headers["Content-Length"])))


def test_a_key_in_the_path_is_no_key(client: Http, served: Running):
    stranger = served.client()
    for name in ("key", "api_key", "access_token", "authorization"):
        assert stranger.call("GET", f"/v1/queries?{name}={KEY.text}").status == 401
    assert KEY.text not in served.stderr()
