"""Fixtures of the dashboard's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the service's packages are not installed")

from dashboard.listening import Site
from service.running import Running, running


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A service in this process, behind a real socket; it is never compiled, and ticks only when a test says so."""
    with Site(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Running]:
    """`swerve serve` in a separate process; `CONFIG` in the module changes its configuration."""
    with running(tmp_path_factory.mktemp("served"), getattr(request.module, "CONFIG", None)) as service:
        yield service
