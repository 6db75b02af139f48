"""Build the technical report, docs/report/index.md, as one HTML file that needs no other, and as a PDF where Chromium is installed.

python tools/build_report.py [--out DIR]   (needs requirements/docs.txt)
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import subprocess
import sys
from pathlib import Path

import markdown

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from docs_hooks import listed  # noqa: E402

SOURCE = ROOT / "docs" / "report" / "index.md"
NAME = "swerve-report"
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:)([^)\s]+)\)")
COMMENT = re.compile(r"<!-- (taken: .*?|end) -->\n?")
CSS = """@page { size: A4 landscape; margin: 14mm; }
body { font: 10.5pt/1.45 Georgia, 'DejaVu Serif', serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
h1, h2 { font-family: 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif; line-height: 1.2; break-after: avoid; }
table { border-collapse: collapse; margin: 1em 0; font-size: .8em; }
th, td { padding: .25em .6em; border-top: 1px solid #ccc; text-align: left; vertical-align: top; }
thead th { border-top: 2px solid #222; border-bottom: 1px solid #222; }
tbody tr:last-child td { border-bottom: 2px solid #222; }
tr { break-inside: avoid; }
code { font-size: .88em; background: #f3f3f3; padding: 0 .2em; }
@media print { body { margin: 0; max-width: none; } }
"""
PATIENCE = 120  # seconds for Chromium


def embedded(found: re.Match[str]) -> str:
    """Return an image with its bytes."""
    path = (SOURCE.parent / found[2]).resolve()
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{found[1]}" src="data:image/{path.suffix[1:]};base64,{data}">'


def named(found: re.Match[str]) -> str:
    """Return the text of a link, and the file of the repository that it leads to."""
    path = (SOURCE.parent / found[2].partition("#")[0]).resolve().relative_to(ROOT.resolve())
    return found[1] if found[1] == str(path) else f"{found[1]} (`{path}`)"


def page(text: str, version: str) -> str:
    """Return the report as a page: links to files of the repository become their text and path, because the file stands alone."""
    text = LINK.sub(named, IMAGE.sub(embedded, COMMENT.sub("", text)))
    body = markdown.markdown(listed(text), extensions=["tables", "sane_lists", "attr_list"])
    title = re.search(r"^# (.*)$", text, re.M)
    assert title is not None
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title[1]}</title><style>\n{CSS}</style></head>\n'
        f"<body>\n{body}\n<p><em>Swerve {version}</em></p>\n</body></html>\n"
    )


def main() -> None:
    """Build, and say what was written."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=ROOT / "build" / "report")
    out: Path = options.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    said = re.search(r'__version__ = "(.*)"', (ROOT / "src" / "swerve" / "version.py").read_text(encoding="utf-8"))
    assert said is not None
    target = out / f"{NAME}.html"
    target.write_text(page(SOURCE.read_text(encoding="utf-8"), said[1]), encoding="utf-8")
    print(f"wrote {target}")
    browser = shutil.which("chromium")
    if browser is None:
        print("no PDF: it needs Chromium; every browser prints the page to one")
        return
    pdf = out / f"{NAME}.pdf"
    options_of = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={pdf}"]
    subprocess.run([browser, *options_of, target.as_uri()], check=True, capture_output=True, timeout=PATIENCE)
    print(f"wrote {pdf}")


if __name__ == "__main__":
    main()
