"""A real server that answers like the service, or misbehaves deliberately."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

ARM = {"id": "a", "plays": 3, "clicks": 1, "phase_plays": 1, "phase_clicks": 0, "first_seen": 1.0, "last_offered": 2.0}
ALARM = {"at": 1.5, "signal": "volume", "value": 0.9, "verdict": "true", "phase": 1}
STATE = {
    "query": "storm", "parts": {"locale": "en"}, "phase": 1, "phases": 2, "requests": 3, "created": 1.0, "seen": 2.0,
    "testing": False,
    "signals": {"volume": 0.5}, "arms": [ARM], "alarms": [ALARM],
}  # fmt: skip
SUMMARY = {
    "key": "00" * 16,
    "query": None,
    "parts": None,
    "requests": 3,
    "phase": 1,
    "seen": 2.0,
    "shifted": None,
    "testing": False,
}


class Handler(BaseHTTPRequestHandler):
    """Answers like the service, with the candidates reversed, unless the server's script says otherwise."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append((self.command, self.path, dict(self.headers), self.body))
        if self.server.script:
            self.server.script.pop(0)(self)
        else:
            self.good()

    do_GET = do_POST  # noqa: N815 - the name that http.server calls

    def good(self):
        path = unquote(self.path)
        asked = json.loads(self.body) if self.body else None
        if path == "/v1/rank":
            self.reply(200, self.ranked(asked))
        elif path == "/v1/rank/batch":
            self.reply(200, [self.ranked(one) for one in asked])
        elif path == "/v1/feedback":
            self.reply(200, {"status": "learned"})
        elif path == "/v1/feedback/batch":
            self.reply(200, [{"status": "learned"} for _ in asked])
        elif path == "/v1/observe":
            self.reply(200, {"status": "learned", "decision": "o"})
        elif path.partition("?")[0].endswith("/shift") and self.command == "POST":
            self.reply(200, {"phase": 4})
        elif path.startswith("/v1/queries?"):
            self.reply(200, {"order": "shifted", "queries": [SUMMARY]})
        elif path.startswith("/v1/queries/"):
            self.reply(200, {**STATE, "query": path.removeprefix("/v1/queries/")})
        else:
            self.reply(200 if path == "/readyz" else 404, {"status": "ok"})

    def ranked(self, asked):
        names = [one if isinstance(one, str) else one["id"] for one in asked["candidates"]][::-1]
        return {"decision": "d", "ranking": names, "propensities": [1.0], "explored": None, "phase": 0, "degraded": False}

    def reply(self, status, content, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content_length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Log nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.seen, self.over = [], [], threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """Ignore errors: in some tests the client disconnects in the middle."""


# ways to misbehave


def hang(handler):
    handler.server.over.wait(10)
    handler.close_connection = True


def cut(handler):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def cut_in_the_middle(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
    cut(handler)


def not_http(handler):
    handler.wfile.write(b"\x16\x03\x01 hello\r\n\r\n")
    cut(handler)


def page(handler):
    handler.reply(200, b"<html>It works!</html>")


def falsely_packed(handler):
    handler.reply(200, b"this is not gzip", content_encoding="gzip")


def broken(handler):
    handler.reply(500, b"Internal Server Error")


def elsewhere(handler):
    handler.reply(307, b"", location="/elsewhere")


def trickle(handler):
    """Send an answer in small pieces: each wait is short, their sum is long."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
    for _ in range(100):
        if handler.server.over.wait(0.03):
            break
        handler.wfile.write(b" ")
    handler.close_connection = True


def unavailable(retry_after):
    problem = {"error": {"code": "locked", "message": "the store is locked"}}
    return lambda handler: handler.reply(503, problem, retry_after=retry_after)


def refused(status):
    problem = {"error": {"code": "repeated", "message": "candidates has 'a' twice", "field": "candidates", "request_id": "r-7"}}
    return lambda handler: handler.reply(status, problem)


BROKEN = [hang, cut, cut_in_the_middle, not_http, page, falsely_packed, broken, elsewhere, trickle, unavailable("1")]
