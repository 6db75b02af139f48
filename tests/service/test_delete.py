"""Deletion for good: durable when answered, no trace in the store's files, nothing brought back by late clicks."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time

import pytest
from click.testing import CliRunner
from service.running import Gone, Http, Running, running, until

from swerve.cli import app
from swerve.service.config.settings import settings_in
from swerve.service.secrets import new_key
from swerve.service.verify import MEANING
from swerve.serving.replay import Replay
from swerve.store.journal import tail
from swerve.store.verify import verify

ADA, SHOP = new_key("ada"), new_key("shop", ("rank", "feedback"))
CONFIG = {
    "security": {"api_keys": [{"name": k.name, "hash": k.hash, "scopes": list(k.scopes)} for k in (ADA.entry, SHOP.entry)]},
    "store": {"store_queries": True, "flush_seconds": 0.2},
    "policy": {"slots": 3},
    "namespaces": {"toys": {}},
    "feedback": {"steady_seconds": 30.0},
}  # fmt: skip
SECRET, RESULT = "zebra crossing 4711", "candidate-quagga-0815"
OFFER = ["plain-a", RESULT, "plain-b"]


def traces(service: Running, *needles: str) -> list[str]:
    """The needles that the raw bytes of the store's files contain."""
    raw = b"".join(path.read_bytes() for path in service.state.rglob("*") if path.is_file())
    raw += b"".join(block.content for block in tail(service.state / "swerve.db.journal"))
    return [needle for needle in needles if needle.encode() in raw]


def delete(client: Http, **what):
    answer = client.call("POST", "/v1/delete", what)
    assert answer.status == 200, answer
    return answer.json


def fill(client: Http, count: int = 40) -> None:
    """Other queries around it, with other candidates, so that pages are split and moved."""
    for number in range(count):
        answer = client.rank(f"other query {number}", [f"other-{number}-{arm}" for arm in range(1 + number % 8)]).json
        client.feedback(answer["decision"], answer["ranking"][0])


def clicked(client: Http, query: str = SECRET, offer: list[str] = OFFER, **more) -> dict:
    answer = client.rank(query, offer, **more).json
    client.feedback(answer["decision"], answer["ranking"][0])
    return answer


