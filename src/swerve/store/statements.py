"""The statements of the store: in a commit each writes many rows in one call into SQLite, which releases the GIL once per call."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.store.protocol import Damaged, Row

COLUMNS = "key, version, layout, day, level, shifted, record, names, crc"
#: Columns that each update sets, and those that it sets only if they change, because they are indexed; both after the key.
UPDATED, INDEXED = ("key", "version", "layout", "record", "names", "crc"), ("key", "day", "level", "shifted")
#: Rows or ids per statement: within the limit of variables of every build.
PER_STATEMENT = 250


#: Outcomes above this are stored as bytes: SQLite's integers have 64 bits, one of them for the sign.
LARGEST_INTEGER = (1 << 63) - 1


def checked(path: Path, values: tuple[Any, ...]) -> Row | Damaged:
    """Return the row of these values of `COLUMNS`, as a damaged one where they are not what was written."""
    *parts, crc = values
    row = Row(*parts)
    try:
        if row.checksum() == crc:
            return row
    except (TypeError, struct.error):  # a damaged page can turn bytes into text, and a number into NULL
        pass
    version = row.version if isinstance(row.version, int) else 0
    return Damaged(row.key, version, f"{path}: the record of a row is not what was written: {row.key!r}")


def outcomes(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, int]:
    """Return the outcomes of those of these decision ids that were used."""
    found = connection.execute(f"SELECT id, outcome FROM used WHERE id IN ({', '.join('?' * len(ids))})", ids).fetchall()
    return {number: outcome if isinstance(outcome, int) else int.from_bytes(outcome, "little") for number, outcome in found}


def update(writer: sqlite3.Connection, rows: Sequence[Row]) -> int:
    """Replace rows by their next versions; return how many had the expected version."""
    done = 0
    for start in range(0, len(rows), PER_STATEMENT):
        some = rows[start : start + PER_STATEMENT]
        values: list[Any] = []
        for row in some:
            values += (row.key, row.version, row.layout, row.record, row.names, row.checksum())
        # VALUES names its columns column1, column2, …
        done += writer.execute(
            "UPDATE rows SET version = v.column2, layout = v.column3, record = v.column4, names = v.column5, crc = v.column6 "
            f"FROM (VALUES {marks(len(UPDATED), len(some))}) AS v WHERE rows.key = v.column1 AND rows.version = v.column2 - 1",
            values,
        ).rowcount
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
        for row in some:
            # a free id that a failing commit has taken is dropped: an unused id is harmless, one given twice is not
            values.append(holes.pop() if holes else None)
            values += (row.key, row.version, row.layout, row.day, row.level, row.shifted, row.record, row.names, row.checksum())
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
