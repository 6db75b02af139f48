"""The files of a journal: segments of blocks, each with a checksum over its bytes and the block before it.

A segment begins with a block without entries, its head. A block has the number of its first entry, the epoch of the owner who wrote
it, and a time. Blocks begin at multiples of `ALIGNED` bytes, so that intact ones are found behind a damaged one.

Tests: tests/store/test_journal.py.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from swerve.store.protocol import StoreError

#: The first bytes of a block, and the form of its head; what compresses its content: nothing, zlib.
MAGIC, FORM = b"SWJB", 1
PLAIN, DEFLATED = 0, 1
#: The head of a block without its checksum: magic, form, compression, bytes of the content as it lies there and unpacked, number of
#: its first entry, count of entries, checksum of the block before (0 for a head), epoch, time, id of the journal.
FIELDS = struct.Struct("<4sHHIIQIIQdQ")
CHECK = struct.Struct("<I")
HEAD = 64
ALIGNED = 8
#: Names of segments: the number of the first entry and the epoch, and an ending; `SEALED` ones are complete and compressed.
OPEN, SEALED, MADE = ".journal", ".journal.z", ".new"
NAME = re.compile(r"(\d{20})\.(\d{10})(\.journal|\.journal\.z)")
#: Bytes of one block at most. A head that claims more is damaged.
MOST_BYTES = 1 << 30


class Block(NamedTuple):
    """Entries that were written together: those from number `first` on, in the content."""

    first: int
    entries: int
    epoch: int
    time: float
    content: bytes

    @property
    def end(self) -> int:
        """The number of the entry after the last."""
        return self.first + self.entries


class Head(NamedTuple):
    """The head of a block in a file, and where it begins."""

    at: int
    packed: int
    size: int
    whole: int
    first: int
    entries: int
    before: int
    epoch: int
    time: float
    journal: int
    check: int

    @property
    def next(self) -> int:
        """Where the block after it begins."""
        return self.at + HEAD + -(-self.size // ALIGNED) * ALIGNED


def block_of(block: Block, before: int, journal: int, packed: bool = False) -> tuple[bytes, int]:
    """Return the bytes of a block in a file, and its checksum; `before` is that of the block before."""
    content = zlib.compress(block.content) if packed else block.content
    head = FIELDS.pack(
        MAGIC, FORM, DEFLATED if packed else PLAIN, len(content), len(block.content), block.first, block.entries, before,
        block.epoch, block.time, journal,
    )  # fmt: skip
    check = zlib.crc32(content, zlib.crc32(head))
    fill = bytes(-len(content) % ALIGNED)
    return b"".join((head, CHECK.pack(check), bytes(HEAD - len(head) - CHECK.size), content, fill)), check


def head_at(data: mmap.mmap | bytes, at: int) -> Head | None:
    """Return the head of an intact block; None if there is none."""
    if at + HEAD > len(data) or data[at : at + len(MAGIC)] != MAGIC:
        return None
    _, form, packed, size, whole, first, entries, before, epoch, time, journal = FIELDS.unpack_from(data, at)
    (check,) = CHECK.unpack_from(data, at + FIELDS.size)
    if form != FORM or size > MOST_BYTES or whole > MOST_BYTES or at + HEAD + size > len(data):
        return None
    begin = at + HEAD
    if zlib.crc32(memoryview(data)[begin : begin + size], zlib.crc32(data[at : at + FIELDS.size])) != check:
        return None
    return Head(at, packed, size, whole, first, entries, before, epoch, time, journal, check)


def content_of(data: mmap.mmap | bytes, head: Head) -> bytes:
    """Return the content of a block."""
    begin = head.at + HEAD
    content = bytes(data[begin : begin + head.size])
    return zlib.decompress(content) if head.packed == DEFLATED else content


class Segment(NamedTuple):
    """A file of a journal, by its name. `limit` is the number at which the segment after it begins; infinite for the last."""

    path: Path
    first: int
    epoch: int
    sealed: bool
    limit: float = math.inf

    def damaged(self, words: str) -> StoreError:
        """Return an error that says what is wrong with it and what to do."""
        return StoreError(
            "corrupt",
            f"{self.path}: {words}; nothing was changed: put back a copy of this file, or move it and all later segments away to "
            "go on without their entries (docs/store.md)",
        )


def segments_in(folder: Path) -> list[Segment]:
    """Return the segments in a folder, in their order. Of one that was just compressed the sealed file counts.

    An owner that was refused may have begun segments too. They are left out: an owner of a higher epoch began before them.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise StoreError("gone", f"{folder} cannot be read: {error.strerror}") from error
    found: dict[tuple[int, int], Segment] = {}
    for name in names:
        if (parts := NAME.fullmatch(name)) is not None:  # sorted: the sealed one comes last
            first, epoch = int(parts[1]), int(parts[2])
            found[epoch, first] = Segment(folder / name, first, epoch, parts[3] == SEALED)
    out: list[Segment] = []
    limit = math.inf
    for _, segment in sorted(found.items(), reverse=True):
        if segment.first < limit:
            out.append(segment._replace(limit=limit))
            limit = segment.first
    return out[::-1]


