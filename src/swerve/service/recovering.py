"""Recovery: what the log of a store has beyond its rows is played, and the result is written as checkpoints.

A generation of the log has each row whole before its first change in it, so that it can be played without the rows of the store;
rows that are not in it are up to date in the store. Entries are played by the kernels that serve, with the configuration with which
they were written. See docs/store.md, "What is in the log, and what in the rows".

Tests: tests/service/test_recovery.py.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from itertools import islice

import msgspec

from swerve.core.errors import SwerveError
from swerve.service.batches import commit, row_of
from swerve.service.config.settings import settings_in
from swerve.serving.entries import Started
from swerve.serving.entry_kernels import ANSWERS, DECISIONS, OTHERS
from swerve.serving.migration import Layouts
from swerve.serving.place import Place
from swerve.serving.playing import Player
from swerve.serving.ranker import Ranker
from swerve.serving.settings import Settings
from swerve.store.blocks import Block
from swerve.store.protocol import Batch, Row, Store

log = logging.getLogger("swerve.service")

#: Rows of one commit.
ROWS_AT_ONCE = 1000
#: The least memory for rows in bytes, and outcomes that may wait to be written.
LEAST_MEMORY, MOST_OUTCOMES = 64 << 20, 200_000
#: The query key of rankers that play: they need none, because entries have the keys of queries.
NO_KEY = bytes(32)


class Recovered(msgspec.Struct):
    """What a recovery has played and written."""

    entries: int = 0
    decisions: int = 0
    others: int = 0  # decisions that came out with another page: the kernels have changed since
    feedback: int = 0
    rows: int = 0  # rows that were written
    stranded: list[Row] = []  # rows whose pages in the store are damaged: they must stay in memory, and in the log


class Recovery:
    """Plays a log into a store; when memory is full, rows are written and leave it. `today` returns the settings for a log whose
    own configuration can no longer be read."""

    def __init__(self, store: Store, today: Callable[[], Settings] | None = None) -> None:
        self.store, self.today = store, today
        self.player = Player(self._begin, elsewhere=self)
        self.done, self._used, self._layouts = Recovered(), dict[int, int](), dict[int, Layouts]()
        self._stranded: dict[bytes, Row] = {}

    def run(self, blocks: Iterable[Block], end: int | None = None) -> Recovered:
        """Play blocks and write everything. With `end`, the next start plays the log from that entry on."""
        for block in blocks:
            self.done.entries += block.entries
            self._used |= self.player.outcomes(block)
            self.player.play(block)
            if len(self._used) > MOST_OUTCOMES:
                self._write([])
        ranker = self.player.ranker
        if ranker is not None:
            self._write(list(ranker.rows))
            self._count()
            self.done.stranded = list(self._stranded.values())
            shared = self._shared(ranker)
            commit(self.store, Batch(groups=shared, begin=None if self.done.stranded else end, epoch=self.store.epoch))
        return self.done

    def _shared(self, ranker: Ranker) -> dict[str, bytes]:
        clock = max(self.player.last, struct.unpack("<d", ranker.shared(0.0)["clock"])[0])
        return {**ranker.shared(clock), **self.player.kept}

    def _count(self) -> None:
        counts = self.player.counts
        self.done.decisions, self.done.others = int(counts[DECISIONS]), int(counts[OTHERS])
        self.done.feedback = int(counts[ANSWERS])

    def _begin(self, started: Started) -> Ranker:
        """Return a ranker for a start; what was played under another configuration is written."""
        before = self.player.ranker
        if before is not None:
            self._write(list(before.rows))
        ranker = Ranker(self._settings(started), NO_KEY)
        self._layouts[id(ranker)] = Layouts(self.store, ranker)
        return ranker

    def _settings(self, started: Started) -> Settings:
        try:
            made = settings_in("the log of the store", started.config)
        except SwerveError as error:
            if self.today is None:
                raise
            log.warning("the log's configuration can no longer be used; it is played with the present one: %s", error)
            made = self.today()._replace(arms=64)
        return made._replace(budget=max(made.budget, LEAST_MEMORY))

    # ------------------------------------------------------------------ rows
    def _write(self, places: list[Place]) -> set[bytes]:
        """Write rows, and the outcomes that wait; return the keys of those on damaged pages."""
        assert self.player.ranker is not None
        layouts, lost = self._layouts[id(self.player.ranker)], set[bytes]()
        if self.player.deleted:
            self.store.forget(list(self.player.deleted))
            self.player.deleted.clear()
        rest = iter(places)
        used = sorted(self._used.items())
        self._used = {}
        while some := list(islice(rest, ROWS_AT_ONCE)):
            rows = [row_of(place, layouts.ids, max(self.store.epoch, 1)) for place in some]
            lost |= commit(self.store, Batch(rows, used, epoch=self.store.epoch))
            used = []
            self._stranded |= {row.key: row for row in rows if row.key in lost}
            self.done.rows += len(rows)
        if used:
            self.store.checkpoint(Batch(used=used, epoch=self.store.epoch))
        return lost

    def make_room(self) -> None:
        """Write half of the rows, and remove them from memory."""
        ranker = self.player.ranker
        assert ranker is not None
        some = list(islice(ranker.rows, max(len(ranker.rows) // 2, 1)))
        lost = self._write(some)
        for place in some:
            if place.key not in lost:
                self.player.leave(place)

    def fetch(self, key: bytes) -> Place | None:
        """Read a row again that has left memory."""
        ranker = self.player.ranker
        assert ranker is not None
        (row,) = self.store.load([key])
        if not isinstance(row, Row):
            return None
        layouts = self._layouts[id(ranker)]
        place = layouts.restore(row)
        if place is None:
            self.make_room()
            place = layouts.restore(row)
        return place


def settle(store: Store, blocks: Iterable[Block]) -> Recovered:
    """Play blocks of a log into a store that has none, such as a copy. Raises `SwerveError`."""
    return Recovery(store).run(blocks)


def recover(store: Store, today: Callable[[], Settings] | None = None) -> Recovered:
    """Play what the log of a store has beyond its rows. Raises `SwerveError`."""
    if store.begin == store.end:
        return Recovered()
    try:
        done = Recovery(store, today).run(store.tail(), store.end)
    except SwerveError as error:
        if type(error) is not SwerveError:  # the store's own errors say what to do
            raise
        words = "use the version that wrote it, or go on without what only the log has: --new-log"
        raise SwerveError(f"the log of the store cannot be played: {error}; {words}") from error
    log.info(
        "recovered",
        extra={"entries": done.entries, "decisions": done.decisions, "feedback": done.feedback, "queries": done.rows},
    )
    if done.others:
        log.warning("%d decisions came out differently: another version of the code made them; every click counts", done.others)
    return done
