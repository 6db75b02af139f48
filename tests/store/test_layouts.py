"""Layouts: descriptions, ids, and conversion of records by field names."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swerve import policy
from swerve.core.errors import SwerveError
from swerve.core.spec import record_dtype
from swerve.core.tables import row_dtype
from swerve.store import convert, copy_fields, describe, layout_id, layout_of, step
from swerve.store.layouts import STEPS, _runs

names = st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1, max_size=4)
plain = st.tuples(st.sampled_from(["i8", "f8", "u1", "u4"]), st.lists(st.integers(1, 3), max_size=2).map(tuple))


def record_of(fields):
    return st.builds(lambda n, f: np.dtype(list(zip(n, *zip(*f, strict=False), strict=False)), align=True), names, fields)


def layouts(depth: int = 2):
    fields = st.lists(plain, min_size=4, max_size=4)
    if depth:
        inner = st.tuples(st.deferred(lambda: layouts(depth - 1)), st.lists(st.integers(1, 2), max_size=1).map(tuple))
        fields = st.lists(st.one_of(plain, inner), min_size=4, max_size=4)
    return record_of(fields)


def fill(record: np.dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, record.itemsize, "u1").view(record)


def copied_plainly(source: np.ndarray, target: np.ndarray) -> None:
    """Copy fields of arrays of one record with plain NumPy: slow, and without offsets."""
    for name in target.dtype.names:
        if name not in source.dtype.names:
            continue
        old, new = source[name], target[name]
        nested = old.dtype.names is not None
        if old.ndim != new.ndim or nested != (new.dtype.names is not None) or (not nested and old.dtype != new.dtype):
            raise SwerveError(f"{name} does not fit")
        common = [min(a, b) for a, b in zip(old.shape, new.shape, strict=True)]
        if not nested:
            new[tuple(map(slice, common))] = old[tuple(map(slice, common))]
            continue
        for index in np.ndindex(*common):
            one = tuple(slice(i, i + 1) for i in index)
            copied_plainly(old[one].reshape(1), new[one].reshape(1))


@settings(max_examples=60)
@given(layouts(), layouts(), st.integers(0, 99))
def test_copying_by_runs_is_copying_by_names(one, other, seed):
    source, wanted, found = fill(one, seed), fill(other, seed + 100), fill(other, seed + 100)
    try:
        copied_plainly(source, wanted)
    except SwerveError:
        with pytest.raises(SwerveError, match="register a step for this conversion"):
            copy_fields(source, found)
        return
    copy_fields(source, found)
    assert found.tobytes() == wanted.tobytes()


@settings(max_examples=60)
@given(layouts())
def test_a_description_says_all_about_a_layout(record):
    again, form = layout_of(describe(record, form=3))
    assert form == 3
    assert describe(again, form=3) == describe(record, form=3)
    assert again == record


def test_a_row_of_a_query_grows_in_place():
    """Records grow from 8 arms to 16 inside tables, as in the service, and quickly."""
    spec = policy("swerve")
    small, large = np.zeros(3, row_dtype(spec, 8, 8)), np.zeros(4, row_dtype(spec, 16, 8))
    small.view("u1")[:] = 7
    copy_fields(small[1], large[2])
    assert large[2].generation.tolist() == [7] * 8 + [0] * 8
    assert not large[[0, 1, 3]].view("u1").any()
    started = time.perf_counter()
    for _ in range(200):
        copy_fields(small[1], large[2])
    assert (time.perf_counter() - started) / 200 < 200e-6  # measured: 4 µs


def test_neighbours_are_copied_in_one_run():
    record = record_dtype([("a", "u1"), ("b", "f8", 8), ("c", "i8", (2, 2))])
    assert _runs(record, record) == ((0, 0, record.itemsize),)


def test_a_read_only_target_is_refused():
    record = np.dtype([("a", "i8")])
    with pytest.raises((TypeError, ValueError), match=r"read-?only"):
        copy_fields(np.ones(1, record), np.frombuffer(bytes(8), record))


def test_ids_of_layouts(store):
    one, two = describe(np.dtype([("a", "i8")])), describe(np.dtype([("a", "i8"), ("b", "f8")]))
    first = layout_id(store, one)
    assert layout_id(store, two) != first == layout_id(store, one)
    assert store.layouts()[first] == one


def test_convert_takes_what_both_have_and_the_blank_for_the_rest():
    old = np.dtype([("plays", "i8", 4), ("gone", "f8")])
    new = np.dtype([("fresh", "f8"), ("plays", "i8", 6)])
    record = np.array([([1, 2, 3, 4], 9.0)], old)
    blank = np.array([(0.5, [-1] * 6)], new)
    out = np.frombuffer(convert(record.tobytes(), describe(old), describe(new), blank.tobytes()), new)[0]
    assert out["fresh"] == 0.5
    assert out["plays"].tolist() == [1, 2, 3, 4, -1, -1]
    back = np.frombuffer(convert(out.tobytes(), describe(new), describe(old), bytes(old.itemsize)), old)[0]
    assert back["plays"].tolist() == [1, 2, 3, 4]
    assert back["gone"] == 0.0


def test_forms_are_taken_in_order(monkeypatch):
    monkeypatch.setattr("swerve.store.layouts.STEPS", dict(STEPS))
    minutes, seconds = np.dtype([("wait", "i8"), ("n", "i8")]), np.dtype([("wait", "i8")])

    @step(1)
    def to_seconds(record):
        record["wait"] *= 60
        return record

    @step(2)
    def counted_from_one(record):
        out = np.zeros(1, seconds)
        out["wait"] = record["wait"] + record["n"]
        return out

    record = np.array([(3, 7)], minutes).tobytes()
    for form, wanted in ((1, 187), (2, 10), (3, 3)):
        out = convert(record, describe(minutes, form), describe(seconds, 3), bytes(8))
        assert np.frombuffer(out, seconds)["wait"].tolist() == [wanted]
    with pytest.raises(TypeError, match="form 2 has a step already: counted_from_one"):
        step(2)(to_seconds)
    with pytest.raises(SwerveError, match="no step leads from form 3 of a record to form 4"):
        convert(record, describe(minutes, 1), describe(seconds, 4), bytes(8))


def test_what_convert_refuses():
    one, two = np.dtype([("a", "i8")]), np.dtype([("a", "f8")])
    with pytest.raises(SwerveError, match="field a was int64 and is float64: register a step for this conversion"):
        convert(bytes(8), describe(one), describe(two), bytes(8))
    with pytest.raises(SwerveError, match="a record of 7 bytes"):
        convert(bytes(7), describe(one), describe(one), bytes(8))
    with pytest.raises(SwerveError, match="use a newer Swerve"):
        convert(bytes(8), describe(one, 2), describe(one, 1), bytes(8))
    with pytest.raises(SwerveError, match="cannot be read"):
        convert(bytes(8), "{}", describe(one), bytes(8))
    with pytest.raises(SwerveError, match="cannot be read"):
        layout_of('{"form":1,"bytes":8,"fields":[["a","nonsense",[],0]]}')
