"""Plays the entries of a journal on the rows of a ranker, through the kernels that serve, to the same bytes.

Decisions and feedback are played by compiled code, as many in one call as lie on one shelf and share what they learn; those of a
short log one by one, by the code that serves (`swerve.serving.stepping`). So are rare entries: new queries, arms that are given,
shifts, deletions.

Tests: tests/serving/test_playing.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError
from swerve.core.examination import SLOTS
from swerve.serving import feedback_kernel
from swerve.serving.contributions import Part
from swerve.serving.entries import (
    BEGUN,
    BODY,
    BYTE,
    COMPILED,
    DELETED,
    FILL_UP_AT,
    FLAGS_AT,
    GROWN,
    HAS_LEFT,
    KEPT,
    LOADED,
    MASK,
    NAMED,
    NOW,
    OWNER,
    R_BODY,
    RANKED,
    SHIFTED,
    SIZE_AT,
    STARTED,
    TAKEN_UP,
    TOLD,
    VACATED,
    Started,
    foreign,
    table_name,
    words_in,
)
from swerve.serving.entry_kernels import (
    COMMON_AT,
    COUNTS,
    ELSEWHERE,
    NOWHERE,
    SHELF_AT,
    outcomes_in,
)
from swerve.serving.lines import Lines
from swerve.serving.migration import restore, take_over
from swerve.serving.packing import Arrays
from swerve.serving.place import Common, Place
from swerve.serving.play_kernels import play_many
from swerve.serving.ranker import Ranker
from swerve.serving.rows import Shelf
from swerve.serving.stepping import Steps
from swerve.store.blocks import Block
from swerve.store.protocol import Life
from swerve_client.naming import namespace_in

#: Entries that are played one by one before the code that plays many is compiled, unless it is asked for: they take some seconds,
#: as compiling does.
MOST_STEPS = 200_000


class Elsewhere(Protocol):
    """Where rows go for which memory has no room; a store."""

    def make_room(self) -> None:
        """Let rows leave memory, by `Player.leave`."""

    def fetch(self, key: bytes) -> Place | None:
        """Bring a row back into memory, which has room for it."""


class Player:
    """Plays a journal on a ranker, which `begin` makes for the first start, and for each with another configuration than before.

    Given a ranker, it goes on with its rows. `elsewhere` takes rows for which memory has no room; without it all must fit. The
    first `steps` entries are played one by one, by the code that serves; the others many in a call, by code compiled for that.
    """

    def __init__(
        self,
        begin: Callable[[Started], Ranker],
        ranker: Ranker | None = None,
        elsewhere: Elsewhere | None = None,
        steps: int = MOST_STEPS,
    ) -> None:
        self.begin, self.ranker, self.elsewhere, self.steps = begin, ranker, elsewhere, steps
        self.started: Started | None = None
        self.kept: dict[str, bytes] = {}  # records that operators have set
        self.deleted: set[bytes] = set()  # queries that were deleted, and not asked since
        self._outcomes = outcomes_in.bind()
        self.counts = np.zeros(COUNTS, np.int64)
        self.last = 0.0  # the time of the last entry
        self.texts: dict[bytes, str] = {}  # of queries, by their keys
        self._lines = Lines()
        self._commons: dict[int, tuple[int, Any]] = {}  # by identity: the number of what queries share
        self._response = np.zeros(feedback_kernel.RESPONSE, np.int64)
        self._plays = {
            BEGUN: self._begun, LOADED: self._loaded, GROWN: self._grown, NAMED: self._named, VACATED: self._vacated,
            SHIFTED: self._shifted, TOLD: self._told, DELETED: self._gone, KEPT: self._keep, TAKEN_UP: self._taken_up,
        }  # fmt: skip
        if ranker is not None:
            self._take(ranker)

    def _take(self, ranker: Ranker) -> None:
        self.ranker, numbers = ranker, len(ranker.settings.numbers)
        self._arrays = Arrays(1, numbers)
        self._work = np.zeros(max(ranker.features, 1) + SLOTS)
        tables = ranker.rows.tables
        self._numbers = {shelf: number for number, shelf in enumerate(tables)}
        self._calls: dict[Shelf, Any] = {}
        self._steps = Steps(ranker, self._work, self.counts)
        for place in ranker.rows:
            self._put(place)

    def _put(self, place: Place) -> None:
        """Note where a row is."""
        common = self._commons.setdefault(id(place.common), (len(self._commons), place.common))[0]
        self._lines.put(place.key, self._numbers[place.shelf] << SHELF_AT | common << COMMON_AT | place.index)

    def leave(self, place: Place) -> None:
        """Let a row leave memory, which is elsewhere now."""
        assert self.ranker is not None
        shelf, hole = place.shelf, place.index
        self.ranker.rows.drop(place)
        self._lines.put(place.key, ELSEWHERE)
        self._moved(shelf, hole)

    def outcomes(self, block: Block) -> dict[int, int]:
        """Return the outcomes of decisions that the entries of a block have, the last of each."""
        entries = words_in(block)
        room = np.zeros((len(entries) // (BODY + 1) + 1, 3), np.int64)
        found = room[: self._outcomes(entries, room)]
        numbers, begins, ends = found.T.tolist()
        if (found[:, 2] - found[:, 1] == 1).all():  # nearly always
            return dict(zip(numbers, entries[found[:, 1]].view(np.uint64).tolist(), strict=True))
        outcomes = (int.from_bytes(entries[begin:end].tobytes(), "little") for begin, end in zip(begins, ends, strict=True))
        return dict(zip(numbers, outcomes, strict=True))

    def _moved(self, shelf: Shelf, index: int) -> None:
        """Note where the row is that has filled a hole."""
        if index < len(shelf):
            self._put(shelf.owners[index])

    # ------------------------------------------------------------------ entries
    def play(self, block: Block) -> None:
        """Play the entries of a block."""
        entries = words_in(block)
        at = 0
        while at < len(entries):
            at = self._next(entries, at, block)
        if len(entries):
            self.last = max(self.last, block.time)

    def _next(self, entries: NDArray[np.int64], at: int, block: Block) -> int:
        """Play an entry, or many; return the word after the last of them."""
        kind, size = int(entries[at]) & MASK, int(entries[at]) >> SIZE_AT
        if not BODY <= size <= len(entries) - at:
            raise foreign(block)
        key = entries[at + OWNER : at + NOW].tobytes()
        if kind == STARTED:
            try:
                self._started(int(entries[at]) >> FLAGS_AT & MASK, self._body(entries, at, size))
            except (ValueError, msgspec.DecodeError) as error:  # a `SwerveError` tells what is not allowed here, such as a policy
                raise error if isinstance(error, SwerveError) else foreign(block) from None
            return at + size
        if self.ranker is None:
            raise SwerveError("the journal does not begin with a start of the service: earlier segments are missing")
        if kind <= COMPILED:
            place = self._place(key)
            done = self._run(place, entries, at)
            if done == at and self._brought_back(entries, at):
                return at
            if done == at:
                raise SwerveError(f"entries {block.first} to {block.end} do not fit the record of query {key.hex()}")
            return done
        if kind in self._plays:
            now = float(entries[at + NOW : at + BODY].view(np.float64)[0])
            try:
                self._plays[kind](key, int(entries[at]) >> FLAGS_AT & MASK, self._body(entries, at, size), now)
            except SwerveError:
                raise
            except (ValueError, IndexError, KeyError, TypeError, OverflowError, AssertionError, msgspec.DecodeError):
                raise foreign(block) from None
        return at + size

    @staticmethod
    def _body(entries: NDArray[np.int64], at: int, size: int) -> bytes:
        fill = int(entries[at]) >> FILL_UP_AT & MASK
        return entries[at + BODY : at + size].tobytes()[: (size - BODY) * BYTE - fill]

    def _place(self, key: bytes) -> Place:
        assert self.ranker is not None
        place = self.ranker.rows.get(key)
        if place is None and self.elsewhere is not None:
            place = self._fetched(key)
        if place is None:
            raise SwerveError(f"the journal has no begin of query {key.hex()}: earlier segments are missing")
        return place

    def _fetched(self, key: bytes) -> Place | None:
        """Bring a row back into memory."""
        assert self.elsewhere is not None
        place = self.elsewhere.fetch(key)
        if place is not None:
            place.dirty = True
            self._put(place)
        return place

    def _brought_back(self, entries: NDArray[np.int64], at: int) -> bool:
        """Bring the row back into memory that the session of a decision came from; return whether that was missing."""
        head = int(entries[at])
        if self.elsewhere is None or self.ranker is None or head & MASK != RANKED or not head >> FLAGS_AT & HAS_LEFT:
            return False
        key = entries[at + R_BODY : at + R_BODY + 2].tobytes()
        return self.ranker.rows.get(key) is None and self._fetched(key) is not None

    def _run(self, place: Place, entries: NDArray[np.int64], at: int) -> int:
        """Play entries of the shelf of a place by compiled code; return the first word that is left."""
        assert self.ranker is not None
        self.ranker.learnt = True
        number, _ = self._commons[id(place.common)]
        return self.call(place.shelf, place.common, number, entries, at)

    def call(self, shelf: Shelf, common: Common, number: int, entries: NDArray[np.int64], at: int) -> int:
        """Play entries of a shelf by compiled code; `number` is that of what its rows share."""
        ranker, arrays, table = self.ranker, self._arrays, self._lines.table
        assert ranker is not None
        if self._steps.taken < self.steps:
            return self._steps.run(shelf, common, (self._numbers[shelf], number), table, entries, at)
        if shelf not in self._calls:
            variant = f"-{shelf.arms}-{shelf.rival:d}"
            self._calls[shelf] = play_many.bind(shelf.policy, ranker.settings.senses, variant=variant)
        done = self._calls[shelf](
            shelf.params, ranker.senses, shelf.table, shelf.words, ranker.fixed[shelf], common.pools, common.owns, common.seasons,
            self._work, table, self._numbers[shelf], number, entries, at, arrays.asks, arrays.orders, arrays.facts, self._response,
            self.counts,
        )  # fmt: skip
        return int(done)

    def grow(self) -> None:
        """Make the table of rows larger."""
        self._lines.grow()

    # ------------------------------------------------------------------ rare ones
    def _started(self, goes_on: int, body: bytes) -> None:
        if goes_on and self.ranker is not None:
            return  # everything that it says is known
        before, earlier = self.started, self.ranker
        self.started = started = msgspec.msgpack.decode(body, type=Started)
        if self.ranker is None or (before is not None and (before.config, before.layouts) != (started.config, started.layouts)):
            self._lines, self._commons = Lines(), {}
            self._take(self.begin(started))
        assert self.ranker is not None
        self.ranker.life, self.ranker.issued = Life(*started.life), started.issued
        for commons in (self.ranker.commons, self.ranker.rivals):
            if commons is not None:
                commons.begin()
        self.ranker.share(started.shared)
        if earlier is not None and earlier is not self.ranker and self.elsewhere is None:
            for place in earlier.rows:
                if not place.shelf.rival or self.ranker.rows.rivals:  # a service cannot use others either
                    self._held(take_over(self.ranker, place))

    def _held(self, place: Place | None) -> None:
        """Note a row that was taken up; None: there was no room."""
        if place is None:
            raise SwerveError("more queries than memory holds; raise store.cache_mb for this command")
        place.dirty = True  # it must not leave memory
        self._put(place)

    def _begun(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        assert self.ranker is not None
        arms, rival, namespace = msgspec.msgpack.decode(body[BYTE:], type=tuple[int, bool, str | None])
        place = self._room(key, arms, rival)
        self.ranker.join(place, namespace)
        self.ranker.arms.begin(place, int.from_bytes(body[:BYTE], "little"), now)
        self._put(place)

    def _room(self, key: bytes, arms: int, rival: bool) -> Place:
        """Return a zeroed row for a query, in place of one that it has."""
        assert self.ranker is not None
        self._dropped(key)
        place = self.ranker.rows.add(key, arms, rival)
        if place is None and self.elsewhere is not None:
            self.elsewhere.make_room()
            place = self.ranker.rows.add(key, arms, rival)
        if place is None or place.shelf.arms != arms:
            raise SwerveError("more queries than memory holds; raise store.cache_mb for this command")
        place.dirty = True  # it must not leave memory
        return place

    def _loaded(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        assert self.ranker is not None
        arms, rival, _, record, names = msgspec.msgpack.decode(body, type=tuple[int, bool, str | None, bytes, bytes])
        self._dropped(key)
        shelf, layouts = self.ranker.rows.shelf_for(arms, rival), {} if self.started is None else self.started.layouts
        layout = layouts.get(table_name(arms, rival), shelf.description)
        place = restore(self.ranker, key, record, names, 0, layout, shelf)
        if place is None and self.elsewhere is not None:
            self.elsewhere.make_room()
            place = restore(self.ranker, key, record, names, 0, layout, shelf)
        self._held(place)

    def _grown(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        assert self.ranker is not None
        place = self._place(key)
        shelf, hole = place.shelf, place.index
        grown = self.ranker.arms.grow(place, now)
        if not grown and self.elsewhere is not None:
            self.elsewhere.make_room()
            place = self._place(key)
            shelf, hole = place.shelf, place.index
            grown = self.ranker.arms.grow(place, now)
        self._moved(shelf, hole)
        self._held(place if grown else None)

    def _of(self, key: bytes, body: bytes) -> tuple[Place, int]:
        """Return the row of an entry that names an arm, and the arm."""
        place, arm = self._place(key), int.from_bytes(body[:BYTE], "little")
        if arm >= place.shelf.arms:
            raise IndexError(arm)
        return place, arm

    def _named(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        assert self.ranker is not None
        place, arm = self._of(key, body)
        self.ranker.rows.name(place, arm, body[BYTE:].decode())
        self.ranker.rows.recount(place)
        if flags:
            place.shelf.of("first", place.index)[arm] = int(now)

    def _vacated(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        assert self.ranker is not None
        place, arm = self._of(key, body)
        self.ranker.arms.vacate(place, arm, unnamed=bool(flags))

    def _shifted(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        assert self.ranker is not None
        self.ranker.shift(self._place(key), now)

    def _told(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        assert self.ranker is not None
        place, text = self._place(key), body.decode()
        self.texts[key] = text
        if self.ranker.settings.keep_text:
            place.query = text
        if place.namespace != namespace_in(text):
            self.ranker.join(place, namespace_in(text))
            self._put(place)

    def _keep(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        self.kept |= msgspec.msgpack.decode(body, type=dict[str, bytes])

    def _taken_up(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        assert self.ranker is not None
        worker, parts = msgspec.msgpack.decode(body, type=tuple[int, dict[str, Part]])
        self.ranker.exchange.fold(worker, parts, now)

    def _gone(self, key: bytes, flags: int, body: bytes, now: float) -> None:
        self._dropped(key)
        self._lines.put(key, NOWHERE)
        self.deleted.add(key)

    def _dropped(self, key: bytes) -> None:
        """Take the row of a query out of memory, which is replaced or deleted."""
        assert self.ranker is not None
        place = self.ranker.rows.get(key)
        self.deleted.discard(key)
        if place is not None:
            shelf, hole = place.shelf, place.index
            self.ranker.rows.drop(place)
            self._lines.put(key, NOWHERE)
            self._moved(shelf, hole)


def compile_for(ranker: Ranker, arms: int) -> None:
    """Compile (or load) what plays entries on the rows of a capacity, by calls without entries."""
    player, none = Player(lambda started: ranker, ranker, steps=0), np.zeros(0, np.int64)
    player.outcomes(Block(0, 0, 0, 0.0, b""))
    player.grow()
    for shelf in ranker.rows.tables:
        if shelf.arms == arms:
            commons = ranker.rivals if shelf.rival and ranker.rivals is not None else ranker.commons
            player.call(shelf, commons.of(None), 0, none, 0)
    ranker.learnt = False
