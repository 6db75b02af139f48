"""Open pages: readers of the service's live events, for what they cost everybody else."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Sequence
from typing import Self
from urllib.parse import quote

from swerve.bench.load import HEAD_END, HOST, OK, PATIENCE
from swerve.core.errors import SwerveError


class Pages:
    """So many readers of `/v1/live`, each watching one of the queries, from `with` to the end of it; a thread reads for all."""

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
        line = socket.create_connection((HOST, self.port), timeout=PATIENCE)
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        head = b""
        while HEAD_END not in head:
            piece = line.recv(1 << 16)
            if not piece:
                break
            head += piece
        if not head.startswith(OK):
            line.close()
            raise SwerveError(f"the server gave no live events: {head[:200].decode('latin-1')}")
        return line

    def _read(self) -> None:
        lines = list(self._lines)
        while lines and not self._over.is_set():
            for line in select.select(lines, (), (), 0.1)[0]:
                data = line.recv(1 << 18)
                self.messages += data.count(b"event: ")
                if not data:
                    lines.remove(line)

    def _close(self) -> None:
        for line in self._lines:
            line.close()
