"""Reading of a store in PostgreSQL, and deletion."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from swerve.core.errors import SwerveError, whole
from swerve.store.postgresql_link import Bounded
from swerve.store.postgresql_log import Logged
from swerve.store.postgresql_schema import WORTH
from swerve.store.protocol import MOST_SCANNED, Damaged, Order, Row, StoreError
from swerve.store.statements import COLUMNS, checked

ORDERS = {"traffic": "ORDER BY level DESC, id DESC", "shifted": "WHERE shifted > 0 ORDER BY shifted DESC, id DESC"}

#: Rows of one page, and rows whose names one call of `naming` looks at: few, so that other readers get their turn.
PAGE_ROWS, ROWS_LOOKED_AT = 100, 2000
#: Rows that `scan` reads at once.
SCAN_ROWS = 500


class Rows(Logged, ABC):
    """The part of the store that reads rows, and deletes for good."""

    def load(self, keys: Sequence[bytes]) -> list[Row | Damaged | None]:
        """Return the rows in the order of the keys; see `Store`."""
        try:
            found = {row.key: row for row in self._load(list(set(keys)))}
        except StoreError as error:
            if error.kind != "corrupt":
                raise
            found = {}
            for key in set(keys):  # one by one, to name the damaged rows and return the others
                found |= self._load_one(key)
        return [found.get(key) for key in keys]

    def _load(self, keys: Sequence[bytes]) -> list[Row | Damaged]:
        with self._reader.using() as connection:
            return self._loaded(connection, keys)

    def _loaded(self, connection: Bounded, keys: Sequence[bytes]) -> list[Row | Damaged]:
        if not keys:
            return []
        statement = f"SELECT {COLUMNS} FROM rows WHERE key = ANY(%b::bytea[])"
        return [checked(self.address.shown, values) for values in connection.execute(statement, (list(keys),), binary=True)]

    def _load_one(self, key: bytes) -> dict[bytes, Row | Damaged]:
        try:
            return {row.key: row for row in self._load([key])}
        except StoreError as error:
            if error.kind != "corrupt":
                raise
            return {key: Damaged(key, 0, str(error))}

    def outcomes(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the outcomes of those of these decision ids that were used."""
        with self._reader.using() as connection:
            found = connection.execute("SELECT id, outcome FROM used WHERE id = ANY(%b::bigint[])", (list(ids),), binary=True)
            return {number: int.from_bytes(outcome, "little") for number, outcome in found}

    def groups(self) -> dict[tuple[str, str], bytes | Damaged]:
        """Return every pooled record by (name, worker)."""
        with self._reader.using() as connection:
            rows = connection.execute("SELECT name, worker, record, crc FROM groups", binary=True).fetchall()
        found: dict[tuple[str, str], bytes | Damaged] = {}
        for name, worker, record, crc in rows:
            words = f"{self.address.shown}: the pooled record {name!r} of worker {worker!r} is damaged"
            found[name, worker] = record if zlib.crc32(record) == crc else Damaged(name.encode(), 0, words)
        return found

    def scan(self, order: Order, limit: int, wanted: Callable[[bytes], bool] | None = None) -> list[Row]:
        """Return the first `limit` rows by traffic or by the time of their last shift; see `Store`."""
        if order not in ORDERS:
            raise SwerveError(f"order = {order!r} is not allowed; order must be one of {', '.join(ORDERS)}")
        rows: list[Row] = []
        most = whole("limit", limit, 0) if wanted is None else MOST_SCANNED
        with self._reader.using() as connection:
            ids = [number for (number,) in connection.execute(f"SELECT id FROM rows {ORDERS[order]} LIMIT %s", (most,))]
        for start in range(0, len(ids), SCAN_ROWS):
            if len(rows) >= limit:
                break
            some = ids[start : start + SCAN_ROWS]
            with self._reader.using() as connection:
                statement = f"SELECT id, {COLUMNS} FROM rows WHERE id = ANY(%b::bigint[])"
                found = {values[0]: values[1:] for values in connection.execute(statement, (some,), binary=True)}
            for number in some:
                row = checked(self.address.shown, found[number]) if number in found else None
                if isinstance(row, Row) and (wanted is None or wanted(row.names)):
                    rows.append(row)
        return rows[:limit]

    def layouts(self) -> dict[int, str]:
        """Return the descriptions of all record layouts by id."""
        with self._reader.using() as connection:
            return dict(connection.execute("SELECT id, description FROM layouts").fetchall())

    def count(self) -> int:
        """Return the number of rows."""
        return self._count

    def least(self, limit: int) -> list[bytes]:
        """Return the keys of the rows that are worth least."""
        with self._reader.using() as connection:
            return [key for (key,) in connection.execute(f"SELECT key FROM rows ORDER BY {WORTH} LIMIT %s", (limit,))]

    def page(self, after: int = 0) -> tuple[list[Row | Damaged], int | None]:
        """Return the next rows after a row id, damaged ones as such, and the last id; None at the end."""
        statement = f"SELECT id, {COLUMNS} FROM rows WHERE id > %s ORDER BY id LIMIT %s"
        with self._reader.using() as connection:
            found = connection.execute(statement, (after, PAGE_ROWS), binary=True).fetchall()
        return [checked(self.address.shown, values[1:]) for values in found], found[-1][0] if found else None

    def naming(self, needle: bytes, after: int = 0) -> tuple[list[bytes], int | None]:
        """Return the keys of rows whose names contain these bytes, among the next rows after a row id, and the last id looked at;
        None at the end."""
        statement = """
            SELECT id, CASE WHEN position(%b::bytea IN names) > 0 THEN key END FROM rows WHERE id > %s ORDER BY id LIMIT %s
        """
        with self._reader.using() as connection:
            found = connection.execute(statement, (needle, after, ROWS_LOOKED_AT)).fetchall()
        return [key for _, key in found if key is not None], found[-1][0] if found else None

    def forget(self, keys: Sequence[bytes]) -> int:
        """Remove these rows; return how many were removed."""
        with self._writer.busy:
            with self._writing() as connection:
                gone = self._removed(connection, keys)
            self._count -= gone
        return gone

    def _removed(self, connection: Bounded, keys: Sequence[bytes]) -> int:
        return connection.execute("DELETE FROM rows WHERE key = ANY(%b::bytea[])", (list(keys),)).rowcount if keys else 0

    def erase(
        self, keys: Sequence[bytes], changed: Sequence[bytes], change: Callable[[Row], Row | None], groups: Mapping[str, bytes]
    ) -> tuple[int, dict[bytes, int]]:
        """Remove the rows of `keys`, replace those of `changed` by what `change` makes of them (None: it stays), and write pooled
        records, all in one transaction. Return the count of removed rows, and new versions by key. On return no statement finds
        the earlier content any more; docs/operations.md says how long the server's files may still contain it."""
        with self._writer.busy:
            with self._writing() as connection:
                gone = self._removed(connection, keys)
                new: list[Row] = []
                for row in self._loaded(connection, changed):
                    if isinstance(row, Damaged):
                        raise row
                    made = change(row)
                    if made is not None:
                        made.version = self.epoch
                        new.append(made)
                self._write(connection, new, [], groups)
            self._count -= gone
        self._vacuumed("rows", "groups")
        return gone, {row.key: row.version for row in new}

    @abstractmethod
    def _write(self, connection: Bounded, rows: Sequence[Row], used: Sequence[tuple[int, int]], groups: Mapping[str, bytes]) -> int:
        """Write rows, outcomes and pooled records, inside a transaction; return how many rows are new."""
