"""A stub of a search engine for the proxy's benchmark: prepared answers in the form of OpenSearch, as fast as Python allows.

`python -m swerve.bench.stub` serves on a free port of the loopback until terminated.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import cast

from swerve.bench.load import HEAD_END, HOST
from swerve.service.http.server import loop_factory

BACKLOG = 2048
#: Documents that every search finds, and the characters of one: a title and a description.
FOUND, TEXT = 200, 300
DEFAULT_SIZE = 10
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
SIZE = re.compile(rb"[?&]size=(\d+)")


def answer(size: int) -> bytes:
    """Return the answer to a search for so many hits, or to anything else."""
    hits = [
        {
            "_index": "shop",
            "_id": f"product-{number:05d}",
            "_score": round(20.0 - number / 10, 6),
            "_source": {"title": f"product {number}", "text": "x" * TEXT},
        }
        for number in range(size)
    ]
    body = {
        "took": 3,
        "timed_out": False,
        "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
        "hits": {"total": {"value": FOUND, "relation": "eq"}, "max_score": 20.0, "hits": hits},
    }
    text = json.dumps(body, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=UTF-8\r\ncontent-length: %d\r\n\r\n" % len(text) + text


class Stub(asyncio.Protocol):
    """One connection: an answer for each request."""

    answers: dict[int, bytes] = {}  # noqa: RUF012 - shared on purpose

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.buffer = cast(asyncio.Transport, transport), b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(HEAD_END)) >= 0:
            head = self.buffer[: end + 2]
            stated = LENGTH.search(head)
            whole = end + len(HEAD_END) + (int(stated[1]) if stated else 0)
            if len(self.buffer) < whole:
                return
            self.buffer = self.buffer[whole:]
            asked = SIZE.search(head[: head.find(b"\r\n")])
            size = min(int(asked[1]), FOUND) if asked else DEFAULT_SIZE
            made = self.answers.get(size)
            if made is None:
                made = self.answers[size] = answer(size)
            self.transport.write(made)


async def serve() -> None:
    """Serve until terminated."""
    sock = socket.create_server((HOST, 0), backlog=BACKLOG)
    server = await asyncio.get_running_loop().create_server(Stub, sock=sock)
    print(f"ready: http://{HOST}:{sock.getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve())
