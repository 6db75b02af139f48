"""Spans across the proxy and the service, collected by a real receiver; `traceparent` passes to the engine unchanged."""

from __future__ import annotations

import itertools
import time

import pytest
from collecting import collector
from proxy.running import free_port, proxied
from proxy.stub import engine, headers
from service.running import running, until

BODY = {"query": {"match": {"title": "secret boots"}}, "size": 4}
SPAN = "b7ad6b7169203331"


def trace_of(number: int) -> str:
    return f"{0xABC0000 + number:032x}"


def sent(number: int, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace_of(number)}-{SPAN}-{flags}"}


@pytest.fixture(scope="module")
def quartet(tmp_path_factory):
    """An engine, a service, a proxy, and the collector of both."""
    with collector() as collected, engine() as stub:
        traced = {"tracing": {"endpoint": f"http://127.0.0.1:{collected.port}"}, "log": {"access": "all"}}
        with (
            running(tmp_path_factory.mktemp("service"), traced) as service,
            proxied(tmp_path_factory.mktemp("proxy"), stub.port, service.port, traced) as proxy,
        ):
            yield stub, service, proxy, collected


def test_a_search_is_one_trace_from_the_caller_over_the_proxy_to_the_service(quartet, clients):
    stub, _, proxy, collected = quartet
    client = clients(proxy.port)
    for number in (1, 2):  # a new row, and one in memory: both ways of the service
        stub.seen.clear()
        got = client.call("POST", "/shop/_search", BODY, x_swerve_session=f"t{number}", **sent(number))
        assert "x-swerve-decision" in got.headers
        assert [headers(seen[0])["traceparent"] for seen in stub.seen] == [sent(number)["traceparent"]]  # unchanged
        until(lambda number=number: len(collected.of(trace_of(number))) == 5)
        spans = collected.of(trace_of(number))
        request = spans["swerve-proxy POST server"]
        assert request.parent == SPAN
        assert request.attributes == {
            "http.request.method": "POST", "http.response.status_code": 200, "swerve.outcome": "reranked",
        }  # fmt: skip
        asked, decided = spans["swerve-proxy engine client"], spans["swerve-proxy decide client"]
        assert (asked.parent, decided.parent) == (request.id, request.id)
        rank = spans["swerve POST /v1/rank server"]
        assert rank.parent == decided.id
        assert {"http.route": "/v1/rank", "http.response.status_code": 200}.items() <= rank.attributes.items()
        assert rank.attributes["swerve.request_id"]
        inner = spans["swerve rank internal"]
        assert inner.parent == rank.id
        outer = (request, decided, rank, inner)
        for a, b in itertools.pairwise(outer):
            assert a.begun <= b.begun <= b.ended
            assert b.begun <= a.ended
            assert b.ended <= a.ended or a.service != b.service  # the service ends its span after the answer is on its way
        assert asked.ended <= decided.begun
        assert not any(span.failed for span in spans.values())


def test_feedback_has_the_commit_inside(quartet, clients):
    _, service, _, collected = quartet
    client = service.client()
    decisions = [client.rank("secret boots", ["a", "b"], session=str(n)).json["decision"] for n in range(4)]
    click = {"decision": decisions[0], "events": [{"kind": "click", "result": "a"}]}
    assert client.call("POST", "/v1/feedback", click, sent(10)).status == 200
    batch = [{"decision": one, "events": []} for one in decisions[1:]]
    assert client.call("POST", "/v1/feedback/batch", batch, sent(11)).status == 200
    asked = {"query": "unseen boots", "shown": ["a", "b"], "events": []}
    assert client.call("POST", "/v1/observe", asked, sent(12)).status == 200
    for number, path in ((10, "feedback"), (11, "feedback/batch"), (12, "observe")):
        until(lambda number=number: len(collected.of(trace_of(number))) == 2)
        spans = collected.of(trace_of(number))
        request, commit = spans[f"swerve POST /v1/{path} server"], spans["swerve store.commit internal"]
        assert (request.parent, commit.parent) == (SPAN, request.id)
        assert request.begun <= commit.begun <= commit.ended <= request.ended


def test_what_streams_and_what_fails(quartet, clients, tmp_path):
    _, service, proxy, collected = quartet
    client = clients(proxy.port)
    assert client.call("GET", "/_cat/indices", **sent(20)).status == 200
    assert service.client().call("POST", "/v1/rank", {"query": 3}, sent(21)).status == 422
    until(lambda: len(collected.of(trace_of(20))) == 2 and len(collected.of(trace_of(21))) == 1)
    assert collected.of(trace_of(20))["swerve-proxy GET server"].attributes["swerve.outcome"] == "streamed"
    refused = collected.of(trace_of(21))["swerve POST /v1/rank server"]
    assert (refused.attributes["http.response.status_code"], refused.failed) == (422, False)
    traced = {"tracing": {"endpoint": f"http://127.0.0.1:{collected.port}/"}}
    with proxied(tmp_path, free_port(), service.port, traced) as lonely:
        assert clients(lonely.port).call("POST", "/shop/_search", BODY, **sent(23)).status == 502
        assert lonely.stop() == 0  # the last spans are sent at the stop
    spans = collected.of(trace_of(23))
    assert spans["swerve-proxy POST server"].failed and spans["swerve-proxy POST server"].attributes["error.type"] == "502"
    assert spans["swerve-proxy engine client"].attributes["error.type"] == "Away"


