"""Documents for a search engine's indexes: sent in bulk by a thread of its own, so that no caller waits for the engine.

What waits is bounded. A failed request is tried again twice, then its documents are dropped and counted. The engine's address comes
from the configuration and its credentials from the environment; neither is ever logged.
"""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from swerve.service.metrics import Metrics

log = logging.getLogger("swerve.service")

#: Bytes that may wait in memory, and bytes of one request.
MOST_WAITING, MOST_SENT = 8 << 20, 1 << 20
#: Bytes of an answer that are read: it has a line for each document.
MOST_ANSWERED = 4 << 20
#: Seconds for each step of a request, and before each further try.
TIMEOUT, WAITS = 5.0, (1.0, 4.0)
#: Seconds between two log lines about failures.
LOG_EVERY = 10.0


class Bulk(msgspec.Struct):
    """What is read of the answer to a bulk request: the outcome of each document."""

    items: list[dict[str, Any]] = []


class Forwarder:
    """Sends documents to the `_bulk` route of a search engine."""

    def __init__(self, address: str, authorization: str, metrics: Metrics) -> None:
        parts = urlsplit(address)
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path.rstrip("/") + "/_bulk"
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._headers = {"Content-Type": "application/x-ndjson", **({"Authorization": authorization} if authorization else {})}
        self._count = metrics.forwarded
        self._waiting: deque[bytes] = deque()
        self._size, self._said = 0, -LOG_EVERY
        self._changed = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    def put(self, index: str, documents: Iterable[Any]) -> None:
        """Send documents later; returns at once. What finds no room is dropped."""
        action = b'{"index":{"_index":"%b"}}\n' % index.encode()
        with self._changed:
            for document in documents:
                try:
                    line = action + msgspec.json.encode(document) + b"\n"
                except (RecursionError, msgspec.MsgspecError, UnicodeEncodeError):
                    self._count("dropped").value += 1
                    continue
                if self._ending or self._size + len(line) > MOST_WAITING:
                    self._count("dropped").value += 1
                    continue
                self._waiting.append(line)
                self._size += len(line)
            if self._thread is None and self._waiting:
                self._thread = threading.Thread(target=self._run, name="swerve-forwarder", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self, patience: float) -> None:
        """End the thread; what is not sent within `patience` seconds is lost."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            self._send(lines)

    def _next(self) -> list[bytes] | None:
        """Return the documents of the next request; None at the end."""
        with self._changed:
            while not self._waiting:
                if self._ending:
                    return None
                self._changed.wait()
            lines, size = [], 0
            while self._waiting and size + len(self._waiting[0]) <= max(MOST_SENT, len(self._waiting[0])):
                lines.append(self._waiting.popleft())
                size += len(lines[-1])
            self._size -= size
            return lines

    def _send(self, lines: list[bytes]) -> None:
        body = b"".join(lines)
        why = ""
        for wait in (*WAITS, None):
            try:
                status, answer = self._post(body)
                if status < 300:
                    return self._taken(lines, answer)
                why = f"HTTP {status}"
                if 400 <= status < 500 and status != 429:
                    break  # it would be refused again
            except (OSError, http.client.HTTPException, ValueError) as error:  # `ValueError`: a header that is none
                why = type(error).__name__
            if wait is None or self._interrupted(wait):
                break
        self._count("failed").value += len(lines)
        now = time.monotonic()
        if now - self._said >= LOG_EVERY:
            self._said = now
            log.warning("the search engine does not take documents of UBI", extra={"why": why, "lost": len(lines)})

    def _interrupted(self, wait: float) -> bool:
        """Wait before another try; return whether the service stops."""
        until = time.monotonic() + wait
        with self._changed:
            while not self._ending and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._ending

    def _post(self, body: bytes) -> tuple[int, bytes]:
        connection = self._kind(self._host, self._port, timeout=TIMEOUT)
        try:
            connection.request("POST", self._path, body, self._headers)
            response = connection.getresponse()
            return response.status, response.read(MOST_ANSWERED)
        finally:
            connection.close()

    def _taken(self, lines: list[bytes], answer: bytes) -> None:
        """Count what the engine says of each document; an answer that cannot be read says that all are taken."""
        try:
            items = msgspec.json.decode(answer, type=Bulk).items
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            items = []
        results = [said for item in items for said in item.values() if isinstance(said, dict)]
        rejected = sum(isinstance(said.get("status"), int) and said["status"] >= 300 for said in results)
        self._count("forwarded").value += len(lines) - rejected
        self._count("rejected").value += rejected
