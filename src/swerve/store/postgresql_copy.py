"""Copies of a store in PostgreSQL, as it is at one moment, in files: for code that reads files, such as export and verify.

Rows are copied as they are stored, damaged ones too: both engines store the same bytes, with the same checksums.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from swerve.core.errors import SwerveError
from swerve.store.blocks import Block
from swerve.store.journal import Journal
from swerve.store.postgresql_address import Address, address_of
from swerve.store.postgresql_link import Bounded, Link, one
from swerve.store.postgresql_log import blocks_from
from swerve.store.postgresql_opened import LONG_SECONDS
from swerve.store.postgresql_schema import SEAT, is_made
from swerve.store.protocol import Store, StoreError
from swerve.store.schema import connect, create
from swerve.store.sqlite import SQLiteStore
from swerve.store.statements import COLUMNS, LARGEST_INTEGER
from swerve.store.verify import Checked, Finding, Meaning, Progress, Report, verify as verify_file

#: Rows of a table that are fetched at once.
FETCHED = 500
#: Milliseconds that a statement on the copy waits for a lock, and KiB of cache of its connection, the only one.
BUSY_MS, CACHE_KIB = 1000, 8192
#: Bytes of entries in a block of a copied log.
COPIED_BYTES = 1 << 20

#: The columns of tables that are copied as they are.
COPIED = {"rows": f"id, {COLUMNS}", "groups": "name, worker, crc, record", "layouts": "id, description", "lives": "id, mark"}

#: Plays blocks into a store.
Settle = Callable[[Store, Iterator[Block]], object]


class Moment:
    """A store as it is at one moment: one read-only transaction."""

    def __init__(self, connection: Bounded, address: Address) -> None:
        self.connection, self.address = connection, address
        if not is_made(connection, address):
            raise SwerveError(f"there is no store {address.shown}; name the one that the service uses")
        self.begin, self.epoch = one(connection.execute("SELECT begin, epoch FROM seats WHERE number = %s", (SEAT,)))
        (self.end,) = one(connection.execute('SELECT "end" FROM logs WHERE seat = %s', (SEAT,)))
        self.store, self.owner = one(connection.execute("SELECT id, owner FROM store"))

    def table(self, columns: str, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table."""
        with self.connection.cursor(f"swerve_{table}", binary=True) as cursor:
            cursor.itersize = FETCHED
            yield from cursor.execute(f"SELECT {columns} FROM {table} ORDER BY 1")

    def blocks(self, start: int) -> Iterator[Block]:
        """Yield the blocks of the log that contain entry `start` or later ones."""
        at: int | None = None
        while (start if at is None else at) < self.end:
            some = blocks_from(self.connection, self.address.shown, start if at is None else at)
            for block in some:
                if at is not None and block.first != at:
                    break
                at = block.end
                if block.end > start:
                    yield block
            if not some or at != some[-1].end:
                words = f"the log lacks entries {start if at is None else at} to {self.end}; restore a backup of the database"
                raise StoreError("corrupt", f"{self.address.shown}: {words}, or go on without what only the log has: --new-log")


@contextlib.contextmanager
def moment(url: str) -> Iterator[Moment]:
    """Yield a store as it is at this moment; nothing is changed."""
    address = address_of(url)
    link = Link(address, "copy", LONG_SECONDS, idle=0.0)
    link.open()
    try:
        with link.using() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield Moment(connection, address)
    finally:
        link.close()


def copy(url: str, path: Path, settle: Settle | None = None) -> None:
    """Copy a store to the new file `path`; what its log has beyond the rows is played into it by `settle`."""
    with moment(url) as now:
        _copy(now, path)
        if settle is not None and now.begin < now.end:
            store = SQLiteStore(path, logged=False)
            try:
                settle(store, now.blocks(now.begin))
            finally:
                store.close()


def _copy(now: Moment, path: Path) -> None:
    create(path)
    file = connect(path, busy_ms=BUSY_MS, cache_kib=CACHE_KIB, new=True)
    with contextlib.closing(file):
        file.execute("PRAGMA synchronous = OFF")  # the copy is temporary: it need not survive a crash
        file.execute("BEGIN")
        for table, columns in COPIED.items():
            marks = ", ".join("?" * len(columns.split(",")))
            file.executemany(f"INSERT INTO {table}({columns}) VALUES ({marks})", now.table(columns, table))
        numbers = ((number, int.from_bytes(outcome, "little"), outcome) for number, outcome in now.table("id, outcome", "used"))
        file.executemany(
            "INSERT INTO used(id, outcome) VALUES (?, ?)",
            ((number, value if value <= LARGEST_INTEGER else outcome) for number, value, outcome in numbers),
        )
        file.executemany("UPDATE meta SET value = ? WHERE key = ?", [(now.store, "store"), (now.owner, "owner")])
        file.execute("COMMIT")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.execute("PRAGMA journal_mode = DELETE")


def copy_log(url: str, folder: Path) -> None:
    """Copy the log of a store to a new journal."""
    with moment(url) as now:
        (first,) = one(now.connection.execute("SELECT coalesce(min(first), 0) FROM blocks WHERE seat = %s", (SEAT,)))
        journal = Journal(folder, before=first)
        try:
            for block in now.blocks(first):
                journal.put(block.content, block.entries)
                if journal.waiting >= COPIED_BYTES:
                    journal.sync(block.time)
            journal.sync(block.time if now.end > first else 0.0)
        finally:
            journal.close()


def verify(url: str, path: Path, meaning: Meaning | None = None, progress: Progress | None = None) -> Report:
    """Check a store, also while a service owns it: its rows in a copy in the file `path`, and its log."""
    with moment(url) as now:
        _copy(now, path)
        log = _checked_log(now)
    report = verify_file(path, meaning, progress)
    report.server, report.journal = now.address.shown, log
    report.said = {"begin": now.begin, "end": now.end, "epoch": now.epoch}
    report.findings += [Finding("log", one.message, whole=True) for one in log.findings]
    return report


def _checked_log(now: Moment) -> Checked:
    """Read every block of the log."""
    checked = Checked(Path(now.address.schema))
    count, size, first = one(
        now.connection.execute(
            "SELECT count(*), coalesce(sum(length(content)), 0)::bigint, min(first) FROM blocks WHERE seat = %s", (SEAT,)
        )
    )
    checked.segments, checked.size, checked.first, checked.end = count, size, now.end if first is None else first, now.end
    try:
        for _ in now.blocks(min(checked.first, now.begin)):
            pass
    except StoreError as error:
        checked.findings.append(Finding("log", str(error), whole=True))
    if not checked.first <= now.begin <= now.end:
        words = f"the store needs entries {now.begin} to {now.end}, but its log has {checked.first} to {now.end}"
        checked.findings.append(Finding("log", words, whole=True))
    return checked
