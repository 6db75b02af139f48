"""Copies of a store in Valkey in files, for code that reads files, such as export and verify.

The server has no snapshots for readers, so a service may change rows while they are copied. Playing the log makes the copy
consistent: from the `begin` that was read before the copy up to the end that is read after it. Rows that changed meanwhile are
whole in that part of the log, and rows are never ahead of it. Rows are copied as they are stored, damaged ones too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from swerve.core.errors import SwerveError
from swerve.store.blocks import Block
from swerve.store.journal import Journal
from swerve.store.protocol import Store, StoreError
from swerve.store.schema import connect, create
from swerve.store.sqlite import SQLiteStore
from swerve.store.statements import COLUMNS, use
from swerve.store.valkey_link import Link
from swerve.store.valkey_log import blocks_of
from swerve.store.valkey_owned import WRITE_SECONDS, said_in
from swerve.store.valkey_rows import BUCKET_BITS, CHECK, columns
from swerve.store.valkey_scripts import PAGE
from swerve.store.valkey_urls import Address, address_of
from swerve.store.verify import Checked, Finding, Meaning, Progress, Report, verify as verify_file

#: Rows and buckets of decisions that are fetched at once.
FETCHED = 500
#: Attempts to copy a store whose service drops the log that the copy needs, which it does at most once an hour.
ATTEMPTS = 3
#: Milliseconds that a statement on the copy waits for a lock, and KiB of cache of its connection, the only one.
BUSY_MS, CACHE_KIB = 1000, 8192
#: Bytes of entries in a block of a copied log.
COPIED_BYTES = 1 << 20

#: Plays blocks into a store.
Settle = Callable[[Store, Iterator[Block]], object]


class Copying:
    """Reads a store without owning it."""

    def __init__(self, address: Address) -> None:
        self.link = Link(address, str(address), WRITE_SECONDS)
        self.name, self.keys = str(address), address.keys
        self.said = said_in(self.link)
        if not self.said:
            raise SwerveError(f"there is no store {self.name}; name the one that the service uses")
        self.store, self.begin = int(self.said["store"]), int(self.said["begin"])

    @property
    def end(self) -> int:
        """The number after the last entry of the log now."""
        return int(self.link.call("HGET", f"{self.keys}meta", "end"))

    def blocks(self, start: int, end: int) -> Iterator[Block]:
        """Yield the blocks of the log that contain entry `start` or later ones."""
        return blocks_of(self.link, self.store, start, end)

    def first(self, end: int) -> int:
        """Return the number of the first entry that the log still has."""
        return next((block.first for block in self.blocks(0, end)), end)

    def table(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield fields and values of a hash."""
        found = iter(self.link.call("HGETALL", f"{self.keys}{name}"))
        return zip(found, found, strict=True)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield ids and rows, as they are stored."""
        after = 0
        while found := self.link.run(PAGE, after, FETCHED):
            after = int(found[-3])
            for number, key, value in zip(found[::3], found[1::3], found[2::3], strict=True):
                if value is not None:
                    yield int(number), *columns(key, value)

    def used(self) -> Iterator[tuple[int, int]]:
        """Yield the ids of used decisions, and their outcomes."""
        after = "-inf"
        while buckets := self.link.call("ZRANGE", f"{self.keys}used", after, "+inf", "BYSCORE", "LIMIT", 0, FETCHED):
            replies = self.link.calls([["HGETALL", f"{self.keys}used:{int(bucket)}"] for bucket in buckets])
            for bucket, reply in zip(buckets, replies, strict=True):
                found = iter(reply)
                for low, outcome in zip(found, found, strict=True):
                    yield int(bucket) << BUCKET_BITS | int(low), int(outcome)
            after = f"({int(buckets[-1])}"


@contextlib.contextmanager
def copying(url: str) -> Iterator[Copying]:
    """Read a store; nothing is changed."""
    found = Copying(address_of(url))
    try:
        yield found
    finally:
        found.link.close()


def copy(url: str, path: Path, settle: Settle | None = None) -> None:
    """Copy a store to the new file `path`; what its log has beyond the rows is played into it by `settle`."""
    for attempt in range(1, ATTEMPTS + 1):
        with copying(url) as source:
            _copy(source, path)
            end = source.end
            if settle is None or source.begin == end:
                return
            store = SQLiteStore(path, logged=False)
            try:
                settle(store, source.blocks(source.begin, end))
                return
            except StoreError as error:
                if error.kind != "gone" or attempt == ATTEMPTS:
                    raise
            finally:
                store.close()
        path.unlink()


def _copy(source: Copying, path: Path) -> None:
    create(path)
    file = connect(path, busy_ms=BUSY_MS, cache_kib=CACHE_KIB, new=True)
    with contextlib.closing(file):
        file.execute("PRAGMA synchronous = OFF")  # the copy is temporary: it need not survive a crash
        file.execute("BEGIN")
        marks = ", ".join("?" * len(COLUMNS.split(",")))
        file.executemany(f"INSERT INTO rows(id, {COLUMNS}) VALUES (?, {marks})", source.rows())
        for field, value in source.table("groups"):
            name, _, worker = field.decode("utf-8", "replace").partition("\0")
            crc = CHECK.unpack_from(value)[0] if len(value) >= CHECK.size else 0
            file.execute(
                "INSERT INTO groups(name, worker, crc, record) VALUES (?, ?, ?, ?)", (name, worker, crc, value[CHECK.size :])
            )
        layouts = ((int(number), text.decode()) for text, number in source.table("layouts"))
        file.executemany("INSERT INTO layouts(id, description) VALUES (?, ?)", layouts)
        lives = ((int(number), int(mark)) for mark, number in source.table("lives"))
        file.executemany("INSERT INTO lives(id, mark) VALUES (?, ?)", lives)
        use(file, list(source.used()))
        owner = source.said.get("owner", "").encode("latin-1")
        file.executemany("UPDATE meta SET value = ? WHERE key = ?", [(source.store, "store"), (owner, "owner")])
        file.execute("COMMIT")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.execute("PRAGMA journal_mode = DELETE")


def copy_log(url: str, folder: Path) -> None:
    """Copy the log of a store to a new journal."""
    with copying(url) as source:
        end, time = source.end, 0.0
        first = source.first(end)
        journal = Journal(folder, before=first)
        try:
            for block in source.blocks(first, end):
                journal.put(block.content, block.entries)
                time = block.time
                if journal.waiting >= COPIED_BYTES:
                    journal.sync(time)
            journal.sync(time)
        finally:
            journal.close()


def verify(url: str, path: Path, meaning: Meaning | None = None, progress: Progress | None = None) -> Report:
    """Check a store, also while a service owns it: its rows in a copy in the file `path`, and its log."""
    with copying(url) as source:
        _copy(source, path)
        said = said_in(source.link)
        log = _checked_log(source, int(said["begin"]), int(said["end"]))
    report = verify_file(path, meaning, progress)
    report.server, report.journal = source.name, log
    report.said = {name: int(said[name]) for name in ("begin", "end", "epoch")}
    report.findings += [Finding("log", one.message, whole=True) for one in log.findings]
    return report


def _checked_log(source: Copying, begin: int, end: int) -> Checked:
    """Read every block of the log."""
    checked = Checked(Path(source.link.address.prefix), end=end, first=end)
    checked.segments = int(source.link.call("ZCARD", f"{source.keys}log:0"))
    checked.size = int(source.said.get("logged", 0))
    try:
        checked.first = source.first(end)
        for _ in source.blocks(min(checked.first, begin), end):
            pass
    except StoreError as error:
        checked.findings.append(Finding("log", str(error), whole=True))
    if not checked.first <= begin <= end:
        words = f"the store needs entries {begin} to {end}, but its log has {checked.first} to {end}"
        checked.findings.append(Finding("log", words, whole=True))
    return checked
