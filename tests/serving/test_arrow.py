"""Streams are read as pyarrow writes them, written as pyarrow reads them, and damaged ones are refused."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from swerve.serving.arrow import BATCH, SCHEMA, Batch, Column, Field, fields_of, messages
from swerve.serving.messages import Refused

MOST = 1000


def stream_of(*batches: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def read(stream: bytes, most: int = MOST) -> list[tuple[tuple[Field, ...], list[Column]]]:
    found, fields = [], ()
    for message in messages(stream):
        if message.kind == SCHEMA:
            fields = fields_of(message)
        elif message.kind == BATCH:
            batch = Batch(stream, message, most)
            found.append((fields, [batch.column(field, batch.length) for field in fields]))
            batch.done()
    return found


def value(stream: bytes, column: Column, at: int) -> Any:
    """Return a value as Python has it."""
    if not column.valid[at]:
        return None
    if column.children and len(column.ends) == len(column) + 1:
        return [value(stream, column.children[0], each) for each in range(column.ends[at], column.ends[at + 1])]
    if column.children or str(column.field).startswith("struct"):
        return {child.field.name: value(stream, child, at) for child in column.children}
    if str(column.field).endswith("utf8"):
        return stream[column.ends[at] : column.ends[at + 1]].decode()
    return column.numbers[at].item()


TEXTS = st.none() | st.text(max_size=5)
ITEMS = st.fixed_dictionaries({"id": TEXTS, "score": st.none() | st.floats(allow_nan=False)})
COLUMNS = {
    "text": (pa.utf8(), TEXTS),
    "large": (pa.large_utf8(), TEXTS),
    "nothing": (pa.null(), st.none()),
    "small": (pa.int8(), st.none() | st.integers(-128, 127)),
    "whole": (pa.uint64(), st.none() | st.integers(0, 2**64 - 1)),
    "half": (pa.float32(), st.none() | st.floats(width=32, allow_nan=False)),
    "float": (pa.float64(), st.none() | st.floats(allow_nan=False)),
    "flag": (pa.bool_(), st.none() | st.booleans()),
    "texts": (pa.list_(pa.utf8()), st.none() | st.lists(TEXTS, max_size=3)),
    "items": (
        pa.large_list(pa.struct({"id": pa.utf8(), "score": pa.float64()})),
        st.none() | st.lists(st.none() | ITEMS, max_size=3),
    ),
    "numbers": (pa.struct({"news": pa.float64(), "é": pa.int32()}), st.none() | st.just({"news": 1.5, "é": None})),
}
ROWS = st.lists(st.fixed_dictionaries({name: made for name, (_, made) in COLUMNS.items()}), max_size=20)
KIND = pa.schema({name: kind for name, (kind, _) in COLUMNS.items()})


@settings(max_examples=150)
@given(st.lists(ROWS, min_size=1, max_size=3), st.sampled_from([1, 3]))
def test_a_stream_is_read_as_it_was_written(parts: list[list[Any]], skipped: int):
    """Values of all types, nulls everywhere, several batches, and columns of which a part is sent."""
    batches = [pa.RecordBatch.from_pylist(rows, KIND).slice(min(skipped, len(rows))) for rows in parts]
    stream = stream_of(*batches)
    for batch, (fields, columns) in zip(batches, read(stream), strict=True):
        assert [str(field) for field in fields] == [
            "utf8", "large_utf8", "null", "int8", "uint64", "float32", "float64", "bool", "list<utf8>",
            "large_list<struct<id: utf8, score: float64>>", "struct<news: float64, é: int32>",
        ]  # fmt: skip
        for name, column in zip(COLUMNS, columns, strict=True):
            expected = batch.column(name).to_pylist()
            assert [value(stream, column, at) for at in range(len(column))] == expected, name


ONE = pa.RecordBatch.from_pylist([dict.fromkeys(COLUMNS) | {"text": "a", "texts": ["b", "c"]}] * 3, KIND)


@settings(max_examples=600)
@given(st.data())
def test_a_damaged_stream_is_refused_or_read_within_its_bounds(data: Any):
    """No byte that changes makes an offset lead out of the stream, or takes memory that the stream does not have."""
    refusals = {400, 422}
    stream = bytearray(stream_of(ONE))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stream) - 9))
        form, number = data.draw(
            st.sampled_from([("<B", 0), ("<B", 255), ("<i", -1), ("<i", 1 << 30), ("<q", 1 << 40), ("<q", -8), ("<q", 64)])
        )
        struct.pack_into(form, stream, at, number)
    kept = bytes(stream[: data.draw(st.sampled_from([len(stream)] * 3 + [len(stream) // 2, len(stream) - 8]))])
    try:
        found = read(kept)
    except Refused as refused:
        found = []
        refusals.add(refused.status)
    assert refusals == {400, 422}
    for _, columns in found:
        for column in columns:
            inside(kept, column)


def inside(stream: bytes, column: Column) -> None:
    assert len(column) <= max(MOST, len(stream))
    if str(column.field).endswith("utf8"):
        assert column.ends[0] >= 0 and column.ends[-1] <= len(stream) and (np.diff(column.ends) >= 0).all()
    elif "list" in str(column.field).split("<")[0]:
        assert column.ends[0] >= 0 and column.ends[-1] <= len(column.children[0]) and (np.diff(column.ends) >= 0).all()
    for child in column.children:
        inside(stream, child)


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2**30], pa.int32()), pa.array(["a"]))


def cut(size: int) -> bytes:
    return stream_of(ONE)[:size]


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (b"", "too short"),
        (b"x" * 20, "does not begin where it should"),
        (cut(100), "cut off"),
        (cut(-8), "end mark"),
        (stream_of(ONE) + b"\0" * 8, "goes on behind its end"),
        (stream_of(ONE, compression="zstd"), "compressed"),
        (stream_of(ONE, compression="lz4"), "compressed"),
        (stream_of(ONE, metadata_version=pa.ipc.MetadataVersion.V4), "version"),
        (stream_of(ONE, use_legacy_format=True), "does not begin where it should"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.array(["a"]).dictionary_encode()})), "dictionary"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.array([b"a"])})), "binary"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.array(["a"], pa.string_view())})), "utf8_view"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.array([{"a": 1}], pa.map_(pa.utf8(), pa.int8()))})), "map"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.array([[[["a"]]]])})), "list<list>"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.array([0], pa.timestamp("s"))})), "time zone"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.array([0.0], pa.float16())})), "float16"),
        (stream_of(pa.RecordBatch.from_pydict({"q": RUNS})), "run_end"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.nulls(MOST + 1)})), "more than"),
        (stream_of(pa.RecordBatch.from_pydict({"q": pa.array([[None] * 10**6], pa.list_(pa.null()))})), "too long"),
        (stream_of(pa.RecordBatch.from_pydict({str(n): pa.nulls(1) for n in range(300)})), "columns in one place"),
    ],
)  # fmt: skip
def test_what_is_not_taken_is_refused_by_its_name(stream: bytes, said: str):
    with pytest.raises(Refused, match=said):
        read(stream)
