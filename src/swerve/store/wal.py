"""Reads SQLite's write-ahead log: which commits SQLite will recover from it, and which it would silently lose.

SQLite reads a log up to the first frame with a wrong checksum and treats the rest as an unfinished write. A single bad byte in
the middle therefore loses every later commit without notice. The checksum runs through the whole log, and each frame stores the sum
up to itself: frame i can be checked against the sum stored in frame i - 1, so commits behind a damaged frame are recognised.

With `synchronous = FULL` a commit is on disk before the next one begins, so a crash can tear only the last transaction. The index
of the log (`-shm`) is written after a commit is on disk: if the index belongs to this log, every commit that it names was on disk.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.store.protocol import StoreError

MAGIC = 0x377F0682  # first word of a log; with the last bit set, checksums are over big-endian words
LOG_VERSION = 3007000  # of the log's format, the only one that SQLite has
LOG_HEADER, FRAME_HEAD = struct.Struct(">8I"), struct.Struct(">6I")
SUMMED = 6  # words of the header that its checksum covers
SALTS = slice(16, 24)  # bytes of the header with the two salts, which name the log
PAGE_SIZES = {1 << power for power in range(9, 17)}  # page sizes that SQLite allows: 512 to 65536 bytes
FRAMES_AT_ONCE = 128  # frames summed together: they stay in the processor's cache
INDEX_HEADER = struct.Struct("=III BBH II 2I 8s 2I")  # header of the `-shm` file, in native byte order; stored twice
INDEX_SUMS = 8  # bytes of the two checksums at the end of that header
INITIALISED = 12  # offset in the header of the byte that is 1 once the index is in use
COPIED = struct.Struct("=I")  # follows the two headers: frames that were copied into the database
PAGE_SIZE = slice(16, 18)  # bytes of a database's header with its page size
LARGEST_PAGE = 65536  # stored as 1, because it does not fit into two bytes
WORD_MASK = 0xFFFFFFFF  # checksums are modulo 2**32
WORD_BYTES = 4
FRAME_WORDS = FRAME_HEAD.size // WORD_BYTES
#: Words of a frame's head: page number, size of the database after a commit (0: no commit), salts, sums.
PAGE_NUMBER, COMMIT, SALT, OTHER_SALT, SUMS = 0, 1, 2, 3, slice(4, 6)
#: The checksum covers the first two words of a head and skips the others.
SKIPPED = FRAME_WORDS - 2
SALT_BITS = 32
WEIGHTS_KEPT = 8  # one entry per page size in use, and two for the headers

Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Log:
    """The contents of a log: commits that SQLite reads, the least number that it would lose, whether the last transaction is in
    doubt, and whether frames follow the last readable commit."""

    bytes: int = 0
    frames: int = 0
    commits: int = 0
    lost: int = 0
    doubtful: bool = False
    tail: bool = False
    missing: bool = False  # the log is missing or empty although its index names commits

    def refuse(self, database: Path) -> None:
        """Raise if commits would be lost."""
        if self.lost:
            raise StoreError("corrupt", f"{database}: {self.trouble()}; {way_out(database)}")

    def doubt(self) -> str:
        """Say what may be lost."""
        return f"{self.trouble()}, as far as an index of before the machine's start can say" if self.missing else DOUBT

    def trouble(self) -> str:
        """Say what is lost."""
        if self.missing:
            return "its log is missing or empty, and the index of the log names commits that are not in the database"
        many = f"at least {self.lost:,} commits" if self.lost > 1 else "at least one commit"
        return f"its log is damaged, and {many} behind the damage cannot be read ({self.commits:,} before it can)"


DOUBT = "the end of the log cannot be read: a write that a crash cut short, or damage in the last transaction"


def way_out(database: Path) -> str:
    """Say what to do about a damaged log."""
    return (
        f"restore a backup (`swerve restore`), or move {database.name}-wal and {database.name}-shm away to go on with what the "
        "database itself has, and check that with `swerve verify` (docs/store.md)"
    )


def log_path(database: Path) -> Path:
    """Return the path of a database's log."""
    return database.with_name(f"{database.name}-wal")


def index_path(database: Path) -> Path:
    """Return the path of the index of a database's log."""
    return database.with_name(f"{database.name}-shm")


