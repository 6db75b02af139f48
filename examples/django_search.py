"""Swerve in a search page of Django: the hits of the engine in Swerve's order, and a route for clicks.

    swerve serve &
    python examples/django_search.py runserver

Needs `django` and the extra `client`. The page sends a click:
    if (decision) navigator.sendBeacon(`/click?decision=${decision}&result=${id}`)
"""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from swerve.client import Client, report_clicks, rerank

if not settings.configured:  # a project has these in its settings.py
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"], SECRET_KEY="only for this example")


def engine(query: str) -> list[dict[str, Any]]:
    """Your search engine: the hits, best first."""
    pages = ["car", "cat", "guitar", "reserve", "console"]
    return [{"id": name, "title": f"{query}: the {name}", "score": 5.0 - place} for place, name in enumerate(pages)]


# Swerve, in ten lines
swerve = Client("http://127.0.0.1:8350")


def search(request: HttpRequest) -> HttpResponse:
    q, sid = request.GET.get("q", ""), request.COOKIES.get("sid")
    found = rerank(swerve, q, engine(q), id=lambda hit: hit["id"], score=lambda hit: hit["score"], session=sid)
    return JsonResponse({"hits": found.hits, "decision": found.decision})


@csrf_exempt  # the signed decision is the proof
def click(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"counted": report_clicks(swerve, request.GET.get("decision"), request.GET.get("result"))})


urlpatterns = [path("search", search), path("click", click)]
# the ten lines end here

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
