"""What the proxy sends the service, what it learns from a refusal, and what its log says when the service decides nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import pytest
from proxy.running import free_port, proxied
from proxy.stub import Client, Line, encoded, engine
from service.running import Running, running, until

WINDOW = 8  # the candidates that the small service takes


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """An engine and a service with User Behavior Insights and a narrow namespace."""
    changes = {"ubi": {"enabled": True}, "namespaces": {"narrow": {"candidates": 3}}, "log": {"level": "info"}}
    with engine() as stub, running(tmp_path_factory.mktemp("service"), changes) as service:
        yield stub, service


def search(text: str, **more: Any) -> dict[str, Any]:
    return {"query": {"match": {"title": text}}, **more}


def lines(proxy: Running, word: str) -> list[dict[str, Any]]:
    """Return the lines of a log whose message has a word."""
    found = [json.loads(line) for line in proxy.stderr().splitlines() if line.startswith("{")]
    return [line for line in found if word in line["message"]]


def refused(service: Running) -> list[dict[str, Any]]:
    """Return the access lines of refused requests for a ranking."""
    return [line for line in lines(service, "request") if line.get("status") == 422 and line["route"] == "rank"]


LOG = {"log": {"format": "json", "level": "info"}}


def test_the_window_shrinks_to_what_the_service_takes(parts, clients, tmp_path):
    stub, service = parts
    changes = {**LOG, "policy": {"arms": 64}}  # its window is 50, the service takes 8 candidates
    with proxied(tmp_path, stub.port, service.port, changes) as proxy:
        client = clients(proxy.port)
        assert (
            "x-swerve-decision" not in client.call("POST", "/shop/_search", search("wide", size=20), x_swerve_session="w").headers
        )
        for number in range(5):
            got = client.call("POST", "/shop/_search", search("wide", size=20), x_swerve_session=f"w{number}")
            assert got.headers["x-swerve-decision"]
            assert sorted(got.ids[:WINDOW]) == [f"d{n}" for n in range(WINDOW)]
            assert got.ids[WINDOW:] == [f"d{n}" for n in range(WINDOW, 20)]  # the rest as given
        (told,) = lines(proxy, "window")
        assert (told["level"], told["window"], told["limit"]) == ("warning", 50, WINDOW)


def test_a_refusal_has_the_limit_and_its_access_line_the_code(parts):
    _, service = parts
    many = [f"d{n}" for n in range(WINDOW + 1)]
    answer = service.client().rank("many", many)
    assert (answer.status, answer.json["error"]["code"], answer.json["error"]["limit"]) == (422, "too_many", WINDOW)
    assert service.client().rank("many", many[:5], namespace="narrow").json["error"]["limit"] == 3
    batch = service.client().call("POST", "/v1/rank/batch", [{"query": "many", "candidates": many}]).json
    assert [one["error"]["limit"] for one in batch] == [WINDOW]
    until(lambda: len(refused(service)) >= 2, 5)
    assert {line["code"] for line in refused(service)} == {"too_many"}


def test_the_window_of_a_namespace_shrinks_alone(parts, clients, tmp_path):
    stub, service = parts
    rules = [{"name": "narrow", "indices": ["narrow"], "namespace": "narrow", "window": 8}, {"name": "wide", "window": 8}]
    with proxied(tmp_path, stub.port, service.port, {**LOG, "proxy": {"rules": rules}}) as proxy:
        client = clients(proxy.port)
        for number in range(2):
            narrow = client.call("POST", "/narrow/_search", search("both"), x_swerve_session=f"n{number}")
        assert narrow.headers["x-swerve-decision"] and narrow.ids[3:] == [f"d{n}" for n in range(3, 10)]
        wide = [client.call("POST", "/shop/_search", search("both"), x_swerve_session=f"w{number}").ids for number in range(12)]
        assert any(ids[3:] != [f"d{n}" for n in range(3, 10)] for ids in wide)
        assert [(one["window"], one["limit"]) for one in lines(proxy, "window")] == [(8, 3)]


def test_a_click_of_ubi_finds_the_decision_of_a_search_through_the_proxy(parts, clients, tmp_path):
    stub, service = parts
    own = {"rules": [{"window": 8, "strip": ["ext.ubi"]}]}
    with proxied(tmp_path, stub.port, service.port, {"proxy": own}) as proxy:
        ubi = {"query_id": "ubi-out", "client_id": "someone", "user_query": "clicked by ubi"}
        got = clients(proxy.port).call("POST", "/shop/_search", search("x", size=8, ext={"ubi": ubi}))
        assert got.json["ext"]["swerve"]["query_id"] == "ubi-out"
        event = {"action_name": "click", "query_id": "ubi-out", "event_attributes": {"object": {"object_id": got.ids[0]}}}
        assert service.client().call("POST", "/ubi_events", event).status < 300
        until(lambda: service.client().clicks("clicked by ubi") == {got.ids[0]: 1}, 5)


def test_inside_the_service_ubi_finds_the_decision_and_a_narrow_namespace_is_learnt(clients, tmp_path):
    port = free_port()
    with engine() as stub:
        rules = [{"window": 8, "strip": ["ext.ubi"], "namespace": "narrow"}]
        own = {"listen": f"127.0.0.1:{port}", "upstream": f"http://127.0.0.1:{stub.port}", "rules": rules, "deadline_ms": 500.0}
        changes = {"ubi": {"enabled": True}, "namespaces": {"narrow": {"candidates": 3}}, "proxy": own, **LOG}
        with running(tmp_path, changes) as service:
            client = clients(port)
            ubi = {"query_id": "ubi-in", "client_id": "someone", "user_query": "inside"}
            assert "x-swerve-decision" not in client.call("POST", "/shop/_search", search("x", ext={"ubi": ubi})).headers
            got = client.call("POST", "/shop/_search", search("x", ext={"ubi": ubi}))
            assert got.headers["x-swerve-decision"] and got.ids[3:] == [f"d{n}" for n in range(3, 10)]
            assert [(one["window"], one["limit"]) for one in lines(service, "window")] == [(8, 3)]
            event = {"action_name": "click", "query_id": "ubi-in", "event_attributes": {"object": {"object_id": got.ids[0]}}}
            assert service.client().call("POST", "/ubi_events", event).status == 204
            counted = 'swerve_beacons_total{route="ubi_events",outcome="learned"} 1'
            until(lambda: counted in service.client().call("GET", "/metrics").body.decode(), 5)


@pytest.mark.parametrize("odd", ["", "x" * 5000, "\0"])
def test_a_query_id_that_no_service_takes_hinders_no_decision(parts, clients, tmp_path, odd):
    stub, service = parts
    own = {"rules": [{"window": 8, "strip": ["ext.ubi"]}]}
    with proxied(tmp_path, stub.port, service.port, {"proxy": own}) as proxy:
        ubi = {"query_id": odd, "client_id": "someone"}
        assert "x-swerve-decision" in clients(proxy.port).call("POST", "/shop/_search", search("odd", ext={"ubi": ubi})).headers


def test_a_policy_that_is_switched_off_is_told_in_the_answer(parts, clients, tmp_path):
    stub, service = parts
    rule = service.client().call("POST", "/v1/rules", {"kind": "off", "query": "switched"}).json
    try:
        with proxied(tmp_path, stub.port, service.port, {"proxy": {"rules": [{"window": 8}]}}) as proxy:
            client = clients(proxy.port)
            for first in (0, 4):
                got = client.call("POST", "/shop/_search", search("switched", size=4, **{"from": first}), x_swerve_session="off")
                assert got.json["ext"] == {"swerve": {"decision": None, "rule": "default"}}
                assert "x-swerve-decision" not in got.headers and got.ids == [f"d{n}" for n in range(first, first + 4)]
    finally:
        service.client().call("DELETE", f"/v1/rules/{rule['id']}")


def ask(client: Client, session: object) -> Any:
    return client.call("POST", "/shop/_search", search("told", size=4), x_swerve_session=f"{session}")


def test_the_log_says_when_nothing_is_decided_and_when_it_is_again(clients, tmp_path):
    with engine() as stub, running(tmp_path / "service") as service:
        changes = {**LOG, "proxy": {"rules": [{"window": 8}]}}
        with proxied(tmp_path / "proxy", stub.port, service.port, changes) as proxy:
            client = clients(proxy.port)
            assert "x-swerve-decision" in ask(client, "before").headers
            assert not lines(proxy, "decide")
            service.kill()
            for number in range(20):
                ask(client, number)
            (told,) = lines(proxy, "nothing is decided")
            assert told["level"] == "warning" and told["reason"] == "the service cannot be reached"
            service.start("--port", str(service.port))
            until(lambda: "x-swerve-decision" in ask(client, time.monotonic()).headers, 10)
            (again,) = lines(proxy, "decides again")
            assert again["level"] == "info" and again["undecided"] >= 20
            assert len(lines(proxy, "nothing is decided")) <= 2  # it may have been seen starting


@pytest.mark.parametrize(
    ("status", "code"), [(401, "unauthorized"), (403, "scope"), (404, "no_route"), (421, "host"), (422, "odd")]
)
def test_refusals_are_told_with_code_and_message_and_never_with_the_key(clients, tmp_path, status, code):
    body = encoded({"error": {"code": code, "message": "for a good reason: swv_secret", "request_id": "r"}})
    key = tmp_path / "key"
    key.write_text("swv_secret\n")
    said = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)
    with engine() as stub, refusing(said) as port:
        changes = {**LOG, "proxy": {"api_key_file": str(key)}}
        with proxied(tmp_path, stub.port, port, changes) as proxy:
            for number in range(3):
                ask(clients(proxy.port), number)
            (told,) = lines(proxy, "nothing is decided")
            assert (told["status"], told["code"]) == (status, code) and "for a good reason" in told["said"]
            assert "swv_secret" not in proxy.stderr()


def test_a_slow_service_is_told_as_one(clients, tmp_path):
    with engine() as stub, socket.create_server(("127.0.0.1", 0), backlog=64) as hanging:
        changes = {**LOG, "proxy": {"deadline_ms": 20.0}}
        with proxied(tmp_path, stub.port, hanging.getsockname()[1], changes) as proxy:
            for number in range(4):
                ask(clients(proxy.port), number)
            (told,) = lines(proxy, "nothing is decided")
            assert told["reason"] == "the service took longer than proxy.deadline_ms = 20"


class refusing:  # noqa: N801 - a context
    """A port that gives every request the same answer."""

    def __init__(self, said: bytes) -> None:
        self.said, self.listener = said, socket.create_server(("127.0.0.1", 0), backlog=64)

    def __enter__(self) -> int:
        threading.Thread(target=self._accept, daemon=True).start()
        return int(self.listener.getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        line = Line(sock)
        try:
            while True:
                line.message()
                sock.sendall(self.said)
        except (EOFError, OSError):
            line.close()

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def test_the_service_is_looked_for_at_the_start(parts, tmp_path):
    stub, service = parts
    for name, port, told in (
        ("away", free_port(), "does not answer"),
        ("engine", stub.port, "no Swerve"),
        ("service", service.port, None),
    ):
        with proxied(tmp_path / name, stub.port, port, LOG) as proxy:
            if told is not None:
                until(lambda proxy=proxy, told=told: lines(proxy, told), 10)
                (line,) = lines(proxy, told)
                assert line["level"] == "warning" and line["service"] == f"http://127.0.0.1:{port}"
            else:
                until(lambda proxy=proxy: lines(proxy, "the service answers"), 10)
                assert not [line for line in lines(proxy, "") if line["level"] == "warning"]
