"""What is not re-ranked passes byte for byte, in both directions."""

from __future__ import annotations

import gzip
import random
import socket
import threading
import time

from proxy.running import proxied
from proxy.stub import END, Client, Line, answer, headers

RNG_SEED = 16


def chunked(rng: random.Random, body: bytes, *, odd: bool = True) -> bytes:
    out, at = b"", 0
    while at < len(body):
        size = rng.randint(1, 3000)
        part = body[at : at + size]
        digits = rng.choice([b"%x", b"%X", b"00%x"]) % len(part)
        out += digits + (rng.choice([b"", b"", b";name=value", b' ;q="x"']) if odd else b"") + b"\r\n" + part + b"\r\n"
        at += size
    return out + b"0\r\n" + (rng.choice([b"", b"X-Trailer: 1\r\n"]) if odd else b"") + b"\r\n"


def request_of(rng: random.Random, case: int) -> tuple[bytes, bytes]:
    """Return a request as people send them to an engine, and its method."""
    documents = b"\n".join(b'{"index":{}}\n{"n":%d}' % n for n in range(rng.randint(1, 400))) + b"\n"
    method, path, body = rng.choice(
        [
            (b"POST", b"/shop/_bulk?refresh=true", documents),
            (b"PUT", b"/shop/_mapping", b'{"properties":{"title":{"type":"text"}}}'),
            (b"GET", b"/shop/_mapping?pretty", b""),
            (b"POST", b"/shop/_search", b'{"size":0,"aggs":{"p":{"avg":{"field":"price"}}}}'),
            (b"POST", b"/shop/_search?scroll=1m", b'{"query":{"match":{"title":"boots"}}}'),
            (b"POST", b"/shop/_search", b'{"query":{"match":{"title":"boots"}},"sort":["price"]}'),
            (b"POST", b"/shop/_search", b'{"query":{"match":{"title":"boots"}},"collapse":{"field":"sku"}}'),
            (b"POST", b"/shop/_search", b'{"query":{"match_all":{}}}'),
            (b"POST", b"/shop/_search", b'{"query": not json'),
            (b"POST", b"/.kibana/_search", b'{"query":{"match":{"title":"boots"}}}'),
            (b"GET", b"/shop/_search?q=boots&sort=price:asc", b""),
            (b"POST", b"/_msearch", b'{}\n{"query":{"match_all":{}}}\n'),
            (b"POST", b"/_search/scroll", b'{"scroll_id":"x"}'),
            (b"DELETE", b"/_search/scroll", b'{"scroll_id":"x"}'),
            (b"GET", b"/shop/_doc/%C3%A4%2F1", b""),
            (b"HEAD", b"/shop", b""),
            (b"OPTIONS", b"*", b""),
            (b"DELETE", b"/nothing", b""),
            (b"POST", b"/shop/_bulk", rng.randbytes(rng.randint(1, 200_000))),
        ]
    )
    lines = [method + b" " + path + b" HTTP/1.1", b"host: localhost:9200", b"X-Case: %d" % case]
    lines += rng.sample(
        [b"Accept: */*", b"accept-encoding: gzip,deflate", b"X-Opaque-Id:7", b"Cookie: a=b; c=\xe4", b"X_odd: \t x "], 3
    )
    if body:
        lines.append(b"Content-Type: application/json")
        if rng.random() < 0.3:
            lines.append(b"Transfer-Encoding: chunked")
            body = chunked(rng, body)
        else:
            lines.append(b"Content-length: %d" % len(body))
    lines[1:] = rng.sample(lines[1:], len(lines) - 1)
    return b"\r\n".join([*lines, b"", b""]) + body, method


def answer_of(rng: random.Random, method: bytes) -> list[bytes]:
    """Return an answer of an engine, in pieces."""
    body = rng.choice(
        [b"", b"{}", b'{"took":1,"hits":{"hits":[]}}', rng.randbytes(rng.randint(1, 300_000)), gzip.compress(b"x" * 5000)]
    )
    status = rng.choice(
        [b"200 OK", b"200 OK", b"201 Created", b"400 Bad Request", b"404 Not Found", b"429 ", b"500 Odd Words", b"503"]
    )
    lines = [b"HTTP/1.1 " + status, b"X-elastic-product: Elasticsearch", b"content-type: text/plain"]
    lines += rng.sample([b"Warning: 299 x", b"Set-Cookie: a=1", b"Set-Cookie: b=2", b"content-encoding: gzip", b"ETag:W/x"], 2)
    if method == b"HEAD":
        whole = b"\r\n".join([*lines, b"content-length: 12345", b"", b""])
    elif rng.random() < 0.1:
        whole = b"HTTP/1.1 204 No Content\r\n\r\n"
    elif rng.random() < 0.4:
        whole = b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""]) + chunked(rng, body)
    else:
        whole = b"\r\n".join([*lines, b"content-Length: %d" % len(body), b"", b""]) + body
    if rng.random() < 0.1:
        whole = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + whole
    pieces, at = [], 0
    while at < len(whole):
        size = rng.choice([1, 17, 1000, 100_000])
        pieces.append(whole[at : at + size])
        at += size
        if len(pieces) > 20:
            pieces.append(whole[at:])
            break
    return [piece for piece in pieces if piece]


