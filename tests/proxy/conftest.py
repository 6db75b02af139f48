"""A stub of an engine, a real service with the proxy in its process, and proxies of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from proxy.running import Proxied, Served, proxied, served
from proxy.stub import Client, Engine, engine


@pytest.fixture(scope="module")
def stub() -> Iterator[Engine]:
    """The engine of a module."""
    with engine() as made:
        yield made


@pytest.fixture(autouse=True)
def plain(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the engine begin each test without a record and with its own answers."""
    if "stub" in request.fixturenames:
        made: Engine = request.getfixturevalue("stub")
        made.seen.clear()
        made.changed = lambda path, found: found
    return


@pytest.fixture(scope="module")
def whole(stub: Engine, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A service with the proxy in its process; `RULES` in the module are its rules. The deadline is long: machines are busy."""
    with served(tmp_path_factory.mktemp("served"), stub.port, getattr(request.module, "RULES", []), deadline_ms=2000.0) as made:
        yield made


@pytest.fixture(scope="module")
def lone(stub: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """A proxy whose service is away."""
    with proxied(tmp_path_factory.mktemp("proxied"), stub.port) as made:
        yield made


@pytest.fixture
def clients() -> Iterator[Callable[[int], Client]]:
    """Make clients that close after the test."""
    made: list[Client] = []

    def make(port: int) -> Client:
        made.append(Client(port))
        return made[-1]

    yield make
    for one in made:
        one.close()
