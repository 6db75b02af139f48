"""The report in a real browser: plots and tables are visible, and nothing is fetched."""

from __future__ import annotations

import pytest
from browsing import browser  # noqa: F401 - a fixture

from swerve.experiments import EXPERIMENTS, lower_bounds, run
from swerve.experiments.report import write

SEEN = "[...document.images].map(i => [i.complete, i.naturalWidth, i.getBoundingClientRect().width])"
TABLES = "[...document.querySelectorAll('table')].map(t => [t.tHead.rows[0].cells.length, t.tBodies[0].rows.length])"
WIDTHS = "[document.body.scrollWidth, document.documentElement.scrollWidth, document.documentElement.clientWidth]"
COLOURS = "[getComputedStyle(document.body).color, getComputedStyle(document.querySelector('.soft, figcaption')).color]"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Tables (b) and (c) thinned to eight queries, so that they have printed figures; figure (a) and lower bounds."""
    cells = [cell for name in ("figure-a", "fractions", "features") for cell in run(EXPERIMENTS[name].thinned(8), runs=2)]
    growths = lower_bounds.run(runs=1, horizons=(2000, 8000))
    folder = tmp_path_factory.mktemp("report")
    return write(folder, cells, growths, command="swerve reproduce --quick", seed=0, runs=2, seconds=1.0)


@pytest.fixture
def opened(browser, report):
    """A function that opens the report at a window size; the fixture closes it after the test."""
    pages = []

    def open_at(width, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        pages.append(page)
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(report.as_uri(), wait_until="load")
        return page

    yield open_at
    for page in pages:
        page.close()


def test_plots_and_tables_are_seen_and_nothing_is_fetched(opened):
    page = opened(1200)
    assert page.title() == "The paper, reproduced"
    images = page.evaluate(SEEN)
    assert len(images) == 6  # figure (a), two tables, their causes, lower bounds
    assert all(complete and natural > 300 and shown > 300 for complete, natural, shown in images)
    assert page.evaluate(TABLES) == [
        [3, 6],  # claims
        [2, 3],  # figure (a)
        [6, 4], [10, 5],  # table (b), its causes
        [5, 4], [10, 4],  # table (c), its causes
        [4, 3], [4, 3], [4, 3],  # the families
        [2, 7], [2, 19],  # made with, the traffic
    ]  # fmt: skip
    assert page.said == []
    assert page.asked
    assert all(url.startswith(("file:", "data:")) for url in page.asked)


def test_a_phone_scrolls_tables_and_never_the_page(opened):
    page = opened(390)
    body, document, window = page.evaluate(WIDTHS)
    assert window == 390
    assert max(body, document) <= window
    wide = page.evaluate("[...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.clientWidth).length")
    assert wide > 0  # otherwise this size tests nothing
    assert all(shown <= 390 for *_, shown in page.evaluate(SEEN))


def test_it_is_dark_where_people_like_it_dark(opened, tmp_path):
    light, dark = opened(1200), opened(1200, "dark")
    brightness = [[sum(map(int, c[4:-1].split(","))) / 3 for c in page.evaluate(COLOURS)] for page in (light, dark)]
    assert max(brightness[0]) < 128 < min(brightness[1])  # text, and its background
    shots = [page.screenshot(path=tmp_path / f"{number}.png") for number, page in enumerate((light, dark))]
    assert shots[0] != shots[1]
    background = dark.evaluate("getComputedStyle(document.images[0]).backgroundColor")
    assert background == "rgb(255, 255, 255)"  # plots are drawn for white paper
