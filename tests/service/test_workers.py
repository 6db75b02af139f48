"""Several workers serve one port: whoever is asked, the worker that has the query answers."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import forking
import pytest
from service.crewed import Crewed, crewed
from service.running import Http, running, until
from service.test_kill import CANDIDATES, QUERIES, Ledger

SEEDED = {"policy": {"seed": 7}}


@pytest.fixture(scope="module")
def crew(tmp_path_factory):
    with crewed(tmp_path_factory.mktemp("crew"), 3, {"limits": {"batch": 50}}) as made:
        yield made


def sequence(clients: list[Http], seed: int) -> list[object]:
    """Rank and click by turns through these connections; return what was answered."""
    draw, said = random.Random(seed), []
    for number in range(60):
        client = clients[number % len(clients)]
        query = draw.choice(QUERIES)
        answer = client.rank(query, CANDIDATES, locale="de" if number % 3 else None).json
        ranking = answer["ranking"]
        status = client.feedback(answer["decision"], ranking[draw.randrange(3)]).json["status"]
        state = client.call("GET", "/v1/queries/" + query.replace(" ", "%20")).json if number % 10 == 0 else {}
        said.append((ranking, answer["propensities"], answer["phase"], answer["degraded"], status, state.get("requests")))
    return said


def test_every_answer_is_that_of_the_worker_that_has_the_query(tmp_path):
    with running(tmp_path, SEEDED) as alone:
        wanted = sequence([alone.client()], 1)
    for workers in (2, 3):
        with crewed(tmp_path / str(workers), workers, SEEDED) as crew:
            assert sequence(crew.clients, 1) == wanted
            answers = [client.rank("query 0", ["a", "b"]) for client in crew.each()]
            assert len({answer.headers["swerve-partition"] for answer in answers}) == 1
            assert crew.service.stop() == 0


def test_batches_are_divided_and_put_together(crew: Crewed):
    client = crew.clients[0]
    entries = [{"query": f"batch {number}", "candidates": ["a", "b", "c"]} for number in range(20)]
    entries[3] = {"query": "", "candidates": ["a"]}
    entries[5] = {"query": "batch 5", "candidates": "no list"}
    for _ in range(2):
        answers = client.call("POST", "/v1/rank/batch", entries).json
        assert [at for at, answer in enumerate(answers) if "error" in answer] == [3, 5]
        assert answers[3]["error"]["field"] == "query"
        good = [answer for answer in answers if "error" not in answer]
        assert not any(answer["degraded"] for answer in good)
        clicks = [{"decision": answer["decision"], "events": [{"kind": "click", "result": "b"}]} for answer in good]
        clicks.insert(2, {"decision": "x" * 132, "events": []})
        said = crew.clients[1].call("POST", "/v1/feedback/batch", clicks).json
        assert said[2]["error"]["code"] == "forged"
        assert [one.get("status") for one in said if "error" not in one] == ["learned"] * 18
    for number in (0, 1, 19):
        assert crew.clients[2].clicks(f"batch {number}") == {"b": 2}
    assert client.call("POST", "/v1/rank/batch", entries * 3).status == 422
    assert client.call("POST", "/v1/rank/batch", b'[{"query": "a"').status == 400


def test_rules_are_in_force_everywhere_when_they_are_answered(crew: Crewed):
    for setter in crew.each():
        rule = setter.call("POST", "/v1/rules", {"kind": "pin", "result": "c", "position": 1, "query": "ruled"}).json
        for client in crew.each():
            assert client.rank("ruled", ["a", "b", "c"]).json["ranking"][0] == "c"
            assert client.call("GET", "/v1/rules").json["rules"] == [rule]
            assert client.call("GET", "/v1/audit").json["changes"][0]["after"] == rule
        assert setter.call("DELETE", f"/v1/rules/{rule['id']}").status == 200
        for client in crew.each():
            assert client.call("GET", "/v1/rules").json["rules"] == []
    off = crew.clients[2].call("POST", "/v1/rules", {"kind": "off"}).json
    for client in crew.each():
        assert client.rank("anything", ["a", "b"]).json["decision"] is None
    crew.clients[1].call("DELETE", f"/v1/rules/{off['id']}")


def test_an_operators_shift_reaches_the_query_and_the_audit(crew: Crewed):
    owner = crew.owner("shifting")
    asked = crew.clients[(owner + 1) % 3]
    assert asked.call("POST", "/v1/queries/shifting/shift", {}).json == {"phase": 2}

    def noted() -> bool:
        return any(change["what"] == "shift" for change in crew.clients[0].call("GET", "/v1/audit").json["changes"])

    assert until(noted) < 2.0


def test_deletions_reach_all_workers(crew: Crewed):
    for number in range(6):
        answer = crew.clients[0].rank(f"deleted {number}", ["gone", "kept"]).json
        assert crew.clients[1].feedback(answer["decision"], "gone").json == {"status": "learned"}
    assert crew.clients[2].call("POST", "/v1/delete", {"query": "deleted 0"}).json == {"queries": 1, "results": 0}
    assert crew.clients[1].query("deleted 0").status == 404
    assert crew.clients[1].call("POST", "/v1/delete", {"result": "gone"}).json["results"] == 5
    for number in range(1, 6):
        assert [arm["id"] for arm in crew.clients[0].query(f"deleted {number}").json["arms"]] == ["kept"]
    lines = crew.clients[0].call("GET", "/v1/export?brief=true").body.splitlines()
    assert not any(b'"gone"' in line for line in lines)
    changes = crew.clients[0].call("GET", "/v1/audit").json["changes"]
    assert [change["what"] for change in changes[:2]] == ["delete", "delete"]


def test_what_concerns_all_queries_has_them_all(crew: Crewed):
    for number in range(8):
        answer = crew.clients[number % 3].rank(f"listed {number}", ["a", "b"]).json
        crew.clients[(number + 1) % 3].feedback(answer["decision"], "a")
    for client in crew.each():
        keys = [line["key"] for line in client.call("GET", "/v1/queries?limit=100").json["queries"]]
        assert len(keys) == len(set(keys)) >= 8
        *lines, end = map(json.loads, client.call("GET", "/v1/export?brief=true").body.splitlines())
        assert sorted({line["key"] for line in lines if line["kind"] == "query"}) == sorted(keys)
        assert end["kind"] == "end" and end["queries"] == len(keys) and end["damaged"] == 0
        metrics = client.call("GET", "/metrics").body.decode()
        for worker in range(3):
            assert f'swerve_worker_up{{worker="{worker}"}} 1' in metrics
            assert f'swerve_ready{{worker="{worker}"}} 1' in metrics
        assert metrics.count("# TYPE swerve_ready gauge") == 1
        assert client.call("GET", "/healthz").json == {"status": "ok"}


def test_an_arrow_stream_is_divided_too(crew: Crewed):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"query": [f"arrow {number}" for number in range(9)], "candidates": [["a", "b"]] * 9})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    answer = crew.clients[0].call("POST", "/v1/rank/batch", sink.getvalue().to_pybytes(), headers)
    found = pa.ipc.open_stream(answer.body).read_all()
    assert found.num_rows == 9 and not any(found["degraded"].to_pylist()) and all(found["decision"].to_pylist())


def test_a_worker_that_dies_is_missed_for_a_moment_and_nothing_is_lost(tmp_path):
    """kill -9 under load: no acknowledged click is lost or doubled, rankings go on within their deadline, and it is back soon."""
    with crewed(tmp_path, 2, {"server": {"deadline_ms": 200.0}}) as crew:
        ledger, ended, slow, failures = Ledger(), threading.Event(), list[float](), list[BaseException]()
        degraded, queries = 0, [*crew.queries_of(0, 2), *crew.queries_of(1, 3)]

        def load(seed: int) -> None:
            nonlocal degraded
            draw = random.Random(seed)
            client = crew.service.client()
            client.port = crew.ports  # the worker that lives
            try:
                while not ended.is_set():
                    query = draw.choice(queries)
                    answer = client.rank(query, CANDIDATES)
                    assert answer.status == 200
                    slow.append(answer.seconds)
                    if answer.json["degraded"]:
                        degraded += 1
                        time.sleep(0.01)
                    else:
                        ledger.send(client, query, answer.json["decision"], answer.json["ranking"][0])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=load, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        killed = crew.pids()[1]
        os.kill(killed, signal.SIGKILL)
        foreign = queries[-1]
        back = until(lambda: crew.pids()[1] != killed, 30.0)
        until(lambda: not crew.clients[0].rank(foreign, CANDIDATES).json["degraded"])
        time.sleep(0.3)
        ended.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert degraded > 0
        print(f"back after {back:.2f} s, {degraded} rankings in the given order, slowest {max(slow):.3f} s")
        client = crew.clients[0]
        waiting, ledger.unanswered = ledger.unanswered, []
        for event in waiting:
            ledger.send(client, *event)
        assert not ledger.unanswered
        assert {(q, name): n for q in queries for name, n in client.clicks(q).items()} == dict(ledger.clicks)
        assert sorted(slow)[int(len(slow) * 0.99)] < 1.0  # the deadline, and a busy machine
        assert crew.service.stop() == 0


def test_feedback_for_a_worker_that_is_away_is_to_be_sent_again(tmp_path):
    with crewed(tmp_path, 2) as crew:
        (query,) = crew.queries_of(1, 1)
        answer = crew.clients[0].rank(query, CANDIDATES).json
        os.kill(crew.pids()[1], signal.SIGSTOP)
        try:
            given = crew.clients[0].call("POST", "/v1/rank", {"query": query, "candidates": CANDIDATES})
            assert given.json["degraded"] and given.json["ranking"] == CANDIDATES and given.seconds < 10.0
            metrics = crew.clients[0].call("GET", "/metrics", timeout=30.0).body.decode()
            assert 'swerve_degraded_total{worker="0",reason="owner"} 1' in metrics
            assert 'swerve_worker_up{worker="1"} 0' in metrics
            until(lambda: crew.clients[0].call("GET", "/healthz").json == {"status": "ok", "away": [1]})
            assert crew.clients[0].call("GET", "/healthz").seconds < 0.5  # a probe waits for nobody
        finally:
            os.kill(crew.pids()[1], signal.SIGKILL)
        refused = crew.clients[0].feedback(answer["decision"], answer["ranking"][0])
        assert refused.status in (200, 503)
        if refused.status == 503:
            assert refused.headers["retry-after"] == "1"
        known = {"status": "learned"}, {"status": "late"}  # late where the show was lost
        until(lambda: crew.clients[0].feedback(answer["decision"], answer["ranking"][0]).json in known, 30.0)
        assert crew.clients[0].clicks(query) == {answer["ranking"][0]: 1}


def test_a_worker_that_was_away_gets_what_operators_have_set(tmp_path):
    with crewed(tmp_path, 2) as crew:
        before = crew.pids()[1]
        os.kill(before, signal.SIGKILL)
        rule = {"kind": "pin", "result": "b", "position": 1, "query": "later"}
        assert crew.clients[0].call("POST", "/v1/rules", rule).status == 200
        until(lambda: crew.pids()[1] != before, 30.0)
        assert crew.clients[1].rank("later", ["a", "b"]).json["ranking"] == ["b", "a"]


def test_a_worker_that_cannot_start_again_says_why_until_it_can(tmp_path):
    with crewed(tmp_path, 2) as crew:
        (query,) = crew.queries_of(1, 1)
        answer = crew.clients[0].rank(query, ["a", "b"]).json
        assert crew.clients[0].feedback(answer["decision"], "a").status == 200
        log, away = crew.service.state / "swerve.db.1-of-2.journal", tmp_path / "away"
        log.rename(away)
        killed = crew.pids()[1]
        os.kill(killed, signal.SIGKILL)

        def told() -> list[str]:
            lines = map(json.loads, crew.service.stderr().splitlines())
            return [line["why"] for line in lines if line["message"].startswith("a worker has died") and "why" in line]

        until(lambda: bool(told()), 30.0)
        assert "swerve.db.1-of-2.journal" in told()[0] and "put it back" in told()[0]
        assert crew.clients[0].rank(query, ["a", "b"]).json["degraded"]
        away.rename(log)
        until(lambda: crew.pids()[1] != killed, 60.0)
        assert crew.clients[0].clicks(query) == {"a": 1}


def test_a_start_without_a_way_to_serve_ends_with_its_reason(tmp_path):
    with running(tmp_path) as service:
        service.stop()
        service.configure({"server": {"workers": 2}})
        (service.state / "swerve.db.secrets").chmod(0o644)
        with pytest.raises(AssertionError, match=r"can be read by others .*chmod 600"):
            service.start()
        service.kill()
        (service.state / "swerve.db.secrets").chmod(0o600)
        service.start()
        assert service.stop() == 0


@pytest.mark.parametrize("setting", ["SWERVE__SERVER__CREW_ADDRESS=127.0.0.1:8351", "SWERVE__STORE__SHARES=2"])
def test_what_is_for_stores_on_a_server_is_refused_with_one_in_files(tmp_path, setting):
    name, _, value = setting.partition("=")
    done = forking.run(sys.executable, "-m", "swerve", "serve", "--port", "0", "--store", str(tmp_path / "s.db"), **{name: value})
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and "is for a store on a server" in line
    assert not (tmp_path / "s.db").exists()


STOPPED_AT_ONCE = """
import os, sys, time
from pathlib import Path
from swerve.service.config.load import resolve
from swerve.service.config.toml import Document
from swerve.service.http.supervisor import Supervisor

