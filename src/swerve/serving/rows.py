"""Queries in memory: records in one table per capacity, the least recently used ones given back to the store's care.

A row's bytes live in the table of its capacity (8, 16, 32 or 64 arms); its `Place` says where, which candidate holds which arm, and
what is still to be written. Memory for the tables is reserved at once and taken up by the system only where it is used.
"""

from __future__ import annotations

import hashlib
import math
import mmap
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.spec import Spec
from swerve.core.tables import CAPACITIES, Table, capacity
from swerve.serving import kernels
from swerve.serving.kernels import as_words, query_dtype
from swerve.store.layouts import copy_fields

OVERHEAD = 850  # bytes of Python objects per row, roughly: its key, its place, empty lists
EACH = 110  # and per candidate beside its text: its places in three lists and a dictionary, its hash
RAW = 160  # and for the candidates as they were sent, beside their text
SPARE = 4 << 20  # bytes of rows that have gone before the system gets them back
MOST_TEXT = 4096  # characters of candidates, as they were sent, that are remembered


class Names(msgspec.Struct, array_like=True):
    """What is kept beside a record: who holds which arm, and the query's text where the operator wants it."""

    ids: list[str | None]
    query: str | None = None


PACK, UNPACK = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Names)


class Hash:
    """A keyed hash of texts in 64 bits, never 0: nobody without the key can find two texts that have the same.

    >>> of = Hash(b"k" * 32, b"swerve result")
    >>> of("irma") == of("irma") != of("harvey")
    True
    """

    __slots__ = ("_state",)

    def __init__(self, key: bytes, purpose: bytes) -> None:
        self._state = hashlib.blake2b(key=key, digest_size=8, person=purpose)

    def __call__(self, text: str) -> int:
        state = self._state.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        return int.from_bytes(state.digest(), "little") or 1


def bytes_of(text: str) -> int:
    """What a text takes in memory. The interpreter keeps the UTF-8 of one that is not ASCII beside it, from the first time that it
    is written out.

    >>> bytes_of("irma"), bytes_of("ίρμα")
    (53, 91)
    """
    if text.isascii():
        return 49 + len(text)
    highest = max(text)
    width = 4 if highest > "\uffff" else 2 if highest > "\xff" else 1
    return 75 + width * len(text) + len(text.encode("utf-8", "surrogatepass"))


def owner_of(key: bytes) -> int:
    """What a record carries of the key that it belongs to: every compiled call that writes checks it first."""
    return int.from_bytes(key[:8], "little", signed=True)


