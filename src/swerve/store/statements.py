"""The statements of a commit: many rows in one call into SQLite, which gives up the interpreter's lock once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from swerve.store.protocol import Row

COLUMNS = "key, version, layout, day, level, shifted, record, names, crc"
#: Rows or ids in one statement: within every build's limit of variables.
AT_ONCE = 250


def outcomes(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, int]:
    """Which of these decision ids were used, with what outcome."""
    return dict(connection.execute(f"SELECT id, outcome FROM used WHERE id IN ({', '.join('?' * len(ids))})", ids).fetchall())


def update(writer: sqlite3.Connection, rows: Sequence[Row]) -> int:
    """Put rows in place of their earlier versions; how many were there as expected."""
    done = 0
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        values: list[Any] = []
        for row in some:
            values += (row.key, row.version, row.layout, row.record, row.names, row.checksum())
        # VALUES names its columns column1, column2, …
        done += writer.execute(
            "UPDATE rows SET version = v.column2, layout = v.column3, record = v.column4, names = v.column5, crc = v.column6 "
            f"FROM (VALUES {places(6, len(some))}) AS v WHERE rows.key = v.column1 AND rows.version = v.column2 - 1",
            values,
        ).rowcount
        # what is indexed changes seldom, and SQLite writes an index anew for every column that is set, changed or not
        writer.execute(
            "UPDATE rows SET day = v.column2, level = v.column3, shifted = v.column4 "
            f"FROM (VALUES {places(4, len(some))}) AS v WHERE rows.key = v.column1 "
            "AND (rows.day <> v.column2 OR rows.level <> v.column3 OR rows.shifted <> v.column4)",
            [value for row in some for value in (row.key, row.day, row.level, row.shifted)],
        )
    return done


def insert(writer: sqlite3.Connection, rows: Sequence[Row], holes: list[int]) -> int:
    """Put new rows into the places of expired ones, else at the end; how many were new."""
    done = 0
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        values: list[Any] = []
        for row in some:
            # a hole taken by a commit that fails is forgotten: better an empty place than one given twice
            values.append(holes.pop() if holes else None)
            values += (row.key, row.version, row.layout, row.day, row.level, row.shifted, row.record, row.names, row.checksum())
        statement = f"INSERT INTO rows(id, {COLUMNS}) VALUES {places(10, len(some))} ON CONFLICT(key) DO NOTHING"
        done += writer.execute(statement, values).rowcount
    return done


def use(writer: sqlite3.Connection, used: Sequence[tuple[int, int]]) -> int:
    """Note decision ids as used; how many were not used before."""
    done = 0
    for start in range(0, len(used), AT_ONCE):
        some = used[start : start + AT_ONCE]
        statement = f"INSERT INTO used(id, outcome) VALUES {places(2, len(some))} ON CONFLICT DO NOTHING"
        done += writer.execute(statement, [value for pair in some for value in pair]).rowcount
    return done


def places(columns: int, lines: int) -> str:
    """`(?, ?), (?, ?), …`"""
    line = f"({', '.join('?' * columns)})"
    return ", ".join([line] * lines)
