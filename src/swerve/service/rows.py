"""Queries in memory: records in one table per capacity, the least recently used ones given back to the store's care.

A row's bytes live in the table of its capacity (8, 16, 32 or 64 arms); its `Place` says where, which candidate holds which arm, and
what is still to be written. Memory for the tables is reserved at once and taken up by the system only where it is used.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.spec import Spec
from swerve.core.tables import CAPACITIES, Table, capacity
from swerve.service import kernels
from swerve.service.kernels import as_words, query_dtype, words_of
from swerve.store.layouts import copy_fields

OVERHEAD = 700  # bytes of Python objects per row, roughly: its key, its place, empty lists
EACH = 110  # and per candidate beside its characters: the text, its places in two lists and a dictionary


class Names(msgspec.Struct, array_like=True):
    """What is kept beside a record: who holds which arm, and the query's text where the operator wants it."""

    ids: list[str | None]
    query: str | None = None


PACK, UNPACK = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Names)


def short(candidate: str) -> int:
    """A hash of an id in 24 bits, to tell whether a click was for the candidate on top."""
    return zlib.crc32(candidate.encode()) & 0xFFFFFF


class Place:
    """One query in memory."""

    __slots__ = (
        "arms",
        "dirty",
        "extra",
        "ids",
        "index",
        "key",
        "last",
        "mask",
        "offer",
        "pinned",
        "query",
        "shelf",
        "shorts",
        "version",
    )

    def __init__(self, key: bytes, shelf: Shelf, index: int) -> None:
        self.key, self.shelf, self.index = key, shelf, index
        self.ids: list[str | None] = []  # by arm; None: the place is free
        self.arms: dict[str, int] = {}  # the other way round
        self.shorts: list[int] = []  # by arm, the id's short hash
        self.query: str | None = None
        self.version = 0  # in the store
        self.dirty = False  # whether something is unwritten
        self.extra = 0  # bytes that hang on it beside the record
        self.pinned = 0  # writes under way: it must stay
        self.last: list[Any] = []  # the candidates of the last request, and what they came to: most requests repeat them
        self.mask = 0
        self.offer: list[int] = []

    def name(self, arm: int, candidate: str) -> None:
        """Give an arm to a candidate."""
        while len(self.ids) <= arm:
            self.ids.append(None)
            self.shorts.append(0)
        before = self.ids[arm]
        if before is not None:
            del self.arms[before]
        self.ids[arm], self.shorts[arm], self.arms[candidate], self.last = candidate, short(candidate), arm, []

    def names(self) -> bytes:
        """As the store keeps them."""
        return PACK.encode(Names(self.ids, self.query))

    def rename(self, packed: bytes) -> None:
        """From the store."""
        names = UNPACK.decode(packed)
        self.ids, self.query = names.ids, names.query
        self.shorts = [0 if candidate is None else short(candidate) for candidate in self.ids]
        self.arms = {candidate: arm for arm, candidate in enumerate(self.ids) if candidate is not None}

    @property
    def record(self) -> Any:
        """The row itself."""
        return self.shelf.table[self.index]


