"""A stub of a search engine that records bytes on both sides, and a client that reads answers as bytes."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

END = b"\r\n\r\n"
PATIENCE = 20.0


class Line:
    """One end of a connection: reads messages of HTTP as the bytes that they are."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket, self.buffer = sock, b""
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def more(self) -> bool:
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            return False
        self.buffer += data
        return bool(data)

    def take(self, count: int) -> bytes:
        while len(self.buffer) < count:
            if not self.more():
                raise EOFError(self.buffer)
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            if not self.more():
                raise EOFError(self.buffer)
        return self.take(self.buffer.index(mark) + len(mark))

    def message(self, *, answer: bool = False, head_only: bool = False) -> tuple[bytes, bytes, bytes]:
        """Read a message: its head, its body as it came, and the body without chunks."""
        head = self.until(END)
        names = headers(head)
        status = int(head[9:12]) if answer else 0
        if head_only or (answer and (status < 200 or status in (204, 304))):
            return head, b"", b""
        if names.get("transfer-encoding", "").lower() == "chunked":
            raw, said = b"", b""
            while True:
                line = self.until(b"\r\n")
                size = int(line.split(b";")[0], 16)
                raw += line
                if size == 0:
                    break
                part = self.take(size + 2)
                raw, said = raw + part, said + part[:-2]
            while True:
                line = self.until(b"\r\n")
                raw += line
                if line == b"\r\n":
                    return head, raw, said
        if "content-length" in names:
            body = self.take(int(names["content-length"]))
            return head, body, body
        if answer:
            while self.more():
                pass
            body, self.buffer = self.buffer, b""
            return head, body, body
        return head, b"", b""

    def close(self) -> None:
        self.socket.close()


def headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}


def answer(body: bytes, status: bytes = b"200 OK", *more: bytes, kind: bytes = b"application/json; charset=UTF-8") -> bytes:
    """Return an answer in the form of OpenSearch."""
    return b"\r\n".join((b"HTTP/1.1 " + status, *more, b"content-type: " + kind, b"content-length: %d" % len(body), b"", body))


def hit(number: int, count: int) -> dict[str, Any]:
    """A document of the corpus; scores have the digits that Java writes."""
    source = {"title": f"boots {number}", "price": 19.0, "sku": f"s{number}", "big": 12345678901234567890}
    return {"_index": "shop", "_id": f"d{number}", "_score": round(9.5 - 8 * number / count, 7), "_source": source}


