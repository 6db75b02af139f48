"""An orderly stop: requests under way are answered, all changes are written, and the next start sees them."""

from __future__ import annotations

import http.client
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing

import pytest
from service.running import Gone, Running

CANDIDATES = ["a", "b", "c"]
WRITTEN = "stopped: everything is written"
#: Changes by `rank` are not written before the stop.
CONFIG = {"store": {"flush_seconds": 60.0}, "server": {"drain_seconds": 2.0}}


def state(service: Running, names: list[str]) -> list[dict[str, object]]:
    client = service.client()
    return [client.query(name).json for name in names]


def test_what_rank_changed_is_written_at_the_end(served):
    """After the restart every count of shows is exact."""
    names = [f"query {number}" for number in range(300)]  # more than one batch
    client = served.client()
    for name in names:
        for _ in range(2):
            assert not client.rank(name, CANDIDATES).json["degraded"]
    assert client.call("POST", "/v1/queries/query%201/shift", {}).json == {"phase": 2}
    before = state(served, names)
    assert served.stop() == 0
    assert served.said_last[-1] == WRITTEN
    assert sorted(path.name for path in served.state.iterdir()) == [
        "swerve.db", "swerve.db.journal", "swerve.db.journal.lock", "swerve.db.lock", "swerve.db.secrets",
    ]  # fmt: skip
    served.start()
    assert state(served, names) == before
    assert sum(arm["plays"] for one in before for arm in one["arms"]) == 3 * 600  # a page shows all three


def test_under_load_nothing_that_was_taken_goes_unanswered(served):
    clicks: Counter[str] = Counter()
    cut: list[str] = []
    unsure: list[tuple[str, str]] = []
    guard = threading.Lock()

    def work() -> None:
        client = served.client()
        while True:
            try:
                answer = client.rank("q", CANDIDATES).json
            except Gone as gone:
                # a connection may be closed between two requests, but not within an answer
                if isinstance(gone.__cause__, http.client.IncompleteRead):
                    cut.append(repr(gone.__cause__))
                return
            if answer["degraded"]:
                continue
            event = (answer["decision"], answer["ranking"][0])
            try:
                said = client.feedback(*event)
            except Gone:
                with guard:
                    unsure.append(event)
                return
            with guard:
                if said.status == 200:
                    clicks[event[1]] += 1
                else:
                    unsure.append(event)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    served.child.send_signal(signal.SIGINT)
    assert served.wait() == 0
    for thread in threads:
        thread.join()
    assert not cut
    assert served.said_last[-1] == WRITTEN
    assert sum(clicks.values()) > 20
    client = served.start().client()
    for token, top in unsure:  # refused or never read: sent again, the token counts once
        assert client.feedback(token, top).status == 200
        clicks[top] += 1
    assert client.clicks("q") == dict(clicks)


def test_a_request_under_way_is_answered(served):
    """The head arrives before the signal, the body after it."""
    body = b'{"query": "under way", "candidates": ["a", "b"]}'
    head = f"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(head.encode())
        time.sleep(0.2)
        served.child.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", served.port), timeout=5).close()  # no new connection is served
        connection.sendall(body)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"degraded":false' in answer
    assert served.wait() == 0
    assert served.start().client().query("under way").json["requests"] == 1


def test_a_store_that_is_locked_for_a_moment_at_the_end_gets_everything(served):
    served.client().rank("locked", CANDIDATES)
    with closing(sqlite3.connect(served.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        served.child.send_signal(signal.SIGTERM)
        time.sleep(0.6)
        other.execute("ROLLBACK")
    assert served.wait() == 0
    assert served.said_last[-1] == WRITTEN
    assert served.start().client().query("locked").json["requests"] == 1


def test_a_store_that_stays_away_is_not_called_written(served):
    served.client().rank("away", CANDIDATES)
    served.state.rename(served.state.with_name("away"))
    assert served.stop() != 0
    assert served.said_last[-1] != WRITTEN
    assert "unwritten" in served.stderr()
