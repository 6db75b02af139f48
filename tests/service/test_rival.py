"""An experiment whose control arm has a policy: each arm has its own record of a query, and everything else reaches both."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner, Result
from service.running import Http, running, until
from service.test_experiments import CONFIG as GIVEN, OFFER, OPERATOR, SHOP, put, report
from service.test_same_kernels import stored

from swerve.cli import app
from swerve.service.config.load import ConfigError, load, policy_of, rival_of
from swerve.service.verify import MEANING
from swerve.store import open_store
from swerve.store.verify import verify

CONFIG: dict[str, dict[str, Any]] = {
    **GIVEN,
    "experiment": {"name": "rivals", "treated": 0.5, "visit_seconds": 0.3, "control": "ucb1"},
    "store": {"store_queries": True, "flush_seconds": 0.2},
    "namespaces": {"toys": {}},
}


@pytest.fixture
def shop(served) -> Http:
    return served.client(SHOP.text)


@pytest.fixture
def ada(served) -> Http:
    return served.client(OPERATOR.text)


def state(client: Http, query: str, **parts: str) -> dict[str, Any]:
    """The record of a query; `arm="control"` names that of the control arm."""
    more = "&".join(f"{name}={quote(part)}" for name, part in parts.items())
    answer = client.call("GET", f"/v1/queries/{quote(query, safe='')}?{more}")
    assert answer.status == 200, answer
    return answer.json


def counts(client: Http, query: str, what: str, **parts: str) -> dict[str, int]:
    return {arm["id"]: arm[what] for arm in state(client, query, **parts)["arms"]}


def session_in(client: Http, arm: str, name: str = "s") -> str:
    """A session of this arm."""
    found = (f"{name}{number}" for number in range(200))
    return next(one for one in found if client.rank("which arm", OFFER, session=one).json["arm"] == arm)


def swerve(*args: Any) -> Result:
    return CliRunner().invoke(app, list(map(str, args)), catch_exceptions=True)


def test_each_arm_has_its_own_policy_and_its_own_record(shop, ada):
    """UCB1 draws nothing at random and tries every result once; Thompson sampling has propensities below 1."""
    answers: dict[str, list[dict[str, Any]]] = {"treated": [], "control": []}
    clicks = {"treated": dict.fromkeys(OFFER, 0), "control": dict.fromkeys(OFFER, 0)}
    for number in range(80):
        answer = shop.rank("storm", OFFER, session=f"s{number}").json
        answers[answer["arm"]].append(answer)
        clicked = answer["ranking"][0] if number % 3 == 0 else None
        assert shop.feedback(answer["decision"], clicked).status == 200
        if clicked is not None:
            clicks[answer["arm"]][clicked] += 1
    control, treated = answers["control"], answers["treated"]
    assert len(control) > 20 and len(treated) > 20
    assert {answer["propensities"][0] for answer in control} == {1.0}
    assert [answer["ranking"][0] for answer in control[:4]] == OFFER  # each result once, before any is tried twice
    assert min(answer["propensities"][0] for answer in treated) < 1.0
    assert counts(ada, "storm", "clicks") == clicks["treated"]
    assert counts(ada, "storm", "clicks", arm="control") == clicks["control"]
    plain, rival = state(ada, "storm"), state(ada, "storm", arm="control")
    assert (plain["requests"], rival["requests"]) == (len(treated), len(control))
    assert (plain["control"], rival["control"]) == (False, True) and rival["parts"] == {"arm": "control"}
    listed = [one for one in ada.call("GET", "/v1/queries?limit=1000").json["queries"] if one["query"] == "storm"]
    assert sorted((one["control"], one["requests"]) for one in listed) == [(False, len(treated)), (True, len(control))]
    found = report(ada)
    assert found["control"] == "ucb1" and found["arms"]["control"]["clicks"] >= sum(clicks["control"].values())


def test_a_repeat_a_batch_and_the_parts_of_a_key_keep_their_arm(shop, ada):
    session = session_in(shop, "control")
    first, again = (shop.rank("steady", OFFER, session=session, locale="de", namespace="toys").json for _ in range(2))
    assert first == again and first["arm"] == "control"
    assert shop.feedback(first["decision"], first["ranking"][0]).json == {"status": "learned"}
    parts = {"locale": "de", "namespace": "toys"}
    assert counts(ada, "steady", "clicks", **parts, arm="control")[first["ranking"][0]] == 1
    assert state(ada, "steady", **parts, arm="control")["namespace"] == "toys"
    assert ada.call("GET", "/v1/queries/steady?locale=de&namespace=toys").status == 404  # the policy has not been asked
    asked = [{"query": "batch", "candidates": OFFER, "session": f"b{number}"} for number in range(40)]
    answers = shop.call("POST", "/v1/rank/batch", asked).json
    control = [answer for answer in answers if answer["arm"] == "control"]
    assert 5 < len(control) < 35 and {answer["propensities"][0] for answer in control} == {1.0}
    assert state(ada, "batch", arm="control")["requests"] == len(control)
    assert state(ada, "batch")["requests"] == 40 - len(control)
    lines = [line["name"] for line in report(ada, 1000)["segments"]]
    assert not [name for name in lines if name.startswith("arm=")]


def test_rules_hold_in_both_arms(shop, ada):
    rule = ada.call("POST", "/v1/rules", {"kind": "pin", "result": "c", "position": 1, "query": "ruled"}).json
    arms = set()
    for number in range(30):
        answer = shop.rank("ruled", OFFER, session=f"r{number}").json
        assert answer["ranking"][0] == "c" and answer["ruled"][0]["rule"] == rule["id"]
        assert shop.feedback(answer["decision"], answer["ranking"][1]).status == 200
        arms.add(answer["arm"])
    assert arms == {"treated", "control"}
    ada.call("DELETE", f"/v1/rules/{rule['id']}")


def test_a_shift_is_of_the_record_that_it_names(shop, ada):
    for number in range(20):
        shop.rank("shifting", OFFER, session=f"s{number}")
    assert shop.call("POST", "/v1/queries/shifting/shift?arm=control", {}).json == {"phase": 2}
    assert (state(ada, "shifting")["phase"], state(ada, "shifting", arm="control")["phase"]) == (1, 2)
    assert ada.call("GET", "/v1/queries/shifting?arm=treated").status == 422


def test_acknowledged_feedback_of_both_arms_survives_kill_nine_also_where_the_record_was_lost(tmp_path):
    """Rows that `rank` changed are written after a minute here: the kill loses all but what feedback has written."""
    with running(tmp_path, {**CONFIG, "store": {"store_queries": True, "flush_seconds": 60.0}}) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        kept, lost = {}, {}
        for arm in ("treated", "control"):
            session = session_in(shop, arm)
            kept[arm] = shop.rank("kept", OFFER, session=session).json
            assert shop.feedback(kept[arm]["decision"], kept[arm]["ranking"][0]).json == {"status": "learned"}
            lost[arm] = shop.rank("lost", OFFER, session=session).json
        service.kill()
        service.start()
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        for arm, parts in (("treated", {}), ("control", {"arm": "control"})):
            top = kept[arm]["ranking"][0]
            assert counts(ada, "kept", "clicks", **parts)[top] == 1 == sum(counts(ada, "kept", "clicks", **parts).values())
            assert shop.feedback(kept[arm]["decision"], top).json == {"status": "learned"}  # a repeat, which counts once
            assert counts(ada, "kept", "clicks", **parts)[top] == 1
            assert shop.feedback(lost[arm]["decision"], lost[arm]["ranking"][0]).status == 200
            assert sum(counts(ada, "lost", "clicks", **parts).values()) == 1
            assert state(ada, "lost", **parts)["control"] == bool(parts)
            again = shop.rank("lost", OFFER, session=f"again {arm}").json
            assert not again["degraded"]
        assert service.stop() == 0
        assert verify(service.database, MEANING).ok


def test_equal_policies_in_both_arms_call_no_winner(tmp_path):
    config = {**CONFIG, "experiment": {**CONFIG["experiment"], "control": "ts", "visit_seconds": 0.05}}
    with running(tmp_path, config) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        worth = dict(zip(OFFER, (0.1, 0.1, 0.2, 0.7), strict=True))
        for number in range(600):
            answer = shop.rank("same", OFFER, session=f"s{number}").json
            if (number * 0.618034) % 1.0 < worth[answer["ranking"][0]]:
                shop.feedback(answer["decision"], answer["ranking"][0])
            if number % 50 == 49:
                assert report(ada)["verdict"] == "undecided" and report(ada)["guarded"] == []
        until(lambda: report(ada)["outcomes"]["reward"]["visits"] == 600)
        found = report(ada)
        assert found["verdict"] == "undecided" and found["outcomes"]["reward"]["low"] < 0 < found["outcomes"]["reward"]["high"]
        for parts in ({}, {"arm": "control"}):  # both have learnt, each from its own clicks
            clicks = counts(ada, "same", "clicks", **parts)
            assert clicks["d"] == max(clicks.values()) > 80
        assert sum(found["arms"][arm]["clicks"] for arm in found["arms"]) == sum(
            sum(counts(ada, "same", "clicks", **parts).values()) for parts in ({}, {"arm": "control"})
        )


def test_a_recording_replays_and_builds_the_same_records_of_both_arms(tmp_path):
    recording = tmp_path / "state" / "swerve.db.journal"
    with running(tmp_path, {**CONFIG, "store": {**CONFIG["store"], "journal_days": 30}}) as service:
        shop, ada = service.client(SHOP.text), service.client(OPERATOR.text)
        for step in range(120):
            if step == 60:
                put(ada, treated=0.8)
            answer = shop.rank(("storm", "other")[step % 2], OFFER, session=f"s{step}", segment="app" if step % 5 else None).json
            shop.feedback(answer["decision"], answer["ranking"][step % 3])
        shop.rank("gone", OFFER, session=session_in(shop, "control"))
        assert ada.call("POST", "/v1/delete", {"query": "gone"}).json == {"queries": 1, "results": 0}
        assert service.stop() == 0
    secrets = service.database.with_name("swerve.db.secrets")
    done = swerve("replay", recording, "--json")
    assert done.exit_code == 0, done.output
    played = json.loads(done.output)
    assert played["requests"] == played["same"] > 120
    new = tmp_path / "new" / "swerve.db"
    new.parent.mkdir()
    assert swerve("learn", recording, "--store", new, "--secrets", secrets).exit_code == 0
    _, layouts, store = stored(service)
    other = open_store(f"sqlite:///{new}")
    try:
        keys = all_keys(service.database)
        assert sorted(keys) == sorted(all_keys(new)) and len(keys) >= 8
        rivals = 0
        for one, two in zip(store.load(keys), other.load(keys), strict=True):
            assert (one.record, one.names) == (two.record, two.names)
            rivals += layouts.shelf_of(one).rival
        assert rivals >= 4
        assert {name: record for (name, _), record in store.groups().items() if name.startswith(("control", "policy"))} == {
            name: record for (name, _), record in other.groups().items() if name.startswith(("control", "policy"))
        }
    finally:
        store.close()
        other.close()


def all_keys(database: Path) -> list[bytes]:
    with contextlib.closing(sqlite3.connect(database)) as file:
        return [key for (key,) in file.execute("SELECT key FROM rows")]


def test_export_and_deletion_reach_both_records(tmp_path):
    everything = [
        {"name": k.entry.name, "hash": k.entry.hash, "scopes": ["rank", "feedback", "read", "operate"]} for k in (OPERATOR,)
    ]
    with running(tmp_path, {**CONFIG, "security": {"api_keys": everything}}) as service:
        ada = service.client(OPERATOR.text)
        for number in range(30):
            for query in ("private", "public"):
                answer = ada.rank(query, OFFER, session=f"s{number}").json
                ada.feedback(answer["decision"], answer["ranking"][0])
        sent = {arm: ada.rank("private", OFFER, session=session_in(ada, arm)).json for arm in ("treated", "control")}
        lines = [json.loads(line) for line in ada.call("GET", "/v1/export").body.splitlines()]
        found = {(line["query"], line["control"]): line for line in lines if line["kind"] == "query"}
        assert {("private", False), ("private", True), ("public", False), ("public", True)} <= set(found)
        assert "UCB1" in found["private", True]["policy"] and "Thompson" in found["private", False]["policy"]
        assert found["private", True]["state"] and found["private", False]["state"]
        assert {line["control"] for line in lines if line["kind"] == "shared"} == {False, True}
        assert ada.call("POST", "/v1/delete", {"query": "public", "result": "b"}).json == {"queries": 0, "results": 2}
        assert "b" not in counts(ada, "public", "plays") and "b" not in counts(ada, "public", "plays", arm="control")
        assert ada.call("POST", "/v1/delete", {"query": "private"}).json == {"queries": 2, "results": 0}
        for answer in sent.values():  # late clicks bring nothing back
            assert ada.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "expired"}
        for path in ("/v1/queries/private", "/v1/queries/private?arm=control"):
            assert ada.call("GET", path).status == 404
        service.kill()
        assert verify(service.database, MEANING).ok
        raw = b"".join(path.read_bytes() for path in service.state.rglob("*") if path.is_file())
        assert b"private" not in raw and b"public" in raw
        assert swerve("delete", "--query", "public", "--store", service.database, "--config", service.file, "--yes").exit_code == 0
        done = swerve("export", service.database, "--config", service.file, "--out", tmp_path / "out.jsonl")
        assert done.exit_code == 0, done.output
        assert "public" not in (tmp_path / "out.jsonl").read_text()


def test_another_control_begins_the_counts_anew_and_without_one_its_tokens_have_expired(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        put(ada, treated=0.4)
        session = session_in(shop, "control")
        answer = shop.rank("storm", OFFER, session=session).json
        assert shop.feedback(answer["decision"], answer["ranking"][0]).status == 200
        since = report(ada)["since"]
        assert service.stop() == 0
        service.start()
        assert report(service.client(OPERATOR.text))["since"] == since and service.stop() == 0
        service.configure({**CONFIG, "experiment": {**CONFIG["experiment"], "control": "ts"}})
        service.start()
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        found = report(ada)
        assert (found["control"], found["treated"], found["arms"]["control"]["searches"]) == ("ts", 0.4, 0) and found[
            "since"
        ] > since
        kept = state(ada, "storm", arm="control")  # another policy keeps the totals, and starts over
        assert kept["phase"] == 2 and sum(arm["clicks"] for arm in kept["arms"]) == 1
        late = shop.rank("storm", OFFER, session=session).json
        assert late["arm"] == "control" and service.stop() == 0
        service.configure({**CONFIG, "experiment": GIVEN["experiment"]})
        service.start()
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        assert "control" not in report(ada)
        assert shop.feedback(late["decision"], late["ranking"][0]).json == {"status": "expired"}
        assert ada.call("GET", "/v1/queries/storm?arm=control").status == 404
        assert [one["control"] for one in ada.call("GET", "/v1/queries?limit=1000").json["queries"] if one["query"] == "storm"] == [
            True
        ]
        assert service.stop() == 0 and verify(service.database, MEANING).ok


def test_a_query_that_is_worse_goes_back_to_the_order_of_the_control(tmp_path):
    """Users click in the control arm alone."""
    config = {
        **CONFIG,
        "experiment": {**CONFIG["experiment"], "visit_seconds": 0.05, "guard_hours": 1.0},
        "feedback": {"evidence_per_session": 0},
    }
    with running(tmp_path, config) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        answer: dict[str, Any] = {}
        for number in range(4000):
            answer = shop.rank("punished", OFFER, session=f"g{number}").json
            if "guarded" in answer:
                break
            if answer["arm"] == "control":
                shop.feedback(answer["decision"], answer["ranking"][0])
        assert answer["guarded"].startswith("worse than the control's order: reward 0.000") and answer["arm"] == "treated"
        before = state(ada, "punished", arm="control")["requests"], state(ada, "punished")["requests"]
        shop.rank("punished", OFFER, session="somebody else")
        assert (state(ada, "punished", arm="control")["requests"], state(ada, "punished")["requests"]) == (before[0] + 1, before[1])
        assert "a query goes back to the control's order" in service.stderr()


@pytest.mark.parametrize(
    ("control", "words"), [("oracle", "oracle"), ("nonsense", "nonsense"), ("", "control"), ("ts(alpha=", "ts")]
)
def test_a_policy_that_cannot_serve_is_refused_by_the_check(tmp_path, control, words):
    file = tmp_path / "swerve.toml"
    file.write_text(f'[policy]\nspec = "ts"\narms = 8\n\n[experiment]\ncontrol = "{control}"\n')
    done = swerve("config", "check", file)
    assert done.exit_code != 0
    said = str(done.exception) + done.output
    assert "experiment.control" in said and words in said and f"{file}:6" in said, said


def test_policies_of_both_arms_are_made_for_the_same_pages(tmp_path):
    config = load(None, {"experiment.control": "swerve(look_threshold=0.9)", "policy.slots": 10})
    assert type(rival_of(config)) is type(policy_of(config)) and rival_of(config) != policy_of(config)
    assert rival_of(load(None, {})) is None
    file = tmp_path / "swerve.toml"
    file.write_text('[policy]\nspec = "ts"\narms = 8\n\n[experiment]\ncontrol = "ucb1"\n')
    assert "Policy Thompson() against UCB1();" in swerve("config", "check", file).output
    with pytest.raises(ConfigError, match="reads contexts"):
        load(None, {"policy.spec": "ts", "experiment.control": "swerve", "signals.use": []})


def test_shadow_mode_has_no_arms(tmp_path):
    with running(tmp_path, {**CONFIG, "policy": {**GIVEN["policy"], "mode": "shadow"}}) as service:
        answer = service.client(SHOP.text).rank("storm", OFFER, session="s").json
        assert "arm" not in answer and answer["shadow"] and answer["ranking"] == OFFER


def test_the_service_begins_an_experiment_with_its_control(tmp_path):
    """The file has a control, and no experiment: an operator begins one later."""
    config = {**CONFIG, "experiment": {"control": "ucb1", "visit_seconds": 0.3}}
    with running(tmp_path, config) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        assert report(ada) == {"running": False}
        assert put(ada, name="later", treated=0.0)["control"] == "ucb1"
        answer = shop.rank("storm", OFFER, session="s").json
        assert answer["arm"] == "control" and answer["propensities"][0] == 1.0
        assert state(ada, "storm", arm="control")["requests"] == 1
