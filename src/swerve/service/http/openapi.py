"""The OpenAPI 3.1 document of the service, made from the schemas and the configured limits, and the page that shows it."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import inspect
import re
from typing import Any

import msgspec

from swerve.service.config.forms import NAME
from swerve.service.config.load import Config
from swerve.service.config.settings import weights_of
from swerve.service.http.routes import ARROW, JSON, KEY_PARTS, LISTED, LISTING, Route
from swerve.service.http.schemas import MOST_DIGITS
from swerve.serving import control, experiment, messages
from swerve.serving.checks import MOST_EVENTS
from swerve.serving.settings import ANY
from swerve.serving.tokens import LENGTHS
from swerve.version import __version__

Json = dict[str, Any]
_REF = "#/components/schemas/"

TROUBLES = {
    400: "The body is not JSON; or the request has no `Host`, or two.",
    401: "No API key, or one that is not known.",
    403: "The API key lacks the scope, or is bound to other namespaces; the token is forged or foreign; or a page of another "
    "origin calls (`server.origins`).",
    404: "The query, or the rule, is not known; or the route is off.",
    409: "Rules in force name what is to be deleted: remove them first.",
    413: "The body is larger than `limits.body_bytes`, or than one request can need under the other limits.",
    415: "The body is not declared as application/json (beacons: or text/plain).",
    421: "The name in `Host` is not one of the service (`server.hosts`).",
    422: "The body or a parameter has the wrong type, or exceeds a limit; `field` names it.",
    429: "Too many requests of this API key, for this namespace, or from this address (`rate`). Try again after "
    "`Retry-After` seconds.",
    503: "The store cannot be used now, or the service is starting or stopping. Try again after `Retry-After` seconds.",
}


_DECISION = (
    "AwECAQAAAQIDBAUGBwgJCgsMDQ4PAQAABAAAAAAAAABA_FTZQQEBRVZSRVdT8N68mnhWNB"
    "IHAAAAAAAAAGdFIwHvvu3-AwAAAAAAAAABAPHevJoAAHhWNBIKQly7GJttJbQR4r1o3e1K"
)
_RANK = {
    "query": "hurricane",
    "candidates": ["team-page", {"id": "storm-warning", "published_at": "2024-09-26T14:00:00Z"}],
    "session": "s-81",
}
_RANKED = {
    "decision": _DECISION,
    "ranking": ["storm-warning", "team-page"],
    "propensities": [0.7778, 0.7778],
    "explored": None,
    "phase": 2,
    "degraded": False,
}
_CLICK = {"decision": _DECISION, "events": [{"kind": "click", "result": "storm-warning"}]}
_SIGNAL = {"name": "news", "value": 12, "query": "hurricane", "at": "2024-09-26T14:00:00Z", "ttl_seconds": 900}
_EVENT = {
    "action_name": "click",
    "query_id": "00112233-4455-6677-8899-aabbccddeeff",
    "timestamp": "2024-09-26T14:00:00Z",
    "event_attributes": {"object": {"object_id": "storm-warning"}, "position": {"ordinal": 2}},
}
_QUERY = {
    "query_id": "00112233-4455-6677-8899-aabbccddeeff",
    "user_query": "hurricane",
    "query_response_hit_ids": ["team-page", "storm-warning"],
    "query_attributes": {"decision": _DECISION},
}
_OBSERVED = {"query": "hurricane", "shown": ["team-page", "storm-warning"], "events": [{"kind": "click", "position": 2}]}
#: A batch as columns.
STREAM: Json = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "A stream of Apache Arrow's IPC format. Its columns are the fields of the entries, those of the answer the "
        "fields of its entries and `error`; null stands for what JSON leaves out.",
    }
}
#: Operation → an example of its request and of its answer.
EXAMPLES: dict[str, tuple[Any, Any]] = {
    "rank": (_RANK, _RANKED),
    "rank_batch": ([_RANK], [_RANKED]),
    "feedback": (_CLICK, {"status": "learned"}),
    "feedback_batch": ([_CLICK], [{"status": "learned"}]),
    "beacon": (_CLICK, None),
    "ubi_events": ([_EVENT], None),
    "ubi_queries": ([_QUERY], None),
    "observe": (_OBSERVED, {"status": "learned", "decision": _DECISION}),
    "signals": (_SIGNAL, {"status": "taken"}),
    "signals_batch": ([_SIGNAL], [{"status": "taken"}]),
    "shift": ({}, {"phase": 3}),
    "set_rule": (
        {"kind": "pin", "result": "storm-warning", "position": 1, "query": "hurricane", "until": "2030-01-01T00:00:00Z"},
        {"id": 1, "kind": "pin", "at": 1794832659.4, "result": "storm-warning", "position": 1, "query": "hurricane"},
    ),
    "set_experiment": (
        {"name": "spring", "treated": 0.05, "note": "first look"},
        {"running": True, "name": "spring", "treated": 0.05, "since": 1794832659.4, "note": "first look", "verdict": "undecided"},
    ),
    "delete": ({"query": "hurricane", "result": "team-page"}, {"queries": 0, "results": 1}),
    "healthz": (None, {"status": "ok"}),
    "readyz": (None, {"status": "ok"}),
}


def document(config: Config | None = None, live: bool = True) -> Json:
    """Return the OpenAPI document of a service with this configuration, with or without the live events."""
    config = config or Config()
    hidden = {*(() if config.server.docs else ("openapi", "docs")), *(() if live else ("live",))}
    shown = [route for route in LISTED if route.name not in hidden]
    types = [kind for route in shown for kind in (route.request, route.response) if kind is not None]
    _, components = msgspec.json.schema_components([*types, messages.Problem], ref_template=_REF + "{name}")
    for component in components.values():
        component["description"] = inspect.cleandoc(component["description"])
    listing = {kind.__name__: components.pop(kind.__name__) for kind in LISTING}
    _narrow(components, config)
    paths: Json = {}
    for route in shown:
        paths.setdefault(route.path, {})[route.method] = _operation(route, config, listing)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Swerve",
            "version": __version__,
            "summary": "Adaptive ranking behind a search box.",
            "description": "Rank a query's candidates and send what was clicked. A known path with another method answers 405.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(status): _trouble(status) for status in TROUBLES},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key of `swerve keys new`."}},
        },
    }


def _narrow(components: Json, config: Config) -> None:
    """Add the limits that `serving.checks` enforces to the schemas."""
    limits = config.limits
    text = {"minLength": 1, "pattern": r"^[^\u0000]*$"}
    rank, feedback = components["RankRequest"]["properties"], components["FeedbackRequest"]["properties"]
    observe, event = components["ObserveRequest"]["properties"], components["Event"]["properties"]
    name = {**text, "maxLength": limits.id_chars}
    listed = {"minItems": 1, "maxItems": limits.candidates, "uniqueItems": True}
    for request, candidates in ((rank, "candidates"), (observe, "shown")):
        request["query"] |= _query(config)
        request[candidates] |= listed
        request[candidates]["items"]["anyOf"][0] |= name
        request["session"]["anyOf"][0] |= {**text, "maxLength": limits.session_chars}
        for part in ("locale", "filter", "segment"):
            request[part]["anyOf"][0] |= {**text, "maxLength": limits.query_chars}
        request["namespace"] = _namespace(request["namespace"], config)
        numbers = request["signals"]["anyOf"][0]
        numbers["properties"] = {number: {"type": ["number", "null"]} for number in config.signals.numbers}
        numbers["additionalProperties"] = False
        request_events = (feedback if request is rank else observe)["events"]
        request_events |= {"maxItems": MOST_EVENTS}
    components["Candidate"]["properties"]["id"] |= name
    for field in ("result", "id"):
        event[field]["anyOf"][0] |= name
    event["kind"]["enum"] = list(weights_of(config))
    components["Event"]["oneOf"] = [
        {"required": [field], "properties": {field: {"type": kind}}}
        for field, kind in (("result", "string"), ("position", "integer"))
    ]
    rule = components["RuleRequest"]
    of_rule = rule["properties"]
    of_rule["query"]["anyOf"][0] |= _query(config)
    of_rule["result"]["anyOf"][0] |= name
    of_rule["note"]["anyOf"][0] |= {"maxLength": control.MOST_NOTE}
    for part in ("locale", "filter", "segment"):
        of_rule[part]["anyOf"][0] |= {**text, "maxLength": limits.query_chars}
    of_rule["namespace"] = _namespace(of_rule["namespace"], config)
    rule["oneOf"] = [_kind_of_rule(kind, needs) for kind, needs in control.NEEDS.items()]
    rule["anyOf"] = [  # a rule for all queries has no parts of a query
        {"required": ["query"], "properties": {"query": {"type": "string"}}},
        {"properties": {part: {"type": "null"} for part in ("query", "locale", "filter", "segment")}},
    ]  # a namespace may stand without a query
    rank["query_id"]["anyOf"][0] |= {**text, "maxLength": limits.session_chars}
    rank["unit"]["anyOf"][0] |= {**text, "maxLength": limits.session_chars}
    trial = components["ExperimentRequest"]
    trial["properties"]["name"]["anyOf"][0] |= {"pattern": f"^({experiment.NAME.pattern})?$"}
    trial["properties"]["note"]["anyOf"][0] |= {"maxLength": control.MOST_NOTE}
    _narrow_delete(components["DeleteRequest"], config, name, text)
    _narrow_signal(components["SignalRequest"], config, text)
    feedback["decision"] |= {"minLength": LENGTHS[0], "maxLength": LENGTHS[-1], "pattern": "^[A-Za-z0-9_-]*$"}
    feedback["shown"]["anyOf"][0] |= {**listed, "items": {"type": "string", **name}}


def _narrow_delete(request: Json, config: Config, name: Json, text: Json) -> None:
    """Add the limits of a deletion, which names a query or a result."""
    of = request["properties"]
    of["query"]["anyOf"][0] |= _query(config)
    of["result"]["anyOf"][0] |= name
    for part in ("locale", "filter", "segment", "namespace"):
        of[part]["anyOf"][0] |= {**text, "maxLength": config.limits.query_chars}
    nothing = {part: {"type": "null"} for part in ("query", "locale", "filter", "segment")}
    request["anyOf"] = [
        {"required": ["query"], "properties": {"query": {"type": "string"}}},
        {"required": ["result"], "properties": {"result": {"type": "string"}, **nothing}},
    ]


def _narrow_signal(request: Json, config: Config, text: Json) -> None:
    """Add the limits of a pushed number; one for all queries has no parts of a query."""
    of = request["properties"]
    if config.signals.numbers:
        of["name"]["enum"] = list(config.signals.numbers)
    of["query"]["anyOf"][0] |= _query(config)
    for part in ("locale", "filter", "segment"):
        of[part]["anyOf"][0] |= {**text, "maxLength": config.limits.query_chars}
    of["namespace"] = _namespace(of["namespace"], config)
    request["anyOf"] = [
        {"required": ["query"], "properties": {"query": {"type": "string"}}},
        {"properties": {part: {"type": "null"} for part in ("query", "locale", "filter", "segment")}},
    ]


def _namespace(schema: Json, config: Config) -> Json:
    """Return the schema of a namespace: one that is configured, or none."""
    about = {name: value for name, value in schema.items() if name != "anyOf"}
    names = [name for name in config.namespaces if name != ANY]
    if ANY in config.namespaces:
        return {**about, "anyOf": [{"type": "string", "pattern": NAME.replace(r"\Z", "$")}, {"type": "null"}]}
    return {**about, "anyOf": [{"enum": names}, {"type": "null"}]} if names else {**about, "type": "null"}


def _kind_of_rule(kind: str, needs: tuple[str, ...]) -> Json:
    """Return what a rule of a kind must and may not have."""
    others = [field for field in ("result", "position", "up") if field not in needs]
    given = {field: {"type": "string" if field == "result" else "integer"} for field in needs}
    return {"required": ["kind", *needs], "properties": {"kind": {"const": kind}, **given, **{o: {"type": "null"} for o in others}}}


def _query(config: Config) -> Json:
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": config.limits.query_chars,
        "pattern": r"^[^\u0000]*[^\u0000\s][^\u0000]*$",
    }


def _operation(route: Route, config: Config, listing: Json) -> Json:
    operation: Json = {"operationId": route.name, "summary": route.summary, "tags": [_tag(route)]}
    asked, answered = EXAMPLES.get(route.name, (None, None))
    parameters: list[Json] = []
    if "{query}" in route.path:
        about = "The text of the query, percent-encoded (also its slashes); or `key:` and its key, as the list gives it."
        parameters.append({"name": "query", "in": "path", "required": True, "description": about, "schema": _query(config)})
        for part in KEY_PARTS:
            about = f"The {part} that the query was asked with."
            parameters.append({"name": part, "in": "query", "description": about, "schema": {"type": "string", "minLength": 1}})
    if route.name == "live":
        about = "A query to watch: its state and its rankings are sent too. Its text, or `key:` and its key."
        parameters.append({"name": "query", "in": "query", "description": about, "schema": _query(config)})
        about = "The `id` of the last event that was read, for the same query: the stream continues after it."
        parameters.append({"name": "Last-Event-ID", "in": "header", "description": about, "schema": {"type": "string"}})
    if "{id}" in route.path:
        whole = {"type": "integer", "minimum": 0, "maximum": 10**MOST_DIGITS - 1}
        parameters.append({"name": "id", "in": "path", "required": True, "description": "The id of the rule.", "schema": whole})
    if route.request in LISTING:
        of_list = listing[route.request.__name__]["properties"]
        parameters += [{"name": name, "in": "query", "schema": kind} for name, kind in of_list.items()]
    elif route.request is not None:
        body = _ref(route.request)
        if route.many:
            body = {"type": "array", "items": body, "maxItems": config.limits.batch}
        elif route.by_address:
            body = {"anyOf": [body, {"type": "array", "items": body, "maxItems": config.limits.batch}]}
        taken = {kind: STREAM if kind == ARROW else _content(body, asked) for kind in route.takes}
        operation["requestBody"] = {"required": not route.bodiless, "content": taken}
    if parameters:
        operation["parameters"] = parameters
    schema = _ref(route.response) if route.response is not None else {"type": "object" if route.media == JSON else "string"}
    if route.many:
        schema = {"type": "array", "items": {"anyOf": [schema, _ref(messages.Problem)]}}
    answers: Json = {str(route.status): {"description": route.summary}}
    if route.status != 204:
        answers[str(route.status)]["content"] = {route.media: _content(schema, answered)}
        if ARROW in route.takes:
            answers[str(route.status)]["content"][ARROW] = STREAM
    if route.name == "readyz":
        answers["503"] = {"description": "The service cannot serve now.", "content": {JSON: {"schema": schema}}}
    for status in sorted(route.troubles):
        answers[str(status)] = {"$ref": f"#/components/responses/{status}"}
    operation["responses"] = answers
    # Without configured keys callers need none.
    operation["security"] = [{"key": []}] if route.scope and config.security.api_keys else []
    if route.scope:
        operation["description"] = f"Scope of the API key: `{route.scope}`."
    return operation


def _ref(kind: type[msgspec.Struct]) -> Json:
    return {"$ref": _REF + kind.__name__}


def _tag(route: Route) -> str:
    if route.path.startswith(("/v1/rules", "/v1/audit", "/v1/experiments", "/v1/delete", "/v1/export")):
        return "control"
    if route.path.startswith(("/v1/queries", "/v1/live", "/v1/shadow")):
        return "state"
    return "decisions" if route.path.startswith(("/v1/", "/ubi_")) else "service"


def _content(schema: Json, example: Any) -> Json:
    return {"schema": schema} if example is None else {"schema": schema, "example": example}


def _trouble(status: int) -> Json:
    answer: Json = {
        "description": TROUBLES[status],
        "content": {JSON: {"schema": _ref(messages.Problem)}},
    }
    if status in (429, 503):
        answer["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
    return answer


@functools.cache
def docs_page() -> str:
    """Return the HTML page that shows `openapi.json`. It loads nothing else."""
    return importlib.resources.files("swerve.service.http").joinpath("docs.html").read_text(encoding="utf-8")


@functools.cache
def docs_policy() -> str:
    """Return the Content-Security-Policy of the page: its own script and style, requests to its own service."""
    page = docs_page()
    script, style = (_hash(page, tag) for tag in ("script", "style"))
    rules = ["default-src 'none'", f"script-src {script}", f"style-src {style}", "connect-src 'self'", "img-src data:"]
    return "; ".join([*rules, "base-uri 'none'", "frame-ancestors 'none'"])


def _hash(page: str, tag: str) -> str:
    inside = re.search(f"<{tag}>(.*?)</{tag}>", page, re.S)
    assert inside is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()}'"
