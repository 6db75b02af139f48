"""Swerve in a search page of FastAPI: the hits of the engine in Swerve's order, and a route for clicks.

    swerve serve &
    uvicorn --app-dir examples fastapi_search:app

Needs `fastapi` and the extra `client`. The page sends a click:
    if (decision) navigator.sendBeacon(`/click?decision=${decision}&result=${id}`)
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Cookie, FastAPI

from swerve.client import AsyncClient, report_clicks_async, rerank_async

app = FastAPI()


def engine(query: str) -> list[dict[str, Any]]:
    """Your search engine: the hits, best first."""
    pages = ["car", "cat", "guitar", "reserve", "console"]
    return [{"id": name, "title": f"{query}: the {name}", "score": 5.0 - place} for place, name in enumerate(pages)]


# Swerve, in ten lines
swerve = AsyncClient("http://127.0.0.1:8350")


@app.get("/search")
async def search(q: str, sid: Annotated[str | None, Cookie()] = None) -> dict[str, Any]:
    found = await rerank_async(swerve, q, engine(q), id=lambda hit: hit["id"], score=lambda hit: hit["score"], session=sid)
    return {"hits": found.hits, "decision": found.decision}


@app.post("/click", status_code=204)
async def click(decision: str, result: str) -> None:
    await report_clicks_async(swerve, decision, result)
