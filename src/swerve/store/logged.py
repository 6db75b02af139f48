"""The log of a SQLite store: a journal beside the file, and what the file knows of it.

The file names its journal by the journal's id. Every opening raises the epoch in the file first, in the journal then: so the epoch
in the file is never below that in its journal, unless the file is an older copy. The journal of another store, and that of a file
that was restored, is set aside, and a new one begun.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from swerve.store.blocks import Block, Content, Segment, ended, segments_in
from swerve.store.journal import Journal
from swerve.store.opened import UNBOUNDED, Opened
from swerve.store.protocol import Entries, Fenced, InUse, StoreError
from swerve.store.schema import translated
from swerve.store.shares import journal_path
from swerve.store.tail import ID_BYTES, owner_in, tail

log = logging.getLogger("swerve.store")

#: Segments that one call of `shrink` compresses at most.
COMPRESSED_AT_ONCE = 4

#: What the table `meta` says of the log: the epoch of the owner, the id of the journal, the entry from which it must be played, and
#: the entry that it has reached at least, `NOT_YET` before it was made.
SAID = ("epoch", "log", "begin", "end")
NOT_YET = -1


def said_in(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return what a database says of its log, see `SAID`; of an older database, that it has none."""
    marks = ", ".join("?" * len(SAID))
    said = dict(connection.execute(f"SELECT key, value FROM meta WHERE key IN ({marks})", SAID).fetchall())
    return {name: said.get(name, b"" if name == "log" else 0) for name in SAID}


def belongs(said: dict[str, Any], owner: tuple[int, int] | None) -> bool:
    """Return whether a journal with this owner, see `owner_in`, is that of a database."""
    return owner is not None and said["log"] == owner[1].to_bytes(ID_BYTES, "little") and owner[0] <= said["epoch"]


def set_aside(path: Path) -> Path:
    """Rename a file or a folder that must not be used, and return its new path."""
    number = 1
    while (kept := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    path.rename(kept)
    return kept


class Logged(Opened):
    """A SQLite file with its log. Without `logged` it has none: a copy that no service uses. `new_log` begins a new log in place of
    one that is missing or damaged."""

    def __init__(
        self,
        path: Path,
        worker: str = "0",
        *,
        new: bool = False,
        most: int = UNBOUNDED,
        logged: bool = True,
        new_log: bool = False,
    ) -> None:
        self.journal: Journal | None = None
        self.epoch, self.begin = 0, 0
        super().__init__(path, worker, new=new, most=most)
        if logged:
            try:
                self._begin_log(new_log)
            except BaseException:
                self.close()
                raise

    def _begin_log(self, new: bool = False) -> None:
        """Own the log of the file, and begin one where it has none."""
        assert self._writer is not None
        if self.journal is not None:
            self.journal.close()
        self.epoch, self.journal, folder = 0, None, journal_path(self.path)
        try:
            said = said_in(self._writer)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        owner = None if new else owner_in(folder)
        ours = belongs(said, owner)
        if not new and owner is None and said["log"] and said["end"] != NOT_YET:
            raise StoreError(
                "gone",
                f"{folder}, the log of this store, is missing; put it back, restore a backup of the store, or go on without what "
                "only the log has: --new-log",
            )
        if not ours:
            if folder.exists():
                kept = set_aside(folder)
                log.warning("%s belongs to another store, or to a later state of this one; it is kept as %s", folder, kept.name)
            said |= {"log": os.urandom(ID_BYTES), "begin": 0, "end": NOT_YET}
        epoch = max(said["epoch"], owner[0] if ours and owner is not None else 0) + 1
        with self._writing() as writer:
            told = [(epoch, "epoch"), (said["log"], "log"), (said["begin"], "begin"), (said["end"], "end")]
            writer.executemany("UPDATE meta SET value = ? WHERE key = ?", told)
        journal = int.from_bytes(said["log"], "little")
        self.journal = Journal(folder, epoch=epoch, journal=journal, at_least=max(said["end"], 0))
        self.epoch, self.begin = epoch, said["begin"]
        with self._writing() as writer:
            writer.execute("UPDATE meta SET value = ? WHERE key = 'end'", (self.journal.end,))

    @property
    def log(self) -> Journal:
        """The journal. Raises `StoreError` if the store is closed."""
        if self.journal is None:
            raise StoreError("gone", f"{self.path} is closed")
        return self.journal

    @property
    def end(self) -> int:
        """The number after the last entry that is durable."""
        return self.log.end

    @property
    def last(self) -> float:
        """When the last entry of an earlier owner was written."""
        return self.log.time

    def owned(self, connection: sqlite3.Connection) -> None:
        """Raise `Fenced` unless the file is ours; in a transaction, so that it stays so until its end."""
        if self.epoch:
            theirs = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()[0]
            if theirs != self.epoch:
                raise Fenced(self.path, self.epoch, theirs)

    def close(self) -> None:
        """Copy SQLite's log into the file and release the store; closing twice is no error."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None
        super().close()

    def reopen(self) -> bool:
        """Open the file that is at the path now; return whether it is the same store, see `Opened.reopen`, with the same log."""
        with self._writing_now, self._reading_now:
            same = super().reopen()
            assert self._writer is not None
            if same and self.journal is not None and self.epoch == said_in(self._writer)["epoch"]:
                self.journal.check(self.journal.time)
                return True
            try:
                self._begin_log()
            except InUse as error:
                raise StoreError("locked", str(error)) from error
            return False

    # --- append, read ---

    def append(self, entries: Sequence[Entries], now: float) -> int:
        """Add entries to the log, and write all that wait; durable on return, and beside the file. See `Store`."""
        journal = self.log
        for content, count, anew in entries:
            if anew:
                journal.cut()
            if count:
                journal.put(content, count)
        end = journal.sync(now)
        self._in_place()
        return end

    def tail(self, start: int | None = None) -> Iterator[Block]:
        """Yield the blocks of the log that have entries from number `start` on; see `Store`."""
        return tail(self.log.folder, self.begin if start is None else start)

    # --- keep within bounds ---

    def shrink(self, before: float, begins: Callable[[Block], bool]) -> int:
        """Compress a finished segment, and drop generations that ended before a time and that `begin` does not need; see
        `Store`."""
        journal, upto = self.log, 0
        for segment, following in pairwise(segments_in(journal.folder)):
            if following.first > self.begin or ended(segment) >= before:
                break
            if begins_with(following, begins):
                upto = following.first
        gone = journal.drop(before, upto) if upto else 0
        journal.compress(COMPRESSED_AT_ONCE, self.begin)  # what a start plays stays as it is: so it is read faster
        return gone

    def scrub(self, change: Callable[[bytes], bytes], now: float) -> None:
        """Replace the content of the log so far by what `change` makes of it; see `Store`."""
        journal = self.log
        journal.sync(now)
        journal.seal(now)
        journal.rewrite(change)


def begins_with(segment: Segment, begins: Callable[[Block], bool]) -> bool:
    """Return whether a generation begins with a segment."""
    content = Content(segment)
    try:
        first = next(content.blocks(), None)
        return first is not None and begins(first)
    finally:
        content.close()
