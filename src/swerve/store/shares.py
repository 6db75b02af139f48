"""Shares: the files of a store that several workers serve, each a whole store of its own.

The queries of a store hash into partitions (`PARTITIONS`), and worker i of N has those whose number modulo N is i, in share i.
Share 0 is the file that the store's address names; the others lie beside it. Every file says in its table `meta` which share it
is, and of how many: what share 0 says holds, so that one transaction there changes it. A row whose partition belongs to another
share is a leftover of such a change: no worker reads it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from swerve.core.errors import SwerveError

#: Partitions of a store, into which the keys of queries hash.
PARTITIONS = 64
#: The end of the name of a database's journal.
JOURNAL = ".journal"
#: The end of the name of every share but the first.
NAMED = re.compile(r"(?P<number>[1-9][0-9]*)-of-(?P<of>[1-9][0-9]*)")
#: The most shares: one partition each.
MOST_SHARES = PARTITIONS


class Share(NamedTuple):
    """One share of a store: its number, from 0, and how many there are."""

    number: int = 0
    of: int = 1

    def has(self, key: bytes) -> bool:
        """Return whether the query of this key belongs to the share."""
        return partition_of(key) % self.of == self.number

    def __str__(self) -> str:
        return f"share {self.number} of {self.of}"


class Division(NamedTuple):
    """The state of a change of the number of shares, which share 0 has: the count whose files are being filled (`becoming`), the
    count whose files are no longer needed (`retiring`), 0 for none, and whether there may be leftovers in share 0."""

    becoming: int = 0
    retiring: int = 0
    leftovers: int = 0

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Division:
        """Read it from the table `meta`."""
        return cls(*(int(meta.get(name, 0)) for name in cls._fields))


#: The only share of a store of one worker; no change in progress.
WHOLE, DONE = Share(), Division()


def partition_of(key: bytes) -> int:
    """Return the partition of a query's key: keys are hashes, so that any byte of them is as good as another.

    >>> partition_of(bytes([200] + 15 * [0])), Share(0, 4).has(bytes([200] + 15 * [0])), Share(1, 4).has(bytes([200] + 15 * [0]))
    (8, True, False)
    """
    return key[0] % PARTITIONS


def share_path(database: Path, share: Share) -> Path:
    """Return the file of a share of the store in `database`.

    >>> [share_path(Path("state/swerve.db"), Share(number, 3)).as_posix() for number in range(3)]
    ['state/swerve.db', 'state/swerve.db.1-of-3', 'state/swerve.db.2-of-3']
    """
    return database if share.number == 0 else database.with_name(f"{database.name}.{share.number}-of-{share.of}")


def journal_path(database: Path) -> Path:
    """Return the folder of a database's journal.

    >>> journal_path(Path("state/swerve.db")).as_posix()
    'state/swerve.db.journal'
    """
    return database.with_name(f"{database.name}{JOURNAL}")


def others_of(database: Path) -> dict[Share, Path]:
    """Return all files beside a store that are named as shares of it, of whatever count."""
    found = {}
    for path in database.parent.glob(f"{database.name}.*"):
        if (match := NAMED.fullmatch(path.name.removeprefix(f"{database.name}."))) is not None:
            found[Share(int(match["number"]), int(match["of"]))] = path
    return dict(sorted(found.items()))


def shares_of(database: Path) -> list[Path]:
    """Return the files of a store without opening it: all its shares if it is the first of several, else itself. Only the database
    file is read, not SQLite's log: a division ends by closing the file."""
    share = WHOLE
    if database.is_file():
        try:
            with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                meta = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('share', 'shares')").fetchall())
            share = Share(int(meta.get("share", 0)), int(meta.get("shares", 1)))
        except (sqlite3.Error, TypeError, ValueError):
            pass  # damaged: opening it says so
    if share.number:
        return [database]
    return [share_path(database, Share(number, share.of)) for number in range(share.of)]


def share_in(journal: Path, of: int) -> Share:
    """Return the share of a journal, one of so many, by the name of its folder.

    >>> str(share_in(Path("state/swerve.db.1-of-3.journal"), 3)), str(share_in(Path("state/swerve.db.journal"), 3))
    ('share 1 of 3', 'share 0 of 3')
    """
    match = NAMED.fullmatch(journal.name.removesuffix(JOURNAL).rpartition(".")[2])
    return Share(int(match["number"]) if match is not None else 0, of)


def journals_of(folder: Path) -> list[Path]:
    """Return the folders of the journals of all shares of a store, given that of its share 0; of any other journal, itself.

    How many shares there are is known from the database beside the journal; of journals that were copied without it, from the
    names of the others beside it.
    """
    name = folder.name.removesuffix(JOURNAL)
    if name in ("", folder.name) or NAMED.fullmatch(name.rpartition(".")[2]) is not None:
        return [folder]
    database = folder.with_name(name)
    count = len(shares_of(database)) if database.is_file() else _named_beside(database)
    found = [journal_path(share_path(database, Share(number, count))) for number in range(count)]
    for number, path in enumerate(found):
        if number and not path.is_dir():
            raise SwerveError(f"{path} is missing, the log of {Share(number, count)} of {database}; put it back beside {folder}")
    return found


def _named_beside(database: Path) -> int:
    """Return how many shares a store has, by the names of the journals beside that of its share 0."""
    beside = (path.name.removesuffix(JOURNAL) for path in database.parent.glob(f"{database.name}.*{JOURNAL}"))
    matches = (NAMED.fullmatch(name.removeprefix(f"{database.name}.")) for name in beside)
    counts = {int(match["of"]) for match in matches if match is not None}
    if len(counts) > 1:
        told = " and of ".join(map(str, sorted(counts)))
        raise SwerveError(f"beside {journal_path(database)} lie logs of {told} shares; a folder has those of one store at one time")
    return counts.pop() if counts else 1
