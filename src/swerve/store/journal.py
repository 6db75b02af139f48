"""The journal: entries in the order in which they happened, appended and synced in groups, in segment files of one folder.

One process owns a journal. Its *epoch* is one more than that of the owner before, and is in every block that it writes. An owner
that was stopped and comes back is refused: an append counts only if the epoch in the folder is still the owner's after the block is
on the disk, and a new owner raises the epoch before it looks where the journal ends.

Tests: tests/store/test_journal.py.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from swerve.store.blocks import MADE, OPEN, SEALED, Block, Content, Segment, block_of, ended, path_of, segments_in
from swerve.store.lock import OWNER_ONLY, Lock, lock_path, no_folder
from swerve.store.protocol import Extent, Fenced as Fenced, StoreError
from swerve.store.tail import ID_BYTES, OWNER, owner_in, tail as tail

log = logging.getLogger("swerve.store")

#: Bytes of a segment: when one has more, the next one is begun.
SEGMENT_BYTES = 64 << 20
#: Bytes of entries, unpacked, in a block of a sealed segment: large ones are compressed better.
SEALED_BYTES = 1 << 18


class Journal:
    """A journal that this process owns, from construction until `close`; the folder is made if it does not exist.

    Every method may be called by any thread. `at_least` is the number that the journal must reach: a caller who knows of
    entries that are not there has lost them. `before` is the number of the first entry of a new journal, `journal` its id, at
    random without one. The epoch is `epoch` at least.
    """

    def __init__(
        self, folder: Path, *, segment: int = SEGMENT_BYTES, at_least: int = 0, before: int = 0, epoch: int = 0, journal: int = 0
    ) -> None:
        self.folder, self.segment_bytes = folder.absolute(), segment
        self._putting, self._syncing, self._tidying = threading.Lock(), threading.Lock(), threading.Lock()
        self._pending: list[tuple[bytes, int]] = []  # content, and how many entries it has
        self._cuts: list[int] = []  # before which of those another segment begins
        self._file, self._fenced = -1, 0
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError:
            raise StoreError("gone", no_folder(self.folder.parent)) from None
        except OSError as error:
            raise StoreError("io", f"{self.folder} cannot be made: {error.strerror}") from error
        self._lock = Lock(lock_path(self.folder))
        try:
            self.cut_off, self.time = 0, 0.0  # bytes of an unfinished write that were cut off; when its last block was written
            found = owner_in(self.folder)
            segments = segments_in(self.folder)
            if found is None and segments:
                raise StoreError("corrupt", f"{self.folder / OWNER} is missing: put back a copy of this file (docs/store.md)")
            last, self.id = found or (0, journal or int.from_bytes(os.urandom(ID_BYTES), "little"))
            self.epoch = max(last + 1, epoch)
            self._own()
            self.end = self._recover(segments, before)
            if self.end < at_least:
                raise StoreError(
                    "corrupt",
                    f"{self.folder} ends with entry {self.end}, but had reached {at_least}: put back its last segments "
                    "(docs/store.md)",
                )
            self._begin(self.time)
        except BaseException:
            self._lock.release()
            raise

    # ------------------------------------------------------------------ the owner
    def _own(self) -> None:
        """Write our epoch; durable on return."""
        content = struct.pack("<QQ", self.epoch, self.id)
        self._made(self.folder / OWNER, content + struct.pack("<I", zlib.crc32(content)))

    def _owned(self) -> None:
        """Raise unless the journal is ours: the epoch in the folder is ours, and the folder is where it was."""
        try:
            found = owner_in(self.folder)
            same = found is not None and os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except OSError:
            found, same = None, False
        if found is None or found[1] != self.id or (found[0] == self.epoch and not same):
            raise StoreError("gone", f"{self.folder} was moved, removed or replaced while it was open; put it back to use it again")
        if found[0] != self.epoch:
            self._fenced = found[0]
            raise Fenced(self.folder, self.epoch, found[0])

    # ------------------------------------------------------------------ open
    def _recover(self, segments: list[Segment], before: int) -> int:
        """Cut off the unfinished write that a crash has left; return the number after the last entry."""
        for path in self.folder.glob(f"*{MADE}"):  # a file that was not finished
            path.unlink()
        for each in segments:
            if each.sealed:
                path_of(self.folder, each.first, each.epoch).unlink(missing_ok=True)
        if not segments:
            return before
        last = segments[-1]
        content = Content(last)
        try:
            for _ in content.heads():
                pass
            if content.journal != self.id:
                raise last.damaged("it belongs to another journal")
            rest, at, end = content.rest, content.at, content.end
            self.time = max(content.time, *(ended(each) for each in segments[-2:-1]), 0.0)
            if rest and (last.sealed or content.later()):
                raise last.damaged("a block is damaged, and it is not an unfinished write")
        finally:
            content.close()
        if rest:
            log.warning("%s: an unfinished write of %d bytes was cut off", last.path, rest)
            self.cut_off = rest
            file = os.open(last.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(file, at)
                os.fsync(file)
            finally:
                os.close(file)
        return end

    def _begin(self, now: float) -> None:
        """Begin a segment at the end of the journal; durable on return."""
        path = path_of(self.folder, self.end, self.epoch)
        head, check = block_of(Block(self.end, 0, self.epoch, now, b""), 0, self.id)
        self._made(path, head)
        if self._file >= 0:
            os.close(self._file)
        self._path, self._at, self._check, self._first = path, len(head), check, self.end
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def _made(self, path: Path, content: bytes) -> None:
        """Write a file whole: it is there with this content, or it is not."""
        made = path.with_name(path.name + MADE)
        try:
            file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY)
            try:
                _write(file, content, 0)
                os.fsync(file)
            finally:
                os.close(file)
            made.rename(path)
            self._sync_folder()
        except OSError as error:
            raise _translated(error, path) from error

    def _sync_folder(self) -> None:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    # ------------------------------------------------------------------ append
    def put(self, content: bytes, count: int = 1) -> int:
        """Add entries, which the next `sync` writes; return the number after the last: `sync` has written them when it returns that
        number or a larger one."""
        with self._putting:
            self._pending.append((content, count))
            return self.end + sum(count for _, count in self._pending)

    def cut(self) -> None:
        """Let what is put from now on begin another segment."""
        with self._putting:
            self._cuts.append(len(self._pending))

    @property
    def waiting(self) -> int:
        """Bytes that wait for a `sync`."""
        with self._putting:
            return sum(len(content) for content, _ in self._pending)

    def sync(self, now: float) -> int:
        """Write what was put, as one block, or one more for each `cut`; durable on return. Return the number after the last entry
        that is durable.

        After an error everything stays pending, for the next call; after `Fenced` no later call can succeed.
        """
        with self._syncing:
            while True:
                with self._putting:
                    cut = self._cuts[0] if self._cuts else len(self._pending)
                    taken, more = self._pending[:cut], bool(self._cuts)
                if taken:
                    self._write(taken, now)
                if not more:
                    return self.end
                if self.end > self._first:
                    self._begin(now)
                with self._putting:
                    del self._cuts[0]

    def _write(self, taken: list[tuple[bytes, int]], now: float) -> None:
        """Write the first of what is pending as one block."""
        count = sum(count for _, count in taken)
        self._append(Block(self.end, count, self.epoch, now, b"".join(content for content, _ in taken)))
        with self._putting:
            del self._pending[: len(taken)]
            self._cuts = [cut - len(taken) for cut in self._cuts]
            self.end += count
        if self._at >= self.segment_bytes:
            self._begin(now)

    def _append(self, block: Block) -> None:
        if self._file < 0:
            raise StoreError("gone", f"{self.folder} is closed")
        if self._fenced:
            raise Fenced(self.folder, self.epoch, self._fenced)
        if self._at < 0:  # after a failed write nothing is known of what lies behind the last block: readers ignore it
            self._begin(block.time)
        content, check = block_of(block, self._check, self.id)
        at, self._at = self._at, -1
        try:
            _write(self._file, content, at)
            os.fdatasync(self._file)
        except OSError as error:
            raise _translated(error, self._path) from error
        self._owned()
        self._at, self._check = at + len(content), check

    # ------------------------------------------------------------------ read, compress, drop
    def tail(self, start: int = 0) -> Iterator[Block]:
        """Yield the blocks that have entries from number `start` on, see `tail`."""
        return tail(self.folder, start)

    def extent(self) -> Extent:
        """Return what the journal holds."""
        segments = segments_in(self.folder)
        return Extent(segments[0].first, self.end, len(segments), sum(each.path.stat().st_size for each in segments))

    def check(self, now: float) -> None:
        """Raise `StoreError` if the journal cannot be written now; after a failed write, begin another segment."""
        with self._syncing:
            self._owned()
            if self._at < 0:
                self._begin(now)

    def seal(self, now: float) -> None:
        """Begin another segment, unless the last one is empty; those before it can be compressed, rewritten and dropped."""
        with self._syncing:
            if self.end > self._first:
                self._begin(now)

    def compress(self, most: int = 1, upto: float = math.inf) -> int:
        """Compress the oldest finished segments that are not yet, at most so many, whose entries are all below a number; return how
        many."""
        with self._tidying:
            finished = [each for each in segments_in(self.folder)[:-1] if not each.sealed and each.limit <= upto]
            return self._rewrite(None, finished[:most])

    def rewrite(self, change: Callable[[bytes], bytes]) -> int:
        """Replace the content of blocks in finished segments by what `change` makes of it, which must have as many entries; return
        how many segments were written anew. On return nothing of the earlier content is left in the journal's files."""
        with self._tidying:
            return self._rewrite(change, segments_in(self.folder)[:-1])

    def _rewrite(self, change: Callable[[bytes], bytes] | None, segments: list[Segment]) -> int:
        done = 0
        for segment in segments:
            with self._syncing:  # which may begin another segment
                self._owned()
            written, different = self._again(segment, change)
            if change is None or different:
                self._made(path_of(self.folder, segment.first, segment.epoch, SEALED), written)
                path_of(self.folder, segment.first, segment.epoch).unlink(missing_ok=True)
                self._sync_folder()
                done += 1
        return done

    def _again(self, segment: Segment, change: Callable[[bytes], bytes] | None) -> tuple[bytes, bool]:
        """Return a segment as it is compressed, and whether its content differs."""
        content, out, group, size, different = Content(segment), list[bytes](), list[Block](), 0, False
        head, check = block_of(Block(segment.first, 0, content.epoch, content.time, b""), 0, content.journal)
        out.append(head)

        def flush() -> None:
            nonlocal check, size
            if group:
                count, joined = sum(each.entries for each in group), b"".join(each.content for each in group)
                made = Block(group[0].first, count, group[0].epoch, group[-1].time, joined)
                found, check = block_of(made, check, content.journal, packed=True)
                out.append(found)
                group.clear()
                size = 0

        try:
            for block in content.counted():
                new = block.content if change is None else change(block.content)
                different |= new != block.content
                group.append(block._replace(content=new))
                size += len(new)
                if size >= SEALED_BYTES:
                    flush()
            flush()
        finally:
            content.close()
        return b"".join(out), different

    def drop(self, before: float, upto: int) -> int:
        """Remove the oldest finished segments whose last block is older than a time, and whose entries are all below a number;
        return how many."""
        with self._tidying:
            return self._drop(before, upto)

    def _drop(self, before: float, upto: int) -> int:
        old, segments = list[Segment](), segments_in(self.folder)
        for segment in segments[:-1]:
            if segment.limit > upto or ended(segment) >= before:
                break
            old.append(segment)
        if old:
            kept = {segment.path for segment in segments}
            for path in self.folder.glob(f"*{OPEN}"):  # begun by owners that wrote nothing: they would come to light
                if path not in kept and path.name < segments[len(old)].path.name:
                    path.unlink()
            for segment in old:
                segment.path.unlink()
            self._sync_folder()
        return len(old)

    def close(self) -> None:
        """Release the journal; what was put and not synced is lost. Closing twice is no error."""
        with self._syncing:
            if self._file >= 0:
                with contextlib.suppress(OSError):
                    os.close(self._file)
                self._file = -1
            self._lock.release()


def _write(file: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done


def _translated(error: OSError, path: Path) -> StoreError:
    if error.errno == errno.ENOENT:
        return StoreError("gone", f"{path} was moved or removed while it was open; put it back to use it again")
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    way_out = "make room on its disk" if full else "check its disk"
    return StoreError("full" if full else "io", f"{path} cannot be written: {error.strerror}; {way_out}")
