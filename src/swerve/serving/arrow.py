"""Reads streams of Apache Arrow's IPC format, as far as batches need it: texts, numbers, lists and structures.

A stream is read where it lies, as NumPy arrays, and everything that compiled code relies on is checked: offsets, lengths, bitmaps.
What costs more memory than it has bytes is refused by its name: compressed buffers, dictionaries, views, runs. This is why the
service does not read streams with pyarrow, which decompresses before it says so; its import would also hold the event loop, and
take tens of megabytes. `swerve.serving.arrow_writing` writes streams.

Tests: tests/serving/test_arrow.py.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import shown
from swerve.serving.messages import Refused

#: Begins each message; then its length, 0 at the end of the stream.
CONTINUES, HEAD_BYTES = 0xFFFFFFFF, 8
VERSION = 4  # of the format: V5, which all writers use since 2020
SCHEMA, DICTIONARY, BATCH = 1, 2, 3  # kinds of messages
#: Bytes of a schema that is remembered at most.
REMEMBERED = 8192
#: Fields of a schema, or of a structure, at most.
MOST_FIELDS = 256
#: Types by their numbers in the format. Those without a width here are refused.
NULL, INT, FLOAT, TEXT, BOOL, TIME, LIST, STRUCTURE, LARGE_TEXT, LARGE_LIST = 1, 2, 3, 5, 6, 10, 12, 13, 20, 21
NAMES = {
    4: "binary", 7: "decimal", 8: "date", 9: "time", 11: "interval", 14: "union", 15: "fixed_size_binary", 16: "fixed_size_list",
    17: "map", 18: "duration", 19: "large_binary", 22: "run_end_encoded", 23: "binary_view", 24: "utf8_view", 25: "list_view",
    26: "large_list_view",
}  # fmt: skip
FLOATS = {1: "f4", 2: "f8"}
#: Parts of a second, by the unit of a time.
UNITS = (1.0, 1e3, 1e6, 1e9)
PLAIN, WIDE = "<i4", "<i8"  # offsets of texts and lists, and of large ones
U16, U32, I32, I64 = (struct.Struct(form) for form in ("<H", "<I", "<i", "<q"))
ALIGNED = 8
PAIR = 16  # bytes of two numbers: a node or a buffer of a batch


def torn(message: str) -> Refused:
    """Return the refusal of a body that is no stream."""
    return Refused(400, "not_arrow", f"the body is not an Arrow stream: {message}")


class Field(NamedTuple):
    """A column's name and type: `kind` is one of the types above, `form` how NumPy reads its numbers or offsets."""

    name: str
    kind: int
    form: str = ""
    children: tuple[Field, ...] = ()
    unit: int = 0  # of a time

    def __str__(self) -> str:
        inner = ", ".join(str(child) for child in self.children)
        number = {"f": "float", "i": "int", "u": "uint"}
        if self.kind in (INT, FLOAT):
            return f"{number[self.form[-2]]}{8 * int(self.form[-1])}"
        if self.kind in (LIST, LARGE_LIST):
            return f"{'large_' if self.kind == LARGE_LIST else ''}list<{inner}>"
        if self.kind == STRUCTURE:
            return f"struct<{', '.join(f'{child.name}: {child}' for child in self.children)}>"
        return {NULL: "null", TEXT: "utf8", LARGE_TEXT: "large_utf8", BOOL: "bool", TIME: "timestamp"}[self.kind]


class Column(NamedTuple):
    """The values of a field. Of a text `ends` has where each begins in the stream and the last one ends, of a list in its child."""

    field: Field
    valid: NDArray[np.bool_]
    ends: NDArray[np.int64] = np.zeros(1, np.int64)
    numbers: NDArray[Any] = np.zeros(0)
    children: tuple[Column, ...] = ()

    def __len__(self) -> int:
        return len(self.valid)


# read -----------------------------------------------------------------------------------------------------------------------------


