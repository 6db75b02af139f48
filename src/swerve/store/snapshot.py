"""Reading a whole store as it is at one moment, while a service may own and change it."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.lock import left_alone
from swerve.store.protocol import InUse, Row
from swerve.store.schema import APPLICATION, translated
from swerve.store.statements import as_written, columns
from swerve.store.wal import read_log

#: Seconds that a statement waits for another program's lock: reading a whole store has no deadline.
BUSY_SECONDS = 5.0


class Snapshot:
    """A store at one moment: one read transaction. The log of a running store grows until it ends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.damaged = 0  # rows that `rows` has left out
        self.count: int = connection.execute("SELECT count(*) FROM rows").fetchone()[0]
        self.layouts: dict[int, str] = dict(connection.execute("SELECT id, description FROM layouts").fetchall())

    def rows(self) -> Iterator[Row]:
        """Yield the rows one by one, in the order of their creation, without damaged ones."""
        for values in self._connection.execute(f"SELECT {columns(self._connection)} FROM rows ORDER BY id"):
            row = as_written(values)
            if row is not None and row.layout in self.layouts:
                yield row
            else:
                self.damaged += 1

    def groups(self) -> dict[str, bytes]:
        """Return the pooled records by name, without damaged ones."""
        found = self._connection.execute("SELECT name, record, crc FROM groups").fetchall()
        return {name: record for name, record, crc in found if isinstance(record, bytes) and zlib.crc32(record) == crc}


@contextlib.contextmanager
def snapshot(path: Path) -> Iterator[Snapshot]:
    """Yield the store in a file as it is at this moment; nothing is written to it."""
    if not path.is_file():
        raise SwerveError(f"there is no store {path}; name the one that the service uses")
    # without an owner: check the log before SQLite opens it, because opening discards unreadable commits
    with contextlib.suppress(InUse), left_alone(path.resolve()):
        read_log(path.resolve()).refuse(path)
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only = ON")
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise SwerveError(f"{path} is not a store of Swerve")
        connection.execute("BEGIN")
        yield Snapshot(connection)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    finally:
        connection.close()
