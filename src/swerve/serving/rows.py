"""Queries in memory: records in one table per capacity, within a budget. The least recently used rows leave memory first.

A row's bytes are in the table of its capacity (8, 16, 32 or 64 arms). Its `Place` has the index of the row, the candidate of each
arm and whether changes are unwritten. Memory for the tables is reserved at once; the system provides it where it is used.
"""

from __future__ import annotations

import functools
import mmap
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.pages import present
from swerve.core.spec import Spec, pack
from swerve.core.tables import CAPACITIES, Table, capacity
from swerve.serving.calls import Calls
from swerve.serving.columns import WORD, Columns
from swerve.serving.kernels import as_words, query_dtype
from swerve.serving.keys import Hash
from swerve.serving.place import Place, bytes_of
from swerve.serving.settings import kind_of
from swerve.store.layouts import copy_fields, describe

#: Version of the meaning of the fields of records. Raise it when a field changes its meaning and keeps its name; see docs/store.md.
FORM = 1
#: Bytes of Python objects per row, measured: key, `Place`, empty lists.
OVERHEAD = 850
#: Bytes per candidate besides its text: entries of three lists and a dictionary, its hash.
EACH = 110
#: Bytes for the candidates as they were sent, besides their text; and the holes that such blocks leave, as a share of the text.
RAW, RAW_HOLES = 160, 4
#: Bytes of unused rows before their memory is returned to the system: each return is a system call.
SPARE = 4 << 20
#: Characters of candidates, as they were sent, that are remembered. Longer ones are decoded again at each request.
MOST_TEXT = 4096
#: Rows that are tried when room is needed, those of them that are moved to the end if they cannot leave, and those that are looked
#: at together: bounds the time. The budget may be exceeded by one part in `OVERDRAFT` (5 %) while writes are under way.
TRIED, MOVED, FEW, OVERDRAFT = 512, 256, 16, 20
#: Bytes of times in whole seconds. Rows of a table at least.
HALF, LEAST_ROWS = 4, 64


