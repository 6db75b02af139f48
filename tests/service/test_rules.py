"""Rules of operators over HTTP: in force with the next request, durable when answered, audited, refused with the field's name."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time

import forking
import pytest
from service.running import Http, running, until

from swerve.service.config.settings import settings_in
from swerve.service.secrets import new_key
from swerve.serving.replay import Replay

OPERATOR, SHOP = new_key("ada", ("operate", "read", "feedback")), new_key("shop", ("rank", "feedback"))
CONFIG = {
    "security": {"api_keys": [{"name": k.name, "hash": k.hash, "scopes": list(k.scopes)} for k in (OPERATOR.entry, SHOP.entry)]},
    "policy": {"slots": 3},
    "feedback": {"steady_seconds": 0.0},
}  # fmt: skip
OFFER = ["a", "b", "c", "d"]


@pytest.fixture
def shop(served) -> Http:
    return served.client(SHOP.text)


@pytest.fixture
def ada(served):
    """An operator; no rule is left after the test."""
    made = served.client(OPERATOR.text)
    yield made
    for rule in made.call("GET", "/v1/rules").json["rules"]:
        assert made.call("DELETE", f"/v1/rules/{rule['id']}").status == 200


def put(client: Http, **rule) -> dict:
    answer = client.call("POST", "/v1/rules", rule)
    assert answer.status == 200, answer
    return answer.json


def test_a_pin_holds_from_the_next_request_until_it_is_removed(shop, ada):
    rule = put(ada, kind="pin", query="Storm ", result="d", position=1, note="sponsored")
    assert (rule["kind"], rule["by"], rule["note"]) == ("pin", "ada", "sponsored")
    for _ in range(5):
        answer = shop.rank("storm", OFFER).json
        assert answer["ranking"][0] == "d" and answer["propensities"][0] == 1.0
        assert answer["ruled"] == [{"kind": "pin", "rule": rule["id"], "result": "d", "position": 1}]
        assert not answer["degraded"]
        assert shop.feedback(answer["decision"], "d").json == {"status": "ignored"}
    assert "ruled" not in shop.rank("another query", OFFER).json
    assert ada.call("DELETE", f"/v1/rules/{rule['id']}").json == rule
    assert "ruled" not in shop.rank("storm", OFFER).json
    assert ada.call("DELETE", f"/v1/rules/{rule['id']}").json["error"]["code"] == "unknown_rule"


def test_a_block_for_all_queries(shop, ada):
    put(ada, kind="block", result="b")
    for query in ("one", "two", "three"):
        answer = shop.rank(query, OFFER).json
        assert sorted(answer["ranking"]) == ["a", "c", "d"]
        assert [mark["result"] for mark in answer["ruled"]] == ["b"]
        refused = shop.feedback(answer["decision"], "b")
        assert (
            refused.status == 200 and refused.json["status"] == "ignored"
        )  # unknown to the query, so it cannot be told from an old one


def test_the_kill_switch_gives_the_given_order_and_counts_nothing(shop, ada):
    shop.rank("switched", OFFER)
    before = ada.query("switched").json
    rule = put(ada, kind="off", query="switched")
    for order in (OFFER, OFFER[::-1]):
        answer = shop.rank("switched", order).json
        assert answer["ranking"] == order and answer["decision"] is None and not answer["degraded"]
        assert answer["propensities"] == [1.0] * 3
        assert answer["ruled"] == [{"kind": "off", "rule": rule["id"]}]
    assert ada.query("switched").json == before
    everything = put(ada, kind="off")
    assert shop.rank("a query that nobody has asked", OFFER).json["ruled"] == [{"kind": "off", "rule": everything["id"]}]
    assert ada.query("a query that nobody has asked").status == 404


def test_with_the_switch_off_a_block_still_holds_and_a_pin_does_not(shop, ada):
    put(ada, kind="block", result="a")
    put(ada, kind="pin", result="d", position=1)
    assert shop.rank("both", OFFER).json["ranking"][0] == "d"
    put(ada, kind="off")
    assert shop.rank("both", OFFER).json["ranking"] == ["b", "c", "d"]


def test_parts_of_a_query_are_another_query(shop, ada):
    put(ada, kind="pin", query="boots", locale="de", result="d", position=1)
    assert shop.rank("boots", OFFER, locale="DE").json["ranking"][0] == "d"
    assert "ruled" not in shop.rank("boots", OFFER).json


def test_a_rule_expires_by_itself(shop, ada):
    put(ada, kind="pin", query="soon", result="d", position=1, until=time.time() + 1.0)
    assert shop.rank("soon", OFFER).json["ranking"][0] == "d"
    time.sleep(1.2)
    assert "ruled" not in shop.rank("soon", OFFER).json
    assert ada.call("GET", "/v1/rules").json == {"rules": []}


def test_setting_a_rule_again_replaces_it(shop, ada):
    first = put(ada, kind="pin", query="again", result="d", position=1)
    second = put(ada, kind="pin", query=" AGAIN", result="d", position=2)
    assert first["id"] == second["id"]
    assert [rule["position"] for rule in ada.call("GET", "/v1/rules").json["rules"]] == [2]
    assert shop.rank("again", OFFER).json["ranking"][1] == "d"


def test_everything_pinned_or_blocked_is_answered_without_a_decision(shop, ada):
    put(ada, kind="block", query="all", result="a")
    put(ada, kind="pin", query="all", result="b", position=2)
    put(ada, kind="pin", query="all", result="c", position=1)
    answer = shop.rank("all", ["a", "b", "c"]).json
    assert answer["ranking"] == ["c", "b"] and answer["decision"] is None and answer["propensities"] == [1.0, 1.0]
    put(ada, kind="block", query="all", result="b")
    put(ada, kind="block", query="all", result="c")
    assert shop.rank("all", ["a", "b", "c"]).json["ranking"] == []


def test_a_batch_is_its_requests_one_by_one(shop, ada):
    put(ada, kind="pin", query="x", result="d", position=2)
    put(ada, kind="block", result="c")
    put(ada, kind="off", query="y")
    asked = [{"query": query, "candidates": OFFER} for query in ("x", "y", "z", "x")]
    batch = shop.call("POST", "/v1/rank/batch", asked).json
    single = [shop.rank(one["query"], one["candidates"]).json for one in asked]
    for one, other in zip(batch, single, strict=True):
        assert one["ruled"] == other["ruled"]
        assert sorted(one["ranking"]) == sorted(other["ranking"])
        assert (one["decision"] is None) == (other["decision"] is None)
    assert [one["ranking"].index("d") for one in batch] == [1, 2, batch[2]["ranking"].index("d"), 1]


BAD = [
    ({"kind": "pin", "result": "a"}, "position", "position = None is not allowed; a rule of the kind pin must have it"),
    ({"kind": "pin", "position": 1}, "result", "result = None is not allowed"),
    ({"kind": "block", "result": "a", "position": 1}, "position", "may not have it"),
    ({"kind": "off", "result": "a"}, "result", "may not have it"),
    ({"kind": "boost", "result": "a"}, "up", "must have it"),
    ({"kind": "pin", "result": "a", "position": 0}, "position", "from 1 to 1000"),
    ({"kind": "pin", "result": "", "position": 1}, "result", "is empty"),
    ({"kind": "pin", "result": "x" * 5000, "position": 1}, "result", "characters"),
    ({"kind": "shout", "result": "a"}, "kind", "block, boost, off or pin"),
    ({"kind": "block", "result": "a", "until": 5.0}, "until", "must expire in the future"),
    ({"kind": "block", "result": "a", "until": "tomorrow"}, "until", "until"),
    ({"kind": "block", "result": "a", "locale": "de"}, "locale", "without query"),
    ({"kind": "block", "result": "a", "query": " "}, "query", "white space"),
    ({"kind": "block", "result": "a", "note": "x" * 501}, "note", "at most 500"),
    ({"kind": "block", "result": "a", "queri": "x"}, "queri", "queri"),
    ({"result": "a"}, "kind", "kind"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "field", "words"), BAD)
def test_a_wrong_rule_is_refused_with_the_name_of_its_field(ada, rule, field, words):
    answer = ada.call("POST", "/v1/rules", rule)
    assert answer.status == 422
    assert answer.json["error"]["field"] == field and words in answer.json["error"]["message"]
    assert ada.call("GET", "/v1/rules").json == {"rules": []}


def test_a_rule_that_is_none_is_refused(ada):
    for number in ("x", "-1", "1e9", "9" * 40):
        answer = ada.call("DELETE", f"/v1/rules/{number}")
        assert answer.status == 422 and answer.json["error"]["field"] == "id"
    assert ada.call("DELETE", "/v1/rules/999999").status == 404
    assert ada.call("POST", "/v1/rules", b"{").status == 400
    assert ada.call("POST", "/v1/rules", {"kind": "off"}, {"Content-Type": "text/plain"}).status == 415
    assert ada.call("GET", "/v1/audit?limit=0").json["error"]["field"] == "limit"


def test_a_rule_needs_the_scope_operate(shop, served):
    for method, path, body in (
        ("GET", "/v1/rules", None), ("POST", "/v1/rules", {"kind": "off"}), ("DELETE", "/v1/rules/1", None),
        ("GET", "/v1/audit", None),
    ):  # fmt: skip
        assert shop.call(method, path, body).json["error"]["code"] == "scope"
        assert served.client().call(method, path, body).status == 401


def test_the_audit_says_who_changed_what_and_what_was_before(shop, ada):
    first = put(ada, kind="pin", query="audited", result="d", position=1, note="one")
    second = put(ada, kind="pin", query="audited", result="d", position=2)
    ada.call("DELETE", f"/v1/rules/{second['id']}")
    shop.rank("audited", OFFER)
    shop.rank("audited", OFFER)
    assert ada.call("POST", "/v1/queries/audited/shift", {}).json == {"phase": 2}
    shift, removed, replaced, made = ada.call("GET", "/v1/audit?limit=4").json["changes"]
    assert made == {"at": first["at"], "what": "set", "by": "ada", "after": first}
    assert replaced == {"at": second["at"], "what": "set", "by": "ada", "before": first, "after": second}
    assert (removed["what"], removed["before"]) == ("remove", second) and "after" not in removed
    assert (shift["what"], shift["by"], shift["phase_before"], shift["phase_after"]) == ("shift", "ada", 1, 2)
    assert shift["query"].startswith("key:")  # the service does not keep the texts of queries
    assert len(ada.call("GET", "/v1/audit").json["changes"]) >= 4


def test_metrics_count_what_rules_do(shop, ada):
    def ruled(kind: str) -> float:
        lines = ada.call("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f'swerve_ruled_total{{kind="{kind}"}}'))

    before = ruled("boost")
    put(ada, kind="boost", result="d", up=1)
    for _ in range(3):
        shop.rank("counted", OFFER)
    assert ruled("boost") == before + 3
    assert "\nswerve_rules 1" in ada.call("GET", "/metrics").body.decode()


def test_rules_survive_kill_nine_and_restarts(tmp_path):
    """A rule that was answered is in force after the next start, and so is its removal."""
    with running(tmp_path, CONFIG) as service:
        ada = service.client(OPERATOR.text)
        put(ada, kind="block", result="a")
        gone = put(ada, kind="off")
        ada.call("DELETE", f"/v1/rules/{gone['id']}")
        pin = put(ada, kind="pin", query="storm", result="d", position=1, until=time.time() + 3600, note="x")
        service.kill()
        service.start()
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        assert [rule["kind"] for rule in ada.call("GET", "/v1/rules").json["rules"]] == ["block", "pin"]
        assert ada.call("GET", "/v1/rules").json["rules"][1] == pin
        answer = shop.rank("storm", OFFER).json
        assert answer["ranking"][0] == "d" and "a" not in answer["ranking"]
        ada.call("POST", "/v1/queries/storm/shift", {})
        service.kill()
        service.start()
        changes = service.client(OPERATOR.text).call("GET", "/v1/audit").json["changes"]
        assert [change["what"] for change in changes] == ["shift", "set", "remove", "set", "set"]
        assert put(service.client(OPERATOR.text), kind="off")["id"] == pin["id"] + 1  # ids are not given twice


def test_a_rule_is_refused_while_the_store_is_away_and_rules_hold_on_degraded_answers(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        put(ada, kind="block", result="a")
        put(ada, kind="pin", result="d", position=1)
        away = service.state.rename(service.folder / "away")
        answer = ada.call("POST", "/v1/rules", {"kind": "off"})
        assert answer.status == 503 and "retry-after" in answer.headers
        degraded = shop.rank("storm", OFFER).json
        assert degraded["degraded"] and degraded["ranking"] == ["d", "b", "c"]
        assert {mark["kind"] for mark in degraded["ruled"]} == {"pin", "block"}
        away.rename(service.state)
        deadline = time.time() + 10
        while ada.call("POST", "/v1/rules", {"kind": "off"}).status != 200:
            assert time.time() < deadline
            time.sleep(0.1)
        assert [rule["kind"] for rule in ada.call("GET", "/v1/rules").json["rules"]] == ["block", "pin", "off"]
        assert [c["after"]["kind"] for c in ada.call("GET", "/v1/audit").json["changes"]] == ["off", "pin", "block"]


def test_a_recording_with_rules_replays_to_the_same_rankings(tmp_path):
    record = tmp_path / "s" / "state" / "swerve.db.journal"
    with running(tmp_path / "s", {**CONFIG, "store": {"journal_days": 30}}) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        put(ada, kind="pin", query="storm", result="d", position=1)
        put(ada, kind="boost", result="c", up=1)
        for step in range(40):
            answer = shop.rank("storm" if step % 2 else "other", OFFER, session=f"s{step}").json
            shop.feedback(answer["decision"], answer["ranking"][step % 3])
        assert service.stop() == 0
    replayed = Replay(record, lambda tables: settings_in("recording", tables)).run()
    assert (replayed.requests, replayed.same, replayed.feedback) == (40, 40, 40)


def test_a_restored_store_brings_its_own_rules(tmp_path):
    """While the service runs: rules and audit are those of the backup, without a restart."""

    def swerve(*args: str) -> None:
        done = forking.run(sys.executable, "-m", "swerve", *args)
        assert done.returncode == 0, done.stderr

    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        put(ada, kind="block", result="a")
        swerve("backup", str(service.database), str(tmp_path / "copy.db"))
        put(ada, kind="boost", result="b", up=1)
        put(ada, kind="pin", result="d", position=1)
        swerve("restore", "--live", str(tmp_path / "copy.db"), str(service.database))
        shop.rank("storm", OFFER)  # the next write notices the other file
        until(lambda: [rule["kind"] for rule in ada.call("GET", "/v1/rules").json["rules"]] == ["block"])
        assert len(ada.call("GET", "/v1/audit").json["changes"]) == 1
        until(lambda: not shop.rank("storm", OFFER).json["degraded"])
        answer = shop.rank("storm", OFFER).json
        assert [mark["kind"] for mark in answer["ruled"]] == ["block"]


def test_a_damaged_record_of_the_rules_is_told_and_loses_nothing_else(tmp_path):
    with running(tmp_path, CONFIG) as service:
        put(service.client(OPERATOR.text), kind="block", result="a")
        answer = service.client(SHOP.text).rank("storm", OFFER).json
        service.client(SHOP.text).feedback(answer["decision"], answer["ranking"][0])
        assert service.stop() == 0
        with contextlib.closing(sqlite3.connect(service.database)) as file, file:
            assert file.execute("UPDATE groups SET record = x'00' WHERE name = 'rules'").rowcount == 1
        service.start()
        ada = service.client(OPERATOR.text)
        assert ada.call("GET", "/v1/rules").json == {"rules": []}
        assert "rules must be set again" in service.stderr()
        assert len(ada.call("GET", "/v1/audit").json["changes"]) == 1  # it says what is lost
        assert ada.query("storm").json["requests"] == 1
