"""What is built on top of a service starts with it, ends before it, and does not take it along when it fails."""

from __future__ import annotations

import asyncio

import pytest

from swerve.core.errors import SwerveError
from swerve.service.config.load import Config, Policy, Server, Store
from swerve.service.http.server import Extension, beside, lifespan, open_service, serve
from swerve.store import open_store


def config(folder) -> Config:
    return Config(
        server=Server(port=0), policy=Policy(spec="ts", arms=8), store=Store(url=f"sqlite:///{folder}/swerve.db", cache_mb=16)
    )


def test_what_runs_beside_the_service_ends_before_it(tmp_path, monkeypatch):
    service = open_service(config(tmp_path))
    happened = []

    async def start() -> None:
        happened.append("start")

    async def run() -> None:
        happened.append("run")
        try:
            await asyncio.sleep(60)
        finally:
            happened.append("stopped" if service.availability.stopping else "cancelled")

    monkeypatch.setattr(service, "start", start)  # nothing needs to be compiled for this

    async def life() -> None:
        async with lifespan(service, lambda: happened.append("ready"), happened.append, run)(None):
            await asyncio.sleep(0.05)

    asyncio.run(life())
    assert happened == ["start", "ready", "run", "cancelled", True]


def test_its_failure_is_logged_and_the_service_goes_on(caplog):
    async def run() -> None:
        raise RuntimeError("out of luck")

    asyncio.run(beside(run))
    assert [record.message for record in caplog.records] == ["what runs beside the service failed"]


def test_what_cannot_be_built_leaves_nothing_open(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.service.logs.setup", lambda config: None)
    asked = []

    def extend(service, address: str) -> Extension:
        asked.append(address)
        raise SwerveError("not here")

    with pytest.raises(SwerveError, match="not here"):
        serve(config(tmp_path), lambda line: None, extend=extend)
    assert asked[0].startswith("http://127.0.0.1:")
    open_store(f"sqlite:///{tmp_path}/swerve.db").close()  # nobody holds it any more