class Place:
    """One query in memory, until its row is let go; from then on it has no `shelf` and no `index`, and whoever still uses it
    fails."""

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
        "owner",
        "pinned",
        "published",
        "query",
        "raw",
        "shelf",
        "shorts",
        "version",
    )

    shelf: Shelf  # where its record lies; the shelf says
    index: int

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.owner = owner_of(key)
        self.ids: list[str | None] = []  # by arm; None: the place is free
        self.arms: dict[str, int] = {}  # the other way round
        self.shorts: list[int] = []  # by arm, the id's keyed hash
        self.query: str | None = None
        self.version = 0  # in the store
        self.dirty = False  # whether something is unwritten
        self.extra = 0  # bytes that hang on it beside the record
        self.pinned = 0  # writes under way: it must stay
        self.last: list[Any] = []  # the candidates of the last request, and what they came to: most requests repeat them
        self.raw: msgspec.Raw | None = None  # as they were sent, and when the newest of them was published
        self.published = math.nan
        self.mask = 0
        self.offer: list[int] = []

    def name(self, arm: int, candidate: str, short: int) -> None:
        """Give an arm to a candidate, whose hash is `short`."""
        while len(self.ids) <= arm:
            self.ids.append(None)
            self.shorts.append(0)
        before = self.ids[arm]
        if before is not None:
            del self.arms[before]
        self.ids[arm], self.shorts[arm], self.arms[candidate], self.last = candidate, short, arm, []
        self.raw = None

    @property
    def gone(self) -> bool:
        """Whether its row was let go."""
        return not hasattr(self, "shelf")

    def names(self) -> bytes:
        """As the store keeps them."""
        return PACK.encode(Names(self.ids, self.query))

    def rename(self, packed: bytes, short: Hash) -> None:
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
    """The table of one capacity, its rows without holes: the last moves into the place of one that goes.

    Memory for the whole budget is reserved at once; the system gives it when it is used, and gets it back when rows have gone.
    """

    def __init__(self, policy: Spec, senses: Spec, arms: int, features: int, numbers: int, budget: int) -> None:
        self.arms = arms
        self.ready = True  # a service that still compiles for this capacity says no
        self.calls = kernels.Calls(policy, senses, arms)
        self.dtype = query_dtype(policy, arms, features, numbers)
        room = max(2 * budget // self.dtype.itemsize, 64)  # more than can be used: the budget is what bounds it
        self._memory = mmap.mmap(-1, room * self.dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.table: Table = np.frombuffer(self._memory, self.dtype)
        self.words = as_words(self.table)
        self.numbers = self.words.view(np.int64)
        self.floats = self.words.view(np.float64)
        self.at = ledger_offsets(self.dtype, 8)  # a record's own attributes take microseconds
        self._halves = self.words.view(np.uint32)
        self._half_at = ledger_offsets(self.dtype, 4)
        self.spare = room - 1  # a row that belongs to no query: room for a copy
        self._owners: list[Place] = []
        self._touched = 0  # rows that the system has given memory for

    def __len__(self) -> int:
        return len(self._owners)

    def of(self, times: str, index: int) -> NDArray[np.uint32]:
        """`first` or `offered` of a row's arms."""
        start = self._half_at[times]
        return self._halves[index, start : start + self.arms]

    def take(self, place: Place) -> bool:
        """Give a query a row here, zeroed; False when all are used."""
        index = len(self._owners)
        if index == self.spare:
            return False
        self._owners.append(place)
        place.shelf, place.index = self, index
        self.words[index] = 0
        self._touched = max(self._touched, index + 1)
        return True

    def give(self, place: Place) -> None:
        """The query's row is unused again, and the query has none."""
        hole, last = place.index, self._owners.pop()
        del place.shelf, place.index
        if last is not place:
            self.words[hole] = self.words[last.index]
            self._owners[hole], last.index = last, hole
        size = self.dtype.itemsize
        if (self._touched - len(self._owners)) * size > SPARE:
            start = -(-len(self._owners) * size // mmap.PAGESIZE) * mmap.PAGESIZE
            self._memory.madvise(mmap.MADV_DONTNEED, start, self._touched * size - start)
            self._touched = len(self._owners)


def ledger_offsets(record: np.dtype[Any], size: int) -> dict[str, int]:
    """Where the ledger's numbers of so many bytes lie in a record, counted in such numbers; of an array its first."""
    ledger, start = dict(record.fields or {})["ledger"][:2]
    fields = (ledger.fields or {}).items()
    return {name: (start + offset) // size for name, (kind, offset, *_) in fields if kind.base.itemsize == size}


class Rows:
    """The queries in memory, by key, least recently used first, within a budget of bytes."""

    def __init__(self, policy: Spec, senses: Spec, arms: int, features: int, numbers: int, budget: int, key: bytes) -> None:
        self.arms, self.budget, self.extras = arms, budget, 0
        self.short = Hash(key, b"swerve result")
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
    def ready(self) -> bool:
        """Whether every capacity can be served."""
        return all(shelf.ready for shelf in self.shelves)

    @property
    def used(self) -> int:
        """Bytes in use: records, and what hangs on them."""
        return self.extras + sum(len(shelf) * shelf.dtype.itemsize for shelf in self.shelves)

    def add(self, key: bytes, arms: int) -> Place | None:
        """A place for a query, its record zeroed; None when memory is full of rows that are not written yet."""
        shelf, place = self.shelf_for(arms), Place(key)
        if not self._room(shelf.dtype.itemsize + OVERHEAD) or not shelf.take(place):
            return None
        self.places[key] = place
        place.extra = OVERHEAD
        self.extras += OVERHEAD
        return place

    def _room(self, wanted: int) -> bool:
        """Whether there is room for so many bytes: the least recently used rows make it, as far as they are written."""
        over = self.used + wanted - self.budget
        if over <= 0:
            return True
        for looked, place in enumerate(list(islice(self.places.values(), 512))):
            if place.dirty or place.pinned:
                if looked < 256:  # not now; look elsewhere first next time
                    self.places.move_to_end(place.key)
                continue
            over -= place.shelf.dtype.itemsize + place.extra
            self.drop(place)
            if over <= 0:
                return True
        return over <= self.budget // 20  # a little more than allowed, while writes are under way

    def recount(self, place: Place) -> None:
        """What hangs on a row beside its record has changed: its candidates, its text, or the request that it remembers."""
        extra = OVERHEAD + sum(map(bytes_of, place.arms)) + EACH * len(place.arms)
        if place.query is not None:
            extra += bytes_of(place.query)
        if place.raw is not None:
            extra += RAW + len(memoryview(place.raw)) * 5 // 4  # and holes between blocks of this size
        self.extras += extra - place.extra
        place.extra = extra

    def name(self, place: Place, arm: int, candidate: str) -> None:
        """Give an arm of a row to a candidate."""
        place.name(arm, candidate, self.short(candidate))

    def remember(self, place: Place, raw: msgspec.Raw, published: float) -> None:
        """The text of the candidates that the row has just been offered, and when the newest was published: whoever sends the same
        again need not be read."""
        if len(memoryview(raw)) <= MOST_TEXT:
            place.raw, place.published = raw.copy(), published
            self.recount(place)

    def drop(self, place: Place) -> None:
        """Forget a row; the store has it."""
        del self.places[place.key]
        place.shelf.give(place)
        self.extras -= place.extra

    def clear(self) -> None:
        """Forget all rows."""
        for place in list(self.places.values()):
            self.drop(place)

    def grow(self, place: Place, begin: Callable[[Place], None]) -> bool:
        """Move a row to the next larger capacity; False when there is none or no room. `begin(place)` makes its row a fresh one."""
        smaller, larger = place.shelf, self.shelf_for(place.shelf.arms + 1)
        if larger is smaller:
            return False
        place.pinned += 1  # it must not make room for itself
        room = self._room(larger.dtype.itemsize - smaller.dtype.itemsize) and len(larger) < larger.spare
        place.pinned -= 1
        if room:
            record = smaller.table[place.index : place.index + 1].copy()
            smaller.give(place)  # which takes its row away, but it gets another at once
            larger.take(place)
            begin(place)
            copy_fields(record[0], place.record)
        return room
