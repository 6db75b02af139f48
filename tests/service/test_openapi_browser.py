"""The docs page in a real browser, under its content security policy: it lists, sends requests, and fits, in light and dark."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from browsing import browser  # noqa: F401 - a fixture

from swerve.service.http.openapi import EXAMPLES, docs_page, docs_policy, document
from swerve.service.http.routes import LISTED

OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
#: Names in tables that are broken across lines.
BROKEN = "[...document.querySelectorAll('td:first-child code')].filter(c => c.getClientRects().length > 1).map(c => c.textContent)"
COLOURS = """[document.body, document.querySelector('.soft'), document.querySelector('.get'), document.querySelector('.post')].map(
    node => [getComputedStyle(node).color, getComputedStyle(node.closest('details') || document.body).backgroundColor])"""


class Handler(BaseHTTPRequestHandler):
    """Serves the page and its document. `rank` echoes its request; the query's state is refused with markup in the message."""

    def do_GET(self):
        if self.path == "/docs":
            self.reply(200, docs_page().encode(), "text/html; charset=utf-8", {"Content-Security-Policy": docs_policy()})
        elif self.path == "/openapi.json":
            self.reply(200, json.dumps(document()).encode())
        else:
            self.server.asked.append((self.path, None, None))
            self.reply(404, b'{"error": {"message": "<img src=x onerror=document.title=1>"}}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append((self.path, self.headers["authorization"], json.loads(body)))
        self.reply(200, json.dumps(EXAMPLES["rank"][1]).encode())

    def reply(self, status, body, kind="application/json", headers=None):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Log nothing."""


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def opened(browser, server):
    """A function that opens the page. After the test, the page must have had no error and no request to another server."""
    pages, troubles, asked = [], [], []

    def open_at(width=1000, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        pages.append(page)
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"http://127.0.0.1:{server.server_port}/docs")
        page.wait_for_selector("#schemas details")
        return page

    yield open_at
    for page in pages:
        page.close()
    assert [trouble for trouble in troubles if "404" not in trouble] == []
    assert all(url.startswith((f"http://127.0.0.1:{server.server_port}/", "data:")) for url in asked)


def test_routes_and_schemas_are_listed(opened):
    page = opened()
    shown = page.locator("#routes summary code").all_text_contents()
    assert shown == [route.path for route in LISTED]
    assert page.locator("#schemas summary code").all_text_contents() == list(document()["components"]["schemas"])


def test_a_request_can_be_tried(opened, server):
    page = opened()
    page.fill("#key", "my-key")
    rank = page.locator("#routes details").first
    rank.locator("summary").click()
    rank.locator("button").click()
    rank.locator("pre").wait_for(timeout=5000)
    assert json.loads(rank.locator("pre").text_content()) == EXAMPLES["rank"][1]
    assert server.asked[-1] == ("/v1/rank", "Bearer my-key", EXAMPLES["rank"][0])


def test_what_the_service_says_is_shown_and_not_run(opened, server):
    page = opened()
    state = page.locator("#routes details", has=page.get_by_text("/v1/queries/{query}", exact=True))
    state.locator("summary").click()
    state.locator("input").first.fill("a/b c")
    state.locator("button").click()
    state.locator("pre").wait_for(timeout=5000)
    assert "<img src=x" in state.locator("pre").text_content()
    assert "404" in state.locator(".bad").text_content()
    assert server.asked[-1][0] == "/v1/queries/a%2Fb%20c"  # the parts of its key are left out where they are empty
    assert page.locator("img").count() == 0
    assert page.title() == "Swerve: the service"


def contrast(colours):
    """Return the contrast ratio of two `rgb(…)` colours, as the accessibility guidelines define it."""

    def luminance(colour):
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(colour) for colour in colours), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1000])
def test_it_fits_and_can_be_read(opened, width, scheme):
    page = opened(width, scheme)
    page.evaluate(OPEN_ALL)
    inside, window = page.evaluate(WIDTHS)
    assert inside <= window == width
    assert page.evaluate(BROKEN) == []
    colours = page.evaluate(COLOURS)
    assert all(contrast(pair) >= 4.5 for pair in colours)
    background = colours[0][1]
    assert (contrast((background, "rgb(0, 0, 0)")) > contrast((background, "rgb(255, 255, 255)"))) == (scheme == "light")
