"""Every route of the service: its path, its scope, what it takes and answers, and which checks it is excepted from."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from swerve.service.config.callers import Scope
from swerve.serving import control, experiment, feeds, messages, ubi

JSON, EVENTS, LINES, PLAIN = "application/json", "text/event-stream", "application/x-ndjson", "text/plain"
ARROW = "application/vnd.apache.arrow.stream"


class Route(NamedTuple):
    """One operation: its path, scope, request, response and errors.

    The last columns are exceptions. By default a POST has a body that is declared as JSON; `Host` must be a name of the
    service; pages of other origins may neither call nor link to the path; and the OpenAPI document lists it.
    """

    method: Literal["get", "post", "put", "delete"]
    path: str
    name: str
    summary: str
    scope: Scope | None
    request: type[msgspec.Struct] | None = None
    response: type[msgspec.Struct] | None = None
    troubles: tuple[int, ...] = ()
    many: bool = False
    media: str = JSON
    #: Media types that a body may be declared as.
    takes: tuple[str, ...] = (JSON,)
    #: Whether the body may be empty. It is declared as JSON even so: a page of another site cannot do that without a preflight.
    bodiless: bool = False
    #: Whether `Host` and the origin are checked. Probes send other names, and their answers reveal only that the service runs.
    guarded: bool = True
    #: Whether other sites may link here: the answer holds no data.
    page: bool = False
    #: Whether the OpenAPI document lists it.
    listed: bool = True
    #: Whether the answer concerns all namespaces, so that a key that is bound to some does not open it.
    whole: bool = False
    #: Whether it needs no API key because the body has its own permission; it is limited by the address of the caller instead.
    by_address: bool = False
    #: The setting that turns it on; "": it is always on.
    switch: str = ""
    #: The status of a good answer; 204 has no body.
    status: int = 200


_BODY = (400, 401, 403, 413, 415, 421, 422, 429)
_READ = (400, 401, 403, 421, 422, 429, 503)
_FREE = (400, 403, 421)
#: What a page may send without a preflight, which would die with the page.
_BEACON = (400, 403, 404, 413, 415, 421, 422, 429, 503)
#: The parts of a query's key besides its text.
KEY_PARTS = ("locale", "filter", "segment", "namespace")
#: All routes, in the order of the page.
ROUTES = (
    Route("post", "/v1/rank", "rank", "Rank a query's candidates", "rank", messages.RankRequest, messages.RankResponse, _BODY),
    Route(
        "post", "/v1/rank/batch", "rank_batch", "Rank several queries; each entry is answered or refused by itself", "rank",
        messages.RankRequest, messages.RankResponse, _BODY, True, takes=(JSON, ARROW),
    ),
    Route(
        "post", "/v1/feedback", "feedback", "Send what users did; answered when it is durable, repeats count once", "feedback",
        messages.FeedbackRequest, messages.FeedbackResponse, (*_BODY, 503),
    ),
    Route(
        "post", "/v1/feedback/batch", "feedback_batch", "Send feedback for several decisions", "feedback",
        messages.FeedbackRequest, messages.FeedbackResponse, (*_BODY, 503), True,
    ),
    Route(
        "post", "/v1/beacon", "beacon", "Send feedback from a page that the user leaves; the signed decision is the permission",
        None, messages.FeedbackRequest, None, _BEACON, takes=(PLAIN, JSON), by_address=True, status=204,
        switch="feedback.beacon",
    ),
    Route(
        "post", "/ubi_events", "ubi_events", "Send events of User Behavior Insights; clicks are taken as feedback", None,
        ubi.UbiEvent, None, _BEACON, takes=(JSON, PLAIN), by_address=True, status=204, switch="ubi.enabled",
    ),
    Route(
        "post", "/ubi_queries", "ubi_queries", "Send queries of User Behavior Insights; they may tell the decision of a query_id",
        None, ubi.UbiQuery, None, _BEACON, takes=(JSON, PLAIN), by_address=True, status=204, switch="ubi.enabled",
    ),
    Route(
        "post", "/v1/observe", "observe", "Teach a ranking that Swerve did not make; answered when it is durable", "feedback",
        messages.ObserveRequest, messages.ObserveResponse, (*_BODY, 503),
    ),
    Route(
        "post", "/v1/signals", "signals", "Push a number for a query or for all; used by rankings that do not carry it", "signals",
        feeds.SignalRequest, feeds.SignalResponse, _BODY,
    ),
    Route(
        "post", "/v1/signals/batch", "signals_batch", "Push several numbers; each entry is answered or refused by itself",
        "signals", feeds.SignalRequest, feeds.SignalResponse, _BODY, True,
    ),
    Route(
        "get", "/v1/queries", "queries", "List the queries with the most traffic, or those that shifted last", "read",
        messages.ListRequest, messages.QueryList, _READ,
    ),
    Route("get", "/v1/queries/{query}", "query", "Explain a query's state", "read", None, messages.QueryState, (*_READ, 404)),
    Route(
        "post", "/v1/queries/{query}/shift", "shift", "Report that a query's intent has shifted: the policy restarts", "feedback",
        messages.ShiftRequest, messages.ShiftResponse, (*_BODY, 404, 503), bodiless=True,
    ),
    Route(
        "get", "/v1/shadow", "shadow", "Report what the policy would have done, in shadow mode", "read",
        control.AuditRequest, control.ShadowReport, _READ, whole=True,
    ),
    Route(
        "get", "/v1/live", "live", "Stream what happens, as server-sent events", "read", None, None, _READ, media=EVENTS,
        whole=True,
    ),
    Route("get", "/v1/rules", "rules", "List the rules of operators in force", "operate", None, control.RuleList, _READ),
    Route(
        "post", "/v1/rules", "set_rule", "Pin, block or boost a result, or switch the policy off; in force with the next request",
        "operate", control.RuleRequest, control.Rule, (*_BODY, 503),
    ),
    Route(
        "delete", "/v1/rules/{id}", "remove_rule", "Remove a rule; its effect ends with the next request", "operate",
        None, control.Rule, (*_READ, 404),
    ),
    Route(
        "get", "/v1/experiments", "experiments", "Report the experiment: its arms, what it says and how sure that is", "read",
        experiment.ExperimentList, experiment.Report, _READ,
    ),
    Route(
        "put", "/v1/experiments", "set_experiment", "Begin, ramp or end the experiment; in force with the next request", "operate",
        experiment.ExperimentRequest, experiment.Report, (*_BODY, 503),
    ),
    Route(
        "post", "/v1/delete", "delete", "Delete a query, or a result, for good; answered when it is done", "operate",
        control.DeleteRequest, control.DeleteResponse, (*_BODY, 404, 409, 503),
    ),
    Route(
        "get", "/v1/export", "export", "Stream everything learnt, as JSON lines", "operate", control.ExportRequest, None, _READ,
        media=LINES,
    ),
    Route(
        "get", "/v1/audit", "audit", "List what operators did, the latest first", "operate",
        control.AuditRequest, control.ChangeList, _READ,
    ),
    Route("get", "/healthz", "healthz", "Is the process alive?", None, None, messages.Health, (400,), guarded=False),
    Route("get", "/readyz", "readyz", "Can it serve now?", None, None, messages.Health, (400,), guarded=False),
    Route(
        "get", "/metrics", "metrics", "Metrics for Prometheus", "read", None, None, (400, 401, 403, 421, 429), media="text/plain",
        whole=True,
    ),
    Route("get", "/openapi.json", "openapi", "This description", None, None, None, _FREE, page=True),
    Route("get", "/docs", "docs", "The page to read and try it", None, None, None, _FREE, media="text/html", page=True),
    # the dashboard's, which serves them
    Route("get", "/", "page", "The dashboard", None, None, None, _FREE, media="text/html", page=True, listed=False),
    Route("get", "/page/{file}", "file", "The files of the page", None, None, None, _FREE, media="text/javascript", listed=False),
)  # fmt: skip

#: Requests that are parameters of a path, and have no body.
LISTING: tuple[type[msgspec.Struct], ...] = (
    messages.ListRequest,
    control.AuditRequest,
    control.ExportRequest,
    experiment.ExperimentList,
)
#: The routes that the document lists.
LISTED = tuple(route for route in ROUTES if route.listed)
