"""A batch as an Arrow stream gets the answers of the same batch as JSON, and ends in the same bytes."""

from __future__ import annotations

import asyncio
import datetime
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from service.running import Running, running
from service.test_ranking import NEWS, OFFERS, requests, service_at

from swerve.service.http import arrow
from swerve.service.http.bodies import parts_in
from swerve.service.runtime import Service
from swerve.service.turns import Turns
from swerve.serving.messages import RankResponse
from swerve.serving.scanning import SHELF

KIND = "application/vnd.apache.arrow.stream"
ITEM = pa.struct({"id": pa.utf8(), "published_at": pa.timestamp("ms", "UTC"), "score": pa.float64()})
TYPES = {
    "query": pa.utf8(),
    "candidates": pa.list_(pa.utf8()),
    "slots": pa.int32(),
    "signals": pa.struct({"news": pa.float64()}),
    "session": pa.large_utf8(),
    "locale": pa.utf8(),
    "unit": pa.null(),
}
#: What an answer has where JSON leaves a field out.
ABSENT = {field.name: None for field in arrow.FIELDS}


def stream_of(rows: list[dict[str, Any]], types: Any = TYPES, parts: int = 1) -> bytes:
    sink, schema = io.BytesIO(), pa.schema(dict(types))
    with pa.ipc.new_stream(sink, schema) as writer:
        for part in range(parts):
            writer.write_batch(pa.RecordBatch.from_pylist(rows[part::parts], schema))
    return sink.getvalue()


async def as_arrow(service: Service, stream: bytes) -> list[dict[str, Any]]:
    turns = Turns()
    parts = await arrow.parts_of(stream, service.batching, turns)
    pieces = await service.batching.pieces(parts, turns, None, arrow.Columns())
    return read(await arrow.stream_of(pieces, turns))


