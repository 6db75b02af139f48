"""Pages of other sites, and pages whose name was made to resolve to this machine, get nothing, on the short and the long way."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from service.running import Answer, Http, Running, running, said_of

from swerve.dashboard import Hub, routes
from swerve.service.config.load import Config, Policy, Server, Store
from swerve.service.http.app import App
from swerve.service.http.gate import Gate
from swerve.service.http.routes import ARROW, ROUTES
from swerve.service.http.server import open_service
from swerve.serving.messages import Refused

SEARCH = "https://search.example.com"
CONFIG = {"server": {"hosts": ["Swerve.Example.COM", "fd00::7"], "origins": [SEARCH]}}
ASK = {"query": "q", "candidates": ["a", "b"]}
OPEN = {route.path for route in ROUTES if not route.guarded}
EVERY = [
    *(
        (route.method.upper(), route.path.replace("{query}", "q").replace("{file}", "page.js"))
        for route in ROUTES
        if route.path not in OPEN
    ),
    ("GET", "/nowhere"),
    ("HEAD", "/v1/queries"),
    ("OPTIONS", "/v1/rank"),
    ("DELETE", "/v1/rank"),
]


def body_of(method: str, path: str) -> Any:
    if method != "POST":
        return None
    return {} if path.endswith("shift") else [] if path.endswith("batch") else ASK


def code(answer: Answer) -> str:
    return str(answer.json["error"]["code"]) if answer.body else ""


@pytest.fixture(autouse=True)
def known(client: Http) -> None:
    """Bring the query into memory, so that single requests for it take the short way."""
    for _ in range(2):
        assert client.rank("q", ["a", "b"]).status == 200


def test_the_table_says_which_routes_are_open():
    assert sorted(OPEN) == ["/healthz", "/readyz"]
    assert {route.path for route in ROUTES if route.page} == {"/", "/docs", "/openapi.json"}
    assert {kind for route in ROUTES for kind in route.takes} == {"application/json", "text/plain", ARROW}
    # a page may send these without a preflight: the body has its own permission
    plain = {route.name for route in ROUTES if "text/plain" in route.takes}
    assert plain == {"beacon", "ubi_events", "ubi_queries"}
    assert {route.name for route in ROUTES if route.by_address} == plain
    assert {route.name for route in ROUTES if route.bodiless} == {"shift"}


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_no_route_answers_to_another_name(client: Http, method: str, path: str):
    for host in (
        "evil.example",
        "evil.example:8350",
        "localhost.evil.example",
        "",
        "localhost:x",
        "localhost@evil",
        "127.0.0.1, evil",
    ):
        answer = client.call(method, path, body_of(method, path), {"Host": host})
        assert answer.status == 421, (host, answer)
        assert method == "HEAD" or (code(answer) == "host" and "server.hosts" in answer.json["error"]["message"])


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8350", "[::1]", "[0:0:0:0:0:0:0:1]:80", "swerve.example.com", "[fd00::7]:443"]
)
def test_the_names_of_the_service_are_good_on_any_port(client: Http, host: str):
    for _ in range(2):  # the second time the name is remembered
        assert client.call("POST", "/v1/rank", ASK, {"Host": host}).status == 200


def test_a_good_name_does_not_open_the_short_way_for_another(client: Http):
    assert client.call("POST", "/v1/rank", ASK, {"Host": "localhost"}).status == 200
    for path, body in (("/v1/rank", ASK), ("/v1/rank/batch", [ASK]), ("/v1/feedback", said_of("x", None))):
        assert client.call("POST", path, body, {"Host": "evil.example"}).status == 421
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert client.call("POST", path, body, {"Host": "localhost", **headers}).status == 403


def test_probes_may_use_any_name(client: Http):
    for path in sorted(OPEN):
        for headers in ({"Host": "10.1.2.3:80"}, {"Host": "evil.example", "Origin": "http://evil.example"}):
            answer = client.call("GET", path, headers=headers)
            assert answer.status == 200
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_pages_of_others_get_nothing(client: Http, method: str, path: str):
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "https://127.0.0.1:1"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ):
        answer = client.call(method, path, body_of(method, path), headers)
        assert answer.status == 403, (headers, answer)
        assert method == "HEAD" or code(answer) == "origin"
        assert "access-control-allow-origin" not in answer.headers
        assert "origin" in answer.headers["vary"].lower()


def test_links_lead_to_pages_and_to_nothing_else(client: Http):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for path in ("/", "/docs", "/openapi.json"):
        assert client.call("GET", path, headers=link).status == 200
    for path in ("/v1/queries", "/v1/queries/q", "/metrics", "/v1/live"):
        assert client.call("GET", path, headers=link).status == 403


def test_its_own_pages_may_ask(served: Running, client: Http):
    own = f"127.0.0.1:{served.port}"
    for headers in (
        {"Origin": f"http://{own}"},
        {"Origin": f"http://{own}", "Sec-Fetch-Site": "same-origin"},
        {"Host": "Localhost:80", "Origin": "http://localhost"},
        # a proxy in front terminates TLS: only the browser knows the scheme
        {"Host": "swerve.example.com", "Origin": "https://swerve.example.com", "Sec-Fetch-Site": "same-origin"},
    ):
        answer = client.call("POST", "/v1/rank", ASK, headers)
        assert answer.status == 200, headers
        assert "access-control-allow-origin" not in answer.headers
    answer = client.call("POST", "/v1/rank", ASK, {"Host": "swerve.example.com", "Origin": "https://swerve.example.com"})
    assert answer.status == 403
    assert client.call("GET", "/v1/queries", headers={"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}).status == 200


def test_a_listed_origin_may_ask_first_and_then_ask(client: Http):
    preflight = {"Origin": SEARCH, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    for path in ("/v1/rank", "/v1/queries/q/shift", "/v1/live"):
        answer = client.call("OPTIONS", path, headers=preflight)
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == SEARCH
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert {"content-type", "authorization"} <= set(answer.headers["access-control-allow-headers"].split(", "))
        assert "origin" in answer.headers["vary"].lower()
    for headers in ({"Origin": SEARCH}, {"Origin": SEARCH, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}):
        for method, path, body, status in (
            ("POST", "/v1/rank", ASK, 200),
            ("POST", "/v1/rank", [], 422),
            ("GET", "/v1/queries/q", None, 200),
            ("GET", "/nowhere", None, 404),
        ):
            answer = client.call(method, path, body, headers)
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, SEARCH)
            assert "origin" in answer.headers["vary"].lower()
    assert client.call("OPTIONS", "/v1/rank", headers={**preflight, "Origin": "https://other.example.com"}).status == 403
    assert client.call("OPTIONS", "/v1/rank", headers={"Origin": SEARCH}).status == 405


def test_without_an_origin_a_shared_answer_says_what_it_depends_on(client: Http):
    assert "origin" in client.call("POST", "/v1/rank", ASK).headers["vary"].lower()  # on the short way
    assert "origin" in client.call("GET", "/v1/queries/q").headers["vary"].lower()


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"])
def test_every_post_declares_json(client: Http, kind: str | None):
    """A browser sends other content types for a page of another site without a preflight."""
    for route in ROUTES:
        if route.method == "post" and not route.switch:  # those that are off are not found
            path = route.path.replace("{query}", "q")
            body = b"" if route.name == "shift" else b"{}"
            headers = {} if kind is None else {"Content-Type": kind}
            answer = raw(client, "POST", path, body, headers)
            assert answer.status == 415, (path, answer)
            assert "application/json" in answer.json["error"]["message"]


def raw(client: Http, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Send a request with these headers and no others."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    answer = Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read(), 0.0)
    connection.close()
    return answer


def test_a_shift_needs_its_type_and_no_body(client: Http):
    typed = {"Content-Type": "application/json; charset=utf-8"}
    before = client.query("q").json["phase"]
    assert raw(client, "POST", "/v1/queries/q/shift", b"", typed).json == {"phase": before + 1}
    assert raw(client, "POST", "/v1/queries/q/shift", b"{}", typed).json == {"phase": before + 2}
    for body, status in ((b'{"x": 1}', 422), (b"{", 400), (b"[]", 422)):
        assert raw(client, "POST", "/v1/queries/q/shift", body, typed).status == status
    assert client.query("q").json["phase"] == before + 2


def test_no_path_is_sent_elsewhere(client: Http):
    """A redirect would contain the host that the caller sent."""
    for path in ("/v1/rank/", "/healthz/", "/docs/", "//docs", "/v1/queries/q/shift/"):
        for host in ("localhost", "evil.example"):
            answer = client.call("GET", path, headers={"Host": host})
            assert answer.status in (404, 405, 421), path
            assert "location" not in answer.headers


def sent(served: Running, text: str) -> tuple[int, bytes]:
    """Send these bytes; return the status and the answer."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, response.read()


