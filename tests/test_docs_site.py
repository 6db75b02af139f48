"""The docs site: built strictly, every page is reached by links, nothing comes from outside, search and versions work."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed: `make docs` installs requirements/docs.txt")
pytest.importorskip("material", reason="mkdocs-material is not installed: `make docs` installs requirements/docs.txt")

ROOT = Path(__file__).parent.parent
#: What the site is made of.
PARTS = (
    "docs",
    "examples",
    "tools",
    "src/swerve/version.py",
    "mkdocs.yml",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CITATION.cff",
    "clients/js",
)
#: Tags that load something, by the attribute with its address.
LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}
#: Relations of `link` that load nothing.
NOT_LOADED = {"canonical", "next", "prev", "alternate"}


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/build_docs.py", "--site", str(site)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)


class Page(HTMLParser):
    """The links, loaded addresses, ids and paragraphs of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.paragraphs: list[str] = []
        self._in_code = self._in_paragraph = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.add(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag == "link" and given.get("rel") not in NOT_LOADED:
            self.loads.append(str(given.get("href")))
        if tag in LOADING and given.get(LOADING[tag]):
            self.loads.append(str(given[LOADING[tag]]))
        if tag == "p":
            self._in_paragraph = True
            self.paragraphs.append("")
        self._in_code = self._in_code or tag == "code"

    def handle_endtag(self, tag: str) -> None:
        if tag == "code":
            self._in_code = False
        if tag == "p":
            self._in_paragraph = False

    def handle_data(self, data: str) -> None:
        if self._in_paragraph and not self._in_code:
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    earlier = folder / "0.0"
    earlier.mkdir(parents=True)
    (earlier / "index.html").write_text("<!doctype html><title>an earlier version</title>", encoding="utf-8")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def built(site: Path) -> Path:
    return site / str(load("build_docs").version())


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in built.rglob("*.html") if path.name != "404.html"}


def test_every_page_is_reached_from_the_start_by_links_and_every_link_has_its_target(built: Path, pages: dict[Path, Page]):
    reached, waiting = {built / "index.html"}, [built / "index.html"]
    while waiting:
        here = waiting.pop()
        for link in pages[here].links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (here.parent / unquote(parts.path)).resolve() if parts.path else here
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{here.name}: {link}"
            if target.suffix == ".html":
                assert not parts.fragment or unquote(parts.fragment) in pages[target].ids | {"__skip"}, f"{here.name}: {link}"
                if target not in reached:
                    reached.add(target)
                    waiting.append(target)
    assert reached == set(pages)
    names = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {f"{name}.html" for name in names | {"index", "changelog", "contributing", "examples"}} <= {
        path.name for path in reached
    }
    assert built / "files" / "examples" / "flask_search.py.html" in reached


def test_no_page_loads_anything_from_outside(built: Path, pages: dict[Path, Page]):
    loaded = [(path.name, address) for path, page in pages.items() for address in page.loads]
    assert len(loaded) > 2 * len(pages)  # a style and a script each, at the least
    assert [one for one in loaded if re.match(r"(?:\w+:)?//", one[1])] == []
    for style in built.rglob("*.css"):
        addresses = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", style.read_text(encoding="utf-8"))
        assert [one for one in map("".join, addresses) if re.match(r"(?:https?:)?//", one)] == [], style


def test_lists_and_tables_are_read_as_on_the_code_host(pages: dict[Path, Page]):
    left = [
        (path.name, text)
        for path, page in pages.items()
        for text in page.paragraphs
        if re.search(r"^\s*([-*] |\d+\. |\|)|\|--|```", text, re.M)
    ]
    assert left == []


def test_lists_are_indented_and_stand_apart():
    listed = load("docs_hooks").listed
    assert listed("words\n- one\n  more\n  - inner\n\n  | a |\n- two\n\nend") == (
        "words\n\n- one\n    more\n    - inner\n\n    | a |\n\n- two\n\nend"
    )
    assert listed("- one\n\n  more\n- two\n- three") == "- one\n\n    more\n\n- two\n- three"
    assert listed(r"| `a \| b` | c \| d |") == r"| `a | b` | c \| d |"
    assert listed("1. one\n   more\n\n   ```\n   x\n   ```\n2. two") == "1. one\n    more\n\n    ```\n    x\n    ```\n2. two"


