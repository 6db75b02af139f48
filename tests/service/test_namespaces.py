"""Namespaces over HTTP: queries, shared records, rules, limits and keys of their own."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from service.running import running, until
from service.test_ranking import service_at

from swerve.client import Client, SwerveClientError
from swerve.service.config.load import resolve
from swerve.service.config.toml import ConfigError, Document
from swerve.service.http.openapi import document
from swerve.service.secrets import new_key
from swerve.serving.requests import Prepared

BOSS, TOYS, BOTH = new_key("boss"), new_key("toys"), new_key("both")
CONFIG = {
    "security": {
        "api_keys": [
            {"name": "boss", "hash": BOSS.entry.hash},
            {"name": "toys", "hash": TOYS.entry.hash, "namespaces": ["toys"]},
            {"name": "both", "hash": BOTH.entry.hash, "namespaces": ["books", ""]},
        ]
    },
    "namespaces": {"toys": {"candidates": 3, "numbers": ["news"]}, "books": {}, "slow": {"rate": 1.0, "burst": 2}},
    "feedback": {"steady_seconds": 0.0},
    "store": {"store_queries": True},
}  # fmt: skip
OFFER = ["a", "b", "c"]


@pytest.fixture
def boss(served):
    return served.client(BOSS.text)


@pytest.fixture
def toys(served):
    return served.client(TOYS.text)


def state(client, query: str, **parts: str):
    asked = "&".join(f"{name}={quote(part)}" for name, part in parts.items())
    return client.call("GET", f"/v1/queries/{quote(query, safe='')}?{asked}")


def test_the_same_text_is_another_query_in_each_namespace(boss):
    for namespace, clicked in ((None, "a"), ("toys", "b"), ("books", "c")):
        answer = boss.rank("lego", OFFER, namespace=namespace)
        assert answer.status == 200 and not answer.json["degraded"]
        assert boss.feedback(answer.json["decision"], clicked).json["status"] in ("learned", "ignored")
    found = {name: state(boss, "lego", **({"namespace": name} if name else {})).json for name in ("", "toys", "books")}
    assert [one["namespace"] for one in found.values()] == [None, "toys", "books"]
    assert [one["requests"] for one in found.values()] == [1, 1, 1]
    clicked = [[arm["id"] for arm in one["arms"] if arm["clicks"]] for one in found.values()]
    assert clicked == [["a"], ["b"], ["c"]]
    assert found["toys"]["parts"] == {"namespace": "toys"}


def test_lists_are_of_one_namespace(boss, toys):
    boss.rank("list of toys", OFFER, namespace="toys")
    boss.rank("list of books", OFFER, namespace="books")
    boss.feedback(boss.rank("list of books", OFFER, namespace="books").json["decision"], None)
    boss.feedback(boss.rank("list of toys", OFFER, namespace="toys").json["decision"], None)
    listed = boss.call("GET", "/v1/queries?namespace=books&limit=1000").json["queries"]
    assert {one["namespace"] for one in listed} == {"books"} and "list of books" in [one["query"] for one in listed]
    assert {one["namespace"] for one in toys.call("GET", "/v1/queries?namespace=toys").json["queries"]} == {"toys"}
    assert toys.call("GET", "/v1/queries").status == 403
    assert len(boss.call("GET", "/v1/queries?limit=1000").json["queries"]) > len(listed)


def test_an_unknown_namespace_is_refused_with_what_to_configure(boss):
    for path, body in (
        ("/v1/rank", {"query": "q", "candidates": OFFER, "namespace": "toyz"}),
        ("/v1/observe", {"query": "q", "shown": OFFER, "events": [], "namespace": "toyz"}),
        ("/v1/rules", {"kind": "off", "namespace": "toyz"}),
    ):
        answer = boss.call("POST", path, body)
        error = answer.json["error"]
        assert (answer.status, error["code"], error["field"]) == (422, "unknown_namespace", "namespace"), path
        assert "did you mean 'toys'" in error["message"] and "[namespaces.NAME]" in error["message"]
    batch = boss.call("POST", "/v1/rank/batch", [{"query": "q", "candidates": OFFER, "namespace": n} for n in ("toys", "*", "x")])
    assert ["error" in one for one in batch.json] == [False, True, True]
    assert state(boss, "q", namespace="toyz").json["error"]["code"] == "unknown_namespace"


def test_a_namespace_has_its_own_limits(boss):
    refused = boss.rank("many", ["a", "b", "c", "d"], namespace="toys").json["error"]
    assert refused["field"] == "candidates" and "at most 3" in refused["message"]
    assert boss.rank("many", ["a", "b", "c", "d"], namespace="books").status == 200
    refused = boss.rank("numbers", OFFER, namespace="toys", signals={"given": 0.5}).json["error"]
    assert (refused["code"], refused["field"]) == ("unknown_signal", "signals")
    assert boss.rank("numbers", OFFER, namespace="toys", signals={"news": 3}).status == 200
    statuses = [boss.rank("quick", OFFER, namespace="slow") for _ in range(6)]
    assert [one.status for one in statuses[:2]] == [200, 200] and statuses[-1].status == 429
    assert statuses[-1].headers["retry-after"] == "1" and "namespace slow" in statuses[-1].json["error"]["message"]
    batch = boss.call("POST", "/v1/rank/batch", [{"query": "q", "candidates": OFFER, "namespace": "slow"}] * 4).json
    assert batch[-1]["error"]["code"] == "rate"
    assert boss.rank("quick", OFFER).status == 200


def test_a_bound_key_reaches_nothing_outside(boss, toys, served):
    decision = boss.rank("secret", OFFER, namespace="books").json["decision"]
    plain = boss.rank("secret", OFFER).json["decision"]
    key = next(q["key"] for q in listed_after_write(boss, "books") if q["query"] == "secret")
    for method, path, body in (
        ("POST", "/v1/rank", {"query": "secret", "candidates": OFFER, "namespace": "books"}),
        ("POST", "/v1/rank", {"query": "secret", "candidates": OFFER}),
        ("POST", "/v1/feedback", {"decision": decision, "events": []}),
        ("POST", "/v1/feedback", {"decision": plain, "events": []}),
        ("POST", "/v1/observe", {"query": "secret", "shown": OFFER, "events": []}),
        ("GET", "/v1/queries/secret?namespace=books", None),
        ("GET", "/v1/queries/secret", None),
        ("GET", f"/v1/queries/key:{key}", None),
        ("POST", "/v1/queries/secret/shift?namespace=books", {}),
        ("POST", "/v1/rules", {"kind": "off"}),
        ("POST", "/v1/rules", {"kind": "off", "namespace": "books"}),
        ("POST", "/v1/delete", {"query": "secret", "namespace": "books"}),
        ("POST", "/v1/delete", {"result": "a"}),
        ("GET", "/v1/export", None),
        ("GET", "/v1/export?namespace=books", None),
        ("GET", "/metrics", None),
        ("GET", "/v1/shadow", None),
        ("GET", "/v1/experiments", None),
        ("PUT", "/v1/experiments", {"name": "theirs", "treated": 0.0}),
        ("GET", "/v1/live", None),
    ):
        answer = toys.call(method, path, body)
        assert (answer.status, answer.json["error"]["code"]) == (403, "namespace"), (method, path, answer.body)
    assert toys.call("GET", f"/v1/queries/key:{key}?namespace=toys").status == 404  # its key does not open it either
    assert toys.call("POST", "/v1/delete", {"query": f"key:{key}", "namespace": "toys"}).status == 404
    assert state(boss, "secret", namespace="books").status == 200
    exported = [json.loads(line) for line in toys.call("GET", "/v1/export?namespace=toys").body.splitlines()]
    assert {line["namespace"] for line in exported if line["kind"] != "end"} == {"toys"}
    batch = [{"query": "secret", "candidates": OFFER, "namespace": name} for name in ("toys", "books")]
    assert [one.get("error", {}).get("code") for one in toys.call("POST", "/v1/rank/batch", batch).json] == [None, "namespace"]
    entries = [{"decision": toys.rank("mine", OFFER, namespace="toys").json["decision"], "events": []},
               {"decision": decision, "events": [{"kind": "click", "result": "a"}]}]  # fmt: skip
    said = toys.call("POST", "/v1/feedback/batch", entries).json
    assert said[0]["status"] and said[1]["error"]["code"] == "namespace"
    assert sum(arm["clicks"] for arm in state(boss, "secret", namespace="books").json["arms"]) == 0
    both = served.client(BOTH.text)
    assert both.rank("secret", OFFER).status == both.rank("secret", OFFER, namespace="books").status == 200
    assert both.rank("secret", OFFER, namespace="toys").status == 403
    with Client(f"http://127.0.0.1:{served.port}", TOYS.text, timeout=5.0, namespace="toys") as client:
        assert not client.rank("lego", OFFER).degraded
        assert client.state("lego").namespace == "toys"
        with pytest.raises(SwerveClientError, match="bound to toys"):
            client.state("lego", namespace="books")


def test_refusals_of_a_bound_key_name_the_namespaces_that_it_may_use(served):
    both = served.client(BOTH.text)
    for method, path, body in (
        ("POST", "/v1/rank", {"query": "secret", "candidates": OFFER, "namespace": "toys"}),
        ("POST", "/v1/rank", {"query": "secret", "candidates": OFFER, "namespace": "no such"}),
        ("GET", "/metrics", None),
        ("GET", "/v1/shadow", None),
        ("PUT", "/v1/experiments", {"treated": 0.5, "name": "x"}),
    ):
        answer = both.call(method, path, body)
        assert answer.status == 403 and answer.json["error"]["code"] == "namespace", (path, answer)
        said = answer.json["error"]["message"]
        assert "books" in said and "requests without a namespace" in said and "slow" not in said, said


def test_a_key_bound_to_requests_without_a_namespace_does_not_reach_the_others(boss, served):
    """`""` is one of its namespaces: what names none is not what concerns all."""
    both = served.client(BOTH.text)
    for namespace in (None, "books", "toys"):
        boss.rank("tenant", OFFER, **({} if namespace is None else {"namespace": namespace}))
    until(lambda: {(None, "tenant"), ("books", "tenant"), ("toys", "tenant")} <= {
        (q["namespace"], q["query"]) for q in boss.call("GET", "/v1/queries?limit=1000").json["queries"]
    })  # fmt: skip
    theirs = next(q["key"] for q in listed_after_write(boss, "toys") if q["query"] == "tenant")
    listed = both.call("GET", "/v1/queries?limit=1000").json["queries"]
    assert {one["namespace"] for one in listed} == {None, "books"}
    exported = [json.loads(line) for line in both.call("GET", "/v1/export").body.splitlines()]
    assert {line["namespace"] for line in exported if line["kind"] != "end"} == {None, "books"}
    assert exported[-1]["queries"] == sum(line["kind"] == "query" for line in exported)
    rule = boss.call("POST", "/v1/rules", {"kind": "block", "result": "nothing"}).json
    for method, path, body in (
        ("GET", f"/v1/queries/key:{theirs}", None),
        ("POST", f"/v1/queries/key:{theirs}/shift", {}),
        ("POST", "/v1/delete", {"query": f"key:{theirs}"}),
        ("POST", "/v1/delete", {"result": "a"}),
        ("POST", "/v1/rules", {"kind": "off"}),
        ("POST", "/v1/rules", {"kind": "off", "query": f"key:{theirs}"}),
        ("POST", "/v1/rules", {"kind": "off", "query": f"key:{theirs}", "namespace": "books"}),
        ("DELETE", f"/v1/rules/{rule['id']}", None),
        ("GET", "/v1/experiments", None),
        ("PUT", "/v1/experiments", {"name": "theirs", "treated": 0.0}),
    ):
        answer = both.call(method, path, body)
        assert answer.status in (403, 404), (method, path, answer)
    assert (
        boss.rank("tenant", OFFER, namespace="toys").json["decision"] and state(boss, "tenant", namespace="toys").json["phase"] == 1
    )
    assert boss.call("DELETE", f"/v1/rules/{rule['id']}").status == 200
    own = both.call("POST", "/v1/rules", {"kind": "off", "query": "tenant"}).json
    assert both.call("DELETE", f"/v1/rules/{own['id']}").status == 200


def test_deletion_and_export_say_that_a_namespace_is_unknown(boss):
    boss.rank("kept", OFFER, namespace="books")
    assert boss.call("POST", "/v1/delete", {"query": "kept", "namespace": "boks"}).json == {
        "queries": 0, "results": 0, "unknown_namespace": True,
    }  # fmt: skip
    assert boss.call("POST", "/v1/delete", {"result": "a", "namespace": "boks"}).json["unknown_namespace"]
    assert boss.call("POST", "/v1/delete", {"query": "never asked", "namespace": "books"}).json == {"queries": 0, "results": 0}
    for namespace, unknown in (("boks", True), ("slow", None)):
        end = json.loads(boss.call("GET", f"/v1/export?namespace={namespace}").body.splitlines()[-1])
        assert end["kind"] == "end" and end.get("unknown_namespace") == unknown


def listed_after_write(client, namespace: str) -> list[dict]:
    """The queries of a namespace, after everything before was written."""
    client.feedback(client.rank("secret", OFFER, namespace=namespace).json["decision"], None)
    return client.call("GET", f"/v1/queries?namespace={namespace}&limit=1000").json["queries"]


def test_rules_of_a_namespace(boss, toys):
    mine = toys.call("POST", "/v1/rules", {"kind": "block", "result": "a", "namespace": "toys"}).json
    other = boss.call("POST", "/v1/rules", {"kind": "block", "result": "b", "namespace": "books"}).json
    pin = boss.call("POST", "/v1/rules", {"kind": "pin", "result": "c", "position": 1, "query": "x", "namespace": "toys"}).json
    try:
        assert mine["id"] != other["id"] and mine["namespace"] == "toys"
        assert boss.rank("x", OFFER, namespace="toys").json["ranking"] == ["c", "b"]
        assert sorted(boss.rank("x", OFFER, namespace="books").json["ranking"]) == ["a", "c"]
        assert "ruled" not in boss.rank("x", OFFER).json
        assert [rule["id"] for rule in toys.call("GET", "/v1/rules").json["rules"]] == [mine["id"], pin["id"]]
        assert toys.call("DELETE", f"/v1/rules/{other['id']}").status == 404
        changes = toys.call("GET", "/v1/audit").json["changes"]
        assert {change["after"]["namespace"] for change in changes if "after" in change} == {"toys"}
    finally:
        for rule in (mine, other, pin):
            assert boss.call("DELETE", f"/v1/rules/{rule['id']}").status == 200


def test_metrics_have_the_namespaces(boss):
    boss.rank("counted", OFFER, namespace="books")
    assert 'swerve_namespace_rankings_total{namespace="books"}' in boss.call("GET", "/metrics").body.decode()


def test_namespaces_survive_restarts_without_texts(tmp_path):
    """The namespace of a row is stored with it, also where texts are not, and any name may be allowed."""
    with running(tmp_path, {"namespaces": {"*": {}, "a": {}}}) as service:
        client = service.client()
        for namespace in ("a", "b", "c"):
            client.feedback(client.rank("q", OFFER, namespace=namespace).json["decision"], "b")
        assert client.rank("q", OFFER, namespace="no/name").status == 422
        service.kill()
        service.start()
        client = service.client()
        found = client.call("GET", "/v1/queries").json["queries"]
        assert sorted(one["namespace"] for one in found) == ["a", "b", "c"] and {one["query"] for one in found} == {None}
        assert sum(arm["clicks"] for arm in state(client, "q", namespace="b").json["arms"]) == 1


@pytest.mark.usefixtures("uncompiled")
def test_what_queries_share_is_shared_in_a_namespace_alone(tmp_path):
    """Traffic of one namespace changes neither the season nor what policies learn together of another; both survive a restart."""
    spec = {"spec": "swerve", "slots": 1, "arms": 8, "seed": 1}
    now = [1.7e9]
    service = service_at(tmp_path / "s", now, policy=spec, namespaces={"a": {}, "b": {}})
    ranker = service.ranker
    empty = {name: ranker.commons.of(name).seasons.tobytes() for name in (None, "a", "b")}
    assert len(set(empty.values())) == 1
    for step in range(50):
        now[0] += 600.0
        text = "q\0namespace=a"
        key = ranker.key_of(text)
        place = ranker.rows.get(key) or ranker.fresh(key, text, 2, now[0])
        ranker.rank([(place, Prepared(key, text, ["x", "y"], session=f"s{step}", namespace="a"))], now[0])
    assert ranker.commons.of("a").seasons.tobytes() != empty["a"]
    assert ranker.commons.of("b").seasons.tobytes() == ranker.commons.of(None).seasons.tobytes() == empty[None]
    assert ranker.commons.of("unknown") is ranker.commons.of("*")
    kept = ranker.shared(now[0])
    other = service_at(tmp_path / "t", now, policy=spec, namespaces={"b": {}, "a": {}}).ranker
    other.share(kept)
    for name in (None, "a", "b"):
        assert other.commons.of(name).seasons.tobytes() == ranker.commons.of(name).seasons.tobytes()
        assert other.commons.of(name).pools[:1].tobytes() == ranker.commons.of(name).pools[:1].tobytes()


def test_new_queries_of_one_namespace_leave_the_permits_of_others(tmp_path):
    now = [1.7e9]
    service = service_at(tmp_path / "s", now, namespaces={"a": {"new_queries_per_minute": 4}, "b": {}})
    from swerve.service.loader import Wish

    def made(namespace: str, number: int) -> bool:
        text = f"q{number}\0namespace={namespace}"
        wish = Wish(service.ranker.key_of(text), True, text, 2, session=1)
        return not isinstance(service._adopt(wish, None), str)

    for shelf in service.ranker.rows.shelves:
        shelf.ready = True
    service.committer.begin()
    assert sum(made("a", number) for number in range(20)) == 2  # half of the permits, for one session
    assert sum(made("b", number) for number in range(20)) == 20
    now[0] += 30.0
    assert sum(made("a", number) for number in range(20, 40)) == 2


WRONG = [
    ({"namespaces": {"a b": {}}}, "the name 'a b' in namespaces must be"),
    ({"namespaces": {"a": {"rte": 1.0}}}, "did you mean 'rate'"),
    ({"namespaces": {"a": {"candidates": 65}}}, "namespaces.a.candidates = 65"),
    ({"namespaces": {"a": {"numbers": ["x"]}}}, "namespaces.a.numbers"),
    ({"namespaces": 3}, "namespaces = 3"),
    ({"namespaces": {"a": {}}, "security": {"api_keys": [{"name": "k", "hash": f"sha256:{'0' * 64}", "namespaces": ["b"]}]}},
     "add [namespaces.b]"),
]  # fmt: skip


@pytest.mark.parametrize(("tables", "words"), WRONG)
def test_wrong_tables_are_named(tables, words):
    with pytest.raises(ConfigError) as error:
        resolve(Document("t", tables, {}))
    assert words in str(error.value)


def test_the_document_names_the_namespaces():
    for tables, shape in (
        ({}, {"type": "null"}),
        ({"b": {}, "a": {}}, {"anyOf": [{"enum": ["b", "a"]}, {"type": "null"}]}),
    ):
        found = document(resolve(Document("t", {"namespaces": tables}, {})))
        schema = found["components"]["schemas"]["RankRequest"]["properties"]["namespace"]
        assert {name: schema[name] for name in shape} == shape
        assert json.dumps(found)
