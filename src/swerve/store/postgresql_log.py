"""The log of a store in PostgreSQL: entries as blocks in a table, each appended by one statement that names the epoch and the end.

The statement moves the end of the log and adds the block, if the epoch is the present one and the end is where the block begins. So
a block is there once or not at all, also when it is sent again: an attempt that the server has carried out has moved the end.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from swerve.store.blocks import Block
from swerve.store.postgresql_link import Bounded, one
from swerve.store.postgresql_opened import Opened
from swerve.store.postgresql_schema import SEAT
from swerve.store.protocol import Entries, Fenced, StoreError

#: What the checksum of a block covers besides its content: seat, first entry, number of entries, epoch, time.
COVERED = struct.Struct("<qqqqd")
#: Bytes of entries after which a block is full; the last ones may exceed it.
BLOCK_BYTES = 4 << 20
#: Blocks and bytes that one statement reads.
READ_BLOCKS, READ_BYTES = 200, 16 << 20

APPEND = """
    WITH owned AS (
        UPDATE logs SET "end" = %(end)s, last = %(time)s WHERE seat = %(seat)s AND epoch = %(epoch)s AND "end" = %(first)s
        RETURNING seat
    )
    INSERT INTO blocks(seat, first, entries, epoch, time, anew, crc, content)
    SELECT seat, %(first)s, %(entries)s, %(epoch)s, %(time)s, %(anew)s, %(crc)s, %(content)b FROM owned
"""
FOUND = """
    SELECT logs.epoch, logs."end", blocks.epoch, blocks.entries, blocks.crc
    FROM logs LEFT JOIN blocks ON blocks.seat = logs.seat AND blocks.first = %s WHERE logs.seat = %s
