"""Hooks of the docs site: pages from outside of docs/, links that hold here and on the code host, lists as that reads them.

Links are written for the repository: `docs/client.md` in the README, `../README.md` in a page. Here each link is resolved in the
repository and leads to the page that shows the file; a linked source file gets a page of its own.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
#: Pages of the site that are files of the repository outside of docs/.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^\s*(```+|~~~+)")
ITEM = re.compile(r"^( *)([-*+]|\d+[.)])( +)")
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1", re.S)
CSS = """.md-typeset table:not([class]) { font-size: .62rem; }
.md-typeset table:not([class]) th { min-width: 0; }
.md-typeset table:not([class]) td, .md-typeset table:not([class]) th { padding: .5em .8em; }
.md-typeset td code { word-break: normal; overflow-wrap: break-word; }
.md-grid { max-width: 70rem; }
"""

_sources: dict[str, str] = {}  # the page in the site → the file in the repository


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside of docs/, and a page for each source file that a page links to."""
    _sources.clear()
    for file in files.documentation_pages():
        _sources[file.src_uri] = f"docs/{file.src_uri}"
    files.append(File.generated(config, "site.css", content=CSS))
    waiting = [*_sources.values(), *OUTSIDE]
    for source, uri in OUTSIDE.items():
        _add(files, config, source, uri)
    while waiting:
        for link in _links(waiting.pop()):
            if (ROOT / link).is_file() and not link.startswith("docs/") and link not in _sources.values():
                _add(files, config, link, f"files/{link}" if link.endswith(".md") else f"files/{link}.md")
                if link.endswith(".md"):
                    waiting.append(link)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return a page with links for the site, and with lists that Python-Markdown reads as the code host does."""
    source = _sources[page.file.src_uri]
    if not source.endswith(".md"):
        return markdown
    by_source = {path: uri for uri, path in _sources.items()}

    def placed(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        if not target or "://" in target:
            return found[0]
        path = _resolved(source, target)
        if path in by_source:
            uri = by_source[path]
        elif path.startswith("docs/"):
            uri = path.removeprefix("docs/")
        else:
            return found[0]  # leads nowhere: the strict build says so
        relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{found[1]}{relative}{'#' if anchor else ''}{anchor}{found[3]}"

    return listed("\n".join(line if fenced else _outside_code(placed, line) for line, fenced in _lines(markdown)))


def listed(markdown: str) -> str:
    """Return Markdown whose lists are indented by four spaces and stand apart, as Python-Markdown wants them."""
    out: list[str] = []
    offsets: list[int] = []  # of the content of the items that are open, outermost first
    apart = True  # whether the next item must stand apart: no item is open, or the open one has several blocks
    for line, fenced in _lines(markdown):
        indent = len(line) - len(line.lstrip(" "))
        item = None if fenced else ITEM.match(line)
        if line.strip() and not fenced:
            blank = not out or not out[-1].strip()
            apart = apart or blank
            while offsets and indent < offsets[-1] and (item or blank):
                offsets.pop()
            if item and apart and not blank:
                out.append("")
        depth = sum(1 for offset in offsets if indent >= offset)
        shift = 4 * depth - (offsets[depth - 1] if depth else 0)
        moved = " " * shift + line if line.strip() and depth else line
        if line.strip().startswith("|") and not fenced:
            moved = CODE.sub(lambda found: found[0].replace(r"\|", "|"), moved)  # here a pipe in code does not end the cell
        if line.strip().startswith("|") and not fenced and out and out[-1].strip() and not out[-1].strip().startswith("|"):
            out.append("")
        out.append(moved)
        if item:
            offsets.append(len(item[0]))
            apart = False
    return "\n".join(out)


def _add(files: Files, config: Any, source: str, uri: str) -> None:
    text = (ROOT / source).read_text(encoding="utf-8")
    if not source.endswith(".md"):
        text = f"# `{source}`\n\n````{'python' if source.endswith('.py') else 'text'}\n{text.rstrip()}\n````\n"
    files.append(File.generated(config, uri, content=text))
    _sources[uri] = source


def _links(source: str) -> list[str]:
    text = "\n".join(line for line, fenced in _lines((ROOT / source).read_text(encoding="utf-8")) if not fenced)
    targets = (found[2].partition("#")[0] for found in LINK.finditer(CODE.sub("", text)))
    return [_resolved(source, target) for target in targets if target and "://" not in target]


def _resolved(source: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _outside_code(placed: Any, line: str) -> str:
    """Return a line with its links replaced, but not those in spans of code."""
    out, end = [], 0
    spans = [found.span() for found in CODE.finditer(line)]
    for found in LINK.finditer(line):
        if not any(start < found.start(2) < stop for start, stop in spans):
            out += [line[end : found.start()], placed(found)]
            end = found.end()
    return "".join(out) + line[end:]


def _lines(markdown: str) -> list[tuple[str, bool]]:
    """Return the lines, each with whether it is inside a fence of code."""
    out: list[tuple[str, bool]] = []
    open_fence = ""
    for line in markdown.split("\n"):
        fence = FENCE.match(line)
        if open_fence:
            out.append((line, True))
            if fence and fence[1].startswith(open_fence) and not line.strip().strip("`~"):
                open_fence = ""
        else:
            open_fence = fence[1] if fence else ""
            out.append((line, bool(fence)))
    return out
