"""The OpenAPI document: valid, complete, and consistent with the code that checks requests."""

from __future__ import annotations

import json
import re

import jsonschema_rs
import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from service.test_ranking import service_at

from swerve.service.config.load import ApiKey, Config, Security, Server
from swerve.service.http.openapi import EXAMPLES, docs_page, docs_policy, document
from swerve.service.http.routes import LISTED
from swerve.service.http.schemas import read_delete, read_feedback, read_observe, read_rank, read_rule
from swerve.service.runtime import Service
from swerve.serving import messages
from swerve.serving.checks import MOST_EVENTS, check_events, check_feedback
from swerve.serving.control import (
    Change,
    ChangeList,
    DeleteResponse,
    Rule,
    RuleList,
    ShadowQuery,
    ShadowReport,
    check_delete,
    check_rule,
)
from swerve.serving.ruling import Ruled

LIMITS = {"candidates": 4, "query_chars": 10, "id_chars": 5, "session_chars": 6, "batch": 3}
TOKEN = "A" * 132


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Service:
    """A service with small limits, whose checks are compared with its document. It need not be started for that."""
    folder = tmp_path_factory.mktemp("openapi") / "small"
    return service_at(folder, [1.7e9], limits=LIMITS, signals={"numbers": {"news": "count"}})


def accepted(act) -> bool:
    """Whether something is not refused."""
    try:
        act()
    except messages.Refused:
        return False
    return True


def validator(found: dict, schema: dict) -> jsonschema_rs.Validator:
    """Return a validator of a schema, with the document's components for its references."""
    return jsonschema_rs.Draft202012Validator({**schema, "components": found["components"]}, validate_formats=True)


def body_of(found: dict, path: str, method: str = "post") -> jsonschema_rs.Validator:
    return validator(found, found["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"])


@pytest.mark.parametrize("config", [None, "small", Config(server=Server(docs=False))])
def test_the_document_is_valid_openapi(small, config):
    found = json.loads(json.dumps(document(small.config if config == "small" else config)))
    assert list(OPENAPI_31_VALIDATOR.iter_errors(found)) == []
    assert all(validator(found, schema) is not None for schema in found["components"]["schemas"].values())  # or it raises


def test_the_validator_would_see_a_mistake():
    found = document()
    found["paths"]["/v1/rank"]["post"]["responses"]["2OO"] = {}
    assert not OPENAPI_31_VALIDATOR.is_valid(found)


def test_every_route_is_there():
    found = document()
    listed = {(method, path) for path, methods in found["paths"].items() for method in methods}
    assert listed == {(route.method, route.path) for route in LISTED}
    assert {path for _, path in listed} == {
        "/v1/rank", "/v1/rank/batch", "/v1/feedback", "/v1/feedback/batch", "/v1/beacon", "/v1/observe", "/v1/signals",
        "/ubi_events", "/ubi_queries",
        "/v1/signals/batch", "/v1/queries",
        "/v1/queries/{query}", "/v1/queries/{query}/shift", "/v1/rules", "/v1/rules/{id}", "/v1/audit", "/v1/shadow", "/v1/live",
        "/v1/experiments",
        "/v1/delete", "/v1/export",
        "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs",
    }  # fmt: skip
    assert len({route.name for route in LISTED}) == len(LISTED)
    assert "/docs" not in document(Config(server=Server(docs=False)))["paths"]
    assert "/v1/live" not in document(live=False)["paths"]


def test_every_reference_leads_somewhere():
    found = document()
    for reference in re.findall(r'"\$ref": "#/([^"]*)"', json.dumps(found)):
        place = found
        for step in reference.split("/"):
            place = place[step]
        assert place


def test_every_status_is_described():
    found = document()
    for route in LISTED:
        answers = found["paths"][route.path][route.method]["responses"]
        assert str(route.status) in answers
        assert {int(status) for status in answers} >= set(route.troubles)
    assert set(found["paths"]["/v1/feedback"]["post"]["responses"]) == {
        "200", "400", "401", "403", "413", "415", "421", "422", "429", "503",
    }  # fmt: skip
    assert "Retry-After" in found["components"]["responses"]["429"]["headers"]
    assert "503" not in found["paths"]["/v1/rank"]["post"]["responses"]  # rank degrades instead
    assert "Retry-After" in found["components"]["responses"]["503"]["headers"]


