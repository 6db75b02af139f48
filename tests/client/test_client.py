"""Both clients against a real server that misbehaves deliberately."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

from swerve.client import AsyncClient, Client, ServiceAway, SwerveClientError, exchange

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


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


class Awaited:
    """An AsyncClient with the interface of a Client, so that both run the same tests."""

    def __init__(self, *arguments, **options):
        self._loop = asyncio.Runner()
        self._client = AsyncClient(*arguments, **options)

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._loop.run(method(*arguments, **options))

    def __enter__(self):
        assert self._loop.run(self._client.__aenter__()) is self._client
        return self

    def __exit__(self, *error):
        self._loop.run(self._client.__aexit__(*error))
        self._loop.close()


@pytest.fixture(params=[Client, Awaited], ids=["sync", "async"])
def connect(request, server, monkeypatch):
    monkeypatch.setattr(exchange, "FIRST_WAIT", 0.01)
    made = []

    def make(url=None, **options):
        made.append(request.param(url or server.url, **options).__enter__())
        return made[-1]

    yield make
    for client in made:
        client.__exit__(None, None, None)


def test_the_good_case(server, connect):
    client = connect(api_key="secret", timeout=2.0)
    ranking = client.rank("storm", ["a", {"id": "b"}], signals={"news": 2}, session="s")
    assert ranking == exchange.Ranking("d", ["b", "a"], [1.0], None, 0, False, None)
    assert client.feedback(ranking.decision, "b") is True
    assert client.feedback(None, "b") is False
    batch = client.rank_many([{"query": "x", "candidates": ["a"]}, {"query": "y", "candidates": ["b", "c"], "session": "s"}])
    assert [one.ranking for one in batch] == [["a"], ["c", "b"]]
    assert client.feedback_many([("d", None), ("e", "a")]) == [True, True]
    assert client.queries("shifted", limit=5)[0].requests == 3
    assert client.shift("storm", locale="en") == 4
    assert client.observe("storm", ["a", "b"], ["a", 2], session="s") == "o"
    assert client.health() is True
    methods = [(method, path) for method, path, _, _ in server.seen]
    assert methods == [
        ("POST", "/v1/rank"),
        ("POST", "/v1/feedback"),
        ("POST", "/v1/rank/batch"),
        ("POST", "/v1/feedback/batch"),
        ("GET", "/v1/queries?order=shifted&limit=5"),
        ("POST", "/v1/queries/storm/shift?locale=en"),
        ("POST", "/v1/observe"),
        ("GET", "/readyz"),
    ]
    assert {headers["Authorization"] for _, _, headers, _ in server.seen} == {"Bearer secret"}
    assert server.seen[0][2]["Content-Type"] == "application/json"


LINES = [{"kind": "query", "key": "00"}, {"kind": "end", "queries": 1, "candidates": 0, "shared": 0, "damaged": 0}]


def exported(kind, url, **options):
    """All lines of an export, by either client."""
    if kind == "sync":
        with Client(url, feedback_timeout=0.5) as client:
            return list(client.export(**options))

    async def gather():
        async with AsyncClient(url, feedback_timeout=0.5) as client:
            return [line async for line in client.export(**options)]

    return asyncio.run(gather())


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_export_is_read_in_pieces(server, kind):
    def pieces(handler):
        """Send two lines in pieces of three bytes; an `ü` is cut in its middle."""
        body = "".join(json.dumps({**line, "text": "ü"}, ensure_ascii=False) + "\n" for line in LINES).encode()
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 3):
            piece = body[at : at + 3]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.write(b"0\r\n\r\n")

    server.script += [pieces]
    assert exported(kind, server.url, namespace="toys", brief=True) == [{**line, "text": "ü"} for line in LINES]
    assert server.seen[0][:2] == ("GET", "/v1/export?namespace=toys&brief=true")


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("misbehave", [one for one in BROKEN if one is not trickle])
def test_an_export_that_is_cut_is_an_error(server, kind, misbehave):
    server.script += [misbehave]
    with pytest.raises(ServiceAway):
        exported(kind, server.url)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_export_without_its_last_line_and_a_refused_one_are_errors(server, kind):
    server.script += [lambda handler: handler.reply(200, json.dumps(LINES[0]).encode() + b"\n"), refused(403)]
    with pytest.raises(ServiceAway, match="last line is missing"):
        exported(kind, server.url)
    with pytest.raises(SwerveClientError) as caught:
        exported(kind, server.url)
    assert caught.value.status == 403


def test_a_query_arrives_as_it_is(connect):
    client = connect()
    for query in ("storm", "..", ".", "a/b", "/", "//", "a?b#c", "50%", "é ü", "a+b", "/shift"):
        assert client.state(query).query == query
    state = client.state("storm")
    assert state.arms[0].id == "a" and state.alarms[0].verdict == "true"


@pytest.mark.parametrize("misbehave", BROKEN)
def test_rank_never_breaks_search(server, connect, misbehave):
    client = connect()
    server.script += [misbehave, misbehave]
    began = time.monotonic()
    ranking = client.rank("storm", ["a", "b"])
    first, second = client.rank_many([{"query": "x", "candidates": ["b", "a"]}, {"query": "y", "candidates": ["c"]}])
    took = time.monotonic() - began
    assert (ranking.decision, ranking.ranking, ranking.degraded) == (None, ["a", "b"], True)
    assert ranking.reason
    assert (first.ranking, second.ranking) == (["b", "a"], ["c"]) and first.degraded and second.degraded
    assert took < 1.0  # two timeouts of 0.1 s, and a busy machine
    assert client.feedback(ranking.decision, "a") is False
    assert connect(timeout=2.0).rank("storm", ["a", "b"]).ranking == ["b", "a"]  # the next request is served


def test_nobody_listens(connect):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = connect(f"http://127.0.0.1:{taken.getsockname()[1]}", retries=1)
        ranking = client.rank("storm", ["a", "b"])
        assert ranking.degraded and ranking.ranking == ["a", "b"] and "no answer" in ranking.reason
        assert client.health() is False
        with pytest.raises(ServiceAway):
            client.feedback("d", "a")
        with pytest.raises(ServiceAway):
            client.state("storm")
        with pytest.raises(ServiceAway):
            client.shift("storm")


def test_a_dead_service_costs_no_timeouts(server, connect):
    client = connect(breaker_failures=2, breaker_seconds=0.3)
    server.script += [hang, hang]
    for _ in range(2):
        assert "within 0.1 s" in client.rank("storm", ["a", "b"]).reason
    began = time.monotonic()
    for _ in range(100):
        assert client.rank("storm", ["a", "b"]).degraded
    assert time.monotonic() - began < 0.25
    assert len(server.seen) == 2
    time.sleep(0.3)
    assert not client.rank("storm", ["a", "b"]).degraded


@pytest.mark.parametrize("status", [401, 403, 422])
def test_the_callers_mistakes_are_raised(server, connect, status):
    client = connect(timeout=5.0)  # a busy machine must not turn a refusal into a timeout
    server.script += [refused(status)] * 4
    ask = (lambda: client.rank("q", ["a"])) if status != 422 else (lambda: client.observe("q", ["a", "a"]))
    for call in (ask, lambda: client.feedback("d"), lambda: client.state("q"), client.queries):
        with pytest.raises(SwerveClientError, match="'a' twice") as caught:
            call()
        assert (caught.value.status, caught.value.field, caught.value.request_id) == (status, "candidates", "r-7")
    assert len(server.seen) == 4  # no request was retried


@pytest.mark.parametrize("misbehave", BROKEN)
def test_feedback_is_tried_again(server, connect, misbehave, monkeypatch):
    monkeypatch.setattr(exchange, "LONGEST_WAIT", 0.05)
    client = connect(feedback_timeout=0.15)
    server.script += [misbehave, misbehave]
    assert client.feedback("d", "a") is True
    bodies = [json.loads(body) for _, _, _, body in server.seen]
    assert bodies == [{"decision": "d", "events": [{"kind": "click", "result": "a"}]}] * 3


def test_feedback_waits_as_it_is_told(server, connect):
    client = connect()
    server.script += [unavailable("0.4")]
    began = time.monotonic()
    assert client.feedback("d", "a") is True
    assert 0.4 <= time.monotonic() - began < 1.5


def test_feedback_gives_up_and_says_why(server, connect):
    client = connect(retries=2)
    server.script += [unavailable("0")] * 3
    with pytest.raises(ServiceAway, match=r"3 tries: HTTP 503: the store is locked; keep it"):
        client.feedback("d", "a")
    assert len(server.seen) == 3
    server.script += [unavailable("0")] * 3
    with pytest.raises(ServiceAway):
        client.feedback_many([("d", "a")])


def test_what_is_read_once_is_not_tried_again(server, connect):
    client = connect()
    server.script += [broken, page]
    with pytest.raises(ServiceAway, match="HTTP 500"):
        client.state("storm")
    with pytest.raises(ServiceAway, match="not one of the service's"):
        client.shift("storm")
    assert len(server.seen) == 2


def test_not_ready(server, connect):
    client = connect()
    server.script += [unavailable("1")]
    assert client.health() is False
    assert client.health() is True


def test_threads_share_one_client(server):
    with Client(server.url, timeout=5.0) as client, ThreadPoolExecutor(8) as pool:
        wanted = [[f"{number}-a", f"{number}-b"] for number in range(200)]
        given = list(pool.map(lambda names: client.rank("storm", names).ranking, wanted))
    assert given == [names[::-1] for names in wanted]


def test_coroutines_share_one_client(server):
    async def main():
        async with AsyncClient(server.url, timeout=5.0) as client:
            return await asyncio.gather(*(client.rank("storm", [f"{number}-a", f"{number}-b"]) for number in range(100)))

    assert [one.ranking for one in asyncio.run(main())] == [[f"{number}-b", f"{number}-a"] for number in range(100)]


def test_a_cancelled_call_is_cancelled(server):
    server.script += [hang]

    async def main():
        async with AsyncClient(server.url, timeout=5.0) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.rank("storm", ["a"]), 0.1)

    asyncio.run(main())


def test_the_key_is_not_shown():
    with Client(api_key="top-secret") as client:
        assert "top-secret" not in repr(client) and "top-secret" not in str(client)


def test_a_closed_client_is_a_mistake_of_the_program(server):
    client = Client(server.url)
    client.close()
    with pytest.raises(RuntimeError):
        client.rank("storm", ["a"])
