"""The log beside a database, read as SQLite's file format has it: what SQLite will take of it, and what it would lose.

SQLite reads a log up to the first frame whose checksum is wrong, and takes what follows for the rest of an unfinished write. So a
byte that goes bad in the middle of a log silently takes every later commit with it. Checksums run through the whole log, but each
frame also carries the sum up to itself: frame i can be checked against the sum that frame i - 1 carries, and what lies behind a
damaged frame is recognised as what was committed.

With `synchronous = FULL` a commit is on the disk before the next one begins: only the last transaction of a log can be torn by a
crash. The index of the log (`-shm`) is written when a commit is on the disk: where it is about this very log, what it names was.
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

MAGIC = 0x377F0682  # its last bit: checksums over big-endian words
HEADER, FRAME = struct.Struct(">8I"), struct.Struct(">6I")
PAGES = {1 << power for power in range(9, 17)}  # sizes that a page may have
AT_ONCE = 128  # frames that are summed up together: they stay in the processor's cache
INDEX = struct.Struct("=III BBH II 2I 8s 2I")  # of the `-shm` file, in the machine's own order; two copies, then what is copied

Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Log:
    """What a log holds: the commits that SQLite reads; those that it would lose, at least; whether the last transaction is in
    doubt; and whether anything lies behind the last commit that is read."""

    bytes: int = 0
    frames: int = 0
    commits: int = 0
    lost: int = 0
    doubtful: bool = False
    tail: bool = False
    missing: bool = False  # whether there is none, or an empty one, although its index names commits

    def refuse(self, database: Path) -> None:
        """Raise where commits would be lost."""
        if self.lost:
            raise StoreError("corrupt", f"{database}: {self.trouble()}; {way_out(database)}")

    def doubt(self) -> str:
        """What may be lost, in words."""
        return f"{self.trouble()}, as far as an index of before the machine's start can say" if self.missing else DOUBT

    def trouble(self) -> str:
        """What is lost, in words."""
        if self.missing:
            return "its log is missing or empty, and the index of the log names commits that are not in the database"
        many = f"at least {self.lost:,} commits" if self.lost > 1 else "at least one commit"
        return f"its log is damaged, and {many} behind the damage cannot be read ({self.commits:,} before it can)"


DOUBT = "the end of the log cannot be read: a write that a crash cut short, or damage in the last transaction"


def way_out(database: Path) -> str:
    """What to do about a damaged log."""
    return (
        f"restore a backup (`swerve restore`), or move {database.name}-wal and {database.name}-shm away to go on with what the "
        "database itself has, and check that with `swerve verify` (docs/store.md)"
    )


def log_path(database: Path) -> Path:
    """Where the log of a database lies."""
    return database.with_name(f"{database.name}-wal")


def index_path(database: Path) -> Path:
    """Where the index of that log lies."""
    return database.with_name(f"{database.name}-shm")


def read_log(database: Path) -> Log:
    """What the log of a database holds; nobody may have it open for writing."""
    path = log_path(database)
    index = _index(index_path(database))
    try:
        size = path.stat().st_size
        if size <= HEADER.size:
            return _missing(size, database, index)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            return _read(memory, _page_size(database), index)
    except FileNotFoundError:
        return _missing(0, database, index)
    except OSError as error:
        raise StoreError("io", f"{path} cannot be read: {error.strerror or error}") from error


def _missing(size: int, database: Path, index: _Index | None) -> Log:
    """There is no log, or an empty one: commits are lost where its index names some that were not copied into the database.

    The index is not synchronised to the disk: one from before a power cut may be about a log that was emptied since. So it proves a
    loss only if it was written since the machine started.
    """
    if index is None or index.committed <= index.copied:
        return Log(size)
    proven = _since_start(index_path(database))
    return Log(size, lost=1 if proven else 0, doubtful=not proven, missing=True)


def _since_start(path: Path) -> bool:
    """Whether a file was written since the machine started; False where nobody can say."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        started = next(float(line.split()[1]) for line in lines if line.startswith("btime "))
        return path.stat().st_mtime > started
    except (OSError, StopIteration, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class _Index:
    salts: bytes  # of the log that it is about
    committed: int  # frames, all on the disk
    copied: int  # of those, into the database


def _index(path: Path) -> _Index | None:
    """The first page of the index, if it is whole."""
    try:
        with path.open("rb") as file:
            data = file.read(2 * INDEX.size + 4)
    except OSError:
        return None
    if len(data) < 2 * INDEX.size + 4 or data[: INDEX.size] != data[INDEX.size : 2 * INDEX.size]:
        return None
    *_, frames, _, _, _, salts, first, second = INDEX.unpack_from(data)
    words = np.frombuffer(data, np.uint32, (INDEX.size - 8) // 4)
    if not data[12] or _sums(words[None, :], _weights(len(words), 0), (0, 0)).tolist() != [[first, second]]:
        return None
    return _Index(salts, frames, struct.unpack_from("=I", data, 2 * INDEX.size)[0])


def _page_size(database: Path) -> int:
    """Of a database, by its header; 0 where that cannot be read."""
    try:
        with database.open("rb") as file:
            head = file.read(18)
    except OSError:
        return 0
    size = int.from_bytes(head[16:18], "big")
    return 65536 if size == 1 else size


@lru_cache(maxsize=8)
def _weights(words: int, skip: int) -> tuple[Words, Words, tuple[int, int, int]]:
    """How much each of so many words counts in the two sums, and the sums before; `skip` words from the third on do not count.

    The checksum goes s0 += x[i] + s1; s1 += x[i + 1] + s0, modulo 2**32. That is linear, and its weights are Fibonacci's numbers:
    the last word but j has F(j) in s0 and F(j + 1) in s1.
    """
    fibonacci = [0, 1]
    while len(fibonacci) < words + 2:
        fibonacci.append((fibonacci[-1] + fibonacci[-2]) & 0xFFFFFFFF)
    first = fibonacci[words - 1 :: -1] if words else []
    second = fibonacci[words:0:-1]
    gap = [0] * skip
    first, second = [*first[:2], *gap, *first[2:]], [*second[:2], *gap, *second[2:]]
    before = fibonacci[words - 1], fibonacci[words], fibonacci[words + 1]
    return np.array(first, np.uint32), np.array(second, np.uint32), before


def _sums(rows: Words, weights: tuple[Words, Words, tuple[int, int, int]], before: Any) -> Words:
    """The checksums of rows of words, each going on from the sums before it."""
    first, second, (low, middle, high) = weights
    s0, s1 = np.asarray(before, np.uint32).reshape(-1, 2).T
    out = np.empty((len(rows), 2), np.uint32)
    out[:, 0] = rows @ first + np.uint32(low) * s0 + np.uint32(middle) * s1
    out[:, 1] = rows @ second + np.uint32(middle) * s0 + np.uint32(high) * s1
    return out


def _read(memory: mmap.mmap, page_size: int, index: _Index | None) -> Log:
    magic, version, page, _, *salts, first, second = HEADER.unpack_from(memory)
    order = ">u4" if magic == MAGIC | 1 else "<u4"
    head = np.frombuffer(memory, order, 6).astype(np.uint32)
    good = magic | 1 == MAGIC | 1 and version == 3007000 and page in PAGES
    good = good and _sums(head[None, :], _weights(6, 0), (0, 0)).tolist() == [[first, second]]
    page = page if good else page_size
    if page not in PAGES:
        return Log(len(memory), doubtful=True)
    count = (len(memory) - HEADER.size) // (FRAME.size + page)
    if not count:
        return Log(len(memory))
    heads, linked = _frames(memory, count, page, order, (first, second))
    if not good:
        return _without_header(len(memory), heads, linked, salts, index)

    ours = (heads[:, 2] == salts[0]) & (heads[:, 3] == salts[1])
    commits = ours & (heads[:, 1] != 0)
    broken = np.flatnonzero(~(ours & linked & (heads[:, 0] != 0)))
    readable = int(broken[0]) if len(broken) else count
    read = np.flatnonzero(commits[:readable])
    frames = int(read[-1]) + 1 if len(read) else 0
    behind = readable + np.flatnonzero(commits[readable:])
    damaged = len(behind) > 1
    if len(behind) == 1:
        # what was written behind a commit, and goes on from its sum, was written when that was on the disk
        next_one = int(behind[0]) + 1
        damaged = next_one < count and bool(ours[next_one] and linked[next_one])
    if index is not None and index.salts == memory[16:24]:
        damaged |= index.committed > frames
    # a damaged frame does not say whether it was a commit; those that go on from the frame before do
    lost = max(int(np.count_nonzero(linked[behind])), 1) if damaged else 0
    return Log(len(memory), frames, len(read), lost, bool(len(behind)) and not lost, bool(ours[frames:].any()))


def _without_header(size: int, heads: Words, linked: NDArray[np.bool_], salts: list[int], index: _Index | None) -> Log:
    """A log whose header is damaged: SQLite takes none of it. Its frames say by themselves what they are."""
    pairs = heads[:, 2].astype(np.uint64) << np.uint64(32) | heads[:, 3]
    named = [salts[0] << 32 | salts[1]] + ([int.from_bytes(index.salts, "big")] if index is not None else [])
    values, counts = np.unique(pairs[pairs != 0], return_counts=True)
    found = [pair for pair in named if pair in values] + values[np.argsort(-counts)].tolist()
    ours = pairs == np.uint64(found[0]) if found else np.zeros(len(pairs), np.bool_)
    consistent = bool(found) and (found[0] in named or bool((linked & ours).any()))
    commits = int(np.count_nonzero(ours & (heads[:, 1] != 0))) if consistent else 0
    return Log(size, lost=commits, doubtful=not commits, tail=True)


def _frames(memory: mmap.mmap, count: int, page: int, order: str, before: tuple[int, int]) -> tuple[Words, NDArray[np.bool_]]:
    """The heads of all frames as numbers, and whether each goes on from the sum of the one before."""
    width = (FRAME.size + page) // 4
    words = np.frombuffer(memory, order, count * width, HEADER.size).reshape(count, width)
    heads = np.frombuffer(memory, ">u4", count * width, HEADER.size).reshape(count, width)[:, :6].astype(np.uint32)
    stored = heads[:, 4:6]
    sums = np.vstack([np.array([before], np.uint32), stored[:-1]])
    weights = _weights(2 + page // 4, 4)
    linked = np.empty(count, np.bool_)
    for start in range(0, count, AT_ONCE):
        part = slice(start, start + AT_ONCE)
        linked[part] = (_sums(words[part].astype(np.uint32, copy=False), weights, sums[part]) == stored[part]).all(axis=1)
    return heads, linked