def test_the_examples_are_what_they_are_examples_of(tmp_path):
    found = document()
    for route in LISTED:
        asked, answered = EXAMPLES.get(route.name, (None, None))
        operation = found["paths"][route.path][route.method]
        if asked is not None:
            body_of(found, route.path, route.method).validate(asked)
        if answered is not None:
            validator(found, operation["responses"]["200"]["content"]["application/json"]["schema"]).validate(answered)
        assert (asked is not None) == ("requestBody" in operation)
    service_at(tmp_path / "s", [1.7e9]).ranking.prepare(read_rank(json.dumps(EXAMPLES["rank"][0]).encode()))


def test_keys_are_asked_for_when_there_are_some():
    assert document()["paths"]["/v1/rank"]["post"]["security"] == []
    guarded = document(Config(security=Security(api_keys=(ApiKey("a", "sha256:" + "0" * 64),))))["paths"]
    assert guarded["/v1/rank"]["post"]["security"] == [{"key": []}]
    assert guarded["/healthz"]["get"]["security"] == []


def rank(**changes):
    return {"query": "storm", "candidates": ["a", "b"], **changes}


RANKS = [
    (rank(), True),
    (rank(query="x" * 10), True),
    (rank(query="x" * 11), False),
    (rank(query=""), False),
    (rank(query=" \t"), False),
    (rank(query=" é "), True),
    (rank(query="a\0"), False),
    (rank(query="a\nb"), True),
    (rank(query=None), False),
    (rank(candidates=[]), False),
    (rank(candidates=list("abcd")), True),
    (rank(candidates=list("abcde")), False),
    (rank(candidates=["a", "a"]), False),
    (rank(candidates=["a", ""]), False),
    (rank(candidates=["x" * 5, {"id": "y" * 5}]), True),
    (rank(candidates=["x" * 6]), False),
    (rank(candidates=[{"id": "x" * 6}]), False),
    (rank(candidates=[{"id": "x\0"}]), False),
    (rank(candidates=[{"id": "x", "published_at": 1.7e9}]), True),
    (rank(candidates=[{"id": "x", "published_at": 1.7e12}]), False),
    (rank(candidates=[{"id": "x", "published_at": "2024-01-01T00:00:00Z"}]), True),
    (rank(candidates=[{"id": "x", "published_at": "2024-01-01"}]), False),
    (rank(candidates=[{"id": "x", "published_at": None}]), True),
    (rank(candidates=[{"id": "x", "rank": 3}]), False),
    (rank(candidates=[{"id": "x", "score": -2.5}]), True),
    (rank(candidates=[{"id": "x", "score": "3"}]), False),
    (rank(slots=1), True),
    (rank(slots=10), True),
    (rank(slots=None), True),
    (rank(slots=0), False),
    (rank(slots=11), False),
    (rank(slots=1.5), False),
    (rank(locale="en-US", filter="x" * 10, segment="s"), True),
    (rank(locale=""), False),
    (rank(filter="x" * 11), False),
    (rank(segment="a\0"), False),
    (rank(segment=3), False),
    (rank(candidates=[3]), False),
    (rank(signals={"news": 3}), True),
    (rank(signals={"news": None}), True),
    (rank(signals={"news": "3"}), False),
    (rank(signals={"views": None}), False),
    (rank(signals={"views": 3}), False),
    (rank(signals=None), True),
    (rank(session="s" * 6), True),
    (rank(session="s" * 7), False),
    (rank(session=""), False),
    (rank(session=None), True),
    (rank(user="u"), False),
    ({"query": "storm"}, False),
    ([], False),
]


@pytest.mark.parametrize(("request_", "taken"), RANKS)
def test_what_the_document_allows_is_what_is_taken(small, request_, taken):
    """The two say the same, alone and in a batch."""
    found = document(small.config)
    text = json.dumps(request_).encode()
    assert accepted(lambda: small.ranking.prepare(read_rank(text))) is taken
    assert body_of(found, "/v1/rank").is_valid(request_) is taken
    assert body_of(found, "/v1/rank/batch").is_valid([rank(), request_]) is taken