def test_a_query_is_gone_from_the_raw_files(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        for number in range(30):
            clicked(shop, session=f"s{number}")
            fill(shop, 3)
        open_decision = shop.rank(SECRET, OFFER, session="late").json["decision"]
        fill(shop)
        assert traces(service, SECRET, RESULT) == [SECRET, RESULT]
        assert delete(ada, query=f" {SECRET.upper()} ") == {"queries": 1, "results": 0}
        assert traces(service, SECRET, RESULT) == []  # at once, while the service runs
        assert ada.query(SECRET).status == 404
        assert SECRET not in ada.call("GET", "/v1/queries?limit=1000").body.decode()
        # a late click, by name and by position, on the short and the long way, brings nothing back
        for event in ({"kind": "click", "result": RESULT}, {"kind": "click", "position": 1}):
            assert shop.events(open_decision, event).json == {"status": "expired"}
        batch = [{"decision": open_decision, "events": [{"kind": "click", "result": RESULT}]}] * 2
        assert [one["status"] for one in shop.call("POST", "/v1/feedback/batch", batch).json] == ["expired"] * 2
        assert ada.query(SECRET).status == 404 and traces(service, SECRET, RESULT) == []
        assert delete(ada, query=SECRET) == {"queries": 0, "results": 0}
        service.kill()
        assert traces(service, SECRET, RESULT) == []
        service.start()
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        assert shop.events(open_decision, {"kind": "click", "result": RESULT}).json == {"status": "expired"}
        assert ada.query(SECRET).status == 404
        change = next(c for c in ada.call("GET", "/v1/audit").json["changes"] if c["what"] == "delete")
        assert change["by"] == "ada" and change["query"].startswith("key:") and SECRET not in json.dumps(change)
        # asked again, it starts fresh, with a page of its own
        answer = shop.rank(SECRET, OFFER, session="s1").json
        assert ada.query(SECRET).json["requests"] == 1
        assert shop.feedback(answer["decision"], answer["ranking"][0]).json["status"] in ("learned", "ignored")
        assert shop.events(open_decision, {"kind": "click", "result": RESULT}).json == {"status": "expired"}
        assert service.stop() == 0
        assert verify(service.database, MEANING).ok


def test_an_experiment_forgets_the_line_of_a_query(tmp_path):
    config = {**CONFIG, "experiment": {"name": "spring", "treated": 0.5, "visit_seconds": 0.1}}
    with running(tmp_path, config) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        for number in range(40):
            clicked(shop, session=f"s{number}")

        def lines() -> list[dict]:
            shop.rank("other", ["a"])  # visits are judged by the way
            return ada.call("GET", "/v1/experiments").json["queries"]

        until(lines)
        (line,) = lines()
        assert line["query"] == SECRET
        counted = f'"{line["name"]}":'  # the audit names the deletion in another form
        until(lambda: traces(service, counted) == [counted])
        delete(ada, query=SECRET)
        assert lines() == [] and traces(service, counted) == []
        assert ada.call("GET", "/v1/experiments").json["arms"]["treated"]["searches"] > 0


def test_a_result_is_gone_from_one_query_or_from_all(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        for number in range(12):
            clicked(shop, f"query {number}", [*OFFER, f"x{number}"])
        clicked(shop, "query 1", namespace="toys")
        fill(shop)
        decision = shop.rank("query 3", OFFER).json["decision"]
        unwritten = shop.rank("a new one", OFFER).json["decision"]
        before = ada.query("query 3").json
        assert delete(ada, query="query 2", result=RESULT) == {"queries": 0, "results": 1}
        assert RESULT not in ada.query("query 2").body.decode() and RESULT in ada.query("query 3").body.decode()
        assert delete(ada, result=RESULT, namespace="toys") == {"queries": 0, "results": 1}
        assert RESULT not in ada.call("GET", "/v1/queries/query%201?namespace=toys").body.decode()
        assert RESULT in ada.query("query 1").body.decode()
        assert delete(ada, result=RESULT)["results"] == 12
        assert traces(service, RESULT) == []
        after = ada.query("query 3").json
        others = [arm for arm in before["arms"] if arm["id"] != RESULT]
        assert sorted(after["arms"], key=str) == sorted(others, key=str) and after["requests"] == before["requests"]
        assert shop.events(decision, {"kind": "click", "result": RESULT}).json == {"status": "ignored"}
        assert shop.events(unwritten, {"kind": "click", "result": RESULT}).json == {"status": "ignored"}
        both = shop.events(decision, {"kind": "click", "result": RESULT}, {"kind": "click", "result": "plain-a"})
        assert both.status == 200 and {arm["id"]: arm["clicks"] for arm in ada.query("query 3").json["arms"]}["plain-a"] >= 1
        time.sleep(0.5)  # everything is written
        assert traces(service, RESULT) == []
        assert RESULT not in ada.call("GET", "/v1/audit").body.decode()
        assert ada.call("GET", "/v1/audit").json["changes"][0]["result"].startswith("hash:")
        service.kill()
        service.start()
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        assert traces(service, RESULT) == [] and RESULT not in ada.query("query 5").body.decode()
        assert shop.events(decision, {"kind": "click", "result": RESULT}).json["status"] in ("ignored", "late")
        time.sleep(0.5)
        assert traces(service, RESULT) == []
        assert shop.rank("query 5", OFFER).json["ranking"]  # offered again, it starts fresh
        assert {arm["id"]: arm["plays"] for arm in ada.query("query 5").json["arms"]}[RESULT] <= 1
        assert service.stop() == 0
        assert verify(service.database, MEANING).ok


def test_rules_and_the_audit_keep_nothing_of_it(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        clicked(shop)
        on_query = ada.call("POST", "/v1/rules", {"kind": "off", "query": SECRET, "note": f"{SECRET} is odd"}).json
        on_result = ada.call("POST", "/v1/rules", {"kind": "block", "result": RESULT}).json
        ada.call("POST", f"/v1/queries/{SECRET.replace(' ', '%20')}/shift", {})
        for what, rule in (({"query": SECRET}, on_query), ({"result": RESULT}, on_result)):
            refused = ada.call("POST", "/v1/delete", what)
            assert refused.status == 409 and f"ids {rule['id']}" in refused.json["error"]["message"]
            ada.call("DELETE", f"/v1/rules/{rule['id']}")
            delete(ada, **what)
        assert traces(service, SECRET, RESULT) == []
        changes = ada.call("GET", "/v1/audit").json["changes"]
        assert [c["what"] for c in changes] == ["delete", "remove", "delete", "remove", "shift", "set", "set"]
        assert not {SECRET, RESULT} & set(json.dumps(changes).split('"'))
        assert changes[1]["before"]["result"].startswith("hash:") and changes[3]["before"]["query"].startswith("key:")


def test_it_needs_the_scope_and_something_to_delete(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        assert shop.call("POST", "/v1/delete", {"query": "q"}).json["error"]["code"] == "scope"
        for body, field in (
            ({}, "query"), ({"locale": "de", "result": "a"}, "locale"), ({"query": ""}, "query"), ({"result": ""}, "result"),
            ({"quary": "x"}, "quary"), ({"result": "x" * 300}, "result"),
        ):  # fmt: skip
            answer = ada.call("POST", "/v1/delete", body)
            assert answer.status == 422 and answer.json["error"]["field"] == field, body
        away = service.state.rename(service.folder / "away")
        until(lambda: ada.call("POST", "/v1/delete", {"query": "q"}).status == 503)
        away.rename(service.state)
        until(lambda: ada.call("POST", "/v1/delete", {"query": "q"}).status == 200)


def test_another_reader_of_the_file_delays_the_answer(tmp_path):
    """While another program reads, the log cannot be emptied: the answer is 503, and the deletion can be sent again."""
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        clicked(shop)
        with contextlib.closing(sqlite3.connect(service.database)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM rows").fetchall()
            assert ada.call("POST", "/v1/delete", {"query": SECRET}).status == 503
            assert ada.query(SECRET).status in (404, 503)
            other.execute("ROLLBACK")
        until(lambda: ada.call("POST", "/v1/delete", {"query": SECRET}).status == 200)
        assert traces(service, SECRET, RESULT) == []


@pytest.mark.parametrize("wait", [0.0, 0.008, *(pytest.param(wait, marks=pytest.mark.slow) for wait in (0.004, 0.012, 0.02))])
def test_kill_nine_leaves_it_wholly_there_or_wholly_gone(tmp_path, wait):
    """Of a result in all queries: every query has it, or none."""
    queries = [f"query {number}" for number in range(30)]
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        for query in queries:
            clicked(shop, query)
        answers: list[int] = []

        def send() -> None:
            with contextlib.suppress(Gone):
                answers.append(ada.call("POST", "/v1/delete", {"result": RESULT}).status)

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(wait)
        service.kill()
        sender.join()
        service.start()
        ada = service.client(ADA.text)
        having = [RESULT in ada.query(query).body.decode() for query in queries]
        assert len(set(having)) == 1, having
        if answers == [200]:
            assert having[0] is False and traces(service, RESULT) == []
        deleted = [c for c in ada.call("GET", "/v1/audit").json["changes"] if c["what"] == "delete"]
        assert bool(deleted) is not having[0]


def test_under_traffic_nothing_comes_back(tmp_path):
    """Requests for the query go on while it is deleted again and again; those that came before a deletion leave no click."""
    with running(tmp_path, CONFIG) as service:
        ada = service.client(ADA.text)
        stop = threading.Event()
        statuses: set[int] = set()

        def ask() -> None:
            shop = service.client(SHOP.text)
            while not stop.is_set():
                answer = shop.rank(SECRET, OFFER)
                statuses.add(answer.status)
                if answer.json["decision"]:
                    statuses.add(shop.feedback(answer.json["decision"], answer.json["ranking"][0]).status)

        shifts: list[int] = []

        def shift() -> None:
            operator = service.client(ADA.text)
            while operator.rank("steady", OFFER).json["decision"] is None:  # not decided in time: the query has no row yet
                pass
            while not stop.is_set():
                shifts.append(operator.call("POST", "/v1/queries/steady/shift", {}).status)

        threads = [threading.Thread(target=ask) for _ in range(3)] + [threading.Thread(target=shift)]
        for thread in threads:
            thread.start()
        try:
            for number in range(30):
                delete(ada, **({"query": SECRET} if number % 2 else {"result": RESULT}))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert statuses <= {200, 503}
        delete(ada, query=SECRET)
        audit = [change["what"] for change in ada.call("GET", "/v1/audit").json["changes"]]
        assert set(shifts) <= {200, 503} and len(shifts) < 900  # the audit keeps 1,000 changes
        assert audit.count("delete") == 31 and audit.count("shift") == shifts.count(200) > 0  # none is lost to the other
        time.sleep(0.5)
        assert ada.query(SECRET).status == 404 and traces(service, SECRET) == []
        wrong = [line for line in service.stderr().splitlines() if '"level":"error"' in line and "swerve.access" not in line]
        assert not wrong, wrong
        assert service.stop() == 0
        assert verify(service.database, MEANING).ok


def test_a_recording_with_deletions_replays_to_the_same_rankings(tmp_path):
    record = tmp_path / "s" / "state" / "swerve.db.journal"
    with running(tmp_path / "s", {**CONFIG, "store": {**CONFIG["store"], "journal_days": 30}}) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        for step in range(60):
            clicked(shop, "storm" if step % 2 else "other", session=f"s{step}")
            if step % 20 == 10:
                delete(ada, query="storm")
            if step % 20 == 15:
                delete(ada, result=RESULT)
        assert service.stop() == 0
    replayed = Replay(record, lambda tables: settings_in("recording", tables)).run()
    assert (replayed.requests, replayed.same) == (60, 60)
    command = ["evaluate", str(record), "--no-forecast", "--target", "given", "--json"]
    read = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)["read"]
    assert (read["lists"], read["dropped"]) == (60, {})  # lines about deletions are no mistakes


def test_a_deletion_reaches_the_recording(tmp_path):
    record = tmp_path / "s" / "state" / "swerve.db.journal"

    def said() -> bytes:
        return b"".join(block.content for block in tail(record))

    with running(tmp_path / "s", {**CONFIG, "store": {**CONFIG["store"], "journal_days": 30}}) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        for step in range(20):
            clicked(shop, SECRET if step % 2 else "other", session=f"s{step}")
        delete(ada, result=RESULT)
        assert RESULT.encode() not in said() and SECRET.encode() in said()
        delete(ada, query=SECRET)
        assert SECRET.encode() not in said() and b"other" in said()
        for step in range(20):
            clicked(shop, "third" if step % 2 else "other", session=f"t{step}")
        assert service.stop() == 0
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in record.iterdir())
    replayed = Replay(record, lambda tables: settings_in("recording", tables)).run()
    assert (replayed.requests, replayed.same, replayed.feedback) == (40, 40, 40)


def test_everything_is_streamed_as_json_lines(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(ADA.text), service.client(SHOP.text)
        fill(shop, 250)
        clicked(shop, namespace="toys")
        shop.rank("other query 7", ["unwritten"])
        answer = ada.call("GET", "/v1/export")
        assert answer.status == 200 and answer.headers["content-type"] == "application/x-ndjson"
        *lines, end = [json.loads(line) for line in answer.body.splitlines()]
        kinds = [line["kind"] for line in lines]
        assert end == {"kind": "end", "queries": 251, "candidates": kinds.count("candidate"), "shared": 4, "damaged": 0}
        assert kinds.count("query") == 251 == len({line["key"] for line in lines if line["kind"] == "query"})
        assert "unwritten" in [line.get("id") for line in lines]  # what memory knows better than the store
        some = [json.loads(line) for line in ada.call("GET", "/v1/export?namespace=toys&brief=true").body.splitlines()]
        assert [line["kind"] for line in some] == ["query", *["candidate"] * 3, "end"] and some[0]["state"] is None
        assert shop.call("GET", "/v1/export").json["error"]["code"] == "scope"
        assert ada.call("GET", "/v1/export?all=1").status == 422
