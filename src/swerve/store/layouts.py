"""Layouts of records: their descriptions, their ids, and the conversion from one layout to another.

A record is stored as bytes, so the store must know their layout. A text describes each layout (fields by name, type, shape and
offset), and the store gives each layout an id. A record of another layout is converted by field names: fields that exist in both
layouts are copied, arrays by their common prefix in every dimension, and new fields keep their value of a blank record. A query's
record grows from 8 arms to 16 in the same way.

If a field keeps its name and changes its meaning, names are not enough. Then the layout's `form` is raised by one, and a `step`
that is registered for the old form rewrites the record first.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError
from swerve.store.protocol import Store

Step = Callable[[NDArray[Any]], NDArray[Any]]

#: Layouts that stay parsed: more than one process uses, with a layout per policy and capacity.
CACHED_LAYOUTS = 256
#: Characters of an unreadable description that an error shows.
DESCRIPTION_SHOWN = 200

#: By form: the function that turns a record of this form into one of the next form.
STEPS: dict[int, Step] = {}


def describe(record: np.dtype[Any], form: int = 1) -> str:
    """Return the canonical text of a record type: equal layouts have equal texts, in every process.

    >>> describe(np.dtype([("plays", "i8", 2), ("rate", "f8")]))
    '{"form":1,"bytes":24,"fields":[["plays","<i8",[2],0],["rate","<f8",[],16]]}'
    """
    return json.dumps({"form": form, "bytes": record.itemsize, "fields": _fields(record)}, separators=(",", ":"))


def _fields(record: np.dtype[Any]) -> list[Any]:
    out: list[Any] = []
    for name, (field, offset, *_) in (record.fields or {}).items():
        base = field.base
        kind = {"bytes": base.itemsize, "fields": _fields(base)} if base.fields else base.str
        out.append([name, kind, list(field.shape), offset])
    return out


@functools.lru_cache(maxsize=CACHED_LAYOUTS)
def layout_of(description: str) -> tuple[np.dtype[Any], int]:
    """Return the record type of a description, and its form."""
    try:
        found = json.loads(description)
        return _record(found["bytes"], found["fields"]), int(found["form"])
    except (KeyError, TypeError, ValueError) as error:
        raise SwerveError(f"a layout in the store cannot be read: {error}: {description[:DESCRIPTION_SHOWN]}") from error


def _record(size: int, fields: list[Any]) -> np.dtype[Any]:
    parts: Any = {"names": [], "formats": [], "offsets": [], "itemsize": size}
    for name, kind, shape, offset in fields:
        base = np.dtype(kind) if isinstance(kind, str) else _record(kind["bytes"], kind["fields"])
        parts["names"].append(name)
        parts["formats"].append((base, tuple(shape)) if shape else base)
        parts["offsets"].append(offset)
    made: np.dtype[Any] = np.dtype(parts)
    return made


def layout_id(store: Store, description: str) -> int:
    """Return the store's id of a layout; give it one if it has none."""
    for known, text in store.layouts().items():
        if text == description:
            return known
    return store.add_layout(description)


def step(form: int) -> Callable[[Step], Step]:
    """Register the function that takes a record (an array of one) of `form` and returns the record in the next form."""

    def register(function: Step) -> Step:
        if form in STEPS:
            raise TypeError(f"form {form} has a step already: {STEPS[form].__name__}")
        STEPS[form] = function
        return function

    return register


def convert(record: bytes, source: str, target: str, blank: bytes) -> bytes:
    """Convert a record from layout `source` to layout `target`; `blank` is a new query's record in `target`.

    The registered steps run in the order of their forms; then fields are copied by name.
    """
    (old, form), (new, wanted) = layout_of(source), layout_of(target)
    if len(record) != old.itemsize or len(blank) != new.itemsize:
        raise SwerveError(
            f"a record of {len(record)} bytes and a blank of {len(blank)} do not fit layouts of {old.itemsize} and {new.itemsize}"
        )
    if form > wanted:
        raise SwerveError(f"a record has form {form}, and this version of Swerve writes form {wanted}: use a newer Swerve")
    rows: NDArray[Any] = np.frombuffer(bytearray(record), old)
    for number in range(form, wanted):
        if number not in STEPS:
            raise SwerveError(f"no step leads from form {number} of a record to form {number + 1}; one must be registered")
        rows = STEPS[number](rows)
    out: NDArray[Any] = np.frombuffer(bytearray(blank), new)
    copy_fields(rows, out)
    return out.tobytes()


def copy_fields(source: Any, target: Any) -> None:
    """Copy one record into another by field names: nested records too, arrays by their common prefix in every dimension.

    Both are records, or arrays of one record; `target` must be writable. Fields that `source` lacks keep their value in `target`. A
    field whose type or number of dimensions differs is refused: names alone do not define the conversion.

    >>> small, large = np.ones(1, [("plays", "i8", 2), ("old", "f8")]), np.zeros(1, [("new", "u1"), ("plays", "i8", 3)])
    >>> copy_fields(small, large)
    >>> large
    array([(0, [1, 1, 0])], dtype=[('new', 'u1'), ('plays', '<i8', (3,))])
    """
    # a record scalar's own buffer is read-only; the array made from it writes through to the table
    left, right = np.asarray(source).reshape(1), np.asarray(target).reshape(1)
    runs = _runs(left.dtype, right.dtype)
    given, taken = left.view(np.uint8).data, right.view(np.uint8).data
    for start, offset, size in runs:
        taken[offset : offset + size] = given[start : start + size]


@functools.lru_cache(maxsize=CACHED_LAYOUTS)
def _runs(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[tuple[int, int, int], ...]:
    """Return runs of bytes to copy: (offset in the source, offset in the target, bytes), adjacent runs joined."""
    joined: list[tuple[int, int, int]] = []
    for start, offset, size in sorted(_pieces(source, target, "", 0, 0), key=lambda run: run[1]):
        if joined and joined[-1][0] + joined[-1][2] == start and joined[-1][1] + joined[-1][2] == offset:
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + size)
        else:
            joined.append((start, offset, size))
    return tuple(joined)


def _pieces(source: np.dtype[Any], target: np.dtype[Any], path: str, start: int, to: int) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of one pair of types, which begin at the offsets `start` and `to`."""
    old, new = source.base, target.base
    if len(source.shape) != len(target.shape) or bool(old.fields) != bool(new.fields) or (not old.fields and old != new):
        raise SwerveError(
            f"field {path or 'record'} was {source} and is {target}: register a step for this conversion (docs/store.md)"
        )
    if source.shape:
        common = [min(a, b) for a, b in zip(source.shape, target.shape, strict=True)]
        for index in product(*map(range, common)):
            yield from _pieces(
                old, new, path, start + _flat(index, source.shape) * old.itemsize, to + _flat(index, target.shape) * new.itemsize
            )
    elif old.fields and new.fields:
        for name, (field, offset, *_) in new.fields.items():
            if name in old.fields:
                theirs = old.fields[name]
                yield from _pieces(theirs[0], field, f"{path}.{name}".lstrip("."), start + theirs[1], to + offset)
    else:
        yield start, to, old.itemsize


def _flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the index of an element in the flattened array, in C order."""
    flat = 0
    for i, n in zip(index, shape, strict=True):
        flat = flat * n + i
    return flat
