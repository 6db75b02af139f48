"""Workers of two machines prove to each other that they belong to one service, before anything else is read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from swerve.service import handshake, siblings
from swerve.service.handshake import CALL, CLOCK, DRAWN, PROOF, Knock, call, crew_key, proof
from swerve.service.siblings import Away, Sibling

KEY, OTHER = crew_key(bytes(32)), crew_key(bytes(31) + b"\1")


class Echo(asyncio.Protocol):
    """What is behind the door: it answers each request with 200."""

    made: list[Echo]

    def __init__(self, ahead: float) -> None:
        self.ahead, self.got = ahead, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        while b"\r\n\r\n" in self.got:
            self.got = self.got.partition(b"\r\n\r\n")[2]
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")


class Worker:
    """A worker that is called."""

    def __init__(self) -> None:
        self.doors, self.refused, self.open, self.port = list[Echo](), list[str](), [0], 0

    def door(self, ahead: float) -> Echo:
        self.doors.append(Echo(ahead))
        return self.doors[-1]


@contextlib.asynccontextmanager
async def called(key: bytes = KEY, share: int = 3) -> AsyncIterator[Worker]:
    worker, loop = Worker(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Knock(key, share, worker.door, worker.refused.append, worker.open), "127.0.0.1", 0)
    worker.port = server.sockets[0].getsockname()[1]
    try:
        yield worker
    finally:
        server.close()
        for door in worker.doors:
            door.transport.abort()
        await asyncio.sleep(0.02)


async def told(worker: Worker, data: bytes) -> bytes:
    """Send bytes to a worker, and return all that it says until it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(5.0):
            said = b""
            while piece := await reader.read(4096):
                said += piece
    writer.transport.abort()
    return said


def test_who_has_the_key_comes_to_the_door_and_others_are_told_nothing():
    async def run() -> None:
        async with called() as worker:
            sibling = Sibling(3, ("127.0.0.1", worker.port), KEY)
            assert (await sibling.ask(b"GET", b"/x")).status == 200
            assert (await sibling.ask(b"GET", b"/x", within=1.0)).status == 200
            assert len(worker.doors) == 1 and worker.refused == [] and abs(worker.doors[0].ahead) < 0.5
            for share, key in ((3, OTHER), (2, KEY)):
                with pytest.raises(Away):
                    await Sibling(share, ("127.0.0.1", worker.port), key).ask(b"GET", b"/x", within=1.0)
            assert len(worker.doors) == 1 and worker.refused == ["127.0.0.1"] * 2 and worker.open == [0]
            sibling.close()

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nhost: worker\r\n\r\n" + bytes(200), bytes(CALL), os.urandom(5000)])
def test_what_is_no_proof_ends_the_connection(sent):
    async def run() -> None:
        async with called() as worker:
            assert len(await told(worker, sent)) in (0, DRAWN)
            assert worker.doors == [] and worker.refused == ["127.0.0.1"] and worker.open == [0]

    asyncio.run(run())


def test_a_proof_holds_for_one_connection():
    """Whoever has listened to a handshake cannot repeat it."""

    async def run() -> None:
        async with called() as worker:
            reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
            drawn = await reader.readexactly(DRAWN)
            said = os.urandom(DRAWN) + CLOCK.pack(time.monotonic())
            said += proof(KEY, b"caller", 3, drawn, said)
            writer.write(said)
            assert len(await reader.readexactly(PROOF)) == PROOF and len(worker.doors) == 1
            assert len(await told(worker, said)) == DRAWN
            assert len(worker.doors) == 1 and worker.refused == ["127.0.0.1"]
            writer.transport.abort()

    asyncio.run(run())


