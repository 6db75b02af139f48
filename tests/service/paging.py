"""Requests about whole pages, and what the record says of them."""

from __future__ import annotations

from typing import Any

from service.running import Answer, Http

WINDOW = 600.0
CONFIG: dict[str, dict[str, Any]] = {
    "feedback": {"window_seconds": WINDOW, "steady_seconds": 300.0},
    "limits": {"new_queries_per_minute": 100_000},
}
PAGE = ["a", "b", "c", "d", "e"]
#: The signals of the quickstart, for services with the default policy: the compiled code is the same.
NEWS = {"numbers": {"news": "count"}}


def click(result: str | None = None, **more: Any) -> dict[str, Any]:
    """An event."""
    return {"kind": "click", **({} if result is None else {"result": result}), **more}


def observe(client: Http, query: str, shown: list[Any], *events: dict[str, Any], **more: Any) -> Answer:
    return client.call("POST", "/v1/observe", {"query": query, "shown": shown, "events": list(events), **more})


def counts(client: Http, query: str) -> dict[str, tuple[int, ...]]:
    """What the record holds of each candidate."""
    names = ("plays", "clicks", "phase_plays", "phase_clicks")
    return {arm["id"]: tuple(arm[name] for name in names) for arm in client.query(query).json["arms"]}


def metric(client: Http, name: str) -> float:
    text = client.call("GET", "/metrics").body.decode()
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} ")))


def refused(answer: Answer) -> tuple[int, str, str | None]:
    return answer.status, answer.json["error"]["code"], answer.json["error"].get("field")