class Table:
    """A table of FlatBuffers in a message's metadata: its fields by their numbers. Offsets outside raise `struct.error`."""

    __slots__ = ("at", "bytes", "fields", "size")

    def __init__(self, data: bytes, at: int) -> None:
        self.bytes, self.at = data, at
        self.fields = _inside(at - I32.unpack_from(data, _inside(at))[0])
        self.size = U16.unpack_from(data, self.fields)[0]

    def place(self, number: int) -> int:
        """Return where a field is, 0 if it has its default."""
        if 4 + 2 * number + 2 > self.size:
            return 0
        offset: int = U16.unpack_from(self.bytes, self.fields + 4 + 2 * number)[0]
        return self.at + offset if offset else 0

    def number(self, number: int, form: struct.Struct, default: int = 0) -> int:
        """Return a number."""
        at = self.place(number)
        found: int = form.unpack_from(self.bytes, at)[0] if at else default
        return found

    def small(self, number: int) -> int:
        """Return a number of one byte."""
        at = self.place(number)
        return self.bytes[at] if at and at < len(self.bytes) else 0

    def table(self, number: int) -> Table | None:
        """Return a table."""
        at = self.place(number)
        return Table(self.bytes, at + U32.unpack_from(self.bytes, at)[0]) if at else None

    def items(self, number: int) -> tuple[int, int]:
        """Return where the items of a list begin, and how many there are."""
        at = self.place(number)
        if not at:
            return 0, 0
        at += U32.unpack_from(self.bytes, at)[0]
        return at + 4, U32.unpack_from(self.bytes, at)[0]

    def tables(self, number: int) -> list[Table]:
        """Return a list of tables."""
        at, count = self.items(number)
        if count > MOST_FIELDS:
            raise Refused(422, "too_many", f"the stream has {count} columns in one place; at most {MOST_FIELDS} are allowed")
        return [Table(self.bytes, spot + U32.unpack_from(self.bytes, spot)[0]) for spot in range(at, at + 4 * count, 4)]

    def text(self, number: int) -> str:
        """Return a text."""
        at, size = self.items(number)
        if at + size > len(self.bytes):
            raise struct.error
        return self.bytes[at : at + size].decode()


def _inside(at: int) -> int:
    if at < 0:  # which `unpack_from` would count from the end
        raise struct.error
    return at


class Message(NamedTuple):
    """A message: its kind, its table, and where its body is in the stream."""

    kind: int
    table: Table
    begin: int
    end: int


def messages(stream: bytes) -> Iterator[Message]:
    """Yield the messages of a stream; refuses one that is cut off, or goes on behind its end."""
    at = 0
    while True:
        if at + HEAD_BYTES > len(stream):
            raise torn("it ends without the end mark that a writer puts there when it is closed" if at else "it is too short")
        mark, size = struct.unpack_from("<II", stream, at)
        if mark != CONTINUES:
            raise torn(f"a message does not begin where it should (byte {at})")
        at += HEAD_BYTES
        if size == 0:
            if at != len(stream):
                raise torn(f"it goes on behind its end (byte {at})")
            return
        if at + size > len(stream):
            raise torn(f"it is cut off in the middle of a message (byte {len(stream)})")
        made = _message(stream[at : at + size], at + size)
        if made.end > len(stream):
            raise torn(f"it is cut off in the middle of a message (byte {len(stream)})")
        yield made
        at = made.end


def _message(data: bytes, begin: int) -> Message:
    try:
        table = Table(data, U32.unpack_from(data)[0])
        inner, length = table.table(2), table.number(3, I64)
        if inner is None or length < 0 or length % ALIGNED:
            raise struct.error
        if table.number(0, U16) != VERSION:
            raise Refused(422, "invalid", "the stream has another version of Arrow's format than V5, which is the one that is read")
        return Message(table.small(1), inner, begin, begin + length)
    except (struct.error, IndexError):
        raise torn("a message is damaged") from None


def fields_of(message: Message) -> tuple[Field, ...]:
    """Return the columns of a schema. Those of some are remembered, because a caller always sends the same."""
    return _fields(message.table.bytes) if len(message.table.bytes) <= REMEMBERED else _fields.__wrapped__(message.table.bytes)


@functools.lru_cache(maxsize=64)
def _fields(data: bytes) -> tuple[Field, ...]:
    schema = _message(data, 0).table
    try:
        if schema.number(0, U16):
            raise Refused(422, "invalid", "the stream is big-endian; only little-endian streams are read")
        return tuple(_field(table, "", 0) for table in schema.tables(1))
    except (struct.error, UnicodeDecodeError):
        raise torn("its schema is damaged") from None


def _field(table: Table, path: str, depth: int) -> Field:
    name, kind, type_ = table.text(0), table.small(2), table.table(3)
    path = f"{path}.{name}" if path else name
    if table.place(4):
        raise not_taken(path, "dictionary")
    if type_ is None:
        raise struct.error
    if depth > 2:
        raise not_taken(path, "list<list>")
    children = tuple(_field(child, path, depth + 1) for child in table.tables(5))
    if kind in (LIST, LARGE_LIST) and len(children) != 1:
        raise struct.error
    if kind == INT:
        width, signed = type_.number(0, I32), type_.small(1)
        if width not in (8, 16, 32, 64):
            raise struct.error
        return Field(name, kind, f"<{'i' if signed else 'u'}{width // 8}")
    if kind == FLOAT and (form := FLOATS.get(type_.number(0, U16))) is not None:
        return Field(name, kind, f"<{form}")
    if kind == TIME and 0 <= (unit := type_.number(0, U16)) < len(UNITS):
        if not type_.place(1):
            raise not_taken(path, "timestamp without a time zone")
        return Field(name, kind, WIDE, unit=unit)
    if kind in (NULL, TEXT, BOOL, LARGE_TEXT, LIST, LARGE_LIST, STRUCTURE):
        return Field(name, kind, WIDE if kind in (LARGE_TEXT, LARGE_LIST) else PLAIN, children)
    raise not_taken(path, NAMES.get(kind, "float16" if kind == FLOAT else f"of number {kind}"))


