"""Experiments over HTTP: held-out units get the given order, feedback counts for its arm, ramps need no restart and last."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import sys
import time

import forking
import pytest
from service.running import Http, running, until

from swerve.service.config.settings import settings_in
from swerve.service.secrets import new_key
from swerve.serving.recording import Ranked, lines_of
from swerve.serving.replay import Replay

OPERATOR, SHOP = new_key("ada", ("operate", "read")), new_key("shop", ("rank", "feedback"))
CONFIG = {
    "security": {"api_keys": [{"name": k.name, "hash": k.hash, "scopes": list(k.scopes)} for k in (OPERATOR.entry, SHOP.entry)]},
    "policy": {"slots": 3, "seed": 5},
    "experiment": {"name": "spring", "treated": 0.5, "visit_seconds": 0.3},
}  # fmt: skip
OFFER = ["a", "b", "c", "d"]
#: The policy learns that `d` is clicked, the given order has it last.
GOOD = "d"


@pytest.fixture
def shop(served) -> Http:
    return served.client(SHOP.text)


@pytest.fixture
def ada(served) -> Http:
    return served.client(OPERATOR.text)


def put(client: Http, **trial) -> dict:
    answer = client.call("PUT", "/v1/experiments", trial)
    assert answer.status == 200, answer
    return answer.json


def report(client: Http, limit: int = 20) -> dict:
    return client.call("GET", f"/v1/experiments?limit={limit}").json


def arm_of(client: Http, session: str, **more) -> str:
    return client.rank("arms", OFFER, session=session, **more).json["arm"]


def metric(client: Http, name: str) -> float:
    lines = client.call("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_held_out_units_get_the_given_order_and_teach(shop, ada):
    arms = {"treated": 0, "control": 0}
    for number in range(120):
        answer = shop.rank("storm", OFFER, session=f"s{number}").json
        arms[answer["arm"]] += 1
        if answer["arm"] == "control":
            assert answer["ranking"] == OFFER and answer["propensities"] == [1.0] * 3 and answer["explored"] is None
        assert answer["decision"] and not answer["degraded"] and "guarded" not in answer
        assert shop.feedback(answer["decision"], GOOD if answer["ranking"][0] == GOOD else None).status == 200
    assert 35 <= arms["control"] <= 85
    top = [shop.rank("storm", OFFER, session=f"t{number}").json for number in range(60)]
    assert {answer["ranking"][0] for answer in top if answer["arm"] == "control"} == {"a"}
    assert sum(answer["ranking"][0] == GOOD for answer in top) > 15  # the treated ones
    arms_of_query = {arm["id"]: arm["plays"] for arm in ada.query("storm").json["arms"]}
    assert sum(arms_of_query.values()) >= 180  # pages of both arms are counted


def test_a_click_on_a_held_out_page_is_learnt(shop, ada):
    """The record of the query has the click, as it has those on rankings that something else made."""
    session = next(f"l{number}" for number in range(100) if arm_of(shop, f"l{number}") == "control")
    answer = shop.rank("taught", OFFER, session=session).json
    assert answer["arm"] == "control" and shop.feedback(answer["decision"], "a").json == {"status": "learned"}
    assert ada.clicks("taught") == {"a": 1}


def test_the_unit_goes_before_the_session_and_the_session_before_the_query(shop):
    by_session = [arm_of(shop, f"s{number}") for number in range(60)]
    assert by_session == [arm_of(shop, f"s{number}") for number in range(60)]  # stable
    assert len({arm_of(shop, f"s{number}", unit="someone") for number in range(30)}) == 1
    assert {arm_of(shop, "s1", unit=f"u{number}") for number in range(30)} == {"treated", "control"}
    for query in ("x", "y", "z"):
        assert len({shop.rank(query, OFFER).json["arm"] for _ in range(8)}) == 1
    assert {shop.rank(f"query {number}", OFFER).json["arm"] for number in range(30)} == {"treated", "control"}


def test_a_session_that_repeats_its_request_is_one_search(shop, ada):
    before = sum(one["searches"] for one in report(ada)["arms"].values())
    first, again = (shop.rank("steady", OFFER, session="steady").json for _ in range(2))
    assert first == again
    assert sum(one["searches"] for one in report(ada)["arms"].values()) == before + 1


def test_feedback_counts_for_its_arm_once(shop, ada):
    before, counted = report(ada)["arms"], {"treated": 0, "control": 0}
    clicks = {arm: metric(ada, f'swerve_experiment_clicks_total{{arm="{arm}"') for arm in counted}
    for number in range(30):
        answer = shop.rank("credited", OFFER, session=f"c{number}").json
        for _ in range(2):  # a repeat
            shop.feedback(answer["decision"], answer["ranking"][0])
        shop.events(answer["decision"], {"kind": "click", "position": 2})
        counted[answer["arm"]] += 1
    after = report(ada)["arms"]
    for arm, searches in counted.items():
        found = {name: after[arm][name] - before[arm][name] for name in ("searches", "clicked", "clicks", "reward")}
        assert found == {"searches": searches, "clicked": searches, "clicks": 2 * searches, "reward": searches}
        assert metric(ada, f'swerve_experiment_clicks_total{{arm="{arm}"') == clicks[arm] + 2 * searches
    assert metric(ada, "swerve_experiment_searches_total") == sum(one["searches"] for one in after.values())
    assert metric(ada, "swerve_experiment_treated") == 0.5


def test_the_report_says_what_was_judged(shop, ada):
    def visits() -> int:
        return sum(line["effect"]["visits"] for line in report(ada, 1000)["segments"] if line["name"] == "locale=de")

    for number in range(40):
        answer = shop.rank("judged", OFFER, session=f"j{number}", locale="de", segment="app").json
        shop.feedback(answer["decision"], answer["ranking"][0] if number % 2 else None)
    until(lambda: visits() == 40)
    found = report(ada, 1000)
    assert found["running"] and found["name"] == "spring" and found["verdict"] in ("helps", "hurts", "undecided")
    assert {"locale=de", "segment=app"} <= {line["name"] for line in found["segments"]}
    (line,) = (line for line in found["segments"] if line["name"] == "locale=de")
    assert line["effect"]["visits"] == 40 and line["effect"]["low"] < line["effect"]["difference"] < line["effect"]["high"]
    assert line["effect"]["verdict"] == "undecided"
    arms = found["arms"].values()
    assert sum(one["visits"] for one in arms) == found["outcomes"]["reward"]["visits"]
    assert sum(one["abandoned"] for one in arms) >= 20
    assert any(line["effect"]["visits"] == 40 for line in found["queries"]) and len(report(ada, 1)["queries"]) == 1


def test_a_batch_has_its_arms_too(shop):
    asked = [{"query": f"batch {number % 3}", "candidates": OFFER, "session": f"b{number}"} for number in range(30)]
    for one, answer in zip(asked, shop.call("POST", "/v1/rank/batch", asked).json, strict=True):
        assert answer["arm"] == arm_of(shop, one["session"])
        assert answer["arm"] == "treated" or answer["ranking"] == OFFER


def test_rules_hold_in_both_arms_and_the_switch_is_no_arm(shop, ada):
    rule = ada.call("POST", "/v1/rules", {"kind": "pin", "result": "c", "position": 1, "query": "ruled"}).json
    seen = {}
    for number in range(40):
        answer = shop.rank("ruled", OFFER, session=f"r{number}").json
        assert answer["ranking"][0] == "c"
        seen.setdefault(answer["arm"], []).append(answer["ranking"])
    assert set(seen) == {"treated", "control"} and all(ranking == ["c", "a", "b", "d"] for ranking in seen["control"])
    ada.call("DELETE", f"/v1/rules/{rule['id']}")
    off = ada.call("POST", "/v1/rules", {"kind": "off", "query": "ruled"}).json
    assert "arm" not in shop.rank("ruled", OFFER, session="r1").json
    ada.call("DELETE", f"/v1/rules/{off['id']}")


def test_a_ramp_holds_from_the_next_request_and_a_treated_unit_stays_treated(shop, ada):
    treated = [f"s{number}" for number in range(100) if arm_of(shop, f"s{number}") == "treated"]
    assert put(ada, treated=0.9, note="looks good")["treated"] == 0.9
    assert all(arm_of(shop, session) == "treated" for session in treated)
    assert 75 <= sum(arm_of(shop, f"s{number}") == "treated" for number in range(100)) < 100
    put(ada, treated=1)
    assert all(arm_of(shop, f"s{number}") == "treated" for number in range(100))
    put(ada, treated=0)
    assert all(arm_of(shop, f"s{number}") == "control" for number in range(100))
    assert put(ada, treated=0.5)["since"] == report(ada)["since"]
    assert [session for session in treated if arm_of(shop, session) != "treated"] == []
    last = ada.call("GET", "/v1/audit?limit=4").json["changes"]
    assert [change["what"] for change in last] == ["ramp"] * 4 and {change["by"] for change in last} == {"ada"}
    assert (last[-1]["trial_before"]["treated"], last[-1]["trial_after"]["treated"]) == (0.5, 0.9)
    assert last[-1]["trial_after"]["note"] == "looks good"


BAD = [
    ({"treated": 1.5}, "treated", "0 to 1"),
    ({"treated": -0.1}, "treated", "0 to 1"),
    ({"treated": "half"}, "treated", "treated"),
    ({}, "treated", "neither treated nor name"),
    ({"name": "a b", "treated": 0.5}, "name", "letters"),
    ({"name": "x" * 65, "treated": 0.5}, "name", "letters"),
    ({"treated": 0.5, "note": "x" * 501}, "note", "at most 500"),
    ({"treated": 0.5, "shre": 1}, "shre", "shre"),
]


@pytest.mark.parametrize(("trial", "field", "words"), BAD)
def test_a_wrong_experiment_is_refused_with_the_name_of_its_field(ada, trial, field, words):
    before = report(ada)["treated"]
    answer = ada.call("PUT", "/v1/experiments", trial)
    assert answer.status == 422 and answer.json["error"]["field"] == field and words in answer.json["error"]["message"], answer
    assert report(ada)["treated"] == before


def test_it_needs_its_scopes_and_its_form(shop, ada, served):
    assert shop.call("PUT", "/v1/experiments", {"treated": 1}).json["error"]["code"] == "scope"
    assert shop.call("GET", "/v1/experiments").json["error"]["code"] == "scope"
    assert served.client().call("PUT", "/v1/experiments", {"treated": 1}).status == 401
    assert ada.call("PUT", "/v1/experiments", b"{").status == 400
    assert ada.call("PUT", "/v1/experiments", {"treated": 1}, {"Content-Type": "text/plain"}).status == 415
    assert ada.call("POST", "/v1/experiments", {"treated": 1}).status == 405
    assert ada.call("GET", "/v1/experiments?limit=-1").json["error"]["field"] == "limit"
    answer = shop.rank("q", OFFER, unit="x" * 300)
    assert answer.status == 422 and answer.json["error"]["field"] == "unit"


def test_another_name_begins_another_experiment_and_none_ends_it(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        before = [arm_of(shop, f"s{number}") for number in range(60)]
        found = put(ada, name="summer", treated=0.5)
        assert found["name"] == "summer" and sum(one["searches"] for one in found["arms"].values()) == 0
        after = [arm_of(shop, f"s{number}") for number in range(60)]
        assert before != after  # units are assigned anew
        assert put(ada, name="") == {"running": False}
        answer = shop.rank("arms", OFFER, session="s1").json
        assert "arm" not in answer and report(ada) == {"running": False}
        assert ada.call("PUT", "/v1/experiments", {"treated": 0.5}).json["error"]["field"] == "name"


def test_ramps_and_totals_survive_kill_nine(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        put(ada, treated=0.3)
        arms = [arm_of(shop, f"s{number}") for number in range(60)]
        answer = shop.rank("other", OFFER, session="s0").json
        shop.feedback(answer["decision"], answer["ranking"][0])
        later = shop.rank("other", OFFER, session="s1").json
        until(lambda: report(ada)["outcomes"]["reward"]["visits"] == 60)
        time.sleep(0.6)  # store.flush_seconds, twice
        before = report(ada)
        service.kill()
        service.start()
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        assert report(ada) == before and before["treated"] == 0.3
        assert [change["what"] for change in ada.call("GET", "/v1/audit").json["changes"]] == ["ramp"]
        assert shop.feedback(later["decision"], later["ranking"][0]).status == 200  # the token has its arm
        gained = {arm: report(ada)["arms"][arm]["clicked"] - before["arms"][arm]["clicked"] for arm in ("treated", "control")}
        assert gained == {later["arm"]: 1, ({"treated", "control"} - {later["arm"]}).pop(): 0}
        assert [arm_of(shop, f"s{number}") for number in range(60)] == arms
        assert service.stop() == 0
        # a later change of the file goes before the ramp, and does not lose the counts
        service.configure({**CONFIG, "experiment": {**CONFIG["experiment"], "treated": 0.7}})
        service.start()
        ada = service.client(OPERATOR.text)
        assert report(ada)["treated"] == 0.7 and report(ada)["outcomes"]["reward"]["visits"] == 60
        assert service.stop() == 0
        service.configure(CONFIG)  # as in the beginning: this is a change too
        service.start()
        assert report(service.client(OPERATOR.text))["treated"] == 0.5


def test_a_ramp_is_refused_while_the_store_is_away(tmp_path):
    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        away = service.state.rename(service.folder / "away")
        assert ada.call("PUT", "/v1/experiments", {"treated": 0.9}).status == 503
        assert report(ada)["treated"] == 0.5
        assert "arm" not in shop.rank("storm", OFFER, session="x").json  # degraded: in no arm
        away.rename(service.state)
        until(lambda: ada.call("PUT", "/v1/experiments", {"treated": 0.9}).status == 200)
        assert len(ada.call("GET", "/v1/audit").json["changes"]) == 1


def test_a_restored_store_brings_its_own_experiment(tmp_path):
    """While the service runs: share, counts and audit are those of the backup, without a restart."""

    def swerve(*args: str) -> None:
        done = forking.run(sys.executable, "-m", "swerve", *args)
        assert done.returncode == 0, done.stderr

    with running(tmp_path, CONFIG) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        put(ada, treated=0.25)
        for number in range(10):
            shop.rank("storm", OFFER, session=f"s{number}")
        until(lambda: report(ada)["outcomes"]["reward"]["visits"] == 10)
        time.sleep(0.6)
        swerve("backup", str(service.database), str(tmp_path / "copy.db"))
        put(ada, treated=0.75, name="summer")
        swerve("restore", "--live", str(tmp_path / "copy.db"), str(service.database))
        shop.rank("storm", OFFER)  # the next write notices the other file
        until(lambda: report(ada).get("treated") == 0.25)
        assert report(ada)["name"] == "spring" and report(ada)["outcomes"]["reward"]["visits"] == 10
        assert len(ada.call("GET", "/v1/audit").json["changes"]) == 1


def test_a_damaged_record_of_the_experiment_is_told_and_the_configuration_holds(tmp_path):
    with running(tmp_path, CONFIG) as service:
        put(service.client(OPERATOR.text), treated=0.25)
        service.client(SHOP.text).rank("storm", OFFER, session="s")
        assert service.stop() == 0
        with contextlib.closing(sqlite3.connect(service.database)) as file, file:
            assert file.execute("UPDATE groups SET record = x'00' WHERE name = 'experiment'").rowcount == 1
        service.start()
        assert report(service.client(OPERATOR.text))["treated"] == 0.5
        assert "the experiment must be set again" in service.stderr()


def test_a_recording_with_an_experiment_replays_to_the_same_rankings(tmp_path):
    record = tmp_path / "s" / "state" / "swerve.db.journal"
    with running(tmp_path / "s", {**CONFIG, "store": {"journal_days": 30}}) as service:
        ada, shop = service.client(OPERATOR.text), service.client(SHOP.text)
        arms = []
        for step in range(60):
            if step == 30:
                put(ada, treated=0.9)
            answer = shop.rank("storm" if step % 2 else "other", OFFER, session=f"s{step}").json
            shop.feedback(answer["decision"], answer["ranking"][step % 3])
            arms.append(answer["arm"])
        assert service.stop() == 0
    lines = [line for _, line in lines_of(record) if isinstance(line, Ranked)]
    assert [line.arm for line in lines] == arms and arms.count("control") > 5
    for line in lines:  # a held-out page is no choice of the policy: it must not pass for one in an evaluation
        assert (line.propensities is not None) == (line.arm == "treated") and line.control == (line.arm == "control")
    replayed = Replay(record, lambda tables: settings_in("recording", tables)).run()
    assert (replayed.requests, replayed.same, replayed.feedback) == (60, 60, 60)


def test_a_query_that_users_punish_goes_back_to_its_given_order_by_itself(tmp_path):
    """Users click on the given order and on nothing else: adversarial traffic for any policy that changes it."""
    config = {
        **CONFIG,
        "experiment": {"name": "guarded", "treated": 0.5, "visit_seconds": 0.05, "guard_hours": 0.002},
        "feedback": {"evidence_per_session": 0},
    }
    with running(tmp_path, config) as service:
        ada, shop, draw = service.client(OPERATOR.text), service.client(SHOP.text), random.Random(3)
        ask = OFFER[1:] + OFFER[:1]
        answer, number = {}, 0
        while "guarded" not in answer:
            number += 1
            assert number < 4000
            answer = shop.rank("punished", ask, session=f"g{number}").json
            if answer["ranking"] == ask and draw.random() < 0.9 and answer["arm"] == "control":
                shop.feedback(answer["decision"], ask[draw.randrange(4)])
        assert answer["arm"] == "treated" and answer["ranking"] == ask and answer["propensities"] == [1.0] * 3
        assert answer["guarded"].startswith("worse than its given order: reward 0.000 per search against 0.")
        (line,) = report(ada)["guarded"]
        assert line["why"] == answer["guarded"] == ada.query("punished").json["guarded"] and line["look"] == 1
        assert metric(ada, "swerve_guards_total") == 1 and metric(ada, "swerve_guarded ") == 1
        assert "a query goes back to its given order" in service.stderr() and line["name"] in service.stderr()
        assert "guarded" not in shop.rank("another", ask, session="g1").json
        until(lambda: report(ada)["guarded"] == [], 20.0)  # it tries again
        assert (
            "guarded" not in shop.rank("punished", ask, session=f"g{number}").json and ada.query("punished").json["guarded"] is None
        )