def test_no_span_has_the_text_of_a_query_or_a_path(quartet, clients):
    _, service, proxy, collected = quartet
    client = clients(proxy.port)
    client.call("GET", "/shop/_search?q=secret", **sent(30))
    service.client().call("GET", "/v1/queries/secret%20boots", headers=sent(31))
    until(lambda: len(collected.of(trace_of(30))) >= 2 and len(collected.of(trace_of(31))) == 1)
    assert "swerve GET /v1/queries/{query} server" in collected.of(trace_of(31))
    assert b"secret" not in collected.raw and b"shop" not in collected.raw
    assert b"POST /v1/rank" in collected.raw


def test_a_caller_that_does_not_record_is_not_recorded_and_a_malformed_one_begins_a_new_trace(quartet, clients):
    stub, service, proxy, collected = quartet
    client = clients(proxy.port)
    client.call("POST", "/shop/_search", BODY, **sent(40, "00"))
    stub.seen.clear()
    client.call("POST", "/shop/_search", BODY, traceparent="rubbish")
    assert headers(stub.seen[0][0])["traceparent"] == "rubbish"  # what the client sends passes
    stub.seen.clear()
    client.call("POST", "/shop/_search", BODY)
    assert "traceparent" not in headers(stub.seen[0][0])  # and nothing is added
    client.call("GET", "/x", **sent(41))
    until(lambda: len(collected.of(trace_of(41))) == 2)
    assert collected.of(trace_of(40)) == {}
    roots = [span for span in collected.spans if span.name == "POST" and not span.parent]
    assert len(roots) == 2
    for root in roots:
        until(lambda root=root: len(collected.of(root.trace)) == 5)
        assert f'"trace":"{root.trace}"' in service.stderr()
    assert f'"trace":"{trace_of(40)}"' in service.stderr()


def test_the_proxy_inside_the_service_decides_inside_its_trace(clients, tmp_path):
    with collector() as collected, engine() as stub:
        traced = {"endpoint": f"http://127.0.0.1:{collected.port}"}
        port = free_port()
        own = {"listen": f"127.0.0.1:{port}", "upstream": f"http://127.0.0.1:{stub.port}"}
        with running(tmp_path, {"proxy": own, "tracing": traced}):
            clients(port).call("POST", "/shop/_search", BODY, **sent(60))
            until(lambda: len(collected.of(trace_of(60))) == 3)
            spans = collected.of(trace_of(60))
            request = spans["swerve POST server"]
            assert {spans["swerve engine client"].parent, spans["swerve decide internal"].parent} == {request.id}


def test_a_collector_that_is_away_or_refuses_disturbs_nothing(tmp_path):
    with collector() as collected:
        collected.status = 503
        (tmp_path / "away").mkdir()
        for folder, port in ((tmp_path, collected.port), (tmp_path / "away", free_port())):
            traced = {"tracing": {"endpoint": f"http://127.0.0.1:{port}"}}
            with running(folder / "service", traced) as service:
                client, took = service.client(), []
                for number in range(3000):  # more than the queue of spans holds
                    answer = client.rank("boots", ["a", "b"], session=str(number))
                    assert answer.status == 200
                    took.append(answer.seconds)
                assert sorted(took)[len(took) // 2] < 0.02
                until(lambda service=service: "spans could not be sent" in service.stderr(), 30)
                started = time.perf_counter()
                assert service.stop() == 0
                assert time.perf_counter() - started < 10.0
                assert service.stderr().count("\n") < 10  # and does not fill the log


def test_a_share_of_new_traces_is_recorded(tmp_path):
    with collector() as collected:
        traced = {"tracing": {"endpoint": f"http://127.0.0.1:{collected.port}", "sample": 0.25}}
        with running(tmp_path, traced) as service:
            client = service.client()
            for number in range(400):
                client.rank("boots", ["a", "b"], session=str(number))
            assert service.stop() == 0
        share = len({span.trace for span in collected.spans}) / 400
        assert 0.12 < share < 0.38  # six standard errors


def test_the_switch_of_opentelemetry_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with collector() as collected:
        traced = {"tracing": {"endpoint": f"http://127.0.0.1:{collected.port}"}, "log": {"access": "all"}}
        with running(tmp_path, traced) as service:
            client = service.client()
            for number in range(3):
                assert client.rank("boots", ["a", "b"], session=str(number)).status == 200
            assert client.call("POST", "/v1/rank", {"query": "boots", "candidates": ["a"]}, sent(70)).status == 200
            assert service.stop() == 0
            said = service.stderr()
        assert f'"trace":"{trace_of(70)}"' in said and said.count('"trace"') == 1
        assert collected.spans == []