"""
#: Selects the block that contains entry `start`, and all later ones.
FROM_START = "seat = %s AND first >= coalesce((SELECT max(first) FROM blocks WHERE seat = %s AND first <= %s), 0)"


class Made(NamedTuple):
    """A block to send, and whether a generation begins with it."""

    block: Block
    anew: bool


def checksum(block: Block) -> int:
    """Return the checksum of a block."""
    head = COVERED.pack(SEAT, block.first, block.entries, block.epoch, block.time)
    return zlib.crc32(block.content, zlib.crc32(head))


class Logged(Opened):
    """A store with its log."""

    def __init__(self, url: str, worker: str = "0", **more: Any) -> None:
        self._putting = threading.Lock()
        self._pending: list[Entries] = []
        self._made: Made | None = None  # the block that is being sent, until it is known to be in the log
        super().__init__(url, worker, **more)

    @property
    def end(self) -> int:
        """The number after the last entry that is durable."""
        return self._end

    @property
    def last(self) -> float:
        """When the last entry of an earlier owner was written."""
        return self._last

    def _forgotten(self) -> None:
        with self._putting:
            self._pending, self._made = [], None

    # --- append ---

    def append(self, entries: Sequence[Entries], now: float) -> int:
        """Add entries to the log, and write all that wait; durable on return. See `Store`."""
        with self._putting:
            self._pending += [one for one in entries if one.number]
        with self._log.busy:
            self._log.check()
            while True:
                if self._made is None:
                    self._made = self._next(now)
                if self._made is None:
                    return self._end
                self._send(*self._made)
                self._end, self._made = self._made.block.end, None

    def _next(self, now: float) -> Made | None:
        """Return the next block of waiting entries; None if there are none."""
        with self._putting:
            taken, size = 0, 0
            for at, each in enumerate(self._pending):
                if at and (each.anew or size >= BLOCK_BYTES):
                    break
                taken, size = at + 1, size + len(each.content)
            some = self._pending[:taken]
            del self._pending[:taken]
        if not some:
            return None
        content, number = b"".join(each.content for each in some), sum(each.number for each in some)
        return Made(Block(self._end, number, self.epoch, now, content), some[0].anew)

    def _send(self, block: Block, anew: bool) -> None:
        """Write a block, unless an earlier attempt has written it."""
        crc = checksum(block)
        values = {
            "seat": SEAT, "first": block.first, "end": block.end, "entries": block.entries, "epoch": block.epoch,
            "time": block.time, "anew": anew, "crc": crc, "content": block.content,
        }  # fmt: skip
        with self._log.durably() as connection:
            if connection.execute(APPEND, values, prepare=True).rowcount != 1:
                self._sent_before(connection, block, crc)

    def _sent_before(self, connection: Bounded, block: Block, crc: int) -> None:
        """Return if a refused block is in the log already, from an attempt whose answer was lost; raise otherwise."""
        found = connection.execute(FOUND, (block.first, SEAT)).fetchone()
        if found is None:
            raise StoreError(
                "gone", f"{self.address.shown}: the tables lack the row of this store; restore a backup of the database"
            )
        epoch, end, *written = found
        if epoch != block.epoch:
            raise Fenced(self.address.shown, block.epoch, epoch)
        if end != block.end or written != [block.epoch, block.entries, crc]:
            words = f"the log ends with entry {end}, but this process has written up to {block.first}"
            raise StoreError(
                "gone", f"{self.address.shown}: {words}; restore a backup of the database, and start the service again"
            )
        # a block that can be seen may not be on the standbys yet; it is there once this later write is
        if connection.execute("UPDATE logs SET last = last WHERE seat = %s AND epoch = %s", (SEAT, block.epoch)).rowcount != 1:
            raise Fenced(self.address.shown, block.epoch, self._epoch(connection))

    # --- read ---

    def tail(self, start: int | None = None) -> Iterator[Block]:
        """Yield the blocks of the log that have entries from number `start` on; see `Store`."""
        start = self.begin if start is None else start
        with self._reader.using() as connection:
            (end,) = self._moved(connection, 'SELECT "end" FROM logs WHERE seat = %s')
        at: int | None = None
        while at is None or at < end:
            with self._reader.using() as connection:
                some = blocks_from(connection, self.address.shown, start if at is None else at)
            if not some:
                if (at or start) < end:
                    raise self._incomplete(f"its log lacks entries {start if at is None else at} to {end}")
                return
            if at is None and start and some[0].first > start:
                words = f"the log begins with entry {some[0].first}; those from {start} on are no longer there"
                raise StoreError("gone", f"{self.address.shown}: {words}")
            for block in some:
                if at is not None and block.first != at:
                    raise self._incomplete(f"its log lacks entries {at} to {block.first}")
                at = block.end
                if block.end > start:
                    yield block

    # --- keep within bounds, delete ---

    def shrink(self, before: float, begins: Callable[[Block], bool]) -> int:
        """Drop generations that ended before a time and that `begin` does not need; see `Store`."""
        gone = 0
        with self._reader.using() as connection:
            firsts = connection.execute(
                "SELECT first FROM blocks WHERE seat = %s AND anew AND first <= %s ORDER BY first", (SEAT, self.begin)
            ).fetchall()
            (oldest,) = one(connection.execute("SELECT min(first) FROM blocks WHERE seat = %s", (SEAT,)))
        for (first,), (following,) in pairwise([*([(oldest,)] if firsts and oldest < firsts[0][0] else []), *firsts]):
            with self._reader.using() as connection:
                (ended,) = one(
                    connection.execute(
                        "SELECT time FROM blocks WHERE seat = %s AND first < %s ORDER BY first DESC LIMIT 1", (SEAT, following)
                    )
                )
                (next_one,) = blocks_from(connection, self.address.shown, following, most=1)
            if ended >= before or not begins(next_one):
                break
            with self._writing() as connection:
                connection.execute("DELETE FROM blocks WHERE seat = %s AND first < %s AND first >= %s", (SEAT, following, first))
            gone += 1
        return gone

    def scrub(self, change: Callable[[bytes], bytes], now: float) -> None:
        """Replace the content of the log so far by what `change` makes of it; see `Store`."""
        self.append([], now)
        at, end = -1, self._end
        while at < end:
            with self._reader.using() as connection:
                some = blocks_from(connection, self.address.shown, max(at, 0))
            if not some:
                break
            new = [block._replace(content=change(block.content)) for block in some]
            different = [made for made, block in zip(new, some, strict=True) if made.content != block.content]
            if different:
                with self._writing() as connection:
                    for block in different:
                        connection.execute(
                            "UPDATE blocks SET content = %b, crc = %s WHERE seat = %s AND first = %s",
                            (block.content, checksum(block), SEAT, block.first),
                        )
            at = some[-1].end
        self._vacuumed("blocks")

    def _vacuumed(self, *tables: str) -> None:
        """Vacuum tables: earlier versions of rows are removed."""
        with self._long() as connection:
            for table in tables:
                connection.execute(f"VACUUM (INDEX_CLEANUP ON) {table}")


def blocks_from(connection: Bounded, shown: str, start: int, most: int = READ_BLOCKS) -> list[Block]:
    """Return the block that contains entry `start`, or else the first later one, and some that follow. Raises `StoreError` for a
    block whose checksum is wrong."""
    statement = f"""
        SELECT first, entries, epoch, time, content, crc FROM (
            SELECT *, sum(length(content)) OVER (ORDER BY first) - length(content) AS before
            FROM (SELECT * FROM blocks WHERE {FROM_START} ORDER BY first LIMIT %s) AS found
        ) AS counted WHERE before < %s ORDER BY first
    """
    out: list[Block] = []
    for *parts, crc in connection.execute(statement, (SEAT, SEAT, start, most, READ_BYTES), binary=True).fetchall():
        block = Block(*parts)
        if checksum(block) != crc:
            words = f"the block of entries {block.first} to {block.end} is damaged; restore a backup of the database"
            raise StoreError("corrupt", f"{shown}: {words}, or go on without what only the log has: --new-log")
        out.append(block)
    return out
