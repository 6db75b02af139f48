"""Dividing a store among another number of workers: rows, outcomes of decisions and shared records move between shares.

The change takes effect in one transaction in share 0, which writes the new number of shares: until then the old files are the
store, from then on the new ones. What a crash leaves behind (half-filled files, files that are no longer needed, rows of other
shares) is recorded in `Division`; the next start removes it, and begins an unfinished change again. Only a store without damage is
divided.

Tests: tests/service/test_dividing.py.
"""

from __future__ import annotations

import logging
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from swerve.core.errors import SwerveError
from swerve.service.config.load import Config
from swerve.service.config.settings import settings_of
from swerve.service.experiments import COUNTS
from swerve.service.recovering import recover
from swerve.service.secrets import Secrets
from swerve.serving.exchange import records_for
from swerve.serving.keys import Keys
from swerve.serving.migration import is_rival
from swerve.serving.tokens import NUMBER_BITS
from swerve.store.lock import lock_path
from swerve.store.protocol import Batch, Damaged, Row
from swerve.store.shares import DONE, Division, Share, journal_path, others_of, partition_of, share_path
from swerve.store.sqlite import SQLiteStore
from swerve.store.wal import index_path, log_path

log = logging.getLogger("swerve.service")

#: Rows of one commit.
ROWS_AT_ONCE = 500
#: Rows between two log lines about the progress.
TOLD_EVERY = 50_000
#: The record with the time of the last entry.
CLOCK = "clock"


def opened(path: Path, new: bool = False) -> SQLiteStore:
    """Open a file of the store, without a bound."""
    return SQLiteStore(path, new=new)


