"""Writes streams of Apache Arrow's IPC format; `swerve.serving.arrow` reads them.

Tests: tests/serving/test_arrow.py, tests/service/test_arrow.py.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.serving.arrow import ALIGNED, BATCH, BOOL, CONTINUES, FLOAT, I32, INT, LIST, SCHEMA, TEXT, U32, VERSION, Field

#: Writes what a field of a table points to.
Writes = Callable[[bytearray], int]


def put_table(*fields: tuple[str, Any] | None) -> Writes:
    """Return what writes a table: its fields by their numbers, each with its form and value.

    The form "" is for what lies elsewhere, which its value writes.
    """

    def write(out: bytearray) -> int:
        places, at = [0] * len(fields), 4
        for number, one in enumerate(fields):
            if one is not None:
                width = struct.calcsize("<" + (one[0] or "I"))
                places[number] = at = -(-at // width) * width
                at += width
        head = struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), at, *places)
        out += bytes(-(len(out) + len(head)) % ALIGNED) + head
        begin = len(out)
        out += I32.pack(len(head)) + bytes(at - 4)
        for place, one in zip(places, fields, strict=True):
            if one is not None and one[0]:
                struct.pack_into("<" + one[0], out, begin + place, one[1])
        for place, one in zip(places, fields, strict=True):
            if one is not None and not one[0]:
                U32.pack_into(out, begin + place, one[1](out) - begin - place)
        return begin

    return write


def put_text(text: str) -> Writes:
    """Return what writes a text."""

    def write(out: bytearray) -> int:
        data = text.encode()
        out += bytes(-len(out) % 4)
        begin = len(out)
        out += U32.pack(len(data)) + data + b"\0"
        return begin

    return write


def put_tables(tables: Sequence[Writes]) -> Writes:
    """Return what writes a list of tables."""

    def write(out: bytearray) -> int:
        out += bytes(-len(out) % 4)
        begin = len(out)
        out += U32.pack(len(tables)) + bytes(4 * len(tables))
        for spot, table in zip(range(begin + 4, len(out), 4), tables, strict=False):
            U32.pack_into(out, spot, table(out) - spot)
        return begin

    return write


def put_pairs(pairs: Sequence[int]) -> Writes:
    """Return what writes a list of pairs of numbers, which are given one after the other."""

    def write(out: bytearray) -> int:
        out += bytes((4 - len(out)) % ALIGNED)
        begin = len(out)
        out += U32.pack(len(pairs) // 2) + struct.pack(f"<{len(pairs)}q", *pairs)
        return begin

    return write


def _described(field: Field) -> Writes:
    inner: dict[int, Writes] = {
        INT: put_table(("i", 64), ("B", 1)),
        FLOAT: put_table(("h", 2)),
    }
    children = put_tables([_described(child) for child in field.children])
    kind = inner.get(field.kind, put_table())
    return put_table(("", put_text(field.name)), ("B", 1), ("B", field.kind), ("", kind), None, ("", children))


def _enclosed(kind: int, table: Writes, body: int) -> bytes:
    """Return a message without its body, which has so many bytes."""
    out = bytearray(4)
    U32.pack_into(out, 0, put_table(("h", VERSION), ("B", kind), ("", table), ("q", body))(out))
    out += bytes(-len(out) % ALIGNED)
    return struct.pack("<II", CONTINUES, len(out)) + out


def schema_of(fields: Sequence[Field]) -> bytes:
    """Return the message that begins a stream of these columns; numbers have 64 bits."""
    return _enclosed(SCHEMA, put_table(("h", 0), ("", put_tables([_described(field) for field in fields]))), 0)


#: Ends a stream.
END = struct.pack("<II", CONTINUES, 0)


class Sent:
    """A batch that is written: columns are added in the order of the schema."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._nodes: list[int] = []
        self._buffers: list[int] = []
        self._pieces: list[bytes] = []
        self._size = 0

    def _put(self, data: bytes) -> None:
        fill = -len(data) % ALIGNED
        self._buffers += (self._size, len(data))
        self._pieces.append(data + bytes(fill) if fill else data)
        self._size += len(data) + fill

    def node(self, count: int, valid: NDArray[np.bool_] | None) -> None:
        """Begin a column, or a child of one, of so many values; `valid` says which are not null, None: all."""
        missing = 0 if valid is None else count - int(np.count_nonzero(valid))
        self._nodes += (count, missing)
        self._put(b"" if valid is None or not missing else np.packbits(valid, bitorder="little").tobytes())

    def buffers(self, *data: bytes) -> None:
        """Add the buffers of a column besides that of its nulls."""
        for each in data:
            self._put(each)

    def nothing(self, *fields: Field) -> None:
        """Add columns of nulls."""
        nodes, sizes = _nothing(fields, self.length)
        self._nodes += nodes
        for size in sizes:
            self._buffers += (self._size, size)
            self._size += size + -size % ALIGNED
        self._pieces.append(bytes(sum(size + -size % ALIGNED for size in sizes)))

    def message(self) -> bytes:
        """Return the batch."""
        table = put_table(("q", self.length), ("", put_pairs(self._nodes)), ("", put_pairs(self._buffers)))
        return _enclosed(BATCH, table, self._size) + b"".join(self._pieces)


@functools.lru_cache(maxsize=256)
def _nothing(fields: tuple[Field, ...], count: int) -> tuple[list[int], list[int]]:
    """Return the nodes of columns of so many nulls, and the sizes of their buffers, which are all zero."""
    nodes, sizes = list[int](), list[int]()
    for field in fields:
        nodes += (count, count)
        sizes.append(-(-count // 8))
        if field.kind in (TEXT, LIST):
            sizes.append(4 * (count + 1))
        if field.kind == TEXT:
            sizes.append(0)
        elif field.kind in (INT, FLOAT):
            sizes.append(8 * count)
        elif field.kind == BOOL:
            sizes.append(-(-count // 8))
        below = _nothing(field.children, 0 if field.kind == LIST else count) if field.children else ([], [])
        nodes += below[0]
        sizes += below[1]
    return nodes, sizes