class Sleeping(Supervisor):
    def _work(self, child, told):
        time.sleep(60.0)
        return ""

supervisor = Sleeping(resolve(Document("", {}, {})), 0, Path(sys.argv[1]), None, False, 1)
(child,) = supervisor.children
with supervisor._signals():
    for _ in range(20):
        supervisor._start(child)
        supervisor._stop()
        print(os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))
        supervisor._drain(child)
"""


def test_a_worker_that_is_stopped_in_the_moment_of_its_start_ends(tmp_path):
    (tmp_path / "stopped.py").write_text(STOPPED_AT_ONCE)
    done = forking.run(sys.executable, str(tmp_path / "stopped.py"), str(tmp_path), timeout=50.0)
    assert done.stdout.split() == ["-15"] * 20, done.stderr


def live(client: Http, query: str = "") -> dict[str, dict[str, object]]:
    """Read the live stream until a sample and, with a query, its state have come; return them."""
    path = f"/v1/live?query={query}" if query else "/v1/live"
    found: dict[str, dict[str, object]] = {}
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10.0)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        event = ""
        while not {"sample", "query"} <= {*found, *(() if query else ("query",))}:
            line = answer.readline().decode()
            if line.startswith("event: "):
                event = line.removeprefix("event: ").strip()
            elif line.startswith("data: ") and event in ("sample", "query"):
                found[event] = json.loads(line.removeprefix("data: "))
    finally:
        connection.close()
    return found


def test_the_live_page_shows_all_workers(crew: Crewed):
    for number in range(6):
        crew.clients[0].rank(f"live {number}", ["a", "b"])
    decisions = sum(
        float(line.rpartition(" ")[2])
        for line in crew.clients[0].call("GET", "/metrics").body.decode().splitlines()
        if line.startswith("swerve_decisions_total")
    )
    for client in crew.each():
        until(lambda client=client: live(client)["sample"]["decisions"] == decisions)
        for number in (crew.clients.index(client),):
            assert live(client, f"live%20{number}")["query"]["state"]["requests"] == 1


def test_an_experiment_counts_over_all_workers(crew: Crewed):
    setter = crew.clients[1]
    assert setter.call("PUT", "/v1/experiments", {"name": "half", "treated": 0.5}).json["running"]
    for number in range(30):
        answer = crew.clients[number % 3].rank(f"tried {number % 7}", ["a", "b"], session=f"s{number}").json
        assert answer["arm"] in ("treated", "control")
        crew.clients[(number + 1) % 3].feedback(answer["decision"], answer["ranking"][0])

    def counted() -> bool:
        reports = [client.call("GET", "/v1/experiments").json for client in crew.each()]
        totals = [[report["arms"][arm] for arm in ("treated", "control")] for report in reports]
        return all(sum(arm["searches"] for arm in arms) == 30 == sum(arm["clicks"] for arm in arms) for arms in totals)

    until(counted)
    assert crew.clients[2].call("PUT", "/v1/experiments", {"name": ""}).json == {"running": False}
    until(lambda: all("arm" not in client.rank("tried 1", ["a", "b"]).json for client in crew.each()))


def test_a_rate_holds_over_all_workers(tmp_path):
    with crewed(tmp_path, 2, {"limits": {"rate": 20.0, "burst": 20}}) as crew:
        until(lambda: sum(client.rank("fast", ["a"]).status == 429 for client in crew.each()) == 2)
        started, taken = time.monotonic(), 0
        while time.monotonic() - started < 4.0:
            taken += sum(client.rank("fast", ["a"]).status == 200 for client in crew.each())
            time.sleep(0.005)
        assert taken < 20.0 * 4.0 * 1.6  # both together; each alone would take as many


def test_a_collectors_click_finds_its_decision_at_any_worker(tmp_path):
    with crewed(tmp_path, 2, {"ubi": {"enabled": True}}) as crew:
        for number in range(4):
            crew.clients[0].rank(f"collected {number}", ["a", "b"], query_id=f"id-{number}")
            event = {"action_name": "click", "query_id": f"id-{number}", "event_attributes": {"object": {"object_id": "b"}}}
            assert crew.clients[1].call("POST", "/ubi_events", [event]).status == 204
            assert crew.clients[0].clicks(f"collected {number}") == {"b": 1}


@pytest.mark.slow
def test_what_one_worker_learns_the_others_know(tmp_path):
    """What policies learn over all queries is the same in all workers, a moment later."""
    with crewed(tmp_path, 2, {"policy": {"spec": "swerve", "slots": 3}}) as crew:
        for number in range(80):
            answer = crew.clients[0].rank(f"shared {number % 8}", ["a", "b", "c"], session=f"s{number}").json
            crew.clients[0].feedback(answer["decision"], answer["ranking"][0])

        def shared(client: Http) -> object:
            (line,) = (line for line in exported(client) if line["kind"] == "shared" and line["name"] == "policy")
            state = line["state"].items()
            return {name: rounded(value) for name, value in state if ".classifier." not in name}  # each has boxes of its own

        def rounded(value: Any) -> Any:
            return [rounded(one) for one in value] if isinstance(value, list) else round(float(value or 0.0), 9)

        def exported(client: Http) -> list[dict[str, Any]]:
            return [json.loads(line) for line in client.call("GET", "/v1/export").body.splitlines()]

        def requests(client: Http) -> float:
            return next(float(line["state"]["requests"]) for line in exported(client) if line["name"] == "season")

        until(lambda: [requests(client) for client in crew.each()] == [80.0, 80.0])
        assert shared(crew.clients[0]) == shared(crew.clients[1])
