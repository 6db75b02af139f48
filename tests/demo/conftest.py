"""Fixtures of the demo's tests."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.core.engine import Entry


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run entry points as plain Python, which gives the same bytes: for a short run, compiling costs more than it saves."""

    def plain(entry: Entry, *specs: Any, **options: Any) -> Any:
        return entry.plain

    monkeypatch.setattr(Entry, "bind", plain)
