"""Build the docs site of this version into site/VERSION, strictly, and list all versions of site/ in versions.json.

python tools/build_docs.py [--site DIR] [--root PATH]   (needs requirements/docs.txt)

The list has mike's format, which the version selector of the theme reads. Earlier versions in the folder stay: copy them there from
where they are published. `python -m http.server --directory site` shows it; every page also opens as a file, where browsers permit
neither search nor the list of versions. Pages link relatively, except 404.html, which is shown at any depth: where the site is not
published at the root of its host, --root names its path there.
"""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
START = """<!doctype html>
<meta charset="utf-8">
<title>Swerve</title>
<meta http-equiv="refresh" content="0; url={0}/index.html">
<a href="{0}/index.html">Swerve {0}</a>
"""


def version() -> str:
    """Return the version of the sources, without its last number: corrections replace the docs of their version."""
    found = re.search(r'__version__ = "(\d+\.\d+)', (ROOT / "src" / "swerve" / "version.py").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def listed(site: Path) -> list[dict[str, object]]:
    """Return the versions that have a folder, the latest first."""
    numbers = [tuple(map(int, path.name.split("."))) for path in site.iterdir() if re.fullmatch(r"\d+\.\d+", path.name)]
    names = [".".join(map(str, number)) for number in sorted(numbers, reverse=True)]
    return [{"version": name, "title": name, "aliases": []} for name in names]


def rooted(page: Path, root: str) -> None:
    """Let the links of 404.html, which the theme writes from the root of the host, begin at a path."""
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r'"/(?!/)', f'"{root}/', text), encoding="utf-8")


def main() -> None:
    """Build, and exit with the status of the build."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--site", type=Path, default=ROOT / "site")
    options.add_argument("--root", default="/", help="the path at which the site is published")
    given = options.parse_args()
    site: Path = given.site.resolve()
    site.mkdir(parents=True, exist_ok=True)
    # never with --quiet: it silences the warnings, and --strict then sees none
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(site / version())]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    rooted(site / version() / "404.html", posixpath.join("/", given.root, version()))
    versions = listed(site)
    (site / "versions.json").write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(START.format(versions[0]["version"]), encoding="utf-8")
    if versions[0]["version"] == version():
        shutil.copy(site / version() / "404.html", site / "404.html")
    print(f"wrote {site}: versions {', '.join(str(one['version']) for one in versions)}")


if __name__ == "__main__":
    main()