@pytest.mark.parametrize("target", ["/healthz", "/v1/queries", "/v1/rank", "/"])
@pytest.mark.parametrize("hosts", ["", "Host: localhost\nHost: localhost\n", "Host: localhost\nHost: evil\n"])
def test_one_host_and_one_only(served: Running, target: str, hosts: str):
    for method in ("GET", "POST"):
        status, body = sent(served, f"{method} {target} HTTP/1.1\n{hosts}Content-Type: application/json\nContent-Length: 0\n\n")
        assert status == 400 and json.loads(body)["error"]["code"] == "host"


def test_http_1_0_without_a_name_reaches_the_probes(served: Running):
    assert sent(served, "GET /healthz HTTP/1.0\n\n")[0] == 200
    assert sent(served, "GET /v1/queries HTTP/1.0\n\n")[0] == 421
    assert sent(served, "GET /v1/queries HTTP/1.0\nHost: localhost\n\n")[0] == 200


def test_a_whole_address_as_target_names_the_host(served: Running):
    assert sent(served, "GET http://evil.example/v1/queries HTTP/1.1\nHost: localhost\n\n")[0] == 421
    assert sent(served, "GET http://localhost:8350/v1/queries HTTP/1.1\nHost: evil.example\n\n")[0] == 200
    assert sent(served, "GET http://[::1]:8350/v1/queries HTTP/1.1\nHost: evil.example\n\n")[0] == 200
    assert sent(served, "GET http://localhost/v1/queries HTTP/1.1\n\n")[0] == 400
    assert sent(served, "OPTIONS * HTTP/1.1\nHost: localhost\n\n")[0] == 404
    assert sent(served, "CONNECT localhost:80 HTTP/1.1\nHost: localhost\n\n")[0] == 400
    content = json.dumps(ASK)
    head = f"Content-Type: application/json\nContent-Length: {len(content)}\n\n{content}"
    assert sent(served, f"POST http://evil.example/v1/rank HTTP/1.1\nHost: localhost\n{head}")[0] == 421
    assert sent(served, f"POST http://localhost/v1/rank HTTP/1.1\nHost: localhost\n{head}")[0] == 200


