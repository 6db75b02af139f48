"""Any request gets an answer that the OpenAPI document describes, and never an internal error."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings, strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from service.running import Http, Running, said_of

from swerve.service.http.routes import LISTED
from swerve.serving.tokens import Signed, Tokens, page_of
from swerve.store import Life

CONFIG = {"limits": {"body_bytes": 65536}}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TAKING = [route.name for route in LISTED if route.request is not None or "{" in route.path]


pytestmark = pytest.mark.usefixtures("unharmed")


def fuzz(address: str, cases: Any, checks: list[Any], examples: int) -> None:
    """Send cases of one operation and check every answer."""

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def answers(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=address, checks=checks)

    answers()


def conforms(served: Running, mode: GenerationMode, examples: int) -> set[str]:
    """Send valid and deliberately invalid requests, generated from the document, to all operations; return the operations."""
    address = f"http://127.0.0.1:{served.port}"
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    refused = schema.config.checks.negative_data_rejection
    refused.expected_statuses = [*refused.expected_statuses, "413"]  # too many events may be too many bytes
    seen = []
    for found in schema.get_all_operations():
        operation = found.ok()
        name = operation.definition.raw["operationId"]
        if name == "live":
            continue  # its answer is endless: tests/dashboard/test_stream.py covers it
        if mode is GenerationMode.NEGATIVE and name not in TAKING:
            continue  # has no parameters
        seen.append(name)
        # entries of a batch are refused one by one, inside a 200
        wrong = mode is GenerationMode.NEGATIVE and not name.endswith("batch")
        checks = [*CHECKS, negative_data_rejection] if wrong else CHECKS

        fuzz(address, operation.as_strategy(generation_mode=mode), checks, examples if name in TAKING else 1)
    operator = served.client()  # rules and an experiment would change the rankings of the tests after this one
    assert operator.call("PUT", "/v1/experiments", {"name": ""}).json == {"running": False}
    for rule in operator.call("GET", "/v1/rules").json["rules"]:
        assert operator.call("DELETE", f"/v1/rules/{rule['id']}").status == 200
    return set(seen)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_described(served, mode):
    assert set(TAKING) <= conforms(served, mode, 12)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_described_for_many_requests(served, mode):
    assert set(TAKING) <= conforms(served, mode, 300)


DEEP = 100_000
HOSTILE = {
    "nothing": b"",
    "not json": b"{",
    "a NUL": b'{"query": "a\x00b", "candidates": ["a"]}',
    "an escaped NUL": rb'{"query": "a\u0000b", "candidates": ["a"]}',
    "a NUL in an id": rb'{"query": "q", "candidates": ["a\u0000"]}',
    "half a pair": rb'{"query": "\ud800", "candidates": ["a"]}',
    "half a pair in an id": rb'{"query": "q", "candidates": ["\udfff"]}',
    "half a pair in a session": rb'{"query": "q", "candidates": ["a"], "session": "\ud800x"}',
    "half a pair in a name": rb'{"query": "q", "candidates": ["a"], "signals": {"\ud800": 1}}',
    "too large a number": b'{"query": "q", "candidates": ["a"], "signals": {"news": 1e999}}',
    "too small a number": b'{"query": "q", "candidates": ["a"], "signals": {"news": -1e999}}',
    "no number": b'{"query": "q", "candidates": ["a"], "signals": {"news": NaN}}',
    "many digits": b'{"query": "q", "candidates": ["a"], "signals": {"news": ' + b"9" * 5000 + b"}}",
    "a date out of range": b'{"query": "q", "candidates": [{"id": "a", "published_at": 1e300}]}',
    "a date that is none": b'{"query": "q", "candidates": [{"id": "a", "published_at": "0000-13-40T99:99:99Z"}]}',
    "nested lists": b"[" * DEEP + b"]" * DEEP,
    "nested candidates": b'{"query": "q", "candidates": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "nested objects": b'{"query": ' * 5_000 + b"1" + b"}" * 5_000,
    "nothing but white space": b'{"query": " \\t\\u2003\\u00a0", "candidates": ["a"]}',
    "the same key twice": b'{"query": "q", "query": "r", "candidates": ["a"], "candidates": []}',
    "not UTF-8": b'{"query": "\xff\xfe", "candidates": ["a"]}',
    "UTF-16": '{"query": "q", "candidates": ["a"]}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"query": "q", "candidates": ["a"]}',
    "too many candidates": json.dumps({"query": "q", "candidates": [str(n) for n in range(9)]}).encode(),
    "too long an id": json.dumps({"query": "q", "candidates": ["x" * 257]}).encode(),
    "too long a query": json.dumps({"query": "x" * 513, "candidates": ["a"]}).encode(),
    "a body over the limit": json.dumps({"query": "q", "candidates": ["a"], "session": "x" * 70_000}).encode(),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bodies_are_refused_in_words(served, client, body):
    for path in ("/v1/rank", "/v1/rank/batch", "/v1/feedback", "/v1/feedback/batch"):
        for sent in (body, b"[" + body + b"]"):
            answer = client.call("POST", path, sent)
            listed = path.endswith("batch") and answer.status == 200
            assert listed or answer.status in (400, 413, 422), (path, answer)
            for problem in answer.json if listed else [answer.json]:
                assert problem["error"]["code"] and problem["error"]["message"], answer


TEXTS = [
    *(
        "a/b",
        "a//b",
        "/",
        "..",
        "../../etc/passwd",
        "100%",
        "%2F",
        "%",
        "a?b=c",
        "a#b",
        "a+b",
        "a&b;c",
        "key:x",
        "shift",
        "a/shift",
    ),
    *("café", "日本語", "🌀 hurricane", "עברית", "\u202eevil", "a\nb", "'; DROP TABLE rows; --", "\\", '"', "\x7f", "ﬀ", "ß"),
]


def test_good_texts_of_all_kinds_are_kept_apart_and_found_again(client):
    """Slashes, percent signs, dots, other scripts: a ranked query is found under its path."""
    for number, text in enumerate(TEXTS):
        answer = client.rank(text, [f"only {number}", "other"])
        assert answer.status == 200 and not answer.json["degraded"], text
    for number, text in enumerate(TEXTS):
        state = client.query(text)
        assert state.status == 200, text
        assert f"only {number}" in {arm["id"] for arm in state.json["arms"]}, text
        assert client.call("POST", f"/v1/queries/{quote(text, safe='')}/shift", {}).json == {"phase": 2}, text


def test_every_other_method_is_refused(client):
    for route in LISTED:
        path = route.path.replace("{query}", "some%20query").replace("{id}", "1")
        methods = {other.method for other in LISTED if other.path == route.path}
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            if method.lower() in methods:
                continue
            answer = client.call(method, path)
            if method == "HEAD":
                assert answer.body == b"" and answer.status in (200, 404, 405)
            elif (method, route.name) == ("GET", "shift"):
                assert answer.status == 404  # read as a query that ends with /shift
            else:
                assert answer.status == 405, (method, path, answer)
                assert {one.upper() for one in methods} <= set(answer.headers["allow"].split(", "))
                assert answer.json["error"]["code"] == "method"


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data"]
)
def test_another_content_type_is_refused(client, kind):
    body = b'{"query": "q", "candidates": ["a"]}'
    for path in ("/v1/rank", "/v1/rank/batch", "/v1/feedback", "/v1/feedback/batch"):
        assert client.call("POST", path, body, {"Content-Type": kind}).status == 415


def test_json_with_a_charset_is_json(client):
    body = b'{"query": "q", "candidates": ["a"]}'
    assert client.call("POST", "/v1/rank", body, {"Content-Type": "Application/JSON; charset=utf-8"}).status == 200


def mutations(token: str, count: int, seed: int) -> list[str]:
    """Yield tokens that are nearly valid."""
    draw = random.Random(seed)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    out = ["", token[:-1], f"{token}A", f"{token}=", token.swapcase(), token[::-1], f" {token}", f"{token}\n", "é" * len(token)]
    for _ in range(count):
        changed = list(token)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed))] = draw.choice(letters)
        out.append("".join(changed))
    return [text for text in out if text != token]


def test_forged_tokens_are_refused_and_count_nothing(client):
    answer = client.rank("forged", ["a", "b"]).json
    for text in mutations(answer["decision"], 300, 1):
        assert client.feedback(text, answer["ranking"][0]).status in (403, 422), text
    batch = [said_of(text, answer["ranking"][0]) for text in mutations(answer["decision"], 300, 2)]
    lines = client.call("POST", "/v1/feedback/batch", batch)
    assert lines.status == 200 and all("error" in line for line in lines.json)
    assert client.clicks("forged") == {}
    assert client.feedback(answer["decision"], answer["ranking"][0]).json == {"status": "learned"}


@given(token=st.text(max_size=120), clicked=st.none() | st.text(max_size=300))
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_any_text_as_a_token(served, token, clicked):
    client = Http(served.port)
    try:
        body = json.dumps(said_of(token, clicked)).encode()
        assert client.call("POST", "/v1/feedback", body).status in (400, 403, 422)
    finally:
        client.close()


def test_tokens_of_another_service_are_refused(served, client):
    """A token of the same version, signed with another key."""
    other = Tokens((b"another key of 32 bytes.........",), Life(1, 2, 3))
    token = other.sign(Signed(b"q" * 16, 0, 1, 5, 9, True, seen=1, offer=1, page=page_of([0], [3])), 1e9)
    answer = client.feedback(token, "a")
    assert (answer.status, answer.json["error"]["code"]) == (403, "forged")
