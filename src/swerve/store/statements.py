"""The statements of the store: in a commit each writes many rows in one call into SQLite, which releases the GIL once per call."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.store.packed import pack, unpack
from swerve.store.protocol import Damaged, Row

COLUMNS = "key, version, layout, day, level, shifted, record, names, size, crc"
#: The schema that introduced packed records.
PACKED_SCHEMA = 3
#: Columns that each update sets, and those that it sets only if they change, because they are indexed; both after the key.
UPDATED, INDEXED = ("key", "version", "layout", "record", "names", "size", "crc"), ("key", "day", "level", "shifted")
#: Rows or ids per statement: within the limit of variables of every build.
PER_STATEMENT = 250


#: Outcomes above this are stored as bytes: SQLite's integers have 64 bits, one of them for the sign.
LARGEST_INTEGER = (1 << 63) - 1


def columns(connection: sqlite3.Connection) -> str:
    """Return `COLUMNS` as they are selected from a file that may have an older schema."""
    schema: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return COLUMNS if schema >= PACKED_SCHEMA else COLUMNS.replace("size", "0")


def as_written(values: Sequence[Any]) -> Row | None:
    """Return the row of these values of `COLUMNS`; None if the checksum is wrong. A record is unpacked only if it is right."""
    *parts, size, crc = values
    row = Row(*parts)
    try:
        if row.checksum_of(row.record, size) != crc:
            return None
        row.record = unpack(row.record, size)
    except (TypeError, ValueError, struct.error):  # a damaged page can turn bytes into text, and a number into NULL
        return None
    return row


def checked(path: Path | str, values: Sequence[Any]) -> Row | Damaged:
    """Return the row of these values of `COLUMNS`; `Damaged` if the checksum is wrong."""
    row = as_written(values)
    if row is not None:
        return row
    key, version, *_ = values
    return Damaged(key, version if isinstance(version, int) else 0, f"{path}: the record of a row is damaged: {key!r}")


def outcomes(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, int]:
    """Return the outcomes of those of these decision ids that were used."""
    found = connection.execute(f"SELECT id, outcome FROM used WHERE id IN ({', '.join('?' * len(ids))})", ids).fetchall()
    return {number: outcome if isinstance(outcome, int) else int.from_bytes(outcome, "little") for number, outcome in found}


def update(writer: sqlite3.Connection, rows: Sequence[Row]) -> set[bytes]:
    """Replace stored rows; return the keys of those that are stored."""
    done: set[bytes] = set()
    for start in range(0, len(rows), PER_STATEMENT):
        some = rows[start : start + PER_STATEMENT]
        values: list[Any] = []
        for row, (stored, size) in zip(some, pack([row.record for row in some]), strict=True):
            values += (row.key, row.version, row.layout, stored, row.names, size, row.checksum_of(stored, size))
        # VALUES names its columns column1, column2, …
        found = writer.execute(
            "UPDATE rows SET version = v.column2, layout = v.column3, record = v.column4, names = v.column5, size = v.column6, "
            "crc = v.column7 "
            f"FROM (VALUES {marks(len(UPDATED), len(some))}) AS v WHERE rows.key = v.column1 RETURNING rows.key",
            values,
        )
        done |= {key for (key,) in found.fetchall()}
        # indexed columns rarely change, and SQLite rewrites an index for every column that is set, even to the same value
        writer.execute(
            "UPDATE rows SET day = v.column2, level = v.column3, shifted = v.column4 "
            f"FROM (VALUES {marks(len(INDEXED), len(some))}) AS v WHERE rows.key = v.column1 "
            "AND (rows.day <> v.column2 OR rows.level <> v.column3 OR rows.shifted <> v.column4)",
            [value for row in some for value in (row.key, row.day, row.level, row.shifted)],
        )
    return done


def insert(writer: sqlite3.Connection, rows: Sequence[Row], holes: list[int]) -> int:
    """Insert new rows under free row ids, or at the end; return how many were new."""
    done = 0
    for start in range(0, len(rows), PER_STATEMENT):
        some = rows[start : start + PER_STATEMENT]
        values: list[Any] = []
        for row, (stored, size) in zip(some, pack([row.record for row in some]), strict=True):
            # a free id that a failing commit has taken is dropped: an unused id is harmless, one given twice is not
            values.append(holes.pop() if holes else None)
            values += (row.key, row.version, row.layout, row.day, row.level, row.shifted, stored, row.names)
            values += (size, row.checksum_of(stored, size))
        statement = (
            f"INSERT INTO rows(id, {COLUMNS}) VALUES {marks(1 + len(COLUMNS.split()), len(some))} ON CONFLICT(key) DO NOTHING"
        )
        done += writer.execute(statement, values).rowcount
    return done


def use(writer: sqlite3.Connection, used: Sequence[tuple[int, int]]) -> None:
    """Record the outcomes of used decisions, in place of earlier ones."""
    for start in range(0, len(used), PER_STATEMENT):
        some = used[start : start + PER_STATEMENT]
        values: list[int | bytes] = []
        for number, outcome in some:
            long = outcome > LARGEST_INTEGER
            values += (number, outcome.to_bytes(-(-outcome.bit_length() // 8), "little") if long else outcome)
        statement = (
            f"INSERT INTO used(id, outcome) VALUES {marks(2, len(some))} ON CONFLICT(id) DO UPDATE SET outcome = excluded.outcome"
        )
        writer.execute(statement, values)


def marks(columns: int, lines: int) -> str:
    """Return the placeholders of `lines` rows: `(?, ?), (?, ?), …`."""
    line = f"({', '.join('?' * columns)})"
    return ", ".join([line] * lines)
