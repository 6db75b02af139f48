"""What the tests of the demo share."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.core.engine import Entry


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points run as plain Python, which gives the same bytes: compiling them takes longer than a short run saves."""

    def plain(entry: Entry, *specs: Any, **options: Any) -> Any:
        return entry.plain

    monkeypatch.setattr(Entry, "bind", plain)
