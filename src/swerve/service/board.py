"""What the workers of one machine are told of the owners of all shares: a file that their steward writes.

It saves each worker a connection to the engine, and is as old as the steward's last look at the directory. Owners on machines that
are taken for dead are left out: nobody waits for them.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from swerve.store.directory import Owner


class Posted(msgspec.Struct, frozen=True):
    """The owners of shares, by their numbers."""

    owners: dict[int, Owner] = {}


def put(path: Path, posted: Posted) -> None:
    """Write it, as a whole."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(msgspec.json.encode(posted))
    part.replace(path)


class Board:
    """The file, as a worker reads it."""

    def __init__(self, path: Path) -> None:
        self.path, self.posted = path, Posted()
        self._read: tuple[int, int] | None = None

    def look(self) -> bool:
        """Read it if it has changed; return whether it has."""
        try:
            found = os.stat(self.path)
            if (mark := (found.st_ino, found.st_mtime_ns)) == self._read:
                return False
            self.posted, self._read = msgspec.json.decode(self.path.read_bytes(), type=Posted), mark
        except FileNotFoundError:
            return False
        return True