def test_a_thousand_mixed_requests_pass_byte_for_byte_both_ways(stub, lone):
    rng = random.Random(RNG_SEED)
    cases = []
    for case in range(1000):
        request, method = request_of(rng, case)
        pieces = answer_of(rng, method)
        stub.prepared[str(case)] = list(pieces)
        cases.append((request, method, b"".join(pieces)))
    wrong: list[object] = []

    def play(some: list[int]) -> None:
        client = Client(lone.port)
        case = -1
        try:
            for case in some:
                request, method, expected = cases[case]
                head, raw, _ = client.raw(request, head_only=method == b"HEAD")
                got = head + raw
                if got.startswith(b"HTTP/1.1 103"):  # an interim answer; the final one follows
                    got += b"".join(client.line.message(answer=True, head_only=method == b"HEAD")[:2])
                if got != expected:
                    wrong.append(case)
        except Exception as error:
            wrong.append((case, error, cases[case][0][:300]))
        finally:
            client.close()

    players = [threading.Thread(target=play, args=(list(range(start, 1000, 4)),)) for start in range(4)]
    for player in players:
        player.start()
    for player in players:
        player.join()
    assert wrong == []
    seen = {headers(head)["x-case"]: head + raw for head, raw in stub.seen}
    assert [case for case, (request, _, _) in enumerate(cases) if seen[str(case)] != request] == []


def test_headers_of_one_connection_are_not_passed_on(stub, lone, clients):
    client = clients(lone.port)
    mine = b"Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\n"
    theirs = b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
    stub.prepared["hop"] = [b"HTTP/1.1 200 OK\r\n" + theirs + b"A: 1\r\ncontent-length: 0\r\n\r\n"]
    head, _, _ = client.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Case: hop\r\n" + mine + b"B: 2\r\n\r\n")
    assert head == b"HTTP/1.1 200 OK\r\nA: 1\r\ncontent-length: 0\r\n\r\n"
    assert stub.seen[-1][0] == b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Case: hop\r\nB: 2\r\n\r\n"


def test_several_requests_in_one_packet_are_answered_in_order(stub, lone, clients):
    client = clients(lone.port)
    for number in range(5):
        stub.prepared[f"p{number}"] = [answer(b"%d" % number)]
    requests = [b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Case: p%d\r\n\r\n" % number for number in range(5)]
    first = client.raw(b"".join(requests))
    rest = [client.line.message(answer=True) for _ in range(4)]
    assert [said for _, _, said in (first, *rest)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_connection_that_closes_ends_the_answer(stub, lone, clients):
    stub.prepared["old"] = [b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n", b"until ", b"the end", None]
    head, raw, _ = clients(lone.port).raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Case: old\r\n\r\n")
    assert head == b"HTTP/1.0 200 OK\r\nA: b\r\nconnection: close\r\n\r\n"
    assert raw == b"until the end"


def test_http_1_0_is_answered_and_closed(stub, lone, clients):
    client = clients(lone.port)
    head, _, said = client.raw(b"GET /x HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert (head.split(b"\r\n")[0], said) == (b"HTTP/1.1 200 OK", b'{"method":"GET","path":"/x"}')
    assert stub.seen[-1][0].startswith(b"GET /x HTTP/1.0\r\n")
    assert not client.line.more()


def test_expect_is_the_engines_to_answer(stub, lone, clients):
    stub.prepared["expect"] = [b"HTTP/1.1 417 Expectation Failed\r\ncontent-length: 0\r\n\r\n"]
    head, _, _ = clients(lone.port).raw(
        b"POST /shop/_search HTTP/1.1\r\nHost: localhost\r\nX-Case: expect\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert head.startswith(b"HTTP/1.1 417")


def test_huge_bodies_pass_in_constant_memory(stub, lone, clients):
    """300 MB to the engine, and 300 MB from it to a client that reads slowly at first."""
    size, piece = 300_000_000, b"x" * 1_000_000
    before = lone.memory()
    client = clients(lone.port)
    client.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.line.socket.sendall(b"POST /_drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
    for _ in range(size // len(piece)):
        client.line.socket.sendall(piece)
    most = lone.memory()
    assert client.line.message(answer=True)[2] == b"{}"
    assert stub.consumed == size
    stub.prepared["huge"] = [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size, *([piece] * (size // len(piece)))]
    client.line.socket.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-Case: huge\r\n\r\n")
    client.line.until(END)
    time.sleep(0.5)
    most, left = max(most, lone.memory()), size - len(client.line.buffer)
    while left:
        left -= len(client.line.socket.recv(1 << 20))
    most = max(most, lone.memory())
    assert most - before < 20_000_000


def test_an_answer_before_the_end_of_the_body_reaches_the_client(stub, lone):
    """An engine that refuses a large body while it arrives: the client reads the refusal."""
    refused = answer(b"too large", b"413 Request Entity Too Large")

    def refuse() -> None:
        sock, _ = listener.accept()
        sock.recv(1000)
        sock.sendall(refused)
        time.sleep(0.3)
        sock.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=refuse, daemon=True).start()
        folder = lone.folder / "early"
        folder.mkdir()
        with proxied(folder, listener.getsockname()[1]) as made:
            line = Line(socket.create_connection(("127.0.0.1", made.port)))
            line.socket.sendall(b"POST /_bulk HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 100_000)
            head, _, said = line.message(answer=True)
            assert (head.split(b"\r\n")[0], said) == (b"HTTP/1.1 413 Request Entity Too Large", b"too large")
            line.close()
