"""The search pages of examples/, by the frameworks' own test clients, against a real service: re-ranked, taught, and without it."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from service.running import Running, running

from swerve.client import AsyncClient, Client

EXAMPLES = Path(__file__).parent.parent / "examples"
FRAMEWORKS = ("fastapi", "starlette", "flask", "django")
GIVEN = ["car", "cat", "guitar", "reserve", "console"]  # the order of the examples' engine
WANTED = "reserve"
ROUNDS, LAST = 120, 30
#: In tests nobody waits for a page, and the machine may be busy.
PATIENT = {"timeout": 5.0, "feedback_timeout": 10.0}

#: Sends a request: method, path, parameters, and the cookie `sid`. Returns the status and the JSON of the answer.
Ask = Callable[[str, str, dict[str, str], str], tuple[int, Any]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    changes = {"policy": {"spec": "ts", "arms": 8, "grace_seconds": 0.0}}
    with running(tmp_path_factory.mktemp("web"), changes) as started:
        yield started


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return str(request.param)


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations and Django's ROOT_URLCONF are looked up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ask(framework: str, service: Running) -> Iterator[Ask]:
    """The application of an example, whose client knows the address of the service."""
    module = loaded(f"{framework}_search")
    kind = type(module.swerve)
    module.swerve = kind(f"http://127.0.0.1:{service.port}", retries=0, **PATIENT)
    yield from {"fastapi": asgi, "starlette": asgi, "flask": flask, "django": django}[framework](module)
    del sys.modules[module.__name__]


def asgi(module: ModuleType) -> Iterator[Ask]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it would rather have a successor of httpx
        from starlette.testclient import TestClient

    assert isinstance(module.swerve, AsyncClient)
    with TestClient(module.app) as client:

        def ask(method: str, path: str, parameters: dict[str, str], sid: str) -> tuple[int, Any]:
            client.cookies.set("sid", sid)
            answer = client.request(method, path, params=parameters)
            return answer.status_code, answer.json() if answer.content else None

        yield ask
        assert client.portal is not None
        client.portal.call(module.swerve.close)


def flask(module: ModuleType) -> Iterator[Ask]:
    assert isinstance(module.swerve, Client)
    with module.app.test_client() as client:

        def ask(method: str, path: str, parameters: dict[str, str], sid: str) -> tuple[int, Any]:
            client.set_cookie("sid", sid)
            answer = client.open(path, method=method, query_string=parameters)
            return answer.status_code, answer.get_json()

        yield ask
    module.swerve.close()


def django(module: ModuleType) -> Iterator[Ask]:
    import django as framework
    from django.test import Client as TestClient
    from django.test.utils import override_settings
    from django.urls import clear_url_caches

    framework.setup()
    clear_url_caches()
    assert isinstance(module.swerve, Client)
    with override_settings(ALLOWED_HOSTS=["testserver"]):
        client = TestClient(enforce_csrf_checks=True)

        def ask(method: str, path: str, parameters: dict[str, str], sid: str) -> tuple[int, Any]:
            client.cookies["sid"] = sid
            answer = client.generic(method, path, query_params=parameters)
            return answer.status_code, answer.json()

        yield ask
    module.swerve.close()


def shown(ask: Ask, query: str, sid: str) -> tuple[list[str], str | None]:
    status, answer = ask("GET", "/search", {"q": query}, sid)
    assert status == 200
    assert all(hit["title"] == f"{query}: the {hit['id']}" for hit in answer["hits"])
    return [hit["id"] for hit in answer["hits"]], answer["decision"]


def test_a_search_is_reranked_and_clicks_teach(ask: Ask, framework: str, service: Running):
    query, tops = f"jaguar {framework}", []
    for number in range(ROUNDS):
        sid = f"{framework}-{number}"
        page, decision = shown(ask, query, sid)
        assert sorted(page) == sorted(GIVEN) and decision is not None
        tops.append(page[0])
        status, answer = ask("POST", "/click", {"decision": decision, "result": WANTED}, sid)
        assert status == 204 or answer == {"counted": True}
    assert tops[-LAST:].count(WANTED) > LAST / 2 > tops[:10].count(WANTED)
    http = service.client()
    assert http.clicks(query) == {WANTED: ROUNDS}
    page, decision = shown(ask, query, "reload")
    assert shown(ask, query, "reload") == (page, decision)  # the session reached the service
    http.close()


def test_a_forged_click_and_an_empty_search_break_nothing(ask: Ask):
    assert shown(ask, "", "s") == (GIVEN, None)
    status, answer = ask("POST", "/click", {"decision": "forged", "result": "car"}, "s")
    assert status == 204 or (status, answer) == (200, {"counted": False})


@pytest.fixture(scope="module")
def stopped(service: Running) -> None:
    """The service ends; module-wide, and so in the last tests of the file."""
    if service.child is not None:
        service.stop()


def test_with_the_service_stopped_the_given_order_comes(ask: Ask, stopped: None, framework: str):
    for _ in range(7):  # also once the client leaves the service alone
        assert shown(ask, f"jaguar {framework}", "late") == (GIVEN, None)
    status, _ = ask("POST", "/click", {"decision": "of a page from before", "result": "car"}, "late")
    assert status in (200, 204)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_part_of_swerve_has_ten_lines(name: str):
    text = (EXAMPLES / f"{name}_search.py").read_text(encoding="utf-8")
    _, found, part = text.partition("# Swerve, in ten lines\n")
    assert found and re.search(r"\brerank(_async)?\(", part) and re.search(r"\breport_clicks(_async)?\(", part)
    lines = [line for line in part.partition("# the ten lines end here")[0].splitlines() if line.strip()]
    assert len(lines) <= 10
