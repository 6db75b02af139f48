"""The form of a row in Valkey: a head with its numbers and its checksum, its names, its record as it is stored."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from swerve.core.errors import SwerveError
from swerve.store.packed import pack, unpack
from swerve.store.protocol import Damaged, Row
from swerve.store.valkey_scripts import LEVELS

#: Level, whether the query has shifted, form, bytes of the names; version, layout, day, time of the last shift, size of the record
#: (0 if it is not packed), checksum. The scripts read level and names.
HEAD = struct.Struct("<BBHIqqqdqI")
FORM = 1
#: Bytes before the length of the names.
BEFORE_NAMES = 4
#: Bytes that a row takes in the server beyond those of its head, names and record: the key, its places in `rows`, `ids` and
#: `level:N`, and what the server's allocator rounds up (`python tools/measure_valkey.py`).
AROUND_ROW = 570
#: Bits of a decision's id within its bucket: few, so that the server keeps the outcomes of a bucket in one piece of memory.
BUCKET_BITS = 7
#: The checksum that precedes a pooled record.
CHECK = struct.Struct("<I")


def written(rows: Sequence[Row]) -> list[bytes | int | str]:
    """Return rows as `CHECKPOINT` takes them."""
    if len({row.key for row in rows}) != len(rows):
        raise SwerveError("a batch names the same row twice; it must hold each key once")
    out: list[bytes | int | str] = [len(rows)]
    for row, (stored, size) in zip(rows, pack([row.record for row in rows]), strict=True):
        if not 0 <= row.level < LEVELS:
            raise SwerveError(f"level = {row.level} of a row is not allowed; it must be 0 to {LEVELS - 1}")
        head = HEAD.pack(
            row.level, row.shifted > 0.0, FORM, len(row.names), row.version, row.layout, row.day, row.shifted, size,
            row.checksum_of(stored, size),
        )  # fmt: skip
        shifted = repr(row.shifted) if row.shifted > 0.0 else ""
        out += (row.key, b"".join((head, row.names, stored)), row.level, row.day, shifted)
    return out


def read(what: str, key: bytes, value: bytes) -> Row | Damaged:
    """Return the row of a value; `Damaged` if the checksum is wrong. `what` names the store."""
    version = 0
    if len(value) >= HEAD.size:
        level, _, form, names, version, layout, day, shifted, size, check = HEAD.unpack_from(value)
        at = HEAD.size + names
        row = Row(key, version, layout, day, level, shifted, value[at:], value[HEAD.size : at])
        if form == FORM and row.checksum_of(row.record, size) == check:
            try:
                row.record = unpack(row.record, size)
                return row
            except ValueError:
                pass
    return Damaged(key, version, f"{what}: the record of a row is damaged: {key.hex()}")


def columns(key: bytes, value: bytes) -> tuple[bytes | int | float, ...]:
    """Return a row as the values of `COLUMNS`, for a file; a value that is too short gets a wrong checksum."""
    if len(value) < HEAD.size:
        return key, 0, 0, 0, 0, 0.0, value, b"", 0, -1
    level, _, _, names, version, layout, day, shifted, size, check = HEAD.unpack_from(value)
    at = HEAD.size + names
    return key, version, layout, day, level, shifted, value[at:], value[HEAD.size : at], size, check


def pooled(record: bytes) -> bytes:
    """Return a pooled record with its checksum."""
    return CHECK.pack(zlib.crc32(record)) + record


def read_pooled(what: str, name: str, worker: str, value: bytes) -> bytes | Damaged:
    """Return a pooled record; `Damaged` if the checksum is wrong."""
    record = value[CHECK.size :]
    if len(value) >= CHECK.size and CHECK.unpack_from(value)[0] == zlib.crc32(record):
        return record
    return Damaged(name.encode(), 0, f"{what}: the pooled record {name!r} of worker {worker!r} is damaged")
