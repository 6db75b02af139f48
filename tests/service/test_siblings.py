"""Requests to another worker: answered within a time or given up, over connections that are used again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from swerve.service.siblings import AWAY_SECONDS, Away, Reply, Sibling, written

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: y\r\n\r\n{}"


@contextlib.asynccontextmanager
async def worker(path: Path, answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[list[int]]:
    """Yield the number of connections to a worker that answers like this; the count grows."""
    count, writers = [0], list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count[0] += 1
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await answer(writer)
        writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield count
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.02)  # both ends close


async def good(writer: asyncio.StreamWriter) -> None:
    writer.write(GOOD)


def test_a_connection_is_used_again(tmp_path):
    async def run() -> None:
        async with worker(tmp_path / "s", good) as connections:
            sibling = Sibling(1, tmp_path / "s")
            for _ in range(5):
                assert await sibling.ask(b"GET", b"/x") == Reply(200, {b"content-length": b"2", b"x": b"y"}, b"{}")
            assert connections == [1]
            await asyncio.gather(*(sibling.ask(b"GET", b"/x") for _ in range(4)))
            assert connections[0] <= 4
            sibling.close()

    asyncio.run(run())


def test_nobody_there_is_told_at_once_and_never_before_the_call_returns(tmp_path):
    async def run() -> None:
        sibling, told = Sibling(1, tmp_path / "s"), list[Reply | None]()
        for _ in range(2):  # the second one is not even tried
            sibling.send(written(b"GET", b"/x", (), b""), told.append, 1.0)
            assert told == []
            while not told:
                await asyncio.sleep(0)
            assert told.pop() is None
        with pytest.raises(Away):
            await sibling.ask(b"GET", b"/x")
        await asyncio.sleep(AWAY_SECONDS)
        async with worker(tmp_path / "s", good):
            assert (await sibling.ask(b"GET", b"/x")).status == 200
            sibling.close()

    asyncio.run(run())


def test_a_late_answer_is_dropped_and_its_connection_goes_on(tmp_path):
    async def run() -> None:
        wait = [0.2]

        async def late(writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(wait[0])
            writer.write(GOOD)

        async with worker(tmp_path / "s", late) as connections:
            sibling = Sibling(1, tmp_path / "s")
            with pytest.raises(Away):
                await sibling.ask(b"GET", b"/x", within=0.05)
            await asyncio.sleep(0.3)
            wait[0] = 0.0
            assert (await sibling.ask(b"GET", b"/x", within=1.0)).status == 200
            assert connections == [1]
            sibling.close()

    asyncio.run(run())


def test_a_connection_that_breaks_gives_up_its_request(tmp_path):
    async def run() -> None:
        async def broken(writer: asyncio.StreamWriter) -> None:
            writer.write(GOOD[:20])
            await writer.drain()
            writer.transport.abort()

        async with worker(tmp_path / "s", broken):
            sibling = Sibling(1, tmp_path / "s")
            with pytest.raises(Away):
                await sibling.ask(b"GET", b"/x", within=5.0)
            assert not sibling.lines

    asyncio.run(run())


def test_a_stream_is_read_as_it_comes_and_ends_with_its_reader(tmp_path):
    async def run() -> None:
        async def endless(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                while not writer.transport.is_closing():
                    writer.write(b"3\r\nabc\r\n")
                    await writer.drain()
                    await asyncio.sleep(0)

        async with worker(tmp_path / "s", endless):
            sibling = Sibling(1, tmp_path / "s")
            head, rest = await sibling.stream(b"GET", b"/x")
            assert head.status == 200
            got = b""
            async for piece in rest:
                got += piece
                if len(got) > 3000:
                    break
            assert set(got) == set(b"abc")
            await rest.aclose()  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)
            assert not sibling.lines

    asyncio.run(run())