def test_who_is_turned_away_is_counted_and_told_once(served: Running, client: Http):
    def count(reason: str) -> float:
        text = client.call("GET", "/metrics").body.decode()
        return sum(
            float(line.split()[-1]) for line in text.splitlines() if line.startswith(f'swerve_turned_away_total{{reason="{reason}"')
        )

    for headers, reason in (({"Host": "evil.example"}, "host"), ({"Origin": "http://evil.example"}, "origin")):
        before = count(reason)
        for _ in range(50):
            client.call("GET", "/v1/queries", headers=headers)
        assert count(reason) == before + 50
        lines = [line for line in map(json.loads, served.stderr().splitlines()) if line.get("reason") == reason]
        assert 1 <= len(lines) <= 10
        assert f"server.{reason}s" in lines[-1]["why"]


# other configurations -------------------------------------------------------------------------------------------------------------


def scope(host: str, **headers: str) -> dict[str, Any]:
    named = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {
        "path": "/v1/queries", "method": "GET", "http_version": "1.1",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }  # fmt: skip


def allowed(server: Server, host: str, bound: str = "", **headers: str) -> int:
    gate = Gate(Config(server=server))
    if bound:
        gate.also(bound)
    try:
        gate.check(scope(host, **headers))
    except Refused as refused:
        return refused.status
    return 200


def test_the_address_it_listens_on_is_a_name_unless_it_is_all_of_them():
    assert allowed(Server(host="10.0.0.5"), "10.0.0.5:8350") == 200
    assert allowed(Server(host="10.0.0.5"), "10.0.0.6") == 421
    assert allowed(Server(host="search-1"), "SEARCH-1:80") == 200
    assert allowed(Server(host="search-1"), "10.0.0.9", bound="10.0.0.9") == 200
    for everywhere in ("0.0.0.0", "::"):
        assert allowed(Server(host=everywhere), "0.0.0.0", bound=everywhere) == 421
        assert allowed(Server(host=everywhere), "[::]", bound=everywhere) == 421
        assert allowed(Server(host=everywhere), "localhost", bound=everywhere) == 200


def test_a_star_is_any_name_and_not_any_origin():
    assert allowed(Server(hosts=("*",)), "anything.example") == 200
    assert allowed(Server(hosts=("*",)), "not a name") == 421
    assert allowed(Server(hosts=("*",)), "anything.example", origin="http://evil.example") == 403
    assert allowed(Server(), "*") == 421


def test_what_is_remembered_is_bounded():
    gate = Gate(Config(server=Server(hosts=("*",))))
    for number in range(10_000):
        gate.check(scope(f"host-{number}"))
    assert len(gate.good) <= 256


@pytest.fixture
def app(tmp_path) -> Iterator[App]:
    service = open_service(
        Config(policy=Policy(spec="ts", arms=8), store=Store(url=f"sqlite:///{tmp_path}/swerve.db", cache_mb=16))
    )
    yield App(service, routes(Hub(service)))
    service.loader.stop()
    service.store.close()


def test_every_route_of_the_application_is_in_the_table(app: App):
    """A new route is guarded, and declares its content type."""
    from starlette.routing import Route

    table = {(route.name, route.path) for route in ROUTES}
    found = {(route.name, route.path.replace("{query:text}", "{query}")) for route in app.routes if isinstance(route, Route)}
    assert found == table


def test_without_listed_origins_nobody_may_ask_from_elsewhere(tmp_path):
    with running(tmp_path) as service:
        client = service.client()
        headers = {"Origin": SEARCH, "Access-Control-Request-Method": "POST"}
        assert client.call("OPTIONS", "/v1/rank", headers=headers).status == 403
        assert "vary" not in client.rank("q", ["a"]).headers