def test_versions_are_listed_and_the_start_leads_to_the_latest(site: Path, built: Path):
    versions = json.loads((site / "versions.json").read_text(encoding="utf-8"))
    assert [one["version"] for one in versions] == [built.name, "0.0"]
    assert f"url={built.name}/index.html" in (site / "index.html").read_text(encoding="utf-8")


def left_by(page: Path, root: str, folder: Path) -> list[str]:
    """Return the addresses of a page that lead to no file of a site published at the path `root`, wherever the page is shown."""
    shown = Page(page.read_text(encoding="utf-8"))
    found = [one for one in (*shown.links, *shown.loads) if not one.startswith(("#", "data:"))]
    assert len(found) > 30
    targets = {one: folder / unquote(urlsplit(one).path).removeprefix(root) for one in found}
    return [
        one
        for one, target in targets.items()
        if not one.startswith(root) or not (target / "index.html" if target.is_dir() else target).is_file()
    ]


def test_a_missing_page_links_to_its_version_from_any_depth(site: Path, built: Path):
    assert left_by(built / "404.html", "/", site) == []
    text = (built / "404.html").read_text(encoding="utf-8")
    assert f'"base": "/{built.name}/"' in text  # where scripts look for search and versions
    assert (site / "404.html").read_text(encoding="utf-8") == text  # hosts of static files show that of the root


def test_a_site_below_a_path_has_it_in_the_links_of_a_missing_page(tmp_path: Path):
    page = tmp_path / "404.html"
    page.write_text('<a href="/client.html">a</a><script src="/assets/a.js"></script>{"base": "/"}', encoding="utf-8")
    load("build_docs").rooted(page, "/docs/0.2")
    assert page.read_text(encoding="utf-8") == (
        '<a href="/docs/0.2/client.html">a</a><script src="/docs/0.2/assets/a.js"></script>{"base": "/docs/0.2/"}'
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "added", "says"),
    [
        ("docs/client.md", "[nowhere](nowhere.md)", "nowhere.md"),
        ("docs/client.md", "[nowhere](service.md#nowhere)", "#nowhere"),
        ("README.md", "[nowhere](docs/client.md#nowhere)", "#nowhere"),
        ("CHANGELOG.md", "[nowhere](tools/nowhere.py)", "nowhere.py"),
        ("docs/unheard.md", "# A page that nothing names", "unheard.md"),
    ],
    ids=["page", "anchor", "anchor from outside", "file", "not in the navigation"],
)
def test_a_dead_link_or_a_forgotten_page_fails_the_build(tmp_path: Path, page: str, added: str, says: str):
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("node_modules"))
        else:
            (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, tmp_path / part)
    with (tmp_path / page).open("a", encoding="utf-8") as out:
        out.write(f"\n\n{added}\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert says in done.stdout + done.stderr


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_search_and_versions_work_in_a_browser_without_the_internet(address: str, built: Path):
    pytest.importorskip("playwright", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("chromium is not installed (tools/system-packages chromium)")
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/")
        page.wait_for_url(f"{address}/{built.name}/index.html")
        page.locator(".md-version__link", has_text="0.0").wait_for(state="attached")
        page.locator("input.md-search__input").click()
        page.locator("input.md-search__input").press_sequentially("sendBeacon")  # its keys are heard, not its value
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        assert re.search(r"(service|client|changelog)\.html", str(found.get_attribute("href")))
        browser.close()
    assert asked
    assert [one for one in asked if not one.startswith((f"{address}/", "data:", "blob:"))] == []


def test_the_report_is_one_file_with_every_table_that_it_takes(tmp_path):
    hidden = tmp_path / "empty"  # without Chromium: the PDF is made from the same page
    hidden.mkdir()
    command = [sys.executable, str(ROOT / "tools" / "build_report.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, env={"PATH": str(hidden)}, capture_output=True, text=True, check=True)
    assert "no PDF" in done.stdout
    text = (tmp_path / "swerve-report.html").read_text(encoding="utf-8")
    source = (ROOT / "docs" / "report" / "index.md").read_text(encoding="utf-8")
    assert text.count("<table>") == len(re.findall(r"^\|---", source, re.M)) > 10
    assert "<!--" not in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