def read_log(database: Path) -> Log:
    """Return the contents of a database's log; no process may have it open for writing."""
    path = log_path(database)
    index = _index(index_path(database))
    try:
        size = path.stat().st_size
        if size <= LOG_HEADER.size:
            return _missing(size, database, index)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            return _read(memory, _page_size(database), index)
    except FileNotFoundError:
        return _missing(0, database, index)
    except OSError as error:
        raise StoreError("io", f"{path} cannot be read: {error.strerror or error}") from error


def _missing(size: int, database: Path, index: _Index | None) -> Log:
    """Return the contents of a missing or empty log: commits are lost if the index names some that the database does not have.

    The index is not synchronised to disk: an index from before a power cut may describe a log that was emptied since. It therefore
    proves a loss only if it was written since the machine started.
    """
    if index is None or index.committed <= index.copied:
        return Log(size)
    proven = _since_start(index_path(database))
    return Log(size, lost=1 if proven else 0, doubtful=not proven, missing=True)


def _since_start(path: Path) -> bool:
    """Return whether a file was written since the machine started; False if that is unknown."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        started = next(float(line.split()[1]) for line in lines if line.startswith("btime "))
        return path.stat().st_mtime > started
    except (OSError, StopIteration, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class _Index:
    salts: bytes  # of the log that the index describes
    committed: int  # frames, all on disk
    copied: int  # frames of those that were copied into the database


def _index(path: Path) -> _Index | None:
    """Return the header of the index; None if it is missing or damaged."""
    try:
        with path.open("rb") as file:
            data = file.read(2 * INDEX_HEADER.size + COPIED.size)
    except OSError:
        return None
    if (
        len(data) < 2 * INDEX_HEADER.size + COPIED.size
        or data[: INDEX_HEADER.size] != data[INDEX_HEADER.size : 2 * INDEX_HEADER.size]
    ):
        return None
    *_, frames, _, _, _, salts, first, second = INDEX_HEADER.unpack_from(data)
    words = np.frombuffer(data, np.uint32, (INDEX_HEADER.size - INDEX_SUMS) // WORD_BYTES)
    if not data[INITIALISED] or _sums(words[None, :], _weights(len(words), 0), (0, 0)).tolist() != [[first, second]]:
        return None
    return _Index(salts, frames, COPIED.unpack_from(data, 2 * INDEX_HEADER.size)[0])


def _page_size(database: Path) -> int:
    """Return the page size in a database's header; 0 if the header cannot be read."""
    try:
        with database.open("rb") as file:
            head = file.read(PAGE_SIZE.stop)
    except OSError:
        return 0
    size = int.from_bytes(head[PAGE_SIZE], "big")
    return LARGEST_PAGE if size == 1 else size


@lru_cache(maxsize=WEIGHTS_KEPT)
def _weights(words: int, skip: int) -> tuple[Words, Words, tuple[int, int, int]]:
    """Return the weight of each of `words` words in the two sums, and of the previous sums; `skip` words after the second weigh 0.

    The checksum is s0 += x[i] + s1; s1 += x[i + 1] + s0, modulo 2**32. It is linear, and its weights are Fibonacci numbers: the
    j-th word from the end has F(j) in s0 and F(j + 1) in s1.
    """
    fibonacci = [0, 1]
    while len(fibonacci) < words + 2:
        fibonacci.append((fibonacci[-1] + fibonacci[-2]) & WORD_MASK)
    first = fibonacci[words - 1 :: -1] if words else []
    second = fibonacci[words:0:-1]
    gap = [0] * skip
    first, second = [*first[:2], *gap, *first[2:]], [*second[:2], *gap, *second[2:]]
    before = fibonacci[words - 1], fibonacci[words], fibonacci[words + 1]
    return np.array(first, np.uint32), np.array(second, np.uint32), before


def _sums(rows: Words, weights: tuple[Words, Words, tuple[int, int, int]], before: Any) -> Words:
    """Return the checksums of rows of words, each continuing from the sums in `before`."""
    first, second, (low, middle, high) = weights
    s0, s1 = np.asarray(before, np.uint32).reshape(-1, 2).T
    out = np.empty((len(rows), 2), np.uint32)
    out[:, 0] = rows @ first + np.uint32(low) * s0 + np.uint32(middle) * s1
    out[:, 1] = rows @ second + np.uint32(middle) * s0 + np.uint32(high) * s1
    return out


