"""The files of the page, and the chart library from its own package: compressed once, sent again only after a change."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

from swerve.core.errors import SwerveError

PAGE = Path(__file__).with_name("page")
PLOTLY = "plotly.js"
FILE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9]+)+")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
PACKED = {".html", ".css", ".js", ".svg", ".json"}
#: Allows nothing from other origins. Plotly adds style rules and attributes while it draws, which no hash can allow.
POLICY = "; ".join(
    [
        "default-src 'none'", "script-src 'self'", "style-src 'self' 'unsafe-inline'", "connect-src 'self'", "font-src 'self'",
        "img-src 'self' data: blob:", "manifest-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    ]
)  # fmt: skip
GZIP_LEVEL = 6  # of gzip: its default; higher ones are much slower for little
ETAG_DIGITS = 20  # hexadecimal digits of an ETag: 80 bits, so that two files never share one


class Asset(NamedTuple):
    """A file as it is sent: media type, ETag, bytes, and compressed bytes if compression helps."""

    media: str
    mark: str
    plain: bytes
    packed: bytes | None


def plotly_file() -> Path:
    """Return the JavaScript file in the package plotly, without importing the package."""
    found = importlib.util.find_spec("plotly")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        file = Path(folder) / "package_data" / "plotly.min.js"
        if file.is_file():
            return file
    raise SwerveError("the page's charts need the package plotly; install Swerve with its extra: pip install 'swerve[service]'")


def load(file: Path, media: str) -> Asset:
    """Read a file and compress it."""
    plain = file.read_bytes()
    packed = gzip.compress(plain, GZIP_LEVEL, mtime=0) if file.suffix in PACKED else None
    return Asset(media, hashlib.sha256(plain).hexdigest()[:ETAG_DIGITS], plain, packed)


class Assets:
    """The files by name, kept in memory until they change on disk."""

    def __init__(self, folder: Path = PAGE) -> None:
        self.folder, self.plotly = folder, plotly_file()
        self._kept: dict[str, tuple[tuple[int, int], asyncio.Task[Asset]]] = {}

    def file(self, name: str) -> Path | None:
        """Return the path of a file; None for an unknown name."""
        if name == PLOTLY:
            return self.plotly
        if FILE_NAME.fullmatch(name) is None or Path(name).suffix not in TYPES:
            return None
        return self.folder / name

    async def get(self, name: str) -> Asset | None:
        """Return a file. A thread reads and compresses it once for all callers: the largest takes a quarter of a second."""
        file = self.file(name)
        if file is None:
            return None
        try:
            status = file.stat()
        except OSError:
            return None
        version = status.st_mtime_ns, status.st_size
        kept = self._kept.get(name)
        if kept is None or kept[0] != version or (kept[1].done() and kept[1].exception() is not None):
            task = asyncio.get_running_loop().create_task(asyncio.to_thread(load, file, TYPES[file.suffix]))
            kept = self._kept[name] = version, task
        return await asyncio.shield(kept[1])
