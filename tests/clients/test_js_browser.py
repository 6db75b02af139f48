"""The client for JavaScript in a real browser, on a page of another origin: what is clicked on the way out is learnt."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from browsing import browser  # noqa: F401 - a fixture; skips without a browser
from clients.keyed import CONFIG, JS, KEY
from service.running import Http, Running, running, until

from swerve.serving.recording import Answered, Ranked, lines_of

IDS = [f"result-{number}" for number in range(8)]
PAGE = """<!doctype html><title>search</title><style>li {{ height: 300px }}</style><script>{before}</script>
<ol>{items}</ol>
<script type="module">
import {{ Swerve }} from "/swerve.js";
const items = document.querySelectorAll("[data-swerve]");
window.stop = new Swerve("{service}").watch("{decision}", items, {{ ms: 50 }});
window.ready = true;
</script>"""


class Site:
    """The application: a server of its own, with the key, whose pages have decisions only."""

    def __init__(self) -> None:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, body = site.answer(self.path)
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.shop: Http | None = None
        self.ranked: dict[str, list[str]] = {}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> tuple[str, bytes]:
        if path == "/swerve.js":
            return "text/javascript", (JS / "swerve.js").read_bytes()
        if not path.startswith("/search/"):
            return "text/html", b"<!doctype html><title>a result</title>"
        assert self.shop is not None
        _, _, query, before = path.split("/")
        answer = self.shop.rank(query, IDS).json
        self.ranked[query] = answer["ranking"]
        items = "".join(f'<li data-swerve="{name}"><a href="/to/{name}">{name}</a> <b>text</b></li>' for name in answer["ranking"])
        script = "delete Navigator.prototype.sendBeacon" if before == "without" else ""
        service = f"http://127.0.0.1:{self.shop.port}"
        return "text/html", PAGE.format(before=script, items=items, service=service, decision=answer["decision"]).encode()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def shop(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("shop")
    changes = {**CONFIG, "server": {"origins": [site.url]}, "store": {"journal_days": 30}}
    with running(folder, changes) as service:
        site.shop = service.client(KEY.text)
        yield service


@pytest.fixture
def page(browser, site: Site, shop: Running):
    context = browser.new_context(viewport={"width": 800, "height": 650})  # two results of 300 px, and not half of the third
    page = context.new_page()
    yield page
    context.close()


def opened(page: Any, site: Site, query: str, sending: str = "with") -> list[str]:
    page.goto(f"{site.url}/search/{query}/{sending}")
    page.wait_for_function("window.ready")
    assert page.evaluate("'sendBeacon' in navigator") == (sending == "with")
    return site.ranked[query]


@pytest.mark.parametrize("sending", ["with", "without"])
def test_a_click_on_a_link_that_leaves_the_page_is_learnt(page, site: Site, shop: Running, sending: str):
    """With `sendBeacon`, and with a `fetch` that is kept alive where there is none."""
    query = f"leaving-{sending}"
    ranking = opened(page, site, query, sending)
    assert site.shop is not None
    page.click(f"a[href='/to/{ranking[0]}']")
    page.wait_for_url(f"{site.url}/to/{ranking[0]}")
    until(lambda: site.shop.clicks(query) == {ranking[0]: 1})


def test_a_click_beside_the_link_is_none_and_a_middle_click_is_one(page, site: Site, shop: Running):
    ranking = opened(page, site, "beside")
    page.evaluate("""() => {
        const real = navigator.sendBeacon.bind(navigator);
        window.sent = [];
        navigator.sendBeacon = (url, body) => { window.sent.push(JSON.parse(body)); return real(url, body) };
    }""")
    page.click(f"li[data-swerve='{ranking[0]}'] b")
    page.click(f"a[href='/to/{ranking[0]}']", button="middle")
    until(lambda: site.shop is not None and site.shop.clicks("beside") == {ranking[0]: 1})
    assert [one["events"] for one in page.evaluate("window.sent")] == [[{"kind": "click", "result": ranking[0]}]]


def test_results_that_were_in_view_are_told_when_the_page_goes(page, site: Site, shop: Running):
    ranking = opened(page, site, "viewing")
    page.wait_for_timeout(400)
    page.goto(f"{site.url}/away")
    ranking_after_scroll = opened(page, site, "scrolling")
    page.evaluate("window.scrollTo(0, 750)")  # the fourth result and nearly all of the fifth come into view
    page.wait_for_timeout(600)
    page.goto(f"{site.url}/away")
    counted = 'swerve_beacons_total{route="beacon",outcome='
    assert site.shop is not None
    http = site.shop
    until(lambda: counted in http.call("GET", "/metrics").body.decode())
    page.wait_for_timeout(500)
    assert shop.stop() == 0
    try:
        lines = [line for _, line in lines_of(shop.folder / "state" / "swerve.db.journal")]
    finally:
        shop.start()
    queries = {line.number: line.query for line in lines if isinstance(line, Ranked)}
    shown = {queries[line.number]: line.shown for line in lines if isinstance(line, Answered) and not line.events}
    assert shown["viewing"] == ranking[:2]
    assert shown["scrolling"] == ranking_after_scroll[: len(shown["scrolling"])]
    assert 4 <= len(shown["scrolling"]) <= 5
