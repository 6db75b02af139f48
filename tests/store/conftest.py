"""The engines that the tests of the protocol run on: a further one is one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swerve.store import Store, open_store

#: Engine → the address of an empty store of its own, made from a folder of its own.
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
