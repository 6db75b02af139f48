"""Verification of a store that no process has open, without changing it: structure, log, checksums, layouts.

The store does not know what a record's bytes mean: `Meaning` adds the checks of the packages above.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from swerve.core.errors import SwerveError
from swerve.store.blocks import segments_in
from swerve.store.layouts import layout_of
from swerve.store.lock import left_alone
from swerve.store.logged import NOT_YET, SAID, belongs
from swerve.store.protocol import Row, StoreError
from swerve.store.schema import APPLICATION, MIGRATIONS, kind_of
from swerve.store.shares import journal_path
from swerve.store.statements import as_written, columns
from swerve.store.tail import owner_in, rest_of, tail
from swerve.store.wal import Log, log_path, read_log, way_out

ROWS_AT_ONCE = 512  # rows checked together: enough for NumPy to pay off, few enough for memory
STEPS_PER_REPORT = 2_000_000  # SQLite's virtual machine steps between two progress reports of one long statement
KEYS_NAMED = 3  # keys that a finding names
BUSY_SECONDS = 5.0  # a check has no deadline, so it waits for a lock
#: Below every row id of SQLite.
BEFORE_ALL = -(1 << 63)
#: The schema that introduced owners and lives.
OWNER_SCHEMA = 2

#: Receives the name of a step, the amount done and the total; 0 if the total is not known.
Progress = Callable[[str, int, int], None]


class Problem(NamedTuple):
    """A possible defect of a record: a short name, and words that complete "3 records: …"."""

    name: str
    words: str


CHECKSUM = Problem("checksum", "the bytes read differ from those written (checksum)")
LAYOUT = Problem("layout", "the layout is unknown or unreadable")
SIZE = Problem("size", "the size is not that of the layout")
UNREADABLE = Problem("unreadable", "their page cannot be read")


class Meaning(NamedTuple):
    """Checks of the packages above the store: defects of records of a layout, and how many bits of a used id lie below its life's.

    `records` yields each defect with its row. It yields None with a row of an older layout, which cannot be checked in full.
    """

    records: Callable[[str, list[Row]], Iterable[tuple[Problem | None, Row]]]
    life_bits: int


@dataclass(slots=True)
class Finding:
    """A defect or, with `warning`, a doubt; `whole` if it concerns the store as a whole."""

    name: str
    message: str
    warning: bool = False
    whole: bool = False
    count: int = 1
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.examples) else ""
        return self.message + (f" ({', '.join(self.examples)}{more})" if self.examples else "")


@dataclass(slots=True)
class Checked:
    """The result of a check of a journal."""

    path: Path
    first: int = 0
    end: int = 0
    segments: int = 0
    size: int = 0  # bytes of its segments
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """The result of a check."""

    path: Path
    rows: int = 0
    size: int = 0  # bytes of the file
    older: int = 0  # records of older layouts, which cannot be checked in full
    schema: int = 0
    owner: bytes = b""  # fingerprint of the secrets that the rows are stored under
    log: Log = field(default_factory=Log)
    said: dict[str, Any] = field(default_factory=dict)  # what the store says of its log of entries, see `swerve.store.logged`
    journal: Checked | None = None  # that log
    findings: list[Finding] = field(default_factory=list)
    server: str = ""  # the address of a store on a server, of which `path` is a copy

    def wrong(self, name: str, message: str, **more: Any) -> None:
        """Add a finding."""
        self.findings.append(Finding(name, message, **more))

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; there may be warnings."""
        return not self.errors

    @property
    def errors(self) -> list[Finding]:
        """The findings that are defects."""
        return [one for one in self.findings if not one.warning]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that are doubts."""
        return [one for one in self.findings if one.warning]

    @property
    def broken(self) -> list[Finding]:
        """The defects of the store as a whole."""
        return [one for one in self.errors if one.whole]

    @property
    def damaged(self) -> int:
        """The number of defects of single records."""
        return sum(one.count for one in self.errors if not one.whole)


class _Records:
    """Collects defects of records: counts, with a few examples each."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.found: dict[Problem, Finding] = {}

    def add(self, problem: Problem, key: object) -> None:
        one = self.found.get(problem)
        if one is None:
            one = self.found[problem] = Finding(problem.name, problem.words, count=0)
            self.report.findings.append(one)
        one.count += 1
        one.message = f"{one.count:,} record{'s' if one.count > 1 else ''}: {problem.words}"
        if len(one.examples) < KEYS_NAMED:
            one.examples.append(key.hex() if isinstance(key, bytes) else repr(key))


