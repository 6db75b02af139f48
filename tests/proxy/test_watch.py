"""The metrics of a proxy in a process of its own: on another port than the clients', with the names of the one-process form."""

from __future__ import annotations

import re
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families
from proxy.running import free_port, proxied
from proxy.stub import Client, Line, engine
from service.running import until

from swerve.proxy.watch import MOST
from swerve.service.metrics import Metrics

BODY = {"query": {"match": {"title": "boots"}}, "size": 4}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """An engine, a proxy whose service is away, and the port of its metrics."""
    port = free_port()
    own = {"metrics": f"127.0.0.1:{port}", "hosts": ["search"]}
    with engine() as stub, proxied(tmp_path_factory.mktemp("watched"), stub.port, changes={"proxy": own}) as proxy:
        yield stub, proxy, port


def figures(port: int) -> dict[str, float]:
    client = Client(port)
    got = client.call("GET", "/metrics")
    client.close()
    assert got.status == 200
    families = text_string_to_metric_families(got.raw.decode())
    return {"".join([one.name, *one.labels.values()]): one.value for family in families for one in family.samples}


def test_what_passed_is_counted_under_the_names_of_the_one_process_form(watched, clients):
    _, proxy, port = watched
    before, client = figures(port), clients(proxy.port)
    assert client.call("GET", "/x").status == 200
    assert client.call("POST", "/shop/_search", BODY).status == 200  # the service is away: the engine's order
    refused = Line(socket.create_connection(("127.0.0.1", proxy.port)))
    refused.socket.sendall(b"GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
    assert refused.message(answer=True)[0].startswith(b"HTTP/1.1 421")
    after = figures(port)
    name = "swerve_proxy_requests_total"
    assert {key.removeprefix(name): after[key] - before[key] for key in after if key.startswith(name)} == {
        "streamed": 1, "reranked": 0, "engine_order": 1, "unreadable": 0, "refused": 1, "failed": 0,
    }  # fmt: skip
    assert after["swerve_proxy_connections"] >= 1
    assert after["swerve_start_time_seconds"] > 1e9
    text = clients(port).call("GET", "/metrics").raw.decode()
    declared = set(re.findall(r"^# (?:HELP|TYPE) .*$", text, re.M))
    assert len(declared) == 6
    assert declared <= set(Metrics().render().decode().splitlines())  # and no figure of a service that is not here, such as `ready`
    refused.close()


def test_the_port_of_the_clients_belongs_to_the_engine_and_the_other_one_does_not(watched, clients):
    stub, proxy, port = watched
    for path in ("/metrics", "/healthz"):
        stub.seen.clear()
        clients(proxy.port).call("GET", path)
        assert len(stub.seen) == 1
    stub.seen.clear()
    client = clients(port)
    assert client.call("GET", "/healthz").json == {"status": "ok"}
    assert client.call("GET", "/shop/_search").status == 404
    assert client.call("GET", "/").status == 404
    assert client.call("GET", "/metrics?x=1").status == 200
    assert stub.seen == []


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n", b"421"),
        (b"GET /metrics HTTP/1.1\r\nHost: search:9281\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nHost: 10.1.2.3:9281\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.1\r\nHost: anything\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", b"405"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"rubbish\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 70_000, b"400"),
    ],
)
def test_what_it_answers_to_other_names_and_to_rubbish(watched, request_, status):
    line = Line(socket.create_connection(("127.0.0.1", watched[2])))
    line.socket.sendall(request_)
    assert line.message(answer=True)[0][9:12] == status
    line.close()


def test_head_has_no_body_and_the_connection_is_kept(watched):
    line = Line(socket.create_connection(("127.0.0.1", watched[2])))
    for _ in range(2):
        line.socket.sendall(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.message(answer=True, head_only=True)[0].startswith(b"HTTP/1.1 200")
        assert line.message(answer=True)[2] == b'{"status":"ok"}'
    line.close()


def test_many_connections_take_nothing_from_the_clients(watched, clients):
    _, proxy, port = watched
    until(lambda: figures(port)["swerve_proxy_connections"] == 0, 5)
    lines = [Line(socket.create_connection(("127.0.0.1", port))) for _ in range(MOST + 1)]
    assert lines[-1].message(answer=True)[0].startswith(b"HTTP/1.1 503")
    assert clients(proxy.port).call("GET", "/x").status == 200
    for line in lines:
        line.close()

    def free() -> bool:
        line = Line(socket.create_connection(("127.0.0.1", port)))
        line.socket.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status = line.message(answer=True)[0][9:12]
        line.close()
        return status == b"200"

    until(free, 5)


def test_a_port_that_is_taken_is_told(watched, tmp_path):
    stub, proxy, _ = watched
    own = {"metrics": f"127.0.0.1:{proxy.port}"}
    with (
        pytest.raises(AssertionError, match=r"cannot listen on 127\.0\.0\.1"),
        proxied(tmp_path, stub.port, changes={"proxy": own}),
    ):
        pass
