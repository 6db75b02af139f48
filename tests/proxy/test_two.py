"""The proxy and the service as two processes: either may die, and searches go on."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
from proxy.running import proxied, served
from proxy.stub import Client, Line, engine
from service.running import running, until

BODY = {"query": {"match": {"title": "boots"}}, "size": 4}
ENGINE_ORDER = ["d0", "d1", "d2", "d3"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """An engine, a service and a proxy."""
    with engine() as stub, running(tmp_path_factory.mktemp("service")) as service:
        changes = {"proxy": {"rules": [{"window": 8}]}}
        with proxied(tmp_path_factory.mktemp("proxy"), stub.port, service.port, changes) as proxy:
            yield stub, service, proxy


def ask(client: Client, session: str = "s", first: int = 0):
    return client.call("POST", "/shop/_search", {**BODY, "from": first}, x_swerve_session=session)


def test_a_service_at_an_address_decides(pair, clients):
    _, service, proxy = pair
    client = clients(proxy.port)
    got = ask(client, "two")
    assert got.json["ext"]["swerve"]["decision"] == got.headers["x-swerve-decision"]
    assert service.client().feedback(got.headers["x-swerve-decision"], got.ids[0]).json["status"] == "learned"
    assert not set(ask(client, "two", 4).ids) & set(got.ids)


def test_killing_the_service_breaks_no_search_and_its_return_is_noticed(pair, clients):
    stub, service, proxy = pair
    client, direct = clients(proxy.port), clients(stub.port)
    assert "x-swerve-decision" in ask(client, "before").headers
    slowest = 0.0
    service.kill()
    for number in range(30):
        started = time.perf_counter()
        got = ask(client, f"k{number}")
        slowest = max(slowest, time.perf_counter() - started)
        plain = direct.call("POST", "/shop/_search", BODY)
        assert got.head + got.raw == plain.head + plain.raw  # Swerve adds nothing
    assert slowest < 1.0
    for first in (2, 6):  # a page of the window: the engine's order, cut
        ours = client.call("POST", "/shop/_search", {**BODY, "from": first}, x_swerve_session="cut").json
        assert ours == direct.call("POST", "/shop/_search", {**BODY, "from": first}).json
    assert ask(client, "before", 4).headers["x-swerve-decision"]  # a further page needs no service
    service.start("--port", str(service.port))
    until(lambda: "x-swerve-decision" in ask(client, f"n{time.monotonic()}").headers, 10)


def test_a_service_that_hangs_costs_the_deadline_and_then_nothing(pair, clients, tmp_path):
    stub, _, _ = pair
    with socket.create_server(("127.0.0.1", 0), backlog=64) as hanging:
        changes = {"proxy": {"deadline_ms": 50.0}}
        with proxied(tmp_path, stub.port, hanging.getsockname()[1], changes) as proxy:
            client, took = clients(proxy.port), []
            for number in range(10):
                started = time.perf_counter()
                assert ask(client, f"h{number}").ids == ENGINE_ORDER
                took.append(time.perf_counter() - started)
            assert max(took) < 0.5
            assert min(took[5:]) < 0.04  # the service is left alone for a second


def test_a_service_that_answers_rubbish_decides_nothing(pair, clients, tmp_path):
    stub, _, _ = pair
    answers = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 106\r\n\r\n"
        b'{"decision":"x","ranking":["d1","other"],"propensities":null,"explored":null,"phase":null,"degraded":false}',
    ]

    def serve(listener: socket.socket) -> None:
        left = list(answers)
        while left:
            sock, _ = listener.accept()
            line = Line(sock)
            if line.message()[0].startswith(b"POST "):  # not the look of the start
                sock.sendall(left.pop(0))
            line.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        with proxied(tmp_path, stub.port, listener.getsockname()[1]) as proxy:
            client = clients(proxy.port)
            for number in range(len(answers)):
                assert ask(client, f"r{number}").ids == ENGINE_ORDER


def test_an_engine_that_closes_idle_connections_is_asked_again(pair, clients):
    stub, _, proxy = pair
    client = clients(proxy.port)
    for number in range(5):
        assert client.call("GET", "/x").status == 200
        assert ask(client, f"i{number}").status == 200
        for line in list(stub.lines):
            line.socket.shutdown(socket.SHUT_RDWR)
        stub.lines.clear()


def test_what_meets_a_closing_connection_is_sent_again_if_that_is_safe(pair, clients):
    stub, _, proxy = pair
    client = clients(proxy.port)
    for method, path, body, status in (
        ("GET", "/x", None, 200),
        ("POST", "/shop/_search", {**BODY, "from": 1}, 200),
        ("POST", "/shop/_search", {**BODY, "sort": ["price"]}, 200),
        ("POST", "/shop/_bulk", b"{}\n", 502),
    ):
        assert client.call("GET", "/x").status == 200  # the connection to the engine was used before
        stub.broken.add("closing")
        got = client.call(method, path, body, x_case="closing", x_swerve_session="closing")
        assert (got.status, stub.broken) == (status, set())


def test_a_client_that_goes_away_ends_the_engines_search(pair):
    stub, _, proxy = pair
    stub.prepared["long"] = [5.0]
    line = Line(socket.create_connection(("127.0.0.1", proxy.port)))
    before = set(stub.lines)
    line.socket.sendall(b"GET /_slow HTTP/1.1\r\nHost: localhost\r\nX-Case: long\r\n\r\n")
    time.sleep(0.3)
    busy = [one for one in stub.lines if one not in before] or list(stub.lines)
    assert not any(map(ended, busy))
    line.close()
    until(lambda: any(map(ended, busy)), 3)
    assert [ended(one) for one in busy] == [True]


def ended(line: Line) -> bool:
    """Return whether the other side has closed the connection, without reading from it."""
    readable, _, _ = select.select([line.socket], [], [], 0)
    return bool(readable) and line.socket.recv(1, socket.MSG_PEEK) == b""


def test_open_requests_finish_when_the_proxy_stops(pair, tmp_path):
    stub, _, _ = pair
    stub.prepared["last"] = [0.6, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast"]
    with proxied(tmp_path, stub.port) as proxy:
        line = Line(socket.create_connection(("127.0.0.1", proxy.port)))
        line.socket.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-Case: last\r\n\r\n")
        time.sleep(0.2)
        stopping = threading.Thread(target=proxy.stop)
        stopping.start()
        assert line.message(answer=True)[2] == b"last"
        stopping.join()
        line.close()


def test_what_is_wrong_before_the_start_is_told_in_one_line(pair, tmp_path):
    stub, _, proxy = pair
    for changes, told in (
        (
            {"listen": f"127.0.0.1:{proxy.port}"},
            "--listen 127.0.0.1:0 takes any free one; or `swerve serve` already runs the proxy",
        ),
        ({"metrics": f"127.0.0.1:{proxy.port}"}, "proxy.metrics names another port"),
        ({"listen": "127.0.0.1:9", "upstream": "http://localhost:9"}, "proxy.upstream = 'http://localhost:9' is where the proxy"),
        ({"listen": "0.0.0.0:9", "upstream": "http://127.0.0.1:9/"}, "is where the proxy itself listens"),
        ({"listen": "127.0.0.1:9", "service": "http://127.0.0.1:9"}, "proxy.service = 'http://127.0.0.1:9' is where the proxy"),
        ({"upstream": ""}, "there is no engine: set proxy.upstream"),
        ({"api_key_file": "/nowhere"}, "proxy.api_key_file = '/nowhere' cannot be read"),
        ({"upstream": "https://127.0.0.1", "ca_file": "/nowhere"}, "cannot be used"),
    ):
        with pytest.raises(AssertionError) as error, proxied(tmp_path, stub.port, changes={"proxy": changes}):
            pass
        assert told in str(error.value)


def test_a_service_whose_proxy_cannot_listen_does_not_start(pair, tmp_path):
    stub, _, proxy = pair
    own = {"listen": f"127.0.0.1:{proxy.port}", "upstream": f"http://127.0.0.1:{stub.port}"}
    told = r"the service ended with 2: swerve: cannot listen on .*; proxy.listen names another port; or `swerve proxy` already runs"
    with pytest.raises(AssertionError, match=told), running(tmp_path, {"proxy": own}):
        pass


def test_more_connections_than_allowed_are_told_so(pair, tmp_path):
    stub, _, _ = pair
    with proxied(tmp_path, stub.port, changes={"limits": {"connections": 2}}) as proxy:
        lines = [Line(socket.create_connection(("127.0.0.1", proxy.port))) for _ in range(2)]
        for line in lines:
            line.socket.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line.message(answer=True)[0].startswith(b"HTTP/1.1 200")
        third = Line(socket.create_connection(("127.0.0.1", proxy.port)))
        assert third.message(answer=True)[0].startswith(b"HTTP/1.1 503")
        third.close()
        lines.pop().close()

        def free() -> bool:
            line = Line(socket.create_connection(("127.0.0.1", proxy.port)))
            line.socket.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status = line.message(answer=True)[0][9:12]
            line.close()
            return status == b"200"

        until(free, 5)
        lines.pop().close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl: there is no certificate to test with")
def test_an_engine_with_tls_is_checked_and_served(pair, clients, tmp_path):
    _, service, _ = pair
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with engine(tls=context) as secure:
        own = {"upstream": f"https://127.0.0.1:{secure.port}", "ca_file": str(certificate)}
        (tmp_path / "trusting").mkdir()
        with proxied(tmp_path / "trusting", secure.port, service.port, {"proxy": own}) as proxy:
            client = clients(proxy.port)
            assert client.call("GET", "/x").status == 200
            assert "x-swerve-decision" in client.call("POST", "/shop/_search", {**BODY, "size": 8}).headers
        (tmp_path / "wary").mkdir()
        with proxied(tmp_path / "wary", secure.port, service.port, {"proxy": {"upstream": own["upstream"]}}) as proxy:
            assert clients(proxy.port).call("GET", "/x").status == 502  # nobody vouches for the certificate


def test_a_service_with_the_proxy_inside_stops_in_order(pair, clients, tmp_path):
    stub, _, _ = pair
    stub.prepared["end"] = [0.6, b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nend"]
    with served(tmp_path, stub.port, []) as made:
        idle = clients(made.proxy)
        assert "x-swerve-decision" in ask(idle).headers
        line = Line(socket.create_connection(("127.0.0.1", made.proxy)))
        line.socket.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-Case: end\r\n\r\n")
        time.sleep(0.2)
        ended: list[int] = []
        started = time.perf_counter()
        stopping = threading.Thread(target=lambda: ended.append(made.stop()))
        stopping.start()
        assert line.message(answer=True)[2] == b"end"
        stopping.join()
        line.close()
        assert ended == [0] and time.perf_counter() - started < 5.0
        assert "stopped: everything is written" in made.said_last