def path_of(folder: Path, first: int, epoch: int, ending: str = OPEN) -> Path:
    """Return the path of a segment."""
    return folder / f"{first:020}.{epoch:010}{ending}"


class Content:
    """A segment that is read: its blocks, the number after its last entry, and what is behind its last intact block.

    `blocks` may be read while the owner writes on: it ends at the last complete block.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        try:
            with segment.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._data: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except OSError as error:
            raise StoreError("gone", f"{segment.path} cannot be read: {error.strerror}") from error
        head = head_at(self._data, 0)
        if head is None or head.entries or (head.first, head.epoch, head.before) != (segment.first, segment.epoch, 0):
            raise segment.damaged("its head is damaged")
        self.journal, self.epoch, self.end, self.check, self.at, self.time = (
            head.journal, head.epoch, head.first, head.check, head.next, head.time
        )  # fmt: skip

    def close(self) -> None:
        """Release the file."""
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def heads(self) -> Iterator[Head]:
        """Yield the heads of the blocks, up to the last intact one. Afterwards `end` and `at` are what follows it."""
        while (head := head_at(self._data, self.at)) is not None:
            if head.journal != self.journal or head.first != self.end or head.before != self.check or head.epoch != self.epoch:
                return
            self.at, self.end, self.check, self.time = head.next, head.first + head.entries, head.check, head.time
            yield head

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Yield the blocks that have entries from number `start` on."""
        for head in self.heads():
            if head.first + head.entries > start:
                yield Block(head.first, head.entries, head.epoch, head.time, content_of(self._data, head))

    def counted(self, start: int = 0) -> Iterator[Block]:
        """Yield the blocks that have entries from number `start` on, and check that they reach the segment after it. Blocks behind
        its begin were written by an owner that was refused, or not acknowledged, and do not count."""
        limit = self.segment.limit
        for block in self.blocks(start):
            if block.end > limit:
                if block.first < limit:
                    raise self.segment.damaged(f"the next segment begins with {limit}, inside one of its blocks")
                return
            yield block
        if limit != math.inf and self.end < limit:
            raise self.segment.damaged(f"its entries end with {self.end}, and the next segment begins with {limit}")

    @property
    def rest(self) -> int:
        """Bytes behind the last intact block."""
        return len(self._data) - self.at

    def later(self) -> bool:
        """Whether an intact block of this journal lies behind the damage. A write that a crash has cut off is the last one, because
        each block is on the disk before the next is written; so this was no crash."""
        at, data = self.at + ALIGNED, self._data
        while (at := data.find(MAGIC, at)) >= 0:
            if at % ALIGNED == 0 and (head := head_at(data, at)) is not None and head.journal == self.journal:
                return True
            at += 1
        return False


def ended(segment: Segment) -> float:
    """Return the time of the last block of a segment."""
    content = Content(segment)
    try:
        for _ in content.heads():
            pass
        return content.time
    finally:
        content.close()
