"""The services of the client's tests: the real one, and one that misbehaves; and both clients under one interface."""

from __future__ import annotations

import asyncio
import threading

import pytest
from client.misbehaving import Server
from service.running import running

from swerve_client import AsyncClient, Client, exchange


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The address of the real service, one for each file."""
    with running(tmp_path_factory.mktemp("service")) as started:
        yield f"http://127.0.0.1:{started.port}"


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


class Awaited:
    """An AsyncClient with the interface of a Client, so that both run the same tests."""

    def __init__(self, *arguments, **options):
        self._loop = asyncio.Runner()
        self._client = AsyncClient(*arguments, **options)

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._loop.run(method(*arguments, **options))

    def __enter__(self):
        assert self._loop.run(self._client.__aenter__()) is self._client
        return self

    def __exit__(self, *error):
        self._loop.run(self._client.__aexit__(*error))
        self._loop.close()


@pytest.fixture(params=[Client, Awaited], ids=["sync", "async"])
def connect(request, server, monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.01)
    made = []

    def make(url=None, **options):
        made.append(request.param(url or server.url, **options).__enter__())
        return made[-1]

    yield make
    for client in made:
        client.__exit__(None, None, None)
