"""A real browser for tests of pages; modules that import this are skipped if there is none."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("chromium is not installed (tools/system-packages chromium)", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed (dependency group dev)")

ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    """The browser of one module's tests."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()
