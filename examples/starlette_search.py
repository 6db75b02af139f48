"""Swerve in a search page of Starlette: the hits of the engine in Swerve's order, and a route for clicks.

    swerve serve &
    uvicorn --app-dir examples starlette_search:app

Needs `starlette` and the extra `client`. The page sends a click:
    if (decision) navigator.sendBeacon(`/click?decision=${decision}&result=${id}`)
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from swerve.client import AsyncClient, report_clicks_async, rerank_async


def engine(query: str) -> list[dict[str, Any]]:
    """Your search engine: the hits, best first."""
    pages = ["car", "cat", "guitar", "reserve", "console"]
    return [{"id": name, "title": f"{query}: the {name}", "score": 5.0 - place} for place, name in enumerate(pages)]


# Swerve, in ten lines
swerve = AsyncClient("http://127.0.0.1:8350")


async def search(request: Request) -> Response:
    q, sid = request.query_params.get("q", ""), request.cookies.get("sid")
    found = await rerank_async(swerve, q, engine(q), id=lambda hit: hit["id"], score=lambda hit: hit["score"], session=sid)
    return JSONResponse({"hits": found.hits, "decision": found.decision})


async def click(request: Request) -> Response:
    await report_clicks_async(swerve, request.query_params.get("decision"), request.query_params.get("result"))
    return Response(status_code=204)


app = Starlette(routes=[Route("/search", search), Route("/click", click, methods=["POST"])])
