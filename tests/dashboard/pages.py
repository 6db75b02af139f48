"""The page in a real browser: fixtures that open it, record its errors and requests, and keep screenshots."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from browsing import browser, sync_api  # noqa: F401 - a fixture

expect = sync_api.expect
expect.set_options(timeout=20_000)
#: Counts calls of `animate`, because a finished animation leaves no trace.
COUNT_MOVES = """window.moves = 0; const animate = Element.prototype.animate;
Element.prototype.animate = function (...given) { window.moves += 1; return animate.apply(this, given); };"""

#: Text and background colours, as `rgb(…)`, of all visible, enabled leaf elements.
COLOURS = """[...document.querySelectorAll('body *')]
  .filter((node) => !node.closest('svg, select, :disabled, .hidden, .skip') && node.checkVisibility({ visibilityProperty: true }))
  .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
  .map((node) => {
    let under = node;
    while (under.parentElement && getComputedStyle(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement;
    return [node.textContent.trim().slice(0, 30), getComputedStyle(node).color, getComputedStyle(under).backgroundColor];
  })"""


@pytest.fixture
def opened(browser, tmp_path):
    """A function that opens the page. After the test, the console must be empty and no request may have gone to another server.

    `lost` allows messages of the browser itself about a service that refuses or goes away.
    """
    contexts, said, asked = [], [], []

    def open_at(port, fragment="", width=1200, scheme="light", lost=False, **more):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        contexts.append(context)
        context.add_init_script(COUNT_MOVES)
        page = context.new_page()
        page.on(
            "console", lambda message: None if lost and "Failed to load resource" in message.text else said.append(message.text)
        )
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append((request.url, port)))
        page.goto(f"http://127.0.0.1:{port}/{fragment}")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url, port in asked if not url.startswith((f"http://127.0.0.1:{port}/", "data:", "blob:"))] == []


@pytest.fixture
def keep(tmp_path):
    """A function that saves a screenshot of a page in the folder that SWERVE_SCREENSHOTS names."""
    folder = Path(os.environ.get("SWERVE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def picture(page, name):
        page.screenshot(path=folder / f"page-{name}.png", full_page=True)

    return picture


def contrast(one: str, two: str) -> float:
    """Return the contrast ratio of two `rgb(…)` colours, as the accessibility guidelines define it."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)
