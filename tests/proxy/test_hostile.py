"""What two readers could understand differently is refused, and nobody waits for ever."""

from __future__ import annotations

import socket
import time

import pytest
from proxy.running import proxied
from proxy.stub import Line, answer, engine, headers

HOST = b"Host: localhost\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
BROKEN = {
    "both lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked first": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + SMUGGLED,
    "equal lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na" + SMUGGLED,
    "a list of lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0, 44\r\n\r\n" + SMUGGLED,
    "a signed length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +0\r\n\r\n" + SMUGGLED,
    "a hexadecimal length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0x2\r\n\r\n" + SMUGGLED,
    "a folded header": b"POST / HTTP/1.1\r\n" + HOST + b"X: a\r\n Content-Length: 44\r\n\r\n" + SMUGGLED,
    "another coding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two codings": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "identity": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: identity\r\nContent-Length: 44\r\n\r\n" + SMUGGLED,
    "a space before the colon": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length : 44\r\n\r\n" + SMUGGLED,
    "a vertical tab": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a bare line feed": b"POST / HTTP/1.1\r\n" + HOST + b"X: a\nContent-Length: 44\r\n\r\n" + SMUGGLED,
    "a bare carriage return": b"POST / HTTP/1.1\r\n" + HOST + b"X: a\rContent-Length: 44\r\n\r\n" + SMUGGLED,
    "a nul": b"POST / HTTP/1.1\r\n" + HOST + b"X: a\x00\r\n\r\n",
    "a dropped length": b"POST / HTTP/1.1\r\n" + HOST + b"Connection: Content-Length\r\nContent-Length: 44\r\n\r\n" + SMUGGLED,
    "chunks in 1.0": b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two hosts": b"GET / HTTP/1.1\r\n" + HOST + b"Host: other\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "an absolute address": b"GET http://169.254.169.254/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "connect": b"CONNECT example.com:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the path": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no http": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
}
CHUNKS = {
    "a negative size": b"-1\r\na\r\n0\r\n\r\n",
    "no size": b"\r\n\r\n",
    "a size with 0x": b"0x1\r\na\r\n0\r\n\r\n",
    "a size with an underscore": b"1_0\r\na\r\n0\r\n\r\n",
    "a huge size": b"fffffffffffffffff\r\na",
    "a line feed": b"1\na\n0\n\n",
    "a long chunk": b"1\r\nab\r\n0\r\n\r\n",
    "a long line": b"1;" + b"x" * 5000 + b"\r\na\r\n0\r\n\r\n",
    "a folded trailer": b"0\r\nA: b\r\n c\r\n\r\n",
}


def opened(port: int) -> Line:
    return Line(socket.create_connection(("127.0.0.1", port)))


@pytest.mark.parametrize("name", BROKEN)
def test_a_doubtful_request_is_refused_and_its_connection_closed(stub, lone, name):
    line = opened(lone.port)
    line.socket.sendall(BROKEN[name])
    head, _, said = line.message(answer=True)
    assert head.startswith(b"HTTP/1.1 400 ") and b"swerve proxy: " in said
    assert not line.more()
    line.close()
    assert stub.seen == []  # the engine saw nothing