class Shelf:
    """The table of one capacity. It has no holes: when a row leaves, the last row moves to its index.

    Memory for the whole budget is reserved at once. The system provides it when it is used, and gets it back when rows have left.
    """

    def __init__(
        self, policy: Spec, senses: Spec, arms: int, features: int, numbers: int, budget: int, rival: bool = False
    ) -> None:
        self.policy, self.params, self.arms = policy, pack(policy), arms
        self.rival = rival  # whether its queries are those of the control arm's policy
        #: Whether the pages of ruled requests are counted after the rules: a policy for one result cannot take back a show.
        self.held = not present.knows(policy)
        self.ready = True  # False while the service still compiles for this capacity
        self.calls = Calls(policy, senses, arms)
        self.dtype = query_dtype(policy, arms, features, numbers)
        room = max(2 * budget // self.dtype.itemsize, LEAST_ROWS)  # more than the budget allows, so that only the budget bounds it
        self._memory = mmap.mmap(-1, room * self.dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.table: Table = np.frombuffer(self._memory, self.dtype)
        self.asked = Columns(room, arms)
        self.row_bytes = self.dtype.itemsize + self.asked.size + WORD  # of flags
        self.words = as_words(self.table)
        self.generations: NDArray[Any] = self.table["policy"]["generation"]  # by row and arm
        self.numbers = self.words.view(np.int64)
        self.floats = self.words.view(np.float64)
        self.at = ledger_offsets(self.dtype, WORD)  # access by offset: attributes of a record take microseconds
        self._halves = self.words.view(np.uint32)
        self._half_at = ledger_offsets(self.dtype, HALF)
        self.spare = room - 2  # index of the first of two rows without a query, for copies
        self.owners: list[Place] = []
        self._touched = 0  # rows for which the system has provided memory

    def __len__(self) -> int:
        return len(self.owners)

    @functools.cached_property
    def description(self) -> str:
        """The description of the layout of its records, which names the policy's classes."""
        return re.sub(r'\["policy",', f'["policy {kind_of(self.policy)}",', describe(self.dtype, FORM), count=1)

    def of(self, times: str, index: int) -> NDArray[np.uint32]:
        """Return `first` or `offered` of a row's arms."""
        start = self._half_at[times]
        return self._halves[index, start : start + self.arms]

    def take(self, place: Place) -> bool:
        """Give a query a zeroed row; False when all rows are used."""
        index = len(self.owners)
        if index == self.spare:
            return False
        self.owners.append(place)
        place.shelf, place.index, place.noted = self, index, False
        self.words[index] = 0
        self.asked.begin(index, place.key, place.flags)
        self._touched = max(self._touched, index + 1)
        return True

    def give(self, place: Place) -> None:
        """Take a query's row away."""
        hole, last = place.index, self.owners.pop()
        del place.shelf, place.index
        if last is not place:
            self.words[hole] = self.words[last.index]
            self.asked.move(last.index, hole)
            self.owners[hole], last.index = last, hole
        if (self._touched - len(self.owners)) * self.row_bytes > SPARE:
            for memory, size in ((self._memory, self.dtype.itemsize), (self.asked.memory, self.asked.size)):
                start = -(-len(self.owners) * size // mmap.PAGESIZE) * mmap.PAGESIZE
                if start < self._touched * size:
                    memory.madvise(mmap.MADV_DONTNEED, start, self._touched * size - start)
            self._touched = len(self.owners)


def ledger_offsets(record: np.dtype[Any], size: int) -> dict[str, int]:
    """Return the offsets of the ledger's fields with items of `size` bytes in a record, in units of `size`."""
    ledger, start = dict(record.fields or {})["ledger"][:2]
    fields = (ledger.fields or {}).items()
    return {name: (start + offset) // size for name, (kind, offset, *_) in fields if kind.base.itemsize == size}


class Rows:
    """The queries in memory by key, the least recently used first, within a budget of bytes."""

    def __init__(
        self,
        policy: Spec,
        senses: Spec,
        arms: int,
        features: int,
        numbers: int,
        budget: int,
        key: bytes,
        rival: Spec | None = None,
    ) -> None:
        self.arms, self.budget, self.extras = arms, budget, 0
        self.short = Hash(key, b"swerve result")
        sizes = [size for size in CAPACITIES if size <= capacity("arms", arms)]
        self.shelves = [Shelf(policy, senses, size, features, numbers, budget) for size in sizes]
        #: Those of the control arm's policy, where it has one of its own.
        self.rivals = [] if rival is None else [Shelf(rival, senses, size, features, numbers, budget, True) for size in sizes]
        self.tables = [*self.shelves, *self.rivals]
        self.places: OrderedDict[bytes, Place] = OrderedDict()
        self.get = self.places.get
        self.touch = self.places.move_to_end

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Place]:
        return iter(self.places.values())

    def shelf_for(self, arms: int, rival: bool = False) -> Shelf:
        """Return the smallest shelf that holds this many arms, else the largest; `rival`: of those of the control arm's policy."""
        shelves = self.rivals if rival else self.shelves
        for shelf in shelves:
            if arms <= shelf.arms:
                return shelf
        return shelves[-1]

    @property
    def ready(self) -> bool:
        """Whether every capacity is compiled."""
        return all(shelf.ready for shelf in self.tables)

    @property
    def used(self) -> int:
        """Bytes in use: records and the objects beside them."""
        return self.extras + sum(len(shelf) * shelf.row_bytes for shelf in self.tables)

    def add(self, key: bytes, arms: int, rival: bool = False) -> Place | None:
        """Add a query with a zeroed record; None when memory is full of rows that are not written yet."""
        shelf, place = self.shelf_for(arms, rival), Place(key)
        if not self._room(shelf.row_bytes + OVERHEAD) or not shelf.take(place):
            return None
        self.places[key] = place
        place.extra = OVERHEAD
        self.extras += OVERHEAD
        return place

    def _room(self, wanted: int) -> bool:
        """Make room for `wanted` bytes by dropping the least recently used written rows; return whether there is enough."""
        over = self.used + wanted - self.budget
        if over <= 0:
            return True
        looked = 0
        while looked < TRIED:  # few at a time, because mostly the first one can leave
            first = list(islice(self.places.values(), FEW if looked < MOVED else TRIED - looked))
            for place in first:
                looked += 1
                if place.dirty or place.pinned:
                    if looked <= MOVED:  # try other rows first next time
                        self.places.move_to_end(place.key)
                elif place.shelf.asked.used(place.index):  # by a batch, which does not move rows
                    self.places.move_to_end(place.key)
                else:
                    over -= place.shelf.row_bytes + place.extra
                    self.drop(place)
                    if over <= 0:
                        return True
            if len(self.places) <= looked:
                break
        return over <= self.budget // OVERDRAFT

    def recount(self, place: Place) -> None:
        """Update the bytes of a row after a change of its candidates, its text or the request that it remembers."""
        extra = OVERHEAD + sum(map(bytes_of, place.arms)) + EACH * len(place.arms)
        if place.query is not None:
            extra += bytes_of(place.query)
        if place.raw is not None:
            size = len(memoryview(place.raw))
            extra += RAW + size + size // RAW_HOLES
        self.extras += extra - place.extra
        place.extra = extra

    def name(self, place: Place, arm: int, candidate: str) -> None:
        """Give an arm of a row to a candidate."""
        place.name(arm, candidate, self.short(candidate))

    def remember(self, place: Place, raw: msgspec.Raw, published: float) -> None:
        """Remember the candidates of the last request as they were sent, and when the newest was published, so that an equal text
        need not be decoded again."""
        if len(memoryview(raw)) <= MOST_TEXT:
            place.raw, place.published = raw.copy(), published
            self.recount(place)

    def drop(self, place: Place) -> None:
        """Remove a row from memory; the store has it."""
        del self.places[place.key]
        place.shelf.give(place)
        self.extras -= place.extra

    def clear(self) -> None:
        """Remove all rows from memory."""
        for place in list(self.places.values()):
            self.drop(place)

    def grow(self, place: Place, begin: Callable[[Place], None]) -> bool:
        """Move a row to the next larger capacity; False when there is none or no room. `begin(place)` initialises its new row."""
        smaller, larger = place.shelf, self.shelf_for(place.shelf.arms + 1, place.shelf.rival)
        if larger is smaller:
            return False
        place.pinned += 1  # it must not be dropped to make room for itself
        room = self._room(larger.row_bytes - smaller.row_bytes) and len(larger) < larger.spare
        place.pinned -= 1
        if room:
            record = smaller.table[place.index : place.index + 1].copy()
            smaller.give(place)  # deletes its row; the next line gives it another
            larger.take(place)
            larger.asked.name(place.index, place.shorts)
            begin(place)
            copy_fields(record[0], place.record)
        return room