def test_a_worker_that_does_not_prove_itself_is_not_asked():
    """Nor is one that sends the caller's own proof back."""

    async def run() -> None:
        asked = list[bytes]()

        async def mirror(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(bytes(DRAWN))
            said = await reader.readexactly(CALL)
            writer.write(said[-PROOF:])
            asked.append(await reader.read())
            writer.transport.abort()

        server = await asyncio.start_server(mirror, "127.0.0.1", 0)
        place = server.sockets[0].getsockname()[:2]
        with pytest.raises(ConnectionError):
            await call(*place, KEY, 3, asyncio.Protocol)
        with pytest.raises(Away):
            await Sibling(3, place, KEY).ask(b"GET", b"/secret", within=1.0)
        await asyncio.sleep(0.05)
        assert asked == [b"", b""]
        server.close()

    asyncio.run(run())


def test_who_says_nothing_or_comes_in_crowds_is_sent_away(monkeypatch):
    monkeypatch.setattr(handshake, "SECONDS", 0.2)
    monkeypatch.setattr(handshake, "MOST_OPEN", 4)

    async def run() -> None:
        async with called() as worker:
            started = time.monotonic()
            silent = [asyncio.create_task(told(worker, b"")) for _ in range(4)]
            while worker.open != [4]:
                await asyncio.sleep(0.01)
            assert await told(worker, b"") == b""  # one more
            assert worker.refused == ["127.0.0.1"]
            assert [len(said) for said in await asyncio.gather(*silent)] == [DRAWN] * 4
            assert 0.1 < time.monotonic() - started < 3.0
            assert worker.open == [0] and len(worker.refused) == 5
            sibling = Sibling(3, ("127.0.0.1", worker.port), KEY)
            assert (await sibling.ask(b"GET", b"/x")).status == 200
            sibling.close()

    asyncio.run(run())


def test_the_door_knows_how_far_the_callers_clock_is_behind(monkeypatch):
    """Machines have clocks of their own, which began at any time."""

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return time.monotonic() - 5000.0

    async def run() -> None:
        async with called() as worker:
            transport, caller = await asyncio.get_running_loop().create_connection(
                lambda: handshake.Call(KEY, 3), "127.0.0.1", worker.port
            )
            real = handshake.time
            monkeypatch.setattr(handshake, "time", Clock)  # of the caller, who is the next to look at it
            while not transport.is_closing() and caller._wanted is None:
                await asyncio.sleep(0)
            monkeypatch.setattr(handshake, "time", real)
            await caller.proved
            assert worker.doors[0].ahead == pytest.approx(5000.0, abs=1.0)
            transport.abort()

    asyncio.run(run())


def test_a_connection_to_another_machine_is_not_used_for_ever(monkeypatch):
    monkeypatch.setattr(siblings, "LONGEST_SECONDS", 0.1)

    async def run() -> None:
        async with called() as worker:
            sibling = Sibling(3, ("127.0.0.1", worker.port), KEY)
            for _ in range(3):
                assert (await sibling.ask(b"GET", b"/x")).status == 200
            assert len(worker.doors) == 1
            await asyncio.sleep(0.15)
            for _ in range(3):  # the first one still has the old connection
                assert (await sibling.ask(b"GET", b"/x")).status == 200
            assert len(worker.doors) == 2
            sibling.close()

    asyncio.run(run())


def test_a_sibling_that_moves_is_asked_where_it_is_now():
    async def run() -> None:
        async with called() as first, called() as second:
            sibling = Sibling(3, ("127.0.0.1", first.port), KEY)
            assert (await sibling.ask(b"GET", b"/x")).status == 200
            sibling.move(("127.0.0.1", second.port))
            assert (await sibling.ask(b"GET", b"/x", within=1.0)).status == 200
            assert len(first.doors) == len(second.doors) == 1
            sibling.close()
            lost = Sibling(3, None, KEY, look=lambda: lost.move(("127.0.0.1", second.port)))  # who is not known is looked up
            assert (await lost.ask(b"GET", b"/x", within=1.0)).status == 200
            lost.close()
            with pytest.raises(Away):
                await Sibling(3, None, KEY).ask(b"GET", b"/x", within=1.0)

    asyncio.run(run())