def _check_journal(report: Report) -> None:
    """Check the log of a store, and that both belong together."""
    folder, said = journal_path(report.path), report.said
    if not folder.is_dir():
        if said["end"] != NOT_YET:
            report.wrong("log", f"{folder}, the log of this store, is missing: put it back, or restore a backup", whole=True)
        return
    checked = report.journal = verify_journal(folder)
    for finding in checked.findings:
        report.wrong("log", finding.message, warning=finding.warning, whole=finding.whole)
    if not belongs(said, owner_in(folder)):
        words = f"{folder} is the log of another store, or of a later state of this one; the next start sets it aside"
        return report.wrong("log", words, warning=True)
    if not checked.first <= said["begin"] <= max(said["end"], 0) <= checked.end:
        words = (
            f"the store needs entries {said['begin']} to {said['end']} at least, and {folder} has {checked.first} to {checked.end}"
        )
        report.wrong("log", words, whole=True)
    return None


def verify_journal(folder: Path) -> Checked:
    """Check the journal in a folder without changing it: every block, and that no segment is missing. Raise `InUse` while a process
    owns it."""
    with left_alone(folder.absolute()):
        segments = segments_in(folder)
        checked = Checked(folder, segments=len(segments), size=sum(each.path.stat().st_size for each in segments))
        checked.first = checked.end = segments[0].first if segments else 0
        try:
            for block in tail(folder):
                checked.end = block.end
            rest = rest_of(folder)
            if rest:
                words = f"an unfinished write of {rest:,} bytes at the end; the next owner cuts it off"
                checked.findings.append(Finding("journal", words, warning=True))
        except StoreError as error:
            checked.findings.append(Finding("journal", str(error), whole=True))
    return checked


def verify(database: Path, meaning: Meaning | None = None, progress: Progress | None = None) -> Report:
    """Check the store in the file `database` without changing it; raise `InUse` while a process owns the store.

    The log that a crash has left is included, as SQLite would read it; the check reads a copy, so the log itself stays as it is.
    """
    path = database.absolute().resolve()
    if not path.is_file():
        raise SwerveError(f"there is no store {database}; name the store to check")
    with left_alone(path):
        report = Report(path, size=path.stat().st_size, log=read_log(path))
        if report.log.lost:
            report.wrong("log", f"{report.log.trouble()}; {way_out(path)}", whole=True)
        elif report.log.doubtful:
            report.wrong("log", report.log.doubt(), warning=True)
        try:
            with _opened(path, report.log) as connection:
                _check(connection, report, meaning, progress or (lambda *_: None))
            if report.said.get("log"):
                _check_journal(report)
        except sqlite3.Error as error:
            if kind_of(error) != "corrupt":
                raise SwerveError(f"{path} cannot be checked: {error}") from error
            report.wrong("structure", f"the file cannot be read: {error}", whole=True)
    return report


@contextlib.contextmanager
def _opened(path: Path, log: Log) -> Iterator[sqlite3.Connection]:
    """Yield a connection that changes neither the file nor its log nor the log's index.

    A file without a log is opened as immutable. Otherwise the log is copied into a temporary folder beside a hard link to the file:
    SQLite builds its index there and, without write permission, copies nothing into the file. If no link can be made, the file is
    copied too.
    """
    with contextlib.ExitStack() as undo:
        address = f"{_beside(path, undo).as_uri()}?mode=ro" if log.bytes else f"{path.as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        undo.enter_context(contextlib.closing(connection))
        connection.text_factory = bytes  # invalid text in a damaged page must not stop the check
        connection.execute("PRAGMA cell_size_check = ON")
        yield connection


def _beside(path: Path, undo: contextlib.ExitStack) -> Path:
    """Return the path of a link to the file, or of a copy, with a copy of its log beside it."""
    try:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix=f".{path.name}.verify-", dir=path.parent)))
        os.link(path, folder / path.name)
    except OSError:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="swerve-verify-")))
        shutil.copy(path, folder / path.name)
    shutil.copy(log_path(path), log_path(folder / path.name))
    return folder / path.name


