"""Deletion for good: rows removed or changed in one transaction, overwritten in the file, and gone from the log on return."""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable, Mapping, Sequence

from swerve.store.logged import Logged
from swerve.store.protocol import Damaged, Row, StoreError
from swerve.store.schema import translated
from swerve.store.statements import COLUMNS, PER_STATEMENT, checked, update

#: Rows whose names one call of `naming` looks at, so that other readers get their turn.
ROWS_LOOKED_AT = 2000
#: Rows of one page, for the same reason.
PAGE_ROWS = 100
#: Seconds to wait for other readers of the file before its log can be emptied, and between two attempts.
EMPTY_SECONDS, EMPTY_EVERY = 2.0, 0.02


class Erasing(Logged):
    """The part of the SQLite store that deletes for good.

    Every connection has `secure_delete`, so that SQLite overwrites what it frees with zeros; see `schema.connect`.
    """

    _count: int

    def page(self, after: int = 0) -> tuple[list[Row | Damaged], int | None]:
        """Return the next rows after a row id, damaged ones as such, and the last id; None at the end."""
        with self._reading() as reader:
            found = reader.execute(
                f"SELECT id, {COLUMNS} FROM rows WHERE id > ? ORDER BY id LIMIT ?", (after, PAGE_ROWS)
            ).fetchall()
        return [checked(self.path, values[1:]) for values in found], found[-1][0] if found else None

    def naming(self, needle: bytes, after: int = 0) -> tuple[list[bytes], int | None]:
        """Return the keys of rows whose names contain these bytes, among the next rows after a row id, and the last id looked at;
        None at the end."""
        with self._reading() as reader:
            last = reader.execute(
                "SELECT max(id) FROM (SELECT id FROM rows WHERE id > ? ORDER BY id LIMIT ?)", (after, ROWS_LOOKED_AT)
            ).fetchone()[0]
            if last is None:
                return [], None
            found = reader.execute("SELECT key FROM rows WHERE id > ? AND id <= ? AND instr(names, ?) > 0", (after, last, needle))
            return [key for (key,) in found.fetchall()], int(last)

    def erase(
        self, keys: Sequence[bytes], changed: Sequence[bytes], change: Callable[[Row], Row | None], groups: Mapping[str, bytes]
    ) -> tuple[int, dict[bytes, int]]:
        """Remove the rows of `keys`, replace those of `changed` by what `change` makes of them (None: it stays), and write pooled
        records, all in one transaction. On return the log is empty. Return the count of removed rows, and new versions by key."""
        versions: dict[bytes, int] = {}
        with self._writing_now:
            with self._writing() as writer:
                gone = 0
                for start in range(0, len(keys), PER_STATEMENT):
                    some = keys[start : start + PER_STATEMENT]
                    gone += writer.execute(f"DELETE FROM rows WHERE key IN ({', '.join('?' * len(some))})", some).rowcount
                for start in range(0, len(changed), PER_STATEMENT):
                    new = self._changed(writer, changed[start : start + PER_STATEMENT], change)
                    if len(update(writer, new)) != len(new):
                        raise StoreError("conflict", f"{self.path}: rows have changed during the deletion; nothing was deleted")
                    versions |= {row.key: row.version for row in new}
                writer.executemany(
                    "INSERT OR REPLACE INTO groups(name, worker, crc, record) VALUES (?, ?, ?, ?)",
                    [(name, self.worker, zlib.crc32(record), record) for name, record in groups.items()],
                )
            self._count -= gone
            self._drain()
        return gone, versions

    def _changed(self, writer: sqlite3.Connection, keys: Sequence[bytes], change: Callable[[Row], Row | None]) -> list[Row]:
        marks = ", ".join("?" * len(keys))
        out: list[Row] = []
        for values in writer.execute(f"SELECT {COLUMNS} FROM rows WHERE key IN ({marks})", keys).fetchall():
            row = checked(self.path, values)
            if isinstance(row, Damaged):
                raise row
            new = change(row)
            if new is not None:
                new.version = self.epoch
                out.append(new)
        return out

    def _drain(self) -> None:
        """Copy the log into the file and empty it: it has the earlier content of pages. Waits for other readers."""
        assert self._writer is not None
        until = time.monotonic() + EMPTY_SECONDS
        while True:
            try:
                busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:
                raise translated(error, self.path, uncertain=True) from error
            if not busy:
                return
            if time.monotonic() > until:
                raise StoreError(
                    "locked",
                    f"{self.path}: it is deleted, but the log still has it, because another program reads the file; end that "
                    "program and delete it again",
                    uncertain=True,
                )
            time.sleep(EMPTY_EVERY)
