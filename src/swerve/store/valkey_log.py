"""The log of a store in Valkey: blocks with checksums in a sorted set, by the number of their first entry.

A block is appended by a script that compares the epoch and the number at which the log ends. So a block whose reply was lost is
sent again as it was: the script finds it there, or appends it. Numbers have no gaps, and each block has a checksum.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from swerve.store.blocks import Block, block_of, content_of, head_at
from swerve.store.protocol import Entries, StoreError
from swerve.store.valkey_link import Link
from swerve.store.valkey_owned import Owned
from swerve.store.valkey_scripts import APPEND, DROP, DROPPED_AT_ONCE, NEW_LOG, REPLACE
from swerve.store.valkey_server import rewrite_files

#: Bytes of entries in one block, unless a single `Entries` has more; and blocks that one call reads.
BLOCK_BYTES, READ_AT_ONCE = 1 << 20, 32
#: Bytes of entries, before compression, that are put together in one compressed block; such blocks that one `shrink` makes at most.
SEALED_BYTES, SEALED_AT_ONCE = 1 << 18, 64


class Flying(NamedTuple):
    """A block that is being sent: the number of its first entry, the number after its last one, its bytes, whether a generation
    begins with it, and how many of the waiting `Entries` it contains."""

    first: int
    after: int
    content: bytes
    anew: bool
    taken: int


def damaged(name: str, words: str) -> StoreError:
    """Return the error for a log that lacks entries, or has damaged ones."""
    return StoreError(
        "corrupt",
        f"the log of {name} is damaged: {words}; bring the server's files back, or go on without what only the log has: --new-log",
    )


def block_in(content: bytes, store: int, name: str) -> Block:
    """Return a block of the log of a store."""
    head = head_at(content, 0)
    if head is None or head.journal != store:
        raise damaged(name, "a block fails its checksum")
    return Block(head.first, head.entries, head.epoch, head.time, content_of(content, head))


def blocks_of(link: Link, store: int, start: int, end: int) -> Iterator[Block]:
    """Yield the blocks of a store's log that contain entries from `start` to `end`; from the first that is still there if `start`
    is 0."""
    key, name = f"{link.address.keys}log:0", str(link.address)
    before = link.call("ZRANGE", key, start, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1)
    before = before or link.call("ZRANGE", key, 0, 0)
    at = block_in(before[0], store, name).first if before else start
    if 0 < start < at:
        raise StoreError("gone", f"the log of {name} begins with entry {at}; those from {start} on are no longer there")
    while at < end:
        found = link.call("ZRANGE", key, at, "+inf", "BYSCORE", "LIMIT", 0, READ_AT_ONCE)
        for content in found:
            block = block_in(content, store, name)
            if block.first != at:
                raise damaged(name, f"entries {at} to {block.first} are missing")
            at = block.end
            if block.end > start:
                yield block
        if not found:
            raise damaged(name, f"entries {at} to {end} are missing")


class Logged(Owned):
    """A store in Valkey with its log. `new_log` begins the log anew: what only the earlier log has is lost."""

    def __init__(self, *given: Any, new_log: bool = False, **more: Any) -> None:
        self._waiting = list[Entries]()
        self._flying: Flying | None = None
        self.last = 0.0
        self._new_log = new_log
        self._tidying_now = threading.Lock()
        super().__init__(*given, **more)

    def _taken(self) -> None:
        """Forget entries that wait from before, and find the end of the log."""
        self._waiting, self._flying = [], None
        if self._new_log:
            self._write(self._writer, NEW_LOG, self.epoch)
            self.begin, self._new_log = self._end, False
        block = self._last_block()
        if block is None and self.begin < self._end:
            raise self._damaged(f"entries {self.begin} to {self._end} are missing")
        if block is not None and block.end != self._end:
            raise self._damaged(f"its last block ends with entry {block.end}, and the log with {self._end}")
        self.last = 0.0 if block is None else block.time

    def _damaged(self, words: str) -> StoreError:
        return damaged(self.name, words)

    @property
    def end(self) -> int:
        """The number after the last entry that is durable."""
        return self._end

    # --- append ---

    def append(self, entries: Sequence[Entries], now: float) -> int:
        """Add entries to the log, and write all that wait; durable on return. See `Store`."""
        with self._appending_now:
            self._waiting += [one for one in entries if one.number or one.anew]
            while self._flying is not None or any(one.number for one in self._waiting):
                self._flying = flying = self._flying or self._next(now)
                self._send(flying)
                del self._waiting[: flying.taken]
                self._flying = None
            return self._end

    def _next(self, now: float) -> Flying:
        """Make a block of the first waiting entries. A generation begins a block."""
        taken, size, count = 0, 0, 0
        anew = self._waiting[0].anew
        for one in self._waiting:
            if taken and ((one.anew and count) or size + len(one.content) > BLOCK_BYTES):
                break
            taken, size, count, anew = taken + 1, size + len(one.content), count + one.number, anew or one.anew
        block = Block(self._end, count, self.epoch, now, b"".join(one.content for one in self._waiting[:taken]))
        return Flying(block.first, block.end, block_of(block, 0, self.store)[0], anew, taken)

    def _send(self, flying: Flying) -> None:
        found = self._write(self._log, APPEND, flying.first, flying.after, flying.content, int(flying.anew))
        if not found[0]:
            raise StoreError(
                "gone", f"the log of {self.name} ends with entry {int(found[1])}, and {flying.first} were acknowledged"
            )
        self._end = flying.after

    # --- read ---

    def _block(self, content: bytes) -> Block:
        return block_in(content, self.store, self.name)

    def _last_block(self) -> Block | None:
        found = self._reader.call("ZRANGE", self._key("log:0"), -1, -1)
        return self._block(found[0]) if found else None

    def _key(self, name: str) -> str:
        return f"{self.address.keys}{name}"

    def tail(self, start: int | None = None) -> Iterator[Block]:
        """Yield the blocks of the log that have entries from number `start` on; see `Store`."""
        return blocks_of(self._reader, self.store, self.begin if start is None else start, self._end)

    # --- keep within bounds, replace ---

    def shrink(self, before: float, begins: Callable[[Block], bool]) -> int:
        """Compress blocks that no start needs, and drop generations that ended before a time; see `Store`."""
        with self._tidying_now:
            return self._shrink(before, begins)

    def _shrink(self, before: float, begins: Callable[[Block], bool]) -> int:
        starts = [int(one) for one in self._reader.call("ZRANGE", self._key("begins:0"), 0, -1)]
        first = self._reader.call("ZRANGE", self._key("log:0"), 0, 0)
        if first and (at := self._block(first[0]).first) not in starts:
            starts.insert(0, at)
        upto = gone = 0
        for passed, (_, following) in enumerate(pairwise(starts), 1):
            some = self._reader.call("ZRANGE", self._key("log:0"), following, "-inf", "BYSCORE", "REV", "LIMIT", 0, 2)
            if following > self.begin or len(some) < 2 or self._block(some[1]).time >= before:
                break
            if begins(self._block(some[0])):
                upto, gone = following, passed
        left = upto > 0
        while left:
            left = self._written(DROP, upto) == DROPPED_AT_ONCE
        self._seal(starts)
        return gone

    def _seal(self, starts: list[int]) -> None:
        """Put blocks that no start needs together into compressed ones, of one generation each."""
        said = self._reader.call("HGET", self._key("meta"), "sealed")
        at, made, cuts = int(said or 0), 0, set(starts)
        group: list[Block] = []
        for block in self._all(at):
            size = sum(len(one.content) for one in group)
            if group and (block.first in cuts or block.end > self.begin or size + len(block.content) > SEALED_BYTES):
                self._replace(_together(group), seal=True)
                made, group = made + 1, []
            if block.end > self.begin or made == SEALED_AT_ONCE:
                return
            group.append(block)

    def _all(self, start: int) -> Iterator[Block]:
        """Yield the blocks from a number on, or from the first that is still there."""
        first = self._reader.call("ZRANGE", self._key("log:0"), 0, 0)
        if first:
            yield from self.tail(max(start, self._block(first[0]).first))

    def _replace(self, block: Block, *, seal: bool = False) -> None:
        content, _ = block_of(block, 0, self.store, packed=True)
        if not self._written(REPLACE, block.first, block.end, content, block.end if seal else ""):
            raise self._damaged(f"no block ends with entry {block.end}")

    def scrub(self, change: Callable[[bytes], bytes], now: float) -> None:
        """Replace the content of the log so far by what `change` makes of it; see `Store`."""
        self.append([], now)
        with self._tidying_now:
            for block in self._all(0):
                content = change(block.content)
                if content != block.content:
                    self._replace(block._replace(content=content))
        rewrite_files(self._writer)


def _together(blocks: Sequence[Block]) -> Block:
    """Return consecutive blocks as one."""
    first, last = blocks[0], blocks[-1]
    return Block(first.first, last.end - first.first, first.epoch, last.time, b"".join(one.content for one in blocks))