async def as_json(service: Service, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = json.dumps([{name: value for name, value in row.items() if value is not None} for row in rows]).encode()
    said = json.loads(await service.batching.answer(await parts_in(body, service.batching, Turns()), Turns()))
    return [expected(one) for one in said]


def read(stream: bytes) -> list[dict[str, Any]]:
    table = pa.ipc.open_stream(stream).read_all()
    table.validate(full=True)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def expected(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer of JSON as the columns have it."""
    whole = ABSENT | answer
    if whole["error"] is None:
        whole["shadow"] = whole["shadow"] or False
        whole["ruled"] = whole["ruled"] and [{"result": None, "position": None} | ruled for ruled in whole["ruled"]]
    else:
        whole["error"] = {"field": None, "limit": None} | whole["error"]
    return whole


def unusual(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Return requests with texts that need escapes or are not ASCII, slots, parts and numbers, and some that are refused."""
    out = []
    for asked in requests(rng, count):
        if rng.random() < 0.15:
            asked |= rng.choice(
                [
                    {"candidates": ["tab\t", "é", 'quote"']}, {"candidates": ["é", "ß"]}, {"session": "söze"}, {"slots": 2},
                    {"slots": 11}, {"slots": 0}, {"locale": "en"}, {"query": "Q 1"}, {"query": ""}, {"candidates": ["a", "a"]},
                    {"session": "s" * 300}, {"query": None}, {"candidates": None}, {"candidates": ["a", None]},
                    {"signals": {"news": 1e300}}, {"signals": {"news": None}}, {"query": 'say "a"'}, {"session": "a\nb"},
                    {"candidates": [f"n{n}" for n in range(40)]},
                ]
            )  # fmt: skip
        out.append(asked)
    return out


@pytest.mark.parametrize("made", [requests, unusual])
def test_a_stream_is_the_same_batch_as_json(tmp_path: Path, made: Any):
    async def play() -> None:
        now, rng, plain = [1.7e9], random.Random(1), 0
        more: dict[str, Any] = {} if made is requests else {
            "policy": {"arms": 16, "seed": 3, "propensity_draws": 20},
            "evaluation": {"swaps": 0.3},
            "feedback": {"evidence_per_session": 2},
            "signals": NEWS,
        }  # fmt: skip
        ours, theirs = service_at(tmp_path / "arrow", now, **more), service_at(tmp_path / "json", now, **more)
        ours.ranker.life = ours.tokens.life = theirs.ranker.life
        await ours.start(whole=True)
        await theirs.start(whole=True)
        for _ in range(80):
            now[0] += rng.choice([5.0, 60.0, 100.0])
            rows = [row for row in made(rng, 12) if "nobody" not in (row.get("signals") or {})]
            parts = rng.choice([1, 1, 2])
            stream = stream_of(rows, parts=parts)
            rows = [row for part in range(parts) for row in rows[part::parts]]
            said, wanted = await as_arrow(ours, stream), await as_json(theirs, rows)
            for mine, other, row in zip(said, wanted, rows, strict=True):
                assert mine == other, row
                plain += mine["decision"] is not None
        assert plain > 500
        for key, place in theirs.ranker.rows.places.items():
            other = ours.ranker.rows.places[key]
            assert place.record.tobytes() == other.record.tobytes()
            assert place.names() == other.names()
        for name in ("decisions", "explored", "cache_hits", "new_queries", "shown_again"):
            assert getattr(ours.metrics, name).value == getattr(theirs.metrics, name).value, name
        assert await ours.stop()
        assert await theirs.stop()

    asyncio.run(play())


def test_repeats_are_decided_without_an_object_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The same as JSON's: both lead to the same columns of the same rows."""

    async def play() -> None:
        service = service_at(tmp_path / "one", [1.7e9])
        await service.start(whole=True)
        rows = [{"query": f"q{number}", "candidates": OFFERS[1], "session": f"s{number}"} for number in range(50)]
        await as_json(service, rows)
        again = [row | {"session": f"{row['session']}, later"} for row in rows]
        await as_arrow(service, stream_of(again))  # the candidates are written in another way than before
        await as_arrow(service, stream_of([row | {"session": None} for row in rows]))  # they are repeated, and noted
        (part,) = await arrow.parts_of(stream_of(rows), service.batching, Turns())
        assert part.entries == 50 * [None]
        assert (part.read.entries[:, SHELF] >= 0).all()
        monkeypatch.setattr("swerve.serving.ranker.Ranker.rank", None)
        said = await as_arrow(service, stream_of([row | {"session": f"{row['session']}, at last"} for row in rows]))
        assert [one["degraded"] for one in said] == 50 * [False]
        assert await service.stop()

    asyncio.run(play())


def test_scores_dates_and_numbers_of_all_kinds(tmp_path: Path):
    """Candidates may be structures, as in JSON; numbers that JSON has not are refused entry by entry."""

    async def play() -> None:
        now = [1.7e9]
        ours, theirs = service_at(tmp_path / "arrow", now), service_at(tmp_path / "json", now)
        ours.ranker.life = ours.tokens.life = theirs.ranker.life
        await ours.start(whole=True)
        await theirs.start(whole=True)
        day = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
        items = [{"id": "a", "score": 1.5, "published_at": day}, {"id": "b", "score": 0.1, "published_at": None}]
        rows: list[dict[str, Any]] = [{"query": f"q{n % 3}", "candidates": items[: n % 3]} for n in range(9)]
        types = {"query": pa.large_utf8(), "candidates": pa.large_list(ITEM)}
        texts = [{"id": "a", "score": 1.5, "published_at": day.isoformat()}, {"id": "b", "score": 0.1}]
        sent = [row | {"candidates": texts[: len(row["candidates"])]} for row in rows]
        assert await as_arrow(ours, stream_of(rows, types)) == await as_json(theirs, sent)
        numbers = {
            "query": pa.utf8(),
            "candidates": pa.list_(pa.utf8()),
            "signals": pa.struct({"news": pa.float32(), "nobody": pa.int8()}),
        }
        odd = [{"query": "q", "candidates": ["a"], "signals": {"news": value}} for value in (float("nan"), float("inf"))]
        known = {**numbers, "signals": pa.struct({"news": pa.float32()})}
        said = await as_arrow(ours, stream_of([*odd, {"query": "q", "candidates": ["a"], "signals": {"news": 2.5}}], known))
        assert [one["error"] and one["error"]["message"] for one in said] == [
            "signals.news is nan; numbers must be finite", "signals.news is inf; numbers must be finite", None,
        ]  # fmt: skip
        said = await as_arrow(ours, stream_of([{"query": "q", "candidates": ["a"], "signals": {"nobody": 1}}], numbers))
        assert said[0]["error"]["code"] == "unknown_signal"
        assert await ours.stop()
        assert await theirs.stop()

    asyncio.run(play())


# over HTTP ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("arrow"), {"limits": {"batch": 40}, "signals": NEWS}) as service:
        yield service


def test_over_http(served: Running):
    client = served.client()
    rows = [{"query": f"q{number % 5}", "candidates": ["a", "b", "c"], "slots": 2} for number in range(20)]
    for _ in range(3):
        answer = client.call("POST", "/v1/rank/batch", stream_of(rows), {"Content-Type": KIND})
        assert (answer.status, answer.headers["content-type"]) == (200, KIND)
        said = read(answer.body)
        assert [len(one["propensities"]) for one in said] == 20 * [2]
    feedback = [{"decision": one["decision"], "events": [{"kind": "click", "position": 1}]} for one in said]
    assert {one["status"] for one in client.call("POST", "/v1/feedback/batch", feedback).json} <= {"learned", "ignored"}


def test_it_does_not_load_pyarrow(served: Running):
    """Its import would hold the loop, and take tens of megabytes."""
    if not Path("/proc").exists():
        pytest.skip("needs /proc")
    assert "libarrow" not in Path(f"/proc/{served.child.pid}/maps").read_text()


FINE = {"query": "q", "candidates": ["a"]}
HOSTILE: dict[str, tuple[bytes, int, str]] = {
    "no stream": (b"[]", 400, "not_arrow"),
    "json": (json.dumps([FINE] * 3).encode(), 400, "not_arrow"),
    "cut off": (stream_of([FINE])[:-40], 400, "not_arrow"),
    "no end": (stream_of([FINE])[:-8], 400, "not_arrow"),
    "too many": (stream_of([FINE] * 41), 422, "too_many"),
    "too many in parts": (stream_of([FINE] * 60, parts=2), 422, "too_many"),
    "empty parts": (stream_of([], parts=41), 422, "too_many"),
    "no candidates": (stream_of([FINE], {"query": pa.utf8()}), 422, "invalid"),
    "another column": (stream_of([FINE], {**TYPES, "user": pa.utf8()}), 422, "invalid"),
    "another type": (stream_of([{"query": 1, "candidates": ["a"]}], {**TYPES, "query": pa.int64()}), 422, "invalid"),
    "binary": (stream_of([FINE | {"query": b"\xff"}], {**TYPES, "query": pa.binary()}), 422, "invalid"),
    "dictionary": (stream_of([FINE], {**TYPES, "query": pa.dictionary(pa.int8(), pa.utf8())}), 422, "invalid"),
    "not UTF-8": (stream_of([FINE | {"query": "queries"}]).replace(b"queries", b"quer\xffes"), 400, "not_arrow"),
    "a large body": (stream_of([FINE | {"query": "q" * (2 << 20)}]), 413, "too_large"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_refused_as_a_whole(served: Running, what: str):
    body, status, code = HOSTILE[what]
    answer = served.client().call("POST", "/v1/rank/batch", body, {"Content-Type": KIND})
    assert (answer.status, answer.json["error"]["code"]) == (status, code), answer.json
    assert answer.headers["content-type"] == "application/json"


def test_entries_are_refused_one_by_one(served: Running):
    long, many = FINE | {"candidates": ["x" * 200_000]}, FINE | {"candidates": ["a"] * 50_000}
    answer = served.client().call("POST", "/v1/rank/batch", stream_of([FINE, long, many, FINE]), {"Content-Type": KIND})
    said = read(answer.body)
    assert [one["error"] and one["error"]["code"] for one in said] == [None, "too_large", "too_large", None]


def test_other_routes_take_json_alone(served: Running):
    answer = served.client().call("POST", "/v1/rank", stream_of([FINE]), {"Content-Type": KIND})
    assert answer.status == 415


def test_the_columns_are_the_fields_of_an_answer():
    assert {field.name for field in arrow.FIELDS} == {field.name for field in msgspec.structs.fields(RankResponse)} | {"error"}