def not_taken(path: str, kind: str) -> Refused:
    """Return the refusal of a column for its type."""
    return Refused(422, "invalid", f"column {shown(path)} has the type {kind}, which is not taken; cast it", path)


class Batch:
    """Reads the columns of one batch, in their order."""

    def __init__(self, stream: bytes, message: Message, most: int) -> None:
        table = message.table
        try:
            self.length = table.number(0, I64)
            if table.place(3):
                raise Refused(422, "invalid", "the stream is compressed, which is not taken; write it without compression")
            self._nodes, self._buffers = self._pairs(table, 1), self._pairs(table, 2)
        except struct.error:
            raise torn("a message is damaged") from None
        if not 0 <= self.length <= most:
            raise Refused(422, "too_many", f"the batch has more than {most} entries")
        self._stream, self._begin, self._size = stream, message.begin, message.end - message.begin
        self._node = self._buffer = 0

    @staticmethod
    def _pairs(table: Table, number: int) -> list[tuple[int, int]]:
        at, count = table.items(number)
        if at + PAIR * count > len(table.bytes):
            raise struct.error
        found: list[tuple[int, int]] = list(struct.iter_unpack("<qq", table.bytes[at : at + PAIR * count]))
        return found

    def column(self, field: Field, length: int | None = None, path: str = "") -> Column:
        """Return the next column. A child of a list has any length."""
        path = f"{path}.{field.name}" if path else field.name
        if self._node >= len(self._nodes):
            raise torn("a batch has fewer columns than its schema")
        count, nulls = self._nodes[self._node]
        self._node += 1
        if count < 0 or (length is not None and count != length):
            raise torn(f"column {shown(path)} has another length than its batch")
        if field.kind == NULL:
            if count > len(self._stream):  # which no list has
                raise torn(f"column {shown(path)} is too long")
            return Column(field, np.zeros(count, np.bool_))
        valid = self._valid(count, nulls, path)
        if field.kind == STRUCTURE:
            return Column(field, valid, children=tuple(self.column(child, count, path) for child in field.children))
        if field.kind == BOOL:
            return Column(field, valid, numbers=self._bits(self._next(), count, path))
        if field.kind in (INT, FLOAT, TIME):
            return Column(field, valid, numbers=self._numbers(field.form, count, path))
        ends = self._numbers(field.form, count + 1, path).astype(np.int64) if count else self._skip()
        if field.kind in (TEXT, LARGE_TEXT):
            begin, size = self._next()
        else:
            child = self.column(field.children[0], None, path)
            begin, size = 0, len(child)
        if ends[0] < 0 or ends[-1] > size or (ends[1:] < ends[:-1]).any():
            raise torn(f"column {shown(path)} has offsets outside its data")
        if field.kind in (TEXT, LARGE_TEXT):
            return Column(field, valid, ends + begin)
        return Column(field, valid, ends, children=(child,))

    def done(self) -> None:
        """Refuse a batch that has more columns than its schema."""
        if self._node != len(self._nodes) or self._buffer != len(self._buffers):
            raise torn("a batch has more columns than its schema")

    def _next(self) -> tuple[int, int]:
        """Return where the next buffer begins in the stream, and its length."""
        if self._buffer >= len(self._buffers):
            raise torn("a batch has fewer buffers than its schema")
        begin, size = self._buffers[self._buffer]
        self._buffer += 1
        if begin < 0 or size < 0 or begin + size > self._size:
            raise torn("a buffer lies outside its batch")
        return self._begin + begin, size

    def _skip(self) -> NDArray[np.int64]:
        self._next()
        return np.zeros(1, np.int64)

    def _numbers(self, form: str, count: int, path: str) -> NDArray[Any]:
        begin, size = self._next()
        kind = np.dtype(form)
        if size < count * kind.itemsize:
            raise torn(f"column {shown(path)} is shorter than its batch")
        return np.frombuffer(self._stream, kind, count, begin) if count else np.zeros(0, kind)

    def _bits(self, buffer: tuple[int, int], count: int, path: str) -> NDArray[np.bool_]:
        begin, size = buffer
        if 8 * size < count:
            raise torn(f"column {shown(path)} is shorter than its batch")
        packed = np.frombuffer(self._stream, np.uint8, -(-count // 8), begin)
        return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)

    def _valid(self, count: int, nulls: int, path: str) -> NDArray[np.bool_]:
        buffer = self._next()
        if buffer[1] == 0 and nulls == 0:
            if count > len(self._stream):  # before memory is taken for it
                raise torn(f"column {shown(path)} is too long")
            return np.ones(count, np.bool_)
        return self._bits(buffer, count, path) if count else np.zeros(0, np.bool_)
