"""The engines on which the tests of the protocol run; a new engine is one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swerve.store import Store, open_store

#: By engine: the address of an empty store in a given folder.
ENGINES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/swerve.db",
}


@pytest.fixture(params=ENGINES)
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
