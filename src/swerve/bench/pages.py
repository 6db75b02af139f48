"""Open dashboard pages: readers of the service's live stream, to measure their cost for other requests."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Sequence
from typing import Self
from urllib.parse import quote

from swerve.bench.load import HANGING_SECONDS, HEAD_END, HOST, OK_LINE
from swerve.core.errors import SwerveError

READ_BYTES = 1 << 18  # several messages in one call
HEAD_READ_BYTES = 1 << 16  # while waiting for the head of an answer
REFUSAL_SHOWN = 200  # bytes of a refusal that the error shows
STOP_CHECK_SECONDS = 0.1  # between looks at whether to stop


class Pages:
    """`count` readers of `/v1/live` inside a `with` block, each watching one of the queries; one thread reads for all."""

    def __init__(self, port: int, count: int, queries: Sequence[str]) -> None:
        self.port, self.paths = port, [f"/v1/live?query={quote(queries[page % len(queries)])}" for page in range(count)]
        self.messages = 0
        self._over = threading.Event()
        self._lines: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            for path in self.paths:
                self._lines.append(self._open(path))
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._read, name="swerve-pages")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._close()

    def _open(self, path: str) -> socket.socket:
        line = socket.create_connection((HOST, self.port), timeout=HANGING_SECONDS)
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        head = b""
        while HEAD_END not in head:
            piece = line.recv(HEAD_READ_BYTES)
            if not piece:
                break
            head += piece
        if not head.startswith(OK_LINE):
            line.close()
            raise SwerveError(f"the server gave no live stream: {head[:REFUSAL_SHOWN].decode('latin-1')}")
        return line

    def _read(self) -> None:
        lines = list(self._lines)
        while lines and not self._over.is_set():
            for line in select.select(lines, (), (), STOP_CHECK_SECONDS)[0]:
                data = line.recv(READ_BYTES)
                self.messages += data.count(b"event: ")
                if not data:
                    lines.remove(line)

    def _close(self) -> None:
        for line in self._lines:
            line.close()
