"""The page over HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import subprocess
import sys

from service.running import SRC, Http

from swerve.dashboard.assets import POLICY, plotly_file
from swerve.service.http.openapi import document


def test_the_page_and_everything_it_names_is_there(site):
    client = Http(site.port)
    page = client.call("GET", "/")
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == POLICY
    assert "://" not in POLICY and "*" not in POLICY and "unsafe-eval" not in POLICY
    named = re.findall(r'(?:src|href)="/(page/[^"]+)"', page.body.decode())
    assert named
    for path in named:
        answer = client.call("GET", f"/{path}")
        assert answer.status == 200 and answer.body, path
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-request-id"]
    client.close()


def test_a_file_is_sent_again_only_when_it_has_changed(site):
    client = Http(site.port)
    packed = client.call("GET", "/page/plotly.js", headers={"Accept-Encoding": "br, gzip"})
    assert packed.status == 200 and packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plotly_file().read_bytes()
    plain = client.call("GET", "/page/plotly.js", headers={"Accept-Encoding": "identity"})
    assert plain.body == plotly_file().read_bytes() and "content-encoding" not in plain.headers
    assert plain.headers["etag"] != packed.headers["etag"] and plain.headers["vary"] == "accept-encoding"
    for mark in (packed.headers["etag"], f'W/"x", {packed.headers["etag"]}'):
        again = client.call("GET", "/page/plotly.js", headers={"Accept-Encoding": "gzip", "If-None-Match": mark})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", packed.headers["etag"])
    other = client.call("GET", "/page/plotly.js", headers={"Accept-Encoding": "gzip", "If-None-Match": '"x"'})
    assert other.status == 200
    client.close()


def test_other_files_and_methods_are_refused(site):
    client = Http(site.port)
    for path in ("/page/nothing.js", "/page/", "/page/..%2fhub.py", "/page/hub.py", "/page/a/b.js"):
        answer = client.call("GET", path)
        assert (answer.status, answer.json["error"]["code"]) == (404, "not_found"), path
    assert client.call("POST", "/", {}).status == 405
    head = client.call("HEAD", "/")
    assert (head.status, head.body) == (200, b"") and int(head.headers["content-length"]) > 0
    client.close()


def test_a_service_without_the_dashboard_has_no_page(tmp_path):
    """Its OpenAPI document has no page either, unlike that of a service with a page."""
    from starlette.routing import Match

    from swerve.service.config.load import Config, Policy, Store
    from swerve.service.http.app import App
    from swerve.service.http.server import open_service

    service = open_service(
        Config(policy=Policy(spec="ts", arms=8), store=Store(url=f"sqlite:///{tmp_path}/swerve.db", cache_mb=16))
    )
    try:
        app = App(service)
        for path in ("/", "/v1/live", "/page/page.js"):
            scope = {"type": "http", "path": path, "method": "GET", "headers": []}
            assert all(route.matches(scope)[0] is Match.NONE for route in app.routes), path
        (described,) = (route.endpoint for route in app.routes if route.name == "openapi")
        assert "/v1/live" not in json.loads(asyncio.run(described.handler({}, b""))[1])["paths"]
    finally:
        service.loader.stop()
        service.store.close()


def test_answers_are_counted_and_described(site):
    client = Http(site.port)
    assert client.call("GET", "/openapi.json").json == json.loads(json.dumps(document(site.service.config)))
    client.call("GET", "/")
    text = client.call("GET", "/metrics").body.decode()
    assert 'swerve_requests_total{route="page",status="2xx"} 1' in text
    client.close()


def test_without_the_charts_the_command_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['plotly'] = None; from swerve.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--port", "0", "--store", f"sqlite:///{tmp_path}/swerve.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": SRC})
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("swerve: ") and "pip install 'swerve[service]'" in line