def _check(connection: sqlite3.Connection, report: Report, meaning: Meaning | None, progress: Progress) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        return report.wrong("application", "this is no store of Swerve", whole=True)
    report.schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 1 <= report.schema <= len(MIGRATIONS):
        words = f"the schema is {report.schema}, and this version of Swerve knows 1 to {len(MIGRATIONS)}: use a newer Swerve"
        return report.wrong("schema", words, whole=True)
    if report.schema < len(MIGRATIONS):
        report.wrong("schema", f"the schema is {report.schema}; the next start makes it {len(MIGRATIONS)}", warning=True)
    _check_structure(connection, report, progress)
    _check_rows(connection, report, meaning, progress)
    for name, worker, record, crc in connection.execute("SELECT name, worker, record, crc FROM groups"):
        if not isinstance(record, bytes) or zlib.crc32(record) != crc:
            whose = f"{name.decode(errors='replace')!r} of worker {worker.decode(errors='replace')!r}"
            report.wrong("shared", f"a record that all queries share is damaged; it would be learnt again, rules be lost: {whose}")
    if report.schema < OWNER_SCHEMA:
        return None
    report.owner = connection.execute("SELECT value FROM meta WHERE key = 'owner'").fetchone()[0]
    report.said = {
        name.decode(): value for name, value in connection.execute("SELECT key, value FROM meta") if name.decode() in SAID
    }
    if meaning is not None:
        # schema 1 numbered its lives from 1; the migration recorded the last of them, with the mark 0
        strange = connection.execute(
            "WITH known AS (SELECT coalesce(max(id), 0) AS old FROM lives WHERE mark = 0) SELECT count(*) FROM used, known "
            "WHERE id >> ? NOT IN (SELECT id FROM lives) AND NOT id >> ? BETWEEN 1 AND old",
            (meaning.life_bits, meaning.life_bits),
        ).fetchone()[0]
        if strange:
            report.wrong("lives", f"{strange:,} used decisions belong to no life that the store knows", count=strange)
    return None


def _check_structure(connection: sqlite3.Connection, report: Report, progress: Progress) -> None:
    progress("structure", 0, 0)
    connection.set_progress_handler(lambda: progress("structure", 0, 0), STEPS_PER_REPORT)
    try:
        found = [line.decode(errors="replace") for (line,) in connection.execute(f"PRAGMA integrity_check({KEYS_NAMED})")]
    except sqlite3.DatabaseError as error:  # check the readable rest nevertheless
        if kind_of(error) != "corrupt":
            raise
        found = [str(error)]
    connection.set_progress_handler(None, 0)
    if found != ["ok"]:
        report.wrong("structure", f"the structure of the file is damaged: {'; '.join(found)}", whole=True)


def _check_rows(connection: sqlite3.Connection, report: Report, meaning: Meaning | None, progress: Progress) -> None:
    troubles = _Records(report)
    layouts = {number: text.decode(errors="replace") for number, text in connection.execute("SELECT id, description FROM layouts")}
    sizes: dict[int, int] = {}
    for number, text in layouts.items():
        with contextlib.suppress(SwerveError):
            sizes[number] = layout_of(text)[0].itemsize
    total = connection.execute("SELECT count(*) FROM rows").fetchone()[0]
    chunk: dict[int, list[Row]] = {}
    for row_id, found in _rows(connection):
        report.rows += 1
        if report.rows % ROWS_AT_ONCE == 0:
            progress("records", report.rows, total)
        if found is None:
            troubles.add(UNREADABLE, f"row {row_id}")
            continue
        row = as_written(found)
        if row is None:
            troubles.add(CHECKSUM, found[0])
        elif meaning is None:
            continue
        elif row.layout not in sizes:
            troubles.add(LAYOUT, row.key)
        elif len(row.record) != sizes[row.layout]:
            troubles.add(SIZE, row.key)
        else:
            some = chunk.setdefault(row.layout, [])
            some.append(row)
            if len(some) == ROWS_AT_ONCE:
                _understood(report, troubles, meaning, layouts[row.layout], some)
                chunk[row.layout] = []
    if meaning is not None:
        for number, some in chunk.items():
            _understood(report, troubles, meaning, layouts[number], some)


def _understood(report: Report, troubles: _Records, meaning: Meaning, description: str, rows: list[Row]) -> None:
    if rows:
        for problem, row in meaning.records(description, rows):
            if problem is None:
                report.older += 1
            else:
                troubles.add(problem, row.key)


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[int, tuple[Any, ...] | None]]:
    """Yield every row with its row id; None for a row whose page cannot be read."""
    seen, wanted = BEFORE_ALL, columns(connection)
    try:
        for row_id, *values in connection.execute(f"SELECT id, {wanted} FROM rows NOT INDEXED ORDER BY id"):
            seen = row_id
            yield row_id, tuple(values)
        return
    except sqlite3.DatabaseError as error:
        if kind_of(error) != "corrupt":
            raise
    # the index can be intact when a page of records is not
    row_ids = [row_id for (row_id,) in connection.execute("SELECT id FROM rows INDEXED BY rows_day WHERE id > ?", (seen,))]
    for row_id in sorted(row_ids):
        try:
            yield row_id, connection.execute(f"SELECT {wanted} FROM rows WHERE id = ?", (row_id,)).fetchone()
        except sqlite3.DatabaseError as error:
            if kind_of(error) != "corrupt":
                raise
            yield row_id, None
