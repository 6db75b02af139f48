"""The page's files: compressed, with an ETag, and read again when they change."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import os

import pytest

from swerve.core.errors import SwerveError
from swerve.dashboard.assets import Assets, plotly_file


def test_the_charts_come_from_the_installed_package():
    asset = asyncio.run(Assets().get("plotly.js"))
    assert asset.plain == plotly_file().read_bytes()
    assert gzip.decompress(asset.packed) == asset.plain
    assert len(asset.packed) < len(asset.plain) / 2.5
    assert asset.media.startswith("text/javascript")


def test_without_plotly_the_way_out_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SwerveError, match=r"pip install 'swerve\[service\]'"):
        Assets()


def test_a_file_is_read_once_for_all_who_wait_and_again_when_it_has_changed(tmp_path):
    file = tmp_path / "page.js"
    file.write_text("one")
    assets = Assets(tmp_path)

    async def both():
        first, second = await asyncio.gather(assets.get("page.js"), assets.get("page.js"))
        assert first is second and first.plain == b"one"
        file.write_text("two!")
        os.utime(file, ns=(1, 1))
        assert (await assets.get("page.js")).plain == b"two!"
        file.unlink()
        assert await assets.get("page.js") is None

    asyncio.run(both())


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../hub.py", "hub.py", "page.php", "a/b.js", ".js", "nothing.js", "PAGE.JS", "a\0.js"]
)
def test_nothing_else_is_served(name):
    assert asyncio.run(Assets().get(name)) is None