@pytest.mark.parametrize("path", [b"/_bulk", b"/shop/_search"])
@pytest.mark.parametrize("name", CHUNKS)
def test_doubtful_chunks_are_refused_and_never_a_whole_request(stub, lone, name, path):
    line = opened(lone.port)
    line.socket.sendall(b"POST %b HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (path, HOST) + CHUNKS[name] + SMUGGLED)
    assert line.message(answer=True)[0].startswith(b"HTTP/1.1 400 ")
    assert not line.more()
    line.close()
    time.sleep(0.05)
    assert stub.seen == []  # the stub records whole requests: it saw none, and no second one


@pytest.mark.parametrize("host", [b"evil.example", b"localhost.evil.example", b"localhost:80:80", b"", b"[::2]", b"a b"])
def test_a_name_that_is_not_the_proxys_is_refused(stub, lone, host):
    line = opened(lone.port)
    line.socket.sendall(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert line.message(answer=True)[0].startswith(b"HTTP/1.1 421 ")
    line.close()
    assert stub.seen == []


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:9280", b"127.0.0.1:1", b"[::1]:9280"])
def test_names_of_the_loopback_are_the_proxys(stub, lone, host):
    line = opened(lone.port)
    line.socket.sendall(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert line.message(answer=True)[0].startswith(b"HTTP/1.1 200 ")
    line.close()


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    ],
)
def test_an_engine_that_breaks_http_gives_502(stub, lone, said):
    stub.prepared["broken"] = [said, 0.2, None]
    for path in (b"/x", b"/shop/_search"):
        line = opened(lone.port)
        line.socket.sendall(b"POST %b HTTP/1.1\r\n%bX-Case: broken\r\nContent-Length: 0\r\n\r\n" % (path, HOST))
        head, _, text = line.message(answer=True)
        assert head.startswith(b"HTTP/1.1 502 ") and b'"reason":"swerve proxy: ' in text
        line.close()


def test_bytes_behind_an_answer_reach_nobody(stub, lone):
    """An engine that says more than one answer: the next client gets its own."""
    stub.prepared["more"] = [answer(b"mine") + answer(b"another's"), 0.1]
    stub.prepared["next"] = [answer(b"next")]
    for case, expected in (("more", b"mine"), ("next", b"next")):
        line = opened(lone.port)
        line.socket.sendall(b"GET / HTTP/1.1\r\n%bX-Case: %b\r\n\r\n" % (HOST, case.encode()))
        assert line.message(answer=True)[2] == expected
        time.sleep(0.05)
        assert line.buffer == b""
        line.close()


def test_an_answer_that_breaks_off_breaks_off(stub, lone):
    stub.prepared["cut"] = [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", None]
    line = opened(lone.port)
    line.socket.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"X-Case: cut\r\n\r\n")
    with pytest.raises(EOFError) as left:
        line.message(answer=True)
    assert left.value.args[0] in (b"abc", b"")
    line.close()


def test_nobody_waits_for_ever(tmp_path):
    """A head, a body, an engine and a client that stand still."""
    limits = {"head_seconds": 0.4, "body_seconds": 0.4, "unread_seconds": 0.4}
    changes = {"limits": limits, "proxy": {"timeout_seconds": 0.6, "connect_seconds": 0.5}}
    with engine() as stub, proxied(tmp_path, stub.port, changes=changes) as made:
        stub.prepared["slow"] = [2.0, answer(b"late")]
        stub.prepared["stuck"] = [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", 2.0, None]
        stub.prepared["huge"] = [b"HTTP/1.1 200 OK\r\ncontent-length: 90000000\r\n\r\n", *([b"x" * 1_000_000] * 90)]
        case = b"GET /%b HTTP/1.1\r\n" + HOST + b"X-Case: %b\r\n\r\n"
        for sent, status in (
            (b"GET / HTT", 408),
            (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nab", 408),
            (b"POST /shop/_search HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nab", 408),
            (case % (b"x", b"slow"), 504),
            (case % (b"shop/_search?q=a", b"slow"), 504),
        ):
            line, started = opened(made.port), time.perf_counter()
            line.socket.sendall(sent)
            assert int(line.message(answer=True)[0][9:12]) == status, sent
            assert time.perf_counter() - started < 1.8
            line.close()
        line = opened(made.port)
        line.socket.sendall(case % (b"x", b"stuck"))
        with pytest.raises(EOFError):
            line.message(answer=True)
        line.close()
        line = opened(made.port)
        line.socket.sendall(case % (b"x", b"huge"))
        time.sleep(1.5)  # it reads nothing
        came = 0
        try:
            while part := line.socket.recv(1 << 20):
                came += len(part)
        except ConnectionResetError:
            pass
        assert came < 80_000_000  # the rest was not kept for it
        line.close()


def test_an_engine_that_is_away_gives_502_at_once(tmp_path):
    with engine() as first:
        port = first.port
    with proxied(tmp_path, port) as made:
        for path in (b"/x", b"/shop/_search?q=a"):
            line, started = opened(made.port), time.perf_counter()
            line.socket.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
            head, _, said = line.message(answer=True)
            assert head.startswith(b"HTTP/1.1 502 ") and b"the engine cannot be reached" in said
            assert time.perf_counter() - started < 1.0
            line.close()


def test_secrets_are_in_no_log_and_replace_the_clients(tmp_path):
    (tmp_path / "authorization").write_text("Basic c2VjcmV0OnBhc3M=\n")
    own = {"authorization_file": str(tmp_path / "authorization"), "host_header": "search.internal:9200"}
    with engine() as stub:
        with proxied(tmp_path, stub.port, changes={"proxy": own, "log": {"level": "debug", "access": "all"}}) as made:
            stub.prepared["broken"] = [b"nonsense\r\n\r\n", None]
            for case in (b"none", b"broken"):
                line = opened(made.port)
                line.socket.sendall(
                    b"GET /shop/_search?q=a HTTP/1.1\r\n"
                    + HOST
                    + b"X-Case: "
                    + case
                    + b"\r\nAuthorization: Bearer mine-own\r\n\r\n"
                )
                line.message(answer=True)
                line.close()
            made.stop()
            assert "c2VjcmV0" not in made.stderr() + str(made.said_last) and "mine-own" not in made.stderr()
        for head, _ in stub.seen:
            names = headers(head)
            assert (names["authorization"], names["host"]) == ("Basic c2VjcmV0OnBhc3M=", "search.internal:9200")
            assert head.lower().count(b"authorization:") == head.lower().count(b"host:") == 1
