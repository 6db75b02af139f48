"""The engines on which the tests of the protocol run; a new engine is one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import postgres
import pytest
import valkeys

from swerve.store import Store, open_store

#: By engine: the address of an empty store, for which a folder may be used. An engine that is a server is started for the first
#: one, and skips by name where its programs are missing.
ENGINES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/swerve.db",
    "postgresql": postgres.fresh,
    "valkey": valkeys.fresh,
}
#: The engines that need a server: `make test-engines`.
SERVERS = ENGINES.keys() - {"sqlite"}


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.engines] if name in SERVERS else []) for name in ENGINES])
def engine(request: pytest.FixtureRequest) -> Callable[[Path], str]:
    return ENGINES[request.param]


@pytest.fixture
def url(engine: Callable[[Path], str], tmp_path: Path) -> str:
    return engine(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()
