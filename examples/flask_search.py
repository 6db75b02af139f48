"""Swerve in a search page of Flask: the hits of the engine in Swerve's order, and a route for clicks.

    swerve serve &
    flask --app examples/flask_search.py run

Needs `flask` and the extra `client`. The page sends a click:
    if (decision) navigator.sendBeacon(`/click?decision=${decision}&result=${id}`)
"""

from __future__ import annotations

from typing import Any

from flask import Flask, request

from swerve.client import Client, report_clicks, rerank

app = Flask(__name__)


def engine(query: str) -> list[dict[str, Any]]:
    """Your search engine: the hits, best first."""
    pages = ["car", "cat", "guitar", "reserve", "console"]
    return [{"id": name, "title": f"{query}: the {name}", "score": 5.0 - place} for place, name in enumerate(pages)]


# Swerve, in ten lines
swerve = Client("http://127.0.0.1:8350")


@app.get("/search")
def search() -> dict[str, Any]:
    q, sid = request.args.get("q", ""), request.cookies.get("sid")
    found = rerank(swerve, q, engine(q), id=lambda hit: hit["id"], score=lambda hit: hit["score"], session=sid)
    return {"hits": found.hits, "decision": found.decision}


@app.post("/click")
def click() -> dict[str, Any]:
    return {"counted": report_clicks(swerve, request.args.get("decision"), request.args.get("result"))}