def _read(memory: mmap.mmap, page_size: int, index: _Index | None) -> Log:
    magic, version, page, _, *salts, first, second = LOG_HEADER.unpack_from(memory)
    order = ">u4" if magic == MAGIC | 1 else "<u4"
    head = np.frombuffer(memory, order, SUMMED).astype(np.uint32)
    good = magic | 1 == MAGIC | 1 and version == LOG_VERSION and page in PAGE_SIZES
    good = good and _sums(head[None, :], _weights(SUMMED, 0), (0, 0)).tolist() == [[first, second]]
    page = page if good else page_size
    if page not in PAGE_SIZES:
        return Log(len(memory), doubtful=True)
    count = (len(memory) - LOG_HEADER.size) // (FRAME_HEAD.size + page)
    if not count:
        return Log(len(memory))
    heads, linked = _frames(memory, count, page, order, (first, second))
    if not good:
        return _without_header(len(memory), heads, linked, salts, index)

    ours = (heads[:, SALT] == salts[0]) & (heads[:, OTHER_SALT] == salts[1])
    commits = ours & (heads[:, COMMIT] != 0)
    broken = np.flatnonzero(~(ours & linked & (heads[:, PAGE_NUMBER] != 0)))
    readable = int(broken[0]) if len(broken) else count
    read = np.flatnonzero(commits[:readable])
    frames = int(read[-1]) + 1 if len(read) else 0
    behind = readable + np.flatnonzero(commits[readable:])
    damaged = len(behind) > 1
    if len(behind) == 1:
        # a frame that follows a commit and continues its sum was written after that commit was on disk
        next_one = int(behind[0]) + 1
        damaged = next_one < count and bool(ours[next_one] and linked[next_one])
    if index is not None and index.salts == memory[SALTS]:
        damaged |= index.committed > frames
    # a damaged frame does not show whether it was a commit; frames that continue the sum of the previous frame do
    lost = max(int(np.count_nonzero(linked[behind])), 1) if damaged else 0
    return Log(len(memory), frames, len(read), lost, bool(len(behind)) and not lost, bool(ours[frames:].any()))


def _without_header(size: int, heads: Words, linked: NDArray[np.bool_], salts: list[int], index: _Index | None) -> Log:
    """Return the contents of a log with a damaged header: SQLite reads none of it, but its frames identify themselves."""
    pairs = heads[:, SALT].astype(np.uint64) << np.uint64(SALT_BITS) | heads[:, OTHER_SALT]
    named = [salts[0] << SALT_BITS | salts[1]] + ([int.from_bytes(index.salts, "big")] if index is not None else [])
    values, counts = np.unique(pairs[pairs != 0], return_counts=True)
    found = [pair for pair in named if pair in values] + values[np.argsort(-counts)].tolist()
    ours = pairs == np.uint64(found[0]) if found else np.zeros(len(pairs), np.bool_)
    consistent = bool(found) and (found[0] in named or bool((linked & ours).any()))
    commits = int(np.count_nonzero(ours & (heads[:, COMMIT] != 0))) if consistent else 0
    return Log(size, lost=commits, doubtful=not commits, tail=True)


def _frames(memory: mmap.mmap, count: int, page: int, order: str, before: tuple[int, int]) -> tuple[Words, NDArray[np.bool_]]:
    """Return the heads of all frames as numbers, and whether each frame continues the sum of the previous one."""
    width = (FRAME_HEAD.size + page) // WORD_BYTES
    words = np.frombuffer(memory, order, count * width, LOG_HEADER.size).reshape(count, width)
    heads = np.frombuffer(memory, ">u4", count * width, LOG_HEADER.size).reshape(count, width)[:, :FRAME_WORDS].astype(np.uint32)
    stored = heads[:, SUMS]
    sums = np.vstack([np.array([before], np.uint32), stored[:-1]])
    weights = _weights(FRAME_WORDS - SKIPPED + page // WORD_BYTES, SKIPPED)
    linked = np.empty(count, np.bool_)
    for start in range(0, count, FRAMES_AT_ONCE):
        part = slice(start, start + FRAMES_AT_ONCE)
        linked[part] = (_sums(words[part].astype(np.uint32, copy=False), weights, sums[part]) == stored[part]).all(axis=1)
    return heads, linked