EVENTS = [
    ({"kind": "click", "result": "a"}, True),
    ({"kind": "click", "result": "x" * 5, "id": "e" * 5, "at": 1.7e9, "value": 1}, True),
    ({"kind": "click", "position": 1, "at": "2024-01-01T00:00:00Z"}, True),
    ({"kind": "click", "position": 1000, "result": None}, True),
    ({"kind": "click", "result": "a", "position": None}, True),
    ({"kind": "click", "result": "a", "position": 1}, False),
    ({"kind": "click"}, False),
    ({"kind": "click", "result": None}, False),
    ({"kind": "click", "result": None, "position": None}, False),
    ({"kind": "click", "result": "x" * 6}, False),
    ({"kind": "click", "result": ""}, False),
    ({"kind": "click", "result": "a", "id": "e" * 6}, False),
    ({"kind": "click", "result": "a", "value": 2}, False),
    ({"kind": "click", "result": "a", "value": 0.5}, True),
    ({"kind": "click", "result": "a", "value": -0.5}, False),
    ({"kind": "click", "position": 0}, False),
    ({"kind": "click", "position": 1001}, False),
    ({"kind": "click", "position": 1.5}, False),
    ({"kind": "click", "result": "a", "at": "yesterday"}, False),
    ({"kind": "click", "result": "a", "x": 1}, False),
    ({"kind": "buy", "result": "a"}, False),
    ({"result": "a"}, False),
    ("a", False),
]


@pytest.mark.parametrize(("event", "taken"), EVENTS)
def test_events_that_the_document_allows_are_those_that_are_taken(small, event, taken):
    found, limits = document(small.config), small.config.limits
    feedback = {"decision": TOKEN, "events": [{"kind": "click", "result": "a"}, event]}
    text = json.dumps(feedback).encode()
    assert accepted(lambda: check_feedback(read_feedback(text), limits)) is taken
    assert body_of(found, "/v1/feedback").is_valid(feedback) is taken
    assert body_of(found, "/v1/feedback/batch").is_valid([feedback]) is taken
    observed = {"query": "storm", "shown": ["a", "b"], "events": [event]}
    text = json.dumps(observed).encode()
    assert accepted(lambda: check_events(read_observe(text).events, limits)) is taken
    assert body_of(found, "/v1/observe").is_valid(observed) is taken


SHOWN = [(["a"], True), (list("abcd"), True), (None, True), ([], False), (list("abcde"), False), (["a", "a"], False), ([""], False)]


@pytest.mark.parametrize(("shown", "taken"), SHOWN)
def test_what_was_shown_as_the_document_allows_it(small, shown, taken):
    found = document(small.config)
    feedback = {"decision": TOKEN, "events": [], "shown": shown}
    text = json.dumps(feedback).encode()
    assert accepted(lambda: check_feedback(read_feedback(text), small.config.limits)) is taken
    assert body_of(found, "/v1/feedback").is_valid(feedback) is taken
    observed = {"query": "storm", "shown": shown, "events": []}
    text = json.dumps(observed).encode()
    taken = taken and shown is not None  # an observed ranking must have it
    assert accepted(lambda: small.ranking.prepare_shown(read_observe(text))) is taken
    assert body_of(found, "/v1/observe").is_valid(observed) is taken


def pin(**changes):
    return {"kind": "pin", "result": "a", "position": 1, **changes}


RULES = [
    (pin(), True),
    (pin(query="x" * 10, locale="de", filter="f", segment="s", note="why", until=4e9), True),
    (pin(until="2099-01-01T00:00:00Z", up=None), True),
    (pin(position=None), False),
    (pin(position=0), False),
    (pin(position=1001), False),
    (pin(result=None), False),
    (pin(result="x" * 6), False),
    (pin(up=1), False),
    (pin(query=""), False),
    (pin(query=" "), False),
    (pin(query="x" * 11), False),
    (pin(locale="de"), False),
    (pin(query=None, locale=None), True),
    (pin(query="q", locale=""), False),
    (pin(note="x" * 501), False),
    (pin(until="soon"), False),
    (pin(color="red"), False),
    ({"kind": "block", "result": "a"}, True),
    ({"kind": "block", "result": "a", "position": 1}, False),
    ({"kind": "boost", "result": "a", "up": 3}, True),
    ({"kind": "boost", "result": "a", "up": 0}, False),
    ({"kind": "boost", "result": "a"}, False),
    ({"kind": "off"}, True),
    ({"kind": "off", "query": "q", "result": None}, True),
    ({"kind": "off", "result": "a"}, False),
    ({"kind": "on"}, False),
    ({}, False),
]


