"""Documents of UBI for a search engine: what arrives there, and what happens while it is slow, away or refuses."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from service.running import Running, running, until
from service.test_ubi import event

from swerve.service import forwarding
from swerve.service.forwarding import Forwarder
from swerve.service.metrics import Metrics

SECRET = "ApiKey c2VjcmV0OnNlY3JldA=="


class Engine:
    """A search engine's `_bulk` route; `answer` may be changed."""

    def __init__(self) -> None:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                engine.seen.append((self.path, dict(self.headers), body))
                status, said = engine.answer(body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *words: Any) -> None: ...

        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: Callable[[bytes], tuple[int, bytes]] = lambda body: (200, b'{"errors": false, "items": []}')
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def documents(self) -> list[tuple[str, Any]]:
        """Return all documents that came, each with its index."""
        lines = [json.loads(line) for _, _, body in self.seen for line in body.decode().splitlines()]
        return [(action["index"]["_index"], document) for action, document in zip(lines[::2], lines[1::2], strict=True)]


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.server.shutdown()
    made.server.server_close()


def outcomes(metrics: Metrics) -> dict[str, float]:
    return {values[0]: member.value for values, member in metrics.forwarded.members.items() if member.value}


def test_everything_is_forwarded_as_it_came_and_the_secret_is_not_logged(tmp_path, engine: Engine, monkeypatch):
    monkeypatch.setenv("SWERVE_UBI_AUTHORIZATION", f"{SECRET}\n")
    changes = {"ubi": {"enabled": True, "forward": f"{engine.url}/prefix/"}, "log": {"level": "debug"}}
    with running(tmp_path, changes) as service:
        client = service.client()
        ranked = client.rank("q", ["a", "b"], query_id="some").json
        click = event("some", object={"object_id": ranked["ranking"][0]})
        others = [event("some", "on_search"), {"anything": ["é\n", 1, None, {"deep": 1.5}]}]
        query = {"query_id": "some", "user_query": "q", "query_response_hit_ids": ["a", "b"]}
        assert client.call("POST", "/ubi_events", [click, *others, 7]).status == 204
        assert client.call("POST", "/ubi_queries", query).status == 204
        assert client.clicks("q") == {ranked["ranking"][0]: 1}
        until(lambda: len(engine.documents()) == 4)
        assert engine.documents() == [("ubi_events", one) for one in (click, *others)] + [("ubi_queries", query)]
        assert {path for path, _, _ in engine.seen} == {"/prefix/_bulk"}
        assert {headers["Authorization"] for _, headers, _ in engine.seen} == {SECRET}
        assert forwarded(service, "forwarded") == 4.0
        engine.answer = lambda body: (401, b"who are you")
        client.call("POST", "/ubi_queries", query)
        until(lambda: forwarded(service, "failed") == 1.0)
        assert service.stop() == 0
        said = service.stderr()
        assert "does not take documents" in said and "HTTP 401" in said
        assert "c2VjcmV0" not in said and engine.url not in said


def forwarded(service: Running, outcome: str) -> float:
    text = service.client().call("GET", "/metrics").body.decode()
    found = re.search(rf'^swerve_ubi_forwarded_total{{outcome="{outcome}"}} (\S+)$', text, re.M)
    return float(found[1]) if found else 0.0


def test_a_slow_engine_keeps_nobody_waiting(tmp_path, engine: Engine):
    def slowly(body: bytes) -> tuple[int, bytes]:
        time.sleep(1.0)
        return 200, b"{}"

    engine.answer = slowly
    with running(tmp_path, {"ubi": {"enabled": True, "forward": engine.url}}) as service:
        client = service.client()
        assert max(client.call("POST", "/ubi_events", [{"number": number}]).seconds for number in range(20)) < 0.5
        assert service.stop() == 0  # a stop sends what waits
    assert [document["number"] for _, document in engine.documents()] == list(range(20))
    assert len(engine.seen) <= 3  # together


def test_a_failure_is_tried_again_and_a_refusal_is_not(engine: Engine, monkeypatch):
    monkeypatch.setattr(forwarding, "WAITS", (0.01, 0.01))
    metrics = Metrics()
    sender = Forwarder(engine.url, "", metrics)
    left = [503, 429]
    engine.answer = lambda body: (
        (left.pop(), b"") if left else (200, b'{"items": [{"index": {"status": 201}}, {"index": {"status": 400}}]}')
    )
    sender.put("ubi_events", [{"a": 1}, {"a": 2}])
    until(lambda: outcomes(metrics) == {"forwarded": 1.0, "rejected": 1.0})
    assert len(engine.seen) == 3 and len({body for _, _, body in engine.seen}) == 1
    engine.answer = lambda body: (400, b"")
    sender.put("ubi_events", [{"a": 3}])
    until(lambda: outcomes(metrics).get("failed") == 1.0)
    assert len(engine.seen) == 4
    engine.answer = lambda body: (500, b"")
    sender.put("ubi_events", [{"a": 4}])
    until(lambda: outcomes(metrics).get("failed") == 2.0)
    assert len(engine.seen) == 7
    engine.answer = lambda body: (200, b"rubbish")
    sender.put("ubi_events", [{"a": 5}])
    until(lambda: outcomes(metrics).get("forwarded") == 2.0)
    sender.stop(2.0)
    sender.put("ubi_events", [{"a": 6}])
    assert outcomes(metrics)["dropped"] == 1.0


def test_while_the_engine_is_away_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(forwarding, "MOST_WAITING", 10_000)
    monkeypatch.setattr(forwarding, "WAITS", (30.0, 30.0))
    metrics = Metrics()
    sender = Forwarder("http://127.0.0.1:9", "", metrics)
    started = time.perf_counter()
    for number in range(1000):
        sender.put("ubi_events", [{"number": number, "text": "x" * 100}])
    assert sum(map(len, sender._waiting)) == sender._size <= 10_000
    assert outcomes(metrics)["dropped"] > 800
    sender.stop(5.0)  # ends the wait for the next try
    assert time.perf_counter() - started < 5.0


@pytest.mark.parametrize("address", ["ftp://a", "http://user:secret@engine", "engine:9200", "http://engine/?x=1"])
def test_the_address_has_a_form(address: str):
    from swerve.service.config.load import ConfigError, resolve
    from swerve.service.config.toml import Document

    with pytest.raises(ConfigError, match="without a user") as refused:
        resolve(Document("test", {"ubi": {"forward": address}}, {}))
    assert "secret" not in str(refused.value)
