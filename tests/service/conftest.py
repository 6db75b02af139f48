"""Fixtures of the tests with a running service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from service.running import Http, Running, running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A small service that the tests of a module share; `CONFIG` in the module changes its configuration."""
    folder: Path = tmp_path_factory.mktemp("served")
    with running(folder, getattr(request.module, "CONFIG", None)) as service:
        yield service


@pytest.fixture
def client(served: Running) -> Iterator[Http]:
    """A connection to the service."""
    made = served.client(getattr(served, "key", ""))
    yield made
    made.close()


@pytest.fixture
def unharmed(served: Running) -> Iterator[None]:
    """Check after the test that the service runs, is ready, and logged no defect."""
    yield
    made = served.client()
    assert made.call("GET", "/readyz").status == 200
    assert not made.rank("after all", ["a", "b"]).json["degraded"]
    assert '"level":"error"' not in served.stderr(), served.stderr()[-3000:]


@pytest.fixture
def no_variables(monkeypatch):
    """Take away every setting of the environment."""
    for name in [name for name in os.environ if name == "SWERVE_CONFIG" or name.startswith("SWERVE__")]:
        monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes the configuration file of this folder, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        (tmp_path / "swerve.toml").write_text(text, encoding="utf-8")
        return "swerve.toml"

    return write
