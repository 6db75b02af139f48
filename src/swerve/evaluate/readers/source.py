"""Files as streams of lines or of rows, with their numbers and the bytes read so far."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from swerve.core.errors import SwerveError
from swerve.evaluate.tally import Tally

#: Bytes of a line beyond which it is no line of a log: memory stays bounded.
LONGEST = 16 << 20
#: Lines between two reports of progress.
PROGRESS_EVERY = 1024
#: Rows of a Parquet file in memory at a time.
BATCH = 8192

Progress = Callable[[int], None]
NOT_JSON = "not JSON"
NOT_AN_OBJECT = "JSON, but no object"

_decode = msgspec.json.Decoder().decode

#: First bytes of compressed files.
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: The name of the file to which standard input is copied.
SPOOLED = "standard-input"


def opened(path: Path) -> BinaryIO:
    """Open a file to read its bytes, decompressed if it is compressed (gzip, Zstandard)."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if start.startswith(GZIP):
            return cast(BinaryIO, gzip.open(path, "rb"))
        if start == ZSTD:
            try:
                import pyarrow
            except ImportError:
                raise SwerveError(f"{path} is compressed with Zstandard, which needs the package pyarrow") from None
            return cast(BinaryIO, io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"), 1 << 20))
        return path.open("rb")
    except OSError as error:
        raise SwerveError(f"{path} cannot be read: {error.strerror or error}") from None


class Source:
    """One file of a log: what reads it, and what counts its drops."""

    def __init__(self, path: Path, tally: Tally, progress: Progress = lambda read: None) -> None:
        self.path, self.tally, self.progress = path, tally, progress
        self.name = path.name if path.name == SPOOLED else str(path)
        self.number = 0
        self.raw: object = b""

    def drop(self, reason: str, lines: int = 1) -> None:
        """Count the present line as dropped, or several that end with it."""
        self.tally.drop(reason, f"{self.name}:{self.number - lines + 1}", self.raw, lines)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that are not blank. Too long a line is dropped without being held in memory."""
        with self._opened() as file:
            done, size = 0, self._size()
            while line := self._line(file):
                self.number += 1
                self.tally.lines += 1
                done += len(line)
                self.raw = line
                if len(line) == LONGEST and not line.endswith(b"\n"):
                    self.raw = line[:1024]
                    self.drop(f"longer than {LONGEST:,} bytes")
                    while (rest := self._line(file)) and not rest.endswith(b"\n"):
                        done += len(rest)
                    continue
                if self.number == 1 and line.startswith(b"\xef\xbb\xbf"):
                    line = line[3:]
                if line.strip():
                    yield line
                else:
                    self.drop("blank")
                if self.number % PROGRESS_EVERY == 0:
                    self.progress(min(done, size))  # compressed files have more to read than bytes
            self.progress(size)

    def _opened(self) -> BinaryIO:
        return opened(self.path)

    def _size(self) -> int:
        return self.path.stat().st_size

    def _line(self, file: BinaryIO) -> bytes:
        """Return the next line, or as much of it as may be held; raises if compressed data are damaged or cut off."""
        try:
            return file.readline(LONGEST)
        except (OSError, EOFError, zlib.error) as error:
            raise SwerveError(f"{self.path}:{self.number + 1}: the file cannot be read any further: {error}") from None

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects of a file with one in each line; a line with an array of objects has all of them."""
        for line in self.lines():
            try:
                found = _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.drop(NOT_JSON)
                continue
            for each in found if isinstance(found, list) else [found]:
                if isinstance(each, dict):
                    yield each
                else:
                    self.drop(NOT_AN_OBJECT)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of a CSV file by the names in its head."""

        def texts() -> Iterator[str]:
            for line in self.lines():
                yield line.decode("utf-8", "replace").replace("\0", "")

        reader = csv.reader(texts())
        names = self._names(reader)
        if names is None:
            return
        while True:
            before = self.number
            try:
                row = next(reader, None)
            except csv.Error as error:
                self.drop(f"not CSV: {error}", self.number - before)
                continue
            if row is None:
                return
            if len(row) != len(names):
                self.drop(
                    "another number of columns than the head", max(self.number - before, 1)
                )  # a quoted cell has several lines
                continue
            yield dict(zip(names, row, strict=True))

    def _names(self, reader: Iterator[list[str]]) -> list[str] | None:
        """Return the names in the head of a CSV file; None of an empty one."""
        try:
            head = next(reader, None)
        except csv.Error as error:
            raise SwerveError(f"{self.path}:{self.number}: this is not the head of a CSV file: {error}") from None
        return None if head is None else [name.strip() for name in head]

    def parquet(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of a Parquet file; `number` counts rows."""
        try:
            import pyarrow.parquet as pq
        except ImportError:
            raise SwerveError(f"{self.path} is Parquet, which needs the package pyarrow") from None
        try:
            file = pq.ParquetFile(self.path)
        except (OSError, ValueError) as error:
            raise SwerveError(f"{self.path} cannot be read as Parquet: {' '.join(str(error).split())}") from None
        with file:
            total, size = max(file.metadata.num_rows, 1), self.path.stat().st_size
            for batch in file.iter_batches(BATCH):
                for row in batch.to_pylist():
                    self.number += 1
                    self.tally.lines += 1
                    self.raw = row
                    yield row
                self.progress(size * self.number // total)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the file, whatever its form: Parquet, CSV or JSON lines."""
        kind = self._form()
        return self.parquet() if kind == "parquet" else self.rows() if kind == "csv" else self.objects()

    def _form(self) -> str:
        return form_of(self.path)


class Piece(Source):
    """Some whole lines of a file, behind `before` others; `names` has the head of a CSV file whose head is not among them."""

    def __init__(self, path: Path, tally: Tally, content: bytes, before: int, form: str, names: list[str] | None) -> None:
        super().__init__(path, tally)
        self.content, self.number, self.form, self.names = content, before, form, names

    def _opened(self) -> BinaryIO:
        return io.BytesIO(self.content)

    def _size(self) -> int:
        return len(self.content)

    def _form(self) -> str:
        return self.form

    def _names(self, reader: Iterator[list[str]]) -> list[str] | None:
        return super()._names(reader) if self.names is None else self.names


def size_of(path: Path) -> int:
    """Return the bytes of a log: a file, or the folder of a recording."""
    return sum(each.stat().st_size for each in path.iterdir()) if path.is_dir() else path.stat().st_size


def form_of(path: Path) -> str:
    """Return `parquet`, `csv` or `json`, by the first bytes of a file."""
    try:
        with opened(path) as file:
            start = file.read(4096)
    except (OSError, EOFError, zlib.error) as error:
        raise SwerveError(f"{path} cannot be read: {error}") from None
    if start.startswith(b"PAR1"):
        return "parquet"
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return "json" if text[:1] in (b"{", b"[") or not text else "csv"
