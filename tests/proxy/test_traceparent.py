"""`traceparent` through the proxy, without the extra for spans: to the engine, to the service, into the log lines."""

from __future__ import annotations

import json
import socket

from proxy.running import free_port, proxied
from proxy.stub import Line, engine, headers
from service.running import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
GOOD = f"00-{TRACE}-b7ad6b7169203331-01".encode()


def test_the_trace_passes_from_the_proxy_to_the_service_unchanged(tmp_path):
    with (
        engine() as stub,
        socket.create_server(("127.0.0.1", 0)) as listener,
        proxied(tmp_path, stub.port, listener.getsockname()[1]) as proxy,
    ):
        listener.settimeout(10)
        line = Line(socket.create_connection(("127.0.0.1", proxy.port)))
        head = b"POST /shop/_search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%bContent-Length: 43\r\n\r\n"
        body = b'{"query": {"match": {"title": "boots"}   }}'
        assert len(body) == 43
        line.socket.sendall(head % b"traceparent: %b\r\n" % GOOD + body)
        peer = Line(listener.accept()[0])
        asked = peer.message()[0]
        while asked.startswith(b"GET /readyz "):  # the look of the start
            peer.close()
            peer = Line(listener.accept()[0])
            asked = peer.message()[0]
        assert headers(asked)["traceparent"] == GOOD.decode()
        peer.socket.sendall(b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n")
        line.message(answer=True)
        assert headers(stub.seen[-1][0])["traceparent"] == GOOD.decode()  # and to the engine
        line.socket.sendall(head % b"" + body)
        assert "traceparent" not in headers(peer.message()[0])
        peer.socket.sendall(b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n")
        line.message(answer=True)
        line.close()
        peer.close()


def test_it_is_in_the_log_lines_of_the_request_and_of_no_other(clients, tmp_path):
    with proxied(tmp_path, free_port()) as proxy:
        assert clients(proxy.port).call("GET", "/x", traceparent=GOOD.decode()).status == 502
        said = {one.get("status"): one for one in map(json.loads, proxy.stderr().splitlines())}
        assert said[502]["trace"] == TRACE
    with engine() as stub, proxied(tmp_path, stub.port) as proxy:
        line = Line(socket.create_connection(("127.0.0.1", proxy.port)))
        line.socket.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nTraceparent: %b\r\n\r\n" % GOOD)
        assert line.message(answer=True)[0].startswith(b"HTTP/1.1 200")
        line.socket.sendall(b"GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
        assert line.message(answer=True)[0].startswith(b"HTTP/1.1 421")
        line.close()
        until(lambda: '"status":421' in proxy.stderr())
        said = {one.get("status"): one for one in map(json.loads, proxy.stderr().splitlines())}
        assert "trace" not in said[421]  # on the same connection