class Shelf:
    """The table of one capacity."""

    def __init__(self, policy: Spec, senses: Spec, arms: int, features: int, numbers: int, budget: int) -> None:
        self.arms = arms
        self.calls = kernels.Calls(policy, senses, arms)
        self.dtype = query_dtype(policy, arms, features, numbers)
        self.room = max(budget // self.dtype.itemsize, 64)
        self.table: Table = np.zeros(self.room, self.dtype)
        self.words = as_words(self.table)
        self.numbers = self.words.view(np.int64)
        self.floats = self.words.view(np.float64)
        self.at = ledger_offsets(self.dtype, 8)  # a record's own attributes take microseconds
        self._halves = self.words.view(np.uint32)
        self._half_at = ledger_offsets(self.dtype, 4)
        self.scratch: Table = np.zeros(1, self.dtype)
        self.scratch_words = as_words(self.scratch)
        self.streams = np.array(words_of(self.dtype), np.int64)
        self.size = dict(self.dtype.fields or {})["senses"][1] // 8  # words of the policy's part, which comes first
        self._free: list[int] = []
        self._next = 0

    def of(self, times: str, index: int) -> NDArray[np.uint32]:
        """`first` or `offered` of a row's arms."""
        start = self._half_at[times]
        return self._halves[index, start : start + self.arms]

    def take(self) -> int | None:
        """An unused row, zeroed; None when all are used."""
        if self._free:
            index = self._free.pop()
            self.words[index] = 0
            return index
        if self._next < self.room:
            self._next += 1
            return self._next - 1
        return None

    @property
    def has_free(self) -> bool:
        """Whether a row that was used before is free."""
        return bool(self._free)

    @property
    def bytes(self) -> int:
        """What the table has ever taken up; the system does not get it back."""
        return self._next * self.dtype.itemsize

    def give(self, index: int) -> None:
        """The row is unused again."""
        self._free.append(index)


def ledger_offsets(record: np.dtype[Any], size: int) -> dict[str, int]:
    """Where the ledger's numbers of so many bytes lie in a record, counted in such numbers; of an array its first."""
    ledger, start = dict(record.fields or {})["ledger"][:2]
    fields = (ledger.fields or {}).items()
    return {name: (start + offset) // size for name, (kind, offset, *_) in fields if kind.base.itemsize == size}


class Rows:
    """The queries in memory, by key, least recently used first, within a budget of bytes."""

    def __init__(self, policy: Spec, senses: Spec, arms: int, features: int, numbers: int, budget: int) -> None:
        self.arms, self.budget, self.extras = arms, budget, 0
        sizes = [size for size in CAPACITIES if size <= capacity("arms", arms)]
        self.shelves = [Shelf(policy, senses, size, features, numbers, budget) for size in sizes]
        self.places: OrderedDict[bytes, Place] = OrderedDict()
        self.get = self.places.get
        self.touch = self.places.move_to_end

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Place]:
        return iter(self.places.values())

    def shelf_for(self, arms: int) -> Shelf:
        """The smallest that holds so many."""
        for shelf in self.shelves:
            if arms <= shelf.arms:
                return shelf
        return self.shelves[-1]

    @property
    def used(self) -> int:
        """Bytes in use: what the tables have ever taken up, and what hangs on the rows that are here."""
        return self.extras + sum(shelf.bytes for shelf in self.shelves)

    def add(self, key: bytes, arms: int) -> Place | None:
        """A place for a query, its record zeroed; None when memory is full of rows that are not written yet."""
        shelf = self.shelf_for(arms)
        index = self._take(shelf)
        if index is None:
            return None
        place = self.places[key] = Place(key, shelf, index)
        place.extra = OVERHEAD
        self.extras += OVERHEAD
        return place

    def _take(self, shelf: Shelf) -> int | None:
        """A row of a shelf, within the budget: others of this shelf make room for it, in the order in which they were used."""
        if self.used + OVERHEAD + (0 if shelf.has_free else shelf.dtype.itemsize) > self.budget:
            self._make_room(shelf)
            # a little more than allowed while writes are under way, and for a capacity that nobody has used yet
            if self.used + OVERHEAD + shelf.dtype.itemsize > self.budget * 1.05 and not shelf.has_free:
                return None
        return shelf.take()

    def _make_room(self, shelf: Shelf) -> None:
        """Let go of the least recently used rows that are written: one of this shelf gives its record, any what hangs on it."""
        for looked, place in enumerate(list(islice(self.places.values(), 512))):
            if place.dirty or place.pinned or (place.shelf is not shelf and self.extras <= self.budget / 2):
                if looked < 256:  # not now; look elsewhere first next time
                    self.places.move_to_end(place.key)
                continue
            self.drop(place)
            if shelf.has_free and self.used + OVERHEAD <= self.budget * 1.01:
                return

    def recount(self, place: Place) -> None:
        """The candidates of a row have changed: so has what hangs on it."""
        extra = OVERHEAD + sum(len(candidate) + EACH for candidate in place.arms)
        self.extras += extra - place.extra
        place.extra = extra

    def drop(self, place: Place) -> None:
        """Forget a row; the store has it."""
        del self.places[place.key]
        place.shelf.give(place.index)
        self.extras -= place.extra

    def clear(self) -> None:
        """Forget all rows."""
        for place in list(self.places.values()):
            self.drop(place)

    def grow(self, place: Place, begin: Any) -> bool:
        """Move a row to the next larger capacity; False when there is none or no room. `begin(shelf, index)` makes a row fresh."""
        larger = self.shelf_for(place.shelf.arms + 1)
        if larger is place.shelf:
            return False
        place.pinned += 1  # it must not make room for itself
        index = self._take(larger)
        place.pinned -= 1
        if index is None:
            return False
        begin(larger, index)
        copy_fields(place.shelf.table[place.index], larger.table[index])
        place.shelf.give(place.index)
        place.shelf, place.index = larger, index
        return True
