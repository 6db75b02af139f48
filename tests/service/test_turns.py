"""No request keeps others waiting: batches are counted before they are decoded, and processed in short turns."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from service.running import Http, Running, running, said_of

from swerve.service.config.load import Config
from swerve.service.http import bodies as module
from swerve.service.http.bodies import encode_list, find_ends, ranks_in
from swerve.service.http.schemas import MANY_RANKS
from swerve.service.turns import Turns
from swerve.serving.messages import Refused, encode

#: Seconds of processor time for which a request may hold the event loop.
LONGEST = 0.005
#: Attempts, of which the best counts: a busy machine can spoil one, but a request that holds the loop does so every time.
TRIES = 3
CANDIDATES = [f"candidate {number}" for number in range(8)]
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def ticking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    command = (sys.executable, str(Path(__file__).with_name("ticking.py")))
    with running(tmp_path_factory.mktemp("ticking"), {"limits": {"new_queries_per_minute": 10**6}}, command) as service:
        yield service


def held(client: Http) -> float:
    """Return the longest hold since the last call."""
    return float(client.call("GET", "/test/held").json["seconds"])


def shortest(client: Http, work: Callable[[int], None]) -> float:
    """Return the longest hold while `work(attempt)` runs, in the best of several attempts."""
    holds = []
    for attempt in range(TRIES):
        held(client)
        work(attempt)
        holds.append(held(client))
        if holds[-1] < LONGEST:
            break
    return min(holds)


def asked(first: int, count: int = 1000, **more: Any) -> bytes:
    return json.dumps([{"query": f"turn {n}", "candidates": CANDIDATES, **more} for n in range(first, first + count)]).encode()


ZEROS = b"[" + b"0," * (MEGABYTE // 2 - 2) + b"0]"
WORST: dict[str, tuple[str, bytes, int]] = {
    "zeros": ("/v1/rank/batch", ZEROS, 422),
    "zeros of feedback": ("/v1/feedback/batch", ZEROS, 422),
    "zeros in a small body": ("/v1/rank/batch", b"[" + b"0," * 15_000 + b"0]", 422),
    "a thousand of another shape": ("/v1/rank/batch", b"[" + b",".join([b'{"query":[1,2,3]}'] * 1000) + b"]", 200),
    "a thousand that are refused": ("/v1/rank/batch", asked(0, signals={"nobody": 1.0}), 200),
    "a thousand new queries": ("/v1/rank/batch", b"new", 200),
    "a thousand queries": ("/v1/rank/batch", asked(0), 200),
    "a thousand forged": ("/v1/feedback/batch", json.dumps([said_of("x" * 80, "a")] * 1000).encode(), 200),
    "many names of numbers": (
        "/v1/rank",
        b'{"query":"q","candidates":["a"],"signals":{' + b",".join(b'"%06x":1' % n for n in range(90_000)) + b"}}",
        413,
    ),
    "many candidates": ("/v1/rank", b'{"query":"q","candidates":[' + b'"a",' * 250_000 + b'"a"]}', 413),
    "many candidates in a batch": ("/v1/rank/batch", b'[{"query":"q","candidates":[' + b'"a",' * 250_000 + b'"a"]}]', 200),
    "escapes": ("/v1/rank/batch", b'[{"query":"' + b"\\\\" * 500_000 + b'","candidates":["a"]}]', 200),
    "white space": ("/v1/rank/batch", b"[" + b" " * 1_000_000 + b"]", 200),
}


def columns(rows: list[dict[str, Any]]) -> bytes:
    """Return requests as an Arrow stream."""
    body = io.BytesIO()
    batch = pa.RecordBatch.from_pylist(rows)
    with pa.ipc.new_stream(body, batch.schema) as writer:
        writer.write_batch(batch)
    return body.getvalue()


FEW = [{"query": f"turn {n}", "candidates": CANDIDATES} for n in range(1000)]
STREAMS: dict[str, bytes] = {
    "a thousand queries": columns(FEW),
    "a thousand that are refused": columns([row | {"slots": 11} for row in FEW]),
    "large ids": columns([row | {"candidates": [f"{n}".ljust(100, "x") for n in range(9)]} for row in FEW]),
    "many candidates": columns([{"query": "q", "candidates": [""] * 200_000}]),
    "many candidates in each": columns([{"query": "q", "candidates": [""] * 240} for _ in FEW]),
    "texts that need escapes": columns([row | {"query": "\t" * 900} for row in FEW]),
    "empty texts": columns([row | {"query": ""} for row in FEW]),
}


@pytest.mark.parametrize("what", STREAMS)
def test_no_stream_holds_the_loop(ticking: Running, what: str):
    """Nor do batches as Arrow streams; the first one compiles and imports nothing."""
    client = ticking.client()
    client.call("POST", "/v1/rank/batch", asked(0, 500))

    def once(attempt: int) -> None:
        kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
        answer = client.call("POST", "/v1/rank/batch", STREAMS[what], kind)
        assert answer.status == 200, answer.body[:300]

    held_for = shortest(client, once)
    print(f"{what}: {1e3 * held_for:.1f} ms")
    assert held_for < LONGEST


@pytest.mark.parametrize("what", WORST)
def test_no_body_holds_the_loop(ticking: Running, what: str):
    """Other requests are served while the most expensive bodies are read, decided and refused."""
    client = ticking.client()
    path, body, status = WORST[what]
    client.call("POST", "/v1/rank/batch", asked(0, 500))  # brings the queries into memory

    def once(attempt: int) -> None:
        answer = client.call("POST", path, asked(10_000 * (attempt + 4)) if body == b"new" else body)
        assert answer.status == status, answer.body[:300]

    assert shortest(client, once) < LONGEST


def test_feedback_for_a_thousand_is_taken_in_turns(ticking: Running):
    client = ticking.client()

    def once(attempt: int) -> None:
        ranked = client.call("POST", "/v1/rank/batch", asked(20_000)).json
        feedback = [said_of(one["decision"], one["ranking"][0]) for one in ranked]
        assert client.call("POST", "/v1/feedback/batch", feedback).json == [{"status": "learned"}] * 1000
        assert client.call("POST", "/v1/feedback/batch", feedback).json == [{"status": "learned"}] * 1000  # repeats

    assert shortest(client, once) < LONGEST


@pytest.mark.parametrize(
    "path",
    [
        "/v1/queries?limit=1000",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/v1/queries/turn%200",
        "/v1/queries?" + "a&" * 30_000,
    ],
    ids=lambda path: path[:20],
)
def test_a_long_answer_is_given_in_turns(ticking: Running, path: str):
    client = ticking.client()
    client.call("POST", "/v1/rank/batch", asked(0))

    def once(attempt: int) -> None:
        assert client.call("GET", path).status in (200, 422)

    assert shortest(client, once) < LONGEST


@pytest.mark.parametrize("size", [200, 60_000, 250_000])
@pytest.mark.parametrize("what", ["rank", "healthz"])
def test_pipelined_requests_do_not_hold_the_loop(ticking: Running, what: str, size: int):
    """One read may contain thousands of requests."""
    client = ticking.client()
    client.rank("turn 0", CANDIDATES)
    body = json.dumps({"query": "turn 0", "candidates": CANDIDATES}).encode()
    head = b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    one = head % len(body) + body if what == "rank" else b"GET /healthz HTTP/1.1\r\nHost:x\r\n\r\n"
    count = max(1, size // len(one))

    def once(attempt: int) -> None:
        with socket.create_connection(("127.0.0.1", ticking.port), timeout=20) as connection:
            connection.sendall(one * count)
            seen = b""
            while seen.count(b"HTTP/1.1 200") < count:
                piece = connection.recv(1 << 20)
                assert piece, (count, seen.count(b"HTTP/1.1 200"))
                seen += piece

    assert shortest(client, once) < LONGEST


# long bodies in pieces -----------------------------------------------------------------------------------------------------------

LIMITS = Config().limits
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(alphabet='ab",\\[]{}é\u2028', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"\\,[', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSONS, max_size=12), st.sampled_from([None, 1]), st.integers(3, 40))
def test_entries_end_where_json_says(entries: list[Any], indent: int | None, piece: int):
    """The ends are right for any contents and any size of the pieces."""
    body = json.dumps(entries, indent=indent, ensure_ascii=False).encode()
    before, module.BYTES_PER_STEP = module.BYTES_PER_STEP, piece
    try:
        ends = asyncio.run(find_ends(body, 100, Turns()))
    finally:
        module.BYTES_PER_STEP = before
    assert [json.loads(body[a + 1 : b]) for a, b in itertools.pairwise(ends)] == entries


def ranks(body: bytes, piece: int) -> Any:
    before, module.BYTES_PER_STEP = module.BYTES_PER_STEP, piece
    try:
        return [one if isinstance(one, Refused) else encode(one) for one in asyncio.run(ranks_in(body, LIMITS, Turns()))]
    except Refused as refused:
        return refused.status
    finally:
        module.BYTES_PER_STEP = before


@given(
    st.lists(
        st.sampled_from(
            [b'{"query":"q","candidates":["a"]}', b'{"query":"\\"]","candidates":0}', b"[0]", b"0", b"{}", b"", b"x", b'"']
        ),
        max_size=8,
    )
)
def test_a_long_body_is_read_like_a_short_one(parts: list[bytes]):
    for body in (b"[" + b",".join(parts) + b"]", b" [" + b" ,\n".join(parts) + b"] ", b",".join(parts), b"[" + b",".join(parts)):
        short, cut = ranks(body, 10**6), ranks(body, 16)
        if isinstance(short, list) and isinstance(cut, list):
            assert [getattr(one, "message", one) for one in short] == [getattr(one, "message", one) for one in cut]
        else:
            # malformed JSON gives 400; in a short body an entry of another shape may be found first
            assert {short, cut} <= {400, 422} or (isinstance(short, list) and cut == 400), (body, short, cut)


def test_too_many_are_noticed_before_they_are_read():
    with pytest.raises(Refused, match="more than 1000 entries") as caught:
        asyncio.run(ranks_in(ZEROS, LIMITS, Turns()))
    assert (caught.value.status, caught.value.code) == (422, "too_many")


def test_an_answer_in_parts_is_the_answer():
    answers = [{"n": n} for n in range(100)]
    for count in (0, 1, 31, 32, 33, 100):
        assert json.loads(asyncio.run(encode_list(answers[:count], Turns()))) == answers[:count]
    assert MANY_RANKS.decode(b"[]") == []
