"""A log in pieces of whole lines, which may be read anywhere: the lists of all pieces are those of the log.

Formats with one list a line are cut between lines. A CSV file is cut up to its first quotation mark, because a quoted cell may have
lines; from there on, and logs whose lines belong together (recordings, UBI) or that are no lines (Parquet), lists are read here.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.evaluate.judging import Least, is_judged
from swerve.evaluate.lists import Shown
from swerve.evaluate.readers import FORMATS, plain
from swerve.evaluate.readers.source import LONGEST, Piece, Source, form_of, opened, size_of
from swerve.evaluate.tally import Tally

#: Formats of text whose lines stand by themselves.
LINES = ("plain", "dsjson", "open-bandit")
#: Bytes of a piece, and lists of one whose lists are read here.
BYTES, LISTS = 4 << 20, 8192
#: Parts into which queries are divided by their text: each is folded by itself.
PARTS = 32

encode, _decoder = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(list[Shown])
decode = _decoder.decode
Counts = NDArray[np.int64]


class Cut(NamedTuple):
    """Whole lines of a file, to be read on a node; `at` is how far the log is read with them, in bytes."""

    at: int
    path: str
    content: bytes
    before: int  # lines of the file before these
    form: str
    names: list[str] | None  # the head of a CSV file, if it is not among the lines


class Read(NamedTuple):
    """The lists of a piece: which query each is of, what all queries together have to know of it, and the lists by part."""

    at: int
    queries: list[str]  # in the order in which they come first
    codes: Counts
    tops: Counts
    sizes: Counts
    clicks: Counts  # on results of the list
    judged: NDArray[np.bool_]
    lists: list[bytes]
    least: Least
    tally: Tally | None  # None: comes with a later piece
    columns: plain.Columns | None


def part_of(query: str) -> int:
    """Return the part of a query.

    >>> part_of("boots") == part_of("boots") < PARTS
    True
    """
    return zlib.crc32(query.encode("utf-8", "surrogatepass")) % PARTS


def packed(at: int, entries: Sequence[Shown], tally: Tally | None, columns: plain.Columns | None) -> Read:
    """Return what is known of lists."""
    known: dict[str, int] = {}
    least, lists = Least(), [list[Shown]() for _ in range(PARTS)]
    codes, facts = [], []
    for entry in entries:
        code = known.setdefault(entry.query, len(known))
        codes.append(code)
        top, size = entry.top, len(entry.shown)
        facts.append((top, size, sum(top <= position < top + size for position in {*entry.clicks}), is_judged(entry)))
        least.add(entry)
    parts = [part_of(query) for query in known]
    for entry, code in zip(entries, codes, strict=True):
        lists[parts[code]].append(entry)
    tops, sizes, clicks, judged = np.array(facts, np.int64).reshape(-1, 4).T
    return Read(
        at, [*known], np.array(codes, np.int64), tops, sizes, clicks, judged > 0, [encode(own) for own in lists], least, tally,
        columns,
    )  # fmt: skip


def read_piece(form: str, columns: dict[str, str], *cut: object) -> Read:
    """Read a piece: on a node."""
    at, path, content, before, kind, names = Cut(*cut)  # type: ignore[arg-type]
    tally, seen = Tally(), plain.Columns(columns)
    piece = Piece(Path(path), tally, content, before, kind, names)
    entries = list(plain.lists_in(piece, seen) if form == "plain" else FORMATS[form]([piece], columns))
    for entry in entries:
        tally.count(entry)
    return packed(at, entries, tally, seen)


def pieces(logs: Sequence[Path], form: str, columns: dict[str, str]) -> Iterator[Cut | Read]:
    """Yield a log in pieces, in its order: those that are to be read, and those that were read here."""
    if form not in LINES:
        yield from _read_here([Source(path, Tally()) for path in logs], form, columns, sum(map(size_of, logs)))
        return
    done = 0
    for path in logs:
        yield from _cut(path, form, columns, done)
        done += size_of(path)


def _read_here(sources: Sequence[Source], form: str, columns: dict[str, str], at: int) -> Iterator[Read]:
    """Yield the lists of files that are read here. The last piece has what was counted."""
    tally, seen, read = Tally(), plain.Columns(columns), [0] * len(sources)

    def note(index: int, done: int) -> None:
        read[index] = done

    for index, source in enumerate(sources):
        source.tally = tally
        source.progress = lambda done, index=index: note(index, done)  # type: ignore[misc]
    entries = plain.lists_in(sources[0], seen) if form == "plain" else FORMATS[form](sources, columns)
    while some := list(islice(entries, LISTS)):
        for entry in some:
            tally.count(entry)
        yield packed(min(at, sum(read)) if len(sources) > 1 else at, some, None, None)
    yield packed(at, [], tally, seen)


def _cut(path: Path, form: str, columns: dict[str, str], done: int) -> Iterator[Cut | Read]:
    """Yield a file in pieces."""
    size, kind = size_of(path), form_of(path)
    if kind == "parquet":
        yield from _read_here([Source(path, Tally())], form, columns, done + size)
        return
    names, before, read = None, 0, 0
    with opened(path) as file:
        for content, rest in _blocks(path, file):
            if kind == "csv" and b'"' in content:
                piece = Rest(path, Tally(), content, before, kind, names, _joined(rest, file))
                yield from _read_here([piece], form, columns, done + size)
                return
            read += len(content)
            yield Cut(done + min(read, size), str(path), content, before, kind, names)
            names = names or (_head(path, content) if kind == "csv" else None)
            before += content.count(b"\n")


class Rest(Piece):
    """A file from some line on, which is read as a stream."""

    def __init__(
        self, path: Path, tally: Tally, content: bytes, before: int, form: str, names: list[str] | None, rest: BinaryIO
    ) -> None:
        super().__init__(path, tally, content, before, form, names)
        self.rest = rest

    def _opened(self) -> BinaryIO:
        return _joined(self.content, self.rest)


class _Joined(io.RawIOBase):
    """Some bytes, and then those of a file."""

    def __init__(self, content: bytes, file: BinaryIO) -> None:
        self.first, self.file = io.BytesIO(content), file

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read some bytes."""
        found = self.first.read(len(buffer)) or self.file.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def _joined(content: bytes, file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Joined(content, file)))


def _blocks(path: Path, file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield whole lines of a file, and what was read behind them. Of too long a line only so much is kept that it is dropped."""
    rest = b""
    while True:
        try:
            more = file.read(BYTES)
        except (OSError, EOFError, zlib.error):
            for _ in Source(path, Tally()).lines():  # which raises, and says in which line
                pass
            raise
        rest += more
        end = rest.rfind(b"\n") + 1 if more else len(rest)
        if end:
            yield rest[:end], rest[end:]
        rest = rest[end:][: LONGEST + 1]
        if not more:
            return


def _head(path: Path, content: bytes) -> list[str] | None:
    """Return the head of a CSV file, from its first lines, which have no quotation marks."""
    for line in Piece(path, Tally(), content, 0, "csv", None).lines():
        try:
            return [name.strip() for name in next(csv.reader([line.decode("utf-8", "replace").replace("\0", "")]))]
        except csv.Error:  # who reads the piece says so
            return None
    return None
