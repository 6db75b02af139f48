"""Reading a journal, which another process may own.

Tests: tests/store/test_journal.py.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.store.blocks import SEALED, Block, Content, Segment, path_of, segments_in
from swerve.store.protocol import StoreError

#: The file of a folder besides its segments.
OWNER = "owner"
#: The content of `OWNER`: epoch, id of the journal, checksum of both.
OWNED = struct.Struct("<QQI")
ID_BYTES = 8


def owner_in(folder: Path) -> tuple[int, int] | None:
    """Return the epoch of a journal's last owner and the journal's id; None if there is no journal."""
    try:
        found = (folder / OWNER).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError("gone", f"{folder / OWNER} cannot be read: {error.strerror}") from error
    if len(found) != OWNED.size or OWNED.unpack(found)[2] != zlib.crc32(found[: -ID_BYTES // 2]):
        raise StoreError("corrupt", f"{folder / OWNER} is damaged: put back a copy of this file (docs/store.md)")
    epoch, journal, _ = OWNED.unpack(found)
    return epoch, journal


def tail(folder: Path, start: int = 0) -> Iterator[Block]:
    """Yield the blocks of a journal that have entries from number `start` on, in order, up to the last complete one; also while a
    process owns it. 0 is the first entry that is there. Raises `StoreError` if a segment is missing or damaged."""
    if owner_in(folder) is None:
        raise SwerveError(f"{folder} is no journal; name the folder of one")
    segments = segments_in(folder)
    begin = max((index for index, each in enumerate(segments) if each.first <= start), default=0)
    if segments and 0 < start < segments[begin].first:
        raise StoreError("gone", f"{folder} begins with entry {segments[begin].first}; those from {start} on are no longer there")
    for index in range(begin, len(segments)):
        segment = segments[index]
        content = _opened(segment)
        try:
            yield from content.counted(start)
            if segment.limit == math.inf and content.rest and content.later():
                raise segment.damaged("a block is damaged, and intact ones follow")
        finally:
            content.close()


def rest_of(folder: Path) -> int:
    """Return the bytes of an unfinished write at the end of a journal."""
    content = Content(segments_in(folder)[-1])
    try:
        for _ in content.heads():
            pass
        return content.rest
    finally:
        content.close()


def _opened(segment: Segment) -> Content:
    """Open a segment, which its owner may just have compressed."""
    if not segment.path.exists():
        sealed = path_of(segment.path.parent, segment.first, segment.epoch, SEALED)
        segment = segment._replace(path=sealed, sealed=True)
    return Content(segment)