class Dividing:
    """Divides the store whose share 0 is open in `first` among `count` workers."""

    def __init__(self, config: Config, first: SQLiteStore, secrets: Secrets, count: int) -> None:
        self.config, self.first, self.count = config, first, count
        self.path, self.before = first.given, first.share.of
        self.owner, self.keys = secrets.fingerprint(), Keys(secrets.query_key, None)
        self.moved = self.all = 0
        self._layouts: dict[tuple[SQLiteStore, SQLiteStore], dict[int, int]] = {}
        self._homeless: list[tuple[SQLiteStore, Row]] = []

    def run(self) -> int:
        """Divide the store, and remove what a crash has left behind; return how many rows have moved. Raises `SwerveError`; the old
        files are then still the whole store."""
        if self.first.share.number:
            raise SwerveError(f"{self.path} is {self.first.share} of a store; name its first file")
        self._tidy()
        if self.count == self.before:
            self._complete()
            return 0
        log.info("dividing the store", extra={"shares": self.count, "before": self.before})
        sources, targets = [self.first], [self.first]
        try:
            for index in range(1, self.before):
                sources.append(self._source(Share(index, self.before)))
            for source in sources:
                self._recover(source)
            self.all = sum(source.count() for source in sources)
            self.first.become(self.first.share, Division(self.count, 0, 1))
            for index in range(1, self.count):
                targets.append(self._target(Share(index, self.count)))
            for source in sources:
                self._copy(source, targets)
            self._copy_homeless(targets)
            self._share_records(sources, targets)
            retiring = self.before if self.before > 1 else 0
            self.first.become(Share(0, self.count), Division(0, retiring, 1))  # from here on the new files are the store
        finally:
            for store in (*sources[1:], *targets[1:]):
                store.close()
        self._tidy()
        log.info("the store is divided", extra={"shares": self.count, "moved": self.moved})
        return self.moved

    # ------------------------------------------------------------------ files
    def _tidy(self) -> None:
        """Remove what an unfinished change has left behind, and what is not needed after a finished one."""
        division, share = self.first.division, self.first.share
        for other, path in others_of(self.path).items():
            if other.of in (division.becoming, division.retiring) and other.of != share.of:
                remove(path)
            elif other.of != share.of:
                raise SwerveError(
                    f"{path.name} lies beside {self.path}, which is {share}: put back the share 0 to which {path.name} belongs, or "
                    f"move {path.name} away"
                )
        if division.leftovers:
            for keys in self._leftovers():
                self.first.forget(keys)
        if division != DONE:
            self.first.become(share, DONE)

    def _leftovers(self) -> Iterator[list[bytes]]:
        """Yield the keys of rows in share 0 that belong to other shares. Records of a control arm's policy, which belong to the
        share of their query, come first: once the row of the query is removed, that is unknown."""
        share = self.first.share
        rivals = [row.key for row in rows_of(self.first) if is_rival(row)]
        known = set(rivals)
        gone = [row.key for row in rows_of(self.first) if row.key not in known and not share.has(row.key)]
        if rivals:
            strange = {self.keys.rival(key) for key in gone}
            gone = [key for key in rivals if key in strange] + gone
        for start in range(0, len(gone), ROWS_AT_ONCE):
            yield gone[start : start + ROWS_AT_ONCE]

    def _complete(self) -> None:
        """Raise `SwerveError` if a share of the store is missing."""
        for index in range(1, self.count):
            path = share_path(self.path, Share(index, self.count))
            if not path.exists():
                raise SwerveError(
                    f"{path} is missing, {Share(index, self.count)} of the store; put it back, or restore a backup of it"
                )

    def _source(self, share: Share) -> SQLiteStore:
        path = share_path(self.path, share)
        if not path.exists():
            raise SwerveError(f"{path} is missing, {share} of the store; put it back, or restore a backup of it")
        store = opened(path)
        if store.share != share or store.store != self.first.store:
            store.close()
            raise SwerveError(f"{path} is not {share} of the store {self.path}; put the right file back")
        return store

    def _target(self, share: Share) -> SQLiteStore:
        path = share_path(self.path, share)
        remove(path)
        store = opened(path, True)
        store.become(share, DONE, self.first.store)
        store.claim(self.owner)
        return store

    def _recover(self, source: SQLiteStore) -> None:
        """Bring the rows of a share up to date with its log."""
        recovered = recover(source, lambda: settings_of(self.config))
        if recovered.stranded:
            raise SwerveError(f"{source.given} has damaged pages, and is not divided: restore a backup of it")

    # ------------------------------------------------------------------ rows
    def _copy(self, source: SQLiteStore, targets: list[SQLiteStore]) -> None:
        """Copy the rows of a share to their new shares."""
        waiting: dict[int, list[Row]] = {index: [] for index in range(self.count)}
        rivals = list[Row]()
        for row in rows_of(source):
            if is_rival(row):
                rivals.append(row)
            elif source.share.has(row.key):
                self._put(source, targets, waiting, row, partition_of(row.key) % self.count)
        if rivals:
            homes = {self.keys.rival(row.key): row.key for row in rows_of(source) if source.share.has(row.key)}
            for row in rivals:
                if (key := homes.get(row.key)) is not None:
                    self._put(source, targets, waiting, row, partition_of(key) % self.count)
                else:
                    self._homeless.append((source, row))
        for index, rows in waiting.items():
            self._write(source, targets[index], rows)

    def _copy_homeless(self, targets: list[SQLiteStore]) -> None:
        """Copy records of the control arm's policy whose query has no row, so that the query is unknown: all shares get them, and
        the share of the query uses its copy."""
        for source, row in self._homeless:
            for target in targets:
                if target is not source and target.load([row.key]) == [None]:
                    self._write(source, target, [row])

    def _put(self, source: SQLiteStore, targets: list[SQLiteStore], waiting: dict[int, list[Row]], row: Row, index: int) -> None:
        if targets[index] is source:
            return
        waiting[index].append(row)
        if len(waiting[index]) >= ROWS_AT_ONCE:
            self._write(source, targets[index], waiting[index])
            waiting[index] = []

    def _write(self, source: SQLiteStore, target: SQLiteStore, rows: list[Row]) -> None:
        if not rows:
            return
        layouts = self._layouts.get((source, target))
        if layouts is None:
            layouts = {number: target.add_layout(text) for number, text in source.layouts().items()}
            self._layouts[source, target] = layouts
        made = {row.key: Row(row.key, target.epoch, layouts[row.layout], row.day, row.level, row.shifted, row.record, row.names)
                for row in rows}  # fmt: skip
        target.checkpoint(Batch(list(made.values()), epoch=target.epoch))
        before, self.moved = self.moved, self.moved + len(made)
        if self.moved // TOLD_EVERY > before // TOLD_EVERY:
            log.info("dividing the store", extra={"moved": self.moved, "queries": self.all})

    # ------------------------------------------------------------------ what all queries share
    def _share_records(self, sources: list[SQLiteStore], targets: list[SQLiteStore]) -> None:
        """Give all shares the outcomes of used decisions (whose queries are unknown) and the shared records of share 0. The counts
        of an experiment stay in share 0."""
        clocks = list[bytes]()
        records = dict[str, bytes]()
        for source in sources:
            for (name, _), record in source.groups().items():
                if isinstance(record, Damaged):
                    raise SwerveError(f"{record}: the store is not divided; restore a backup of it")
                if name == CLOCK:
                    clocks.append(record)
                elif source is self.first and name != COUNTS:
                    records[name] = record
        if clocks:
            records[CLOCK] = max(clocks, key=lambda record: float(struct.unpack("<d", record)[0]))
        for number, target in enumerate(targets):
            begun = records_for(number, records, 0, time.time()) if number else records
            target.checkpoint(Batch(groups=begun, epoch=target.epoch))
            for source in sources:
                if source is not target:
                    self._copy_outcomes(source, target)

    @staticmethod
    def _copy_outcomes(source: SQLiteStore, target: SQLiteStore) -> None:
        marks, ids, after = source.lives(), dict[int, int](), -1
        while found := source.used(after):
            after, used = max(found), list[tuple[int, int]]()
            for number, outcome in found.items():
                life = number >> NUMBER_BITS
                if life not in ids:
                    ids[life] = target.life_id(marks[life]) if life in marks else 0
                if ids[life]:
                    used.append((ids[life] << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1), outcome))
            target.checkpoint(Batch(used=used, epoch=target.epoch))


def rows_of(store: SQLiteStore) -> Iterator[Row]:
    """Yield all rows; raises for a damaged one."""
    after: int | None = 0
    while after is not None:
        rows, after = store.page(after)
        for row in rows:
            if isinstance(row, Damaged):
                raise SwerveError(f"{row}; the store is not divided: restore a backup of it")
            yield row


def remove(path: Path) -> None:
    """Remove a share with its log and its lock files."""
    shutil.rmtree(journal_path(path), ignore_errors=True)
    for one in (log_path(path), index_path(path), path, lock_path(path), lock_path(journal_path(path))):
        one.unlink(missing_ok=True)