class Engine:
    """A stub of an engine: a corpus of `count` documents that every search finds, and answers that a test has prepared."""

    def __init__(self, count: int = 20, tls: ssl.SSLContext | None = None) -> None:
        self.count, self.tls = count, tls
        self.documents = [hit(number, count) for number in range(count)]
        self.prepared: dict[str, list[bytes | float | None]] = {}  # by the header x-case: bytes, pauses, and None to break off
        self.broken: set[str | None] = set()
        self.seen: list[tuple[bytes, bytes]] = []  # requests: head, and body as it came
        self.changed: Callable[[str, dict[str, Any]], Any] = lambda path, found: found
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.lines: set[Line] = set()
        self.consumed = 0  # bytes of bodies that were read and not kept, on /_drain
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            line = Line(sock if self.tls is None else self.tls.wrap_socket(sock, server_side=True))
        except OSError:
            sock.close()
            return
        self.lines.add(line)
        with contextlib.suppress(EOFError, OSError), contextlib.closing(line):
            while True:
                if not self._one(line):
                    return
        self.lines.discard(line)

    def _one(self, line: Line) -> bool:
        if b"/_drain" in line.buffer or (not line.buffer and line.more() and b"/_drain" in line.buffer):
            return self._drain(line)
        head, raw, said = line.message()
        if headers(head).get("content-encoding") == "gzip":
            said = gzip.decompress(said)
        self.seen.append((head, raw))
        case = headers(head).get("x-case")
        if case in self.broken:  # once: as if the connection had been closed while it was idle
            self.broken.discard(case)
            return False
        if case is not None and case in self.prepared:
            for part in self.prepared[case]:
                if part is None:
                    return False
                if isinstance(part, float):
                    time.sleep(part)
                else:
                    line.socket.sendall(part)
            return True
        line.socket.sendall(self.respond(head, said))
        return True

    def _drain(self, line: Line) -> bool:
        head = line.until(END)
        left = int(headers(head)["content-length"])
        while left:
            if not line.buffer and not line.more():
                return False
            left -= len(line.buffer)
            self.consumed += len(line.buffer)
            line.buffer = b""
        line.socket.sendall(answer(b"{}"))
        return True

    def respond(self, head: bytes, said: bytes) -> bytes:
        """Return the answer to a request that no test has prepared."""
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        parts = urlsplit(target)
        params = dict(parse_qsl(parts.query))
        if parts.path.endswith("/_msearch"):
            bodies = [json.loads(line) for line in said.split(b"\n")[1::2] if line]
            return answer(encoded({"took": 3, "responses": [{**self.found(parts.path, one, {}), "status": 200} for one in bodies]}))
        if "_search" in parts.path:
            body = json.loads(said or b"{}")
            if "ubi" in body.get("ext", {}):
                return answer(b'{"error":{"type":"x","reason":"unknown ext [ubi]"},"status":400}', b"400 Bad Request")
            if "template" in parts.path:
                body = body["params"]
            return answer(encoded(self.found(parts.path, body, params)))
        return answer(encoded({"method": method, "path": parts.path}))

    def found(self, path: str, body: dict[str, Any], params: dict[str, str]) -> Any:
        first, size = int(params.get("from", body.get("from", 0))), int(params.get("size", body.get("size", 10)))
        hits = self.documents[first : first + size]
        if "highlight" in body:
            hits = [{**one, "highlight": {"title": [f"<em>{one['_source']['title']}</em> {{}}"]}} for one in hits]
        top = {
            "took": 2,
            "timed_out": False,
            "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
            "hits": {"total": {"value": self.count, "relation": "eq"}, "max_score": 9.5, "hits": hits},
            "aggregations": {"prices": {"value": 1.0e-7, "hits": {"hits": []}}},
        }
        return self.changed(path, top)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # ends the wait for a connection, which `close` alone does not
        self.listener.close()
        for line in list(self.lines):
            with contextlib.suppress(OSError):
                line.socket.shutdown(socket.SHUT_RDWR)


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Client:
    """A client that sees bytes."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.line: Line | None = None

    def raw(self, request: bytes, *, head_only: bool = False) -> tuple[bytes, bytes, bytes]:
        """Send bytes and read one answer."""
        if self.line is None:
            self.line = Line(socket.create_connection(("127.0.0.1", self.port)))
        self.line.socket.sendall(request)
        return self.line.message(answer=True, head_only=head_only)

    def call(self, method: str, path: str, body: Any = None, **more: str) -> Reply:
        content = b"" if body is None else body if isinstance(body, bytes) else encoded(body)
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
        if body is not None:
            kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
            lines += [f"Content-Type: {more.pop('content_type', kind)}", f"Content-Length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        head, raw, said = self.raw("\r\n".join([*lines, "", ""]).encode() + content, head_only=method == "HEAD")
        if "close" in headers(head).get("connection", ""):
            self.close()
        return Reply(head, raw, said)

    def close(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None


class Reply:
    def __init__(self, head: bytes, raw: bytes, said: bytes) -> None:
        self.head, self.raw, self.said = head, raw, said
        self.status, self.headers = int(head[9:12]), headers(head)

    @property
    def json(self) -> Any:
        return json.loads(self.said)

    @property
    def ids(self) -> list[str]:
        return [one["_id"] for one in self.json["hits"]["hits"]]


@contextlib.contextmanager
def engine(count: int = 20, tls: ssl.SSLContext | None = None) -> Iterator[Engine]:
    made = Engine(count, tls)
    try:
        yield made
    finally:
        made.close()
