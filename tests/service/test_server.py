"""Extensions start with the service and end before it; a failing extension does not stop the service."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest

from swerve.core.errors import SwerveError
from swerve.service.config.load import Config, Policy, Server, Store
from swerve.service.http.server import Extension, begin, beside, lifespan, open_service, serve
from swerve.store import StoreError, open_store


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

    monkeypatch.setattr(service, "start", start)  # this test needs no compilation

    async def life() -> None:
        async with lifespan(service, lambda: happened.append("ready"), happened.append, run)(None):
            await asyncio.sleep(0.05)

    asyncio.run(life())
    assert happened == ["start", "ready", "run", "cancelled", True]


def test_its_failure_is_logged_and_the_service_goes_on(caplog):
    async def run() -> None:
        raise RuntimeError("out of luck")

    asyncio.run(beside(run))
    assert [record.message for record in caplog.records] == ["the extension of the service failed"]


@pytest.mark.parametrize(("error", "defect"), [(StoreError("full", "make room on its disk"), False), (KeyError("x"), True)])
def test_a_start_that_the_store_refuses_is_no_defect(tmp_path, monkeypatch, caplog, error, defect):
    service, codes = open_service(config(tmp_path)), list[int]()

    async def start() -> None:
        raise error

    def end(code: int) -> None:
        codes.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(service, "start", start)
    monkeypatch.setattr("swerve.service.http.server.os._exit", end)
    with pytest.raises(SystemExit):
        asyncio.run(begin(service, lambda: codes.append(-1)))
    assert codes == [1]
    (record,) = caplog.records
    assert record.message.startswith("the service could not start") and record.levelname == "ERROR"
    assert (record.exc_info is not None) == defect
    assert defect or "make room on its disk" in record.message
    asyncio.run(service.stop())


def test_what_cannot_be_built_leaves_nothing_open(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.service.logs.setup", lambda config: None)
    asked = []

    def extend(service, address: str) -> Extension:
        asked.append(address)
        raise SwerveError("not here")

    with pytest.raises(SwerveError, match="not here"):
        serve(config(tmp_path), lambda line: None, extend=extend)
    assert asked[0].startswith("http://127.0.0.1:")
    open_store(f"sqlite:///{tmp_path}/swerve.db").close()  # the lock is released


def test_a_port_that_is_taken_leaves_no_files_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.service.logs.setup", lambda config: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = msgspec.structs.replace(config(tmp_path), server=Server(port=port))
        with pytest.raises(SwerveError, match=f"cannot listen on 127.0.0.1 port {port}"):
            serve(wanted, lambda line: None)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_opened_lets_go_of_the_port(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.service.logs.setup", lambda config: None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    held = open_store(f"sqlite:///{tmp_path}/swerve.db")
    try:
        with pytest.raises(SwerveError):
            serve(msgspec.structs.replace(config(tmp_path), server=Server(port=port)), lambda line: None)
    finally:
        held.close()
    socket.create_server(("127.0.0.1", port)).close()


def test_an_address_that_may_not_be_bound_is_refused_before_the_socket(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.service.logs.setup", lambda config: None)
    monkeypatch.setattr("swerve.service.http.server.listen", lambda host, port: pytest.fail("it listens"))
    with pytest.raises(SwerveError, match="API key"):
        serve(msgspec.structs.replace(config(tmp_path), server=Server(host="0.0.0.0", port=0)), lambda line: None)
    assert list(tmp_path.iterdir()) == []
