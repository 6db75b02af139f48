"""The OpenAPI document: valid, complete, and consistent with the code that checks requests."""

from __future__ import annotations

import json
import re

import jsonschema_rs
import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from swerve.service.config.load import ApiKey, Config, Limits, Security, Server, Signals
from swerve.service.http.openapi import EXAMPLES, LISTED, docs_page, docs_policy, document
from swerve.service.http.schemas import read_rank
from swerve.serving import messages
from swerve.serving.checks import check

SMALL = Config(
    limits=Limits(candidates=4, query_chars=10, id_chars=5, session_chars=6, batch=3), signals=Signals(numbers={"news": "count"})
)
TOKEN = "A" * 120


def validator(found: dict, schema: dict) -> jsonschema_rs.Validator:
    """Return a validator of a schema, with the document's components for its references."""
    return jsonschema_rs.Draft202012Validator({**schema, "components": found["components"]}, validate_formats=True)


def request_in(body: bytes) -> messages.RankRequest:
    """Return a body's request, with its candidates decoded."""
    asked = read_rank(body)
    return messages.RankRequest(asked.query, asked.read(), asked.signals, asked.session)


def body_of(found: dict, path: str) -> jsonschema_rs.Validator:
    return validator(found, found["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"])


@pytest.mark.parametrize("config", [None, SMALL, Config(server=Server(docs=False))])
def test_the_document_is_valid_openapi(config):
    found = json.loads(json.dumps(document(config)))
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
        "/v1/rank", "/v1/rank/batch", "/v1/feedback", "/v1/feedback/batch", "/v1/queries", "/v1/queries/{query}",
        "/v1/queries/{query}/shift", "/v1/live", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs",
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
        assert "200" in answers
        assert {int(status) for status in answers} >= set(route.troubles)
    assert set(found["paths"]["/v1/feedback"]["post"]["responses"]) == {
        "200", "400", "401", "403", "413", "415", "421", "422", "503",
    }  # fmt: skip
    assert "503" not in found["paths"]["/v1/rank"]["post"]["responses"]  # rank degrades instead
    assert "Retry-After" in found["components"]["responses"]["503"]["headers"]


def test_the_examples_are_what_they_are_examples_of():
    found = document()
    for route in LISTED:
        asked, answered = EXAMPLES.get(route.name, (None, None))
        operation = found["paths"][route.path][route.method]
        if asked is not None:
            body_of(found, route.path).validate(asked)
        if answered is not None:
            validator(found, operation["responses"]["200"]["content"]["application/json"]["schema"]).validate(answered)
        assert (asked is not None) == ("requestBody" in operation)
    check(request_in(json.dumps(EXAMPLES["rank"][0]).encode()), Config().limits)


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
def test_what_the_document_allows_is_what_is_taken(request_, taken):
    """Document and code agree, for a single request and for a batch."""
    found = document(SMALL)
    names = set(SMALL.signals.numbers)

    def accepted(act) -> bool:
        try:
            act()
        except messages.Refused:
            return False
        return True

    text = json.dumps(request_).encode()
    assert accepted(lambda: check(request_in(text), SMALL.limits, names)) is taken
    assert body_of(found, "/v1/rank").is_valid(request_) is taken
    assert body_of(found, "/v1/rank/batch").is_valid([rank(), request_]) is taken


def test_feedback_and_batches():
    found = document(SMALL)
    one, many = body_of(found, "/v1/feedback"), body_of(found, "/v1/feedback/batch")
    assert one.is_valid({"decision": TOKEN, "clicked": None}) and one.is_valid({"decision": TOKEN, "clicked": "a"})
    for wrong in ({"decision": TOKEN}, {"decision": "short", "clicked": None}, {"decision": TOKEN, "clicked": "x" * 6}):
        assert not one.is_valid(wrong)
    assert many.is_valid([{"decision": TOKEN, "clicked": None}] * 3) and not many.is_valid(
        [{"decision": TOKEN, "clicked": None}] * 4
    )


def test_answers_are_as_described():
    found = document()
    arm = messages.ArmState("a", 10, 3, 4, 1, 1e9, 1.1e9)
    state = messages.QueryState(
        None, 3, 4, 10, 1e9, 1.1e9, False, {"age": None}, [arm], [messages.Alarm(1e9, "operator", None, "none", 2)]
    )
    summary = messages.QuerySummary("00", None, 3, 1, 1e9, None, False)
    for answer in (
        state,
        messages.QueryList("traffic", [summary]),
        messages.ShiftResponse(3),
        messages.RankResponse(None, ["a"], False, None, None, True),
        messages.FeedbackResponse("late"),
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
