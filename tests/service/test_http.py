"""Broken and endless HTTP is refused or cut off, without an effect on other callers."""

from __future__ import annotations

import socket

import pytest
from service.running import said_of

CONFIG = {"limits": {"body_bytes": 65536}, "feedback": {"steady_seconds": 0.0}}
POST = b"POST /v1/rank HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\n"

pytestmark = pytest.mark.usefixtures("unharmed")

RAW = {
    "garbage": b"\x00\x01\x02 nonsense\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two lengths": b"POST /v1/rank HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
    "a length that is none": b"POST /v1/rank HTTP/1.1\r\nHost: [::1]\r\nContent-Length: -5\r\n\r\n",
    "a length with many digits": b"POST /v1/rank HTTP/1.1\r\nHost: [::1]\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "length and chunks": b"POST /v1/rank HTTP/1.1\r\nHost:[::1]\r\nContent-Length:3\r\nTransfer-Encoding:chunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "a path with raw bytes": b"GET /v1/queries/\xff\xfe\x80 HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    "a path with bad escapes": b"GET /v1/queries/%ff%fe%zz%0 HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    "a query string of bytes": b"GET /v1/queries?limit=%ff&order=%00 HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    "headers of bytes": b"GET /v1/queries HTTP/1.1\r\nHost: [::1]\r\nX-Request-Id: \xff\xfe\r\nAuthorization: Bearer \xff\r\n\r\n",
    "a long path": b"GET /v1/queries/" + b"x" * 50_000 + b" HTTP/1.1\r\nHost: [::1]\r\n\r\n",
}


@pytest.mark.parametrize("sent", RAW.values(), ids=RAW.keys())
def test_broken_http_harms_nobody(served, sent):
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        connection.settimeout(1.0)
        connection.sendall(sent)
        try:
            answer = connection.recv(65536)
        except TimeoutError:
            answer = b""  # the service waits for the rest
    assert not answer.startswith(b"HTTP/1.1 5"), answer


def test_a_body_without_an_end_is_cut_off(served):
    """A chunked body is refused at the limit and never kept in memory."""
    before = served.memory()
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 64 << 20:
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536
        except OSError:
            pass  # the service hung up
        connection.settimeout(5.0)
        try:
            answer = connection.recv(65536)
        except OSError:
            answer = b""
    assert answer.startswith(b"HTTP/1.1 413") or not answer
    assert served.memory() - before < 20 << 20


HEADS = {
    "path": b"GET /v1/queries/",
    "header": b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\nX-Long: ",
    "headers": b"GET /healthz HTTP/1.1\r\n",
}


@pytest.mark.parametrize("what", HEADS)
def test_a_head_without_an_end_is_cut_off(served, client, what):
    """A head arrives before the key is checked, so anybody can send it; others must not wait for it."""
    before = served.memory()
    piece = b"".join(b"x-%d: y\r\n" % n for n in range(6000)) if what == "headers" else b"x" * 65536
    sent = 0
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        try:
            connection.sendall(HEADS[what])
            while sent < 16 << 20:
                connection.sendall(piece)
                sent += len(piece)
        except OSError:
            pass  # the service hung up
        assert client.call("GET", "/healthz").seconds < 1.0
    assert sent < 8 << 20
    assert served.memory() - before < 8 << 20


def test_who_goes_away_in_the_middle_is_missed_by_nobody(served, client):
    whole = POST + b'Content-Length: 50\r\n\r\n{"query": "cut off", "candidates": ["a", "b"]}    '
    for cut in (10, 60, 100, len(whole) - 5):
        with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
            connection.sendall(whole[:cut])
    assert client.call("GET", "/healthz").status == 200
    assert client.query("cut off").status == 404


def test_a_session_is_heard_once_over_http_and_again(client):
    def once() -> tuple[str, str]:
        answer = client.rank("heard", ["only"], session="s").json
        return answer["decision"], answer["ranking"][0]

    first, second = once(), once()
    assert client.feedback(*first).json == {"status": "learned"}
    assert [client.feedback(*second).json["status"] for _ in range(3)] == ["ignored"] * 3
    batch = client.call("POST", "/v1/feedback/batch", [said_of(once()[0], "only") for _ in range(2)])
    assert [entry["status"] for entry in batch.json] == ["ignored"] * 2
    state = client.query("heard").json["arms"][0]
    assert (state["plays"], state["clicks"], state["phase_plays"], state["phase_clicks"]) == (4, 4, 1, 1)