@pytest.mark.parametrize(("rule", "taken"), RULES)
def test_rules_that_the_document_allows_are_those_that_are_taken(small, rule, taken):
    text = json.dumps(rule).encode()
    assert accepted(lambda: check_rule(read_rule(text), small.config.limits, 1.7e9)) is taken
    assert body_of(document(small.config), "/v1/rules").is_valid(rule) is taken


DELETIONS = [
    ({"query": "q"}, True),
    ({"query": "q", "result": "a", "locale": "de", "namespace": "toys"}, True),
    ({"result": "a"}, True),
    ({"result": "a", "namespace": "toys"}, True),
    ({"result": "a", "query": None}, True),
    ({"result": "a", "locale": "de"}, False),
    ({"result": None}, False),
    ({"result": "x" * 6}, False),
    ({"query": "x" * 11}, False),
    ({"query": " "}, False),
    ({"query": "q", "segment": ""}, False),
    ({"namespace": "toys"}, False),
    ({"all": True}, False),
    ({}, False),
]


@pytest.mark.parametrize(("deletion", "taken"), DELETIONS)
def test_deletions_that_the_document_allows_are_those_that_are_taken(small, deletion, taken):
    text = json.dumps(deletion).encode()
    assert accepted(lambda: check_delete(read_delete(text), small.config.limits)) is taken
    assert body_of(document(small.config), "/v1/delete").is_valid(deletion) is taken


def test_feedback_and_batches(small):
    found = document(small.config)
    one, many = body_of(found, "/v1/feedback"), body_of(found, "/v1/feedback/batch")
    assert one.is_valid({"decision": TOKEN, "events": []})
    for wrong in ({"decision": TOKEN}, {"decision": "short", "events": []}, {"decision": TOKEN, "clicked": None}):
        assert not one.is_valid(wrong)
    click = {"kind": "click", "position": 1}
    assert one.is_valid({"decision": TOKEN, "events": [click] * MOST_EVENTS})
    assert not one.is_valid({"decision": TOKEN, "events": [click] * (MOST_EVENTS + 1)})
    assert many.is_valid([{"decision": TOKEN, "events": []}] * 3) and not many.is_valid([{"decision": TOKEN, "events": []}] * 4)


def test_answers_are_as_described():
    found = document()
    arm = messages.ArmState("a", 10, 3, 4, 1, 1e9, 1.1e9)
    state = messages.QueryState(
        None, None, 3, 4, 10, 1e9, 1.1e9, False, {"age": None}, [arm], [messages.Alarm(1e9, "operator", None, "none", 2)]
    )
    summary = messages.QuerySummary("00", "storm", messages.Parts(locale="de"), 3, 1, 1e9, None, False)
    for answer in (
        state,
        messages.QueryList("traffic", [summary]),
        messages.ShiftResponse(3),
        messages.RankResponse(None, ["a"], None, None, None, True),
        messages.RankResponse(TOKEN, ["b", "a"], [0.25, 0.25], 1, 3, False),
        messages.RankResponse(TOKEN, ["b", "a"], [1.0, 0.25], 1, 3, False, [Ruled("pin", 1, "b", 1), Ruled("off", 2)]),
        ShadowReport("shadow", 1e9, 3, 2, 1, [ShadowQuery("00", 3, 2, 1, ["a"], ["b"])]),
        Rule(1, "pin", 1e9, "ada", "a", 1, until=2e9),
        RuleList([Rule(1, "off", 1e9)]),
        ChangeList([Change(1e9, "set", "ada", None, Rule(1, "off", 1e9)), Change(1e9, "shift", query="q", phase_before=1)]),
        DeleteResponse(1, 0),
        messages.FeedbackResponse("late"),
        messages.ObserveResponse("learned", TOKEN),
        messages.Problem(messages.Error("empty", "query is empty")),
        messages.Health("starting", "compiling"),
    ):
        schema = validator(found, {"$ref": f"#/components/schemas/{type(answer).__name__}"})
        schema.validate(msgspec.json.decode(messages.encode(answer)))
        assert not schema.is_valid({})


def test_the_page_asks_nobody_else():
    page = docs_page()
    assert "://" not in page
    assert not re.search(r"\b(src|href|action)=\"(?!data:,)", page)
    assert re.findall(r"fetch\(([^)+]*)", page) == ["path ", '"openapi.json"']
    assert "innerHTML" not in page and "eval(" not in page
    assert len(re.findall("'sha256-[A-Za-z0-9+/]{43}='", docs_policy())) == 2
