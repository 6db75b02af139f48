"""One query in memory: the index of its row, its names as they are stored beside the record, and what the last request asked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from swerve.core.tables import Table
from swerve.serving.columns import DIRTY, TOLD, WORD
from swerve.serving.keys import Hash, owner_of, signed

if TYPE_CHECKING:
    from swerve.serving.rows import Shelf

#: Bytes of a `str` object before its characters: of ASCII, and of other texts with their cached UTF-8.
ASCII_HEAD, OTHER_HEAD = 49, 75


class Names(msgspec.Struct, array_like=True):
    """The names stored beside a record: the candidate of each arm, the query's text where it is kept, its namespace, and whether
    the record is that of the control arm's policy."""

    ids: list[str | None]
    query: str | None = None
    namespace: str | None = None
    rival: bool = False


PACK, UNPACK = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Names)


def bytes_of(text: str) -> int:
    """Return the bytes of a text in memory. The interpreter keeps the UTF-8 of a text that is not ASCII once it was encoded.

    >>> bytes_of("irma"), bytes_of("ίρμα")
    (53, 91)
    """
    if text.isascii():
        return ASCII_HEAD + len(text)
    highest = max(text)
    width = 4 if highest > "\uffff" else 2 if highest > "\xff" else 1
    return OTHER_HEAD + width * len(text) + len(text.encode("utf-8", "surrogatepass"))


class Common:
    """What the queries of a namespace share: what policies learn together, as a group and this writer's delta; and the season.
    `owns` has what this worker has contributed to the group; it is empty where there are no others."""

    __slots__ = ("owns", "pools", "seasons")

    def __init__(self, pools: Table, owns: Table, seasons: Table) -> None:
        self.pools, self.owns, self.seasons = pools, owns, seasons


class Place:
    """One query in memory. When its row leaves memory `shelf` and `index` are deleted, so that further use fails."""

    __slots__ = (
        "_dirty",
        "_told",
        "arms",
        "common",
        "extra",
        "grades",
        "ids",
        "index",
        "key",
        "last",
        "mask",
        "namespace",
        "noted",
        "order",
        "owner",
        "pinned",
        "published",
        "query",
        "raw",
        "second",
        "shelf",
        "shorts",
        "version",
    )

    shelf: Shelf  # table of its record; set by `Shelf.take`, deleted by `Shelf.give`
    index: int  # row of its record in that table
    common: Common  # what it shares with other queries; set by the ranker

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.owner, self.second = owner_of(key), owner_of(key[WORD:])
        self.ids: list[str | None] = []  # by arm; None: the arm is free
        self.arms: dict[str, int] = {}  # candidate → arm
        self.shorts: list[int] = []  # by arm: keyed hash of the id
        self.query: str | None = None
        self.namespace: str | None = None
        self.version = 0  # of the stored row
        self._dirty, self._told = False, 0
        self.extra = 0  # bytes besides the record
        self.pinned = 0  # users that wait for it or write it: it must stay in memory
        self.last: list[Any] = []  # candidates of the last request; their mask and arms follow, because most requests repeat them
        self.raw: msgspec.Raw | None = None  # those candidates as they were sent
        self.published = math.nan  # when the newest of them was published
        self.noted = False  # whether they are in the columns of its shelf
        self.mask = 0
        self.order = b""  # their arms in the given order, one byte each
        self.grades = b""  # what their scores say, see `swerve.core.examination.grades_of`; empty without scores

    @property
    def dirty(self) -> bool:
        """Whether there are unwritten changes."""
        return self._dirty

    @dirty.setter
    def dirty(self, dirty: bool) -> None:
        self._dirty = dirty
        self._flag()

    @property
    def told(self) -> int:
        """Twice the generation of the journal in which it was written down, and 1 if its text was, see `Notes.know`."""
        return self._told

    @told.setter
    def told(self, told: int) -> None:
        self._told = told
        self._flag()

    @property
    def flags(self) -> int:
        """What its columns say of it, see `swerve.serving.columns`."""
        return self._dirty * DIRTY | (self._told >> 1) * TOLD

    def _flag(self) -> None:
        if not self.gone:
            self.shelf.asked.flag(self.index, self.flags)

    def name(self, arm: int, candidate: str, short: int) -> None:
        """Give an arm to a candidate, whose hash is `short`."""
        while len(self.ids) <= arm:
            self.ids.append(None)
            self.shorts.append(0)
        before = self.ids[arm]
        if before is not None:
            del self.arms[before]
        self.ids[arm], self.shorts[arm], self.arms[candidate], self.last = candidate, short, arm, []
        self.shelf.asked.name(self.index, (short,), arm)
        self.forget_asked()

    def forget_asked(self) -> None:
        """Forget the candidates of the last request as they were sent: they may have other arms now."""
        self.raw = None
        if self.noted:
            self.noted = False
            self.shelf.asked.clear(self.index)

    def mask_of(self, shorts: Iterable[int]) -> int:
        """Return the arms of candidates, by their hashes, as a mask."""
        return signed(sum(1 << self.shorts.index(short) for short in set(shorts) if short in self.shorts))

    @property
    def gone(self) -> bool:
        """Whether its row has left memory."""
        return not hasattr(self, "shelf")

    def names(self) -> bytes:
        """Return the names as the store keeps them."""
        return PACK.encode(Names(self.ids, self.query, self.namespace, self.shelf.rival))

    def rename(self, packed: bytes, short: Hash) -> None:
        """Set the names from the store's form; those of arms beyond the row's capacity are left out."""
        names = UNPACK.decode(packed)
        self.ids, self.query, self.namespace = names.ids[: self.shelf.arms], names.query, names.namespace
        self.shorts = [0 if candidate is None else short(candidate) for candidate in self.ids]
        self.arms = {candidate: arm for arm, candidate in enumerate(self.ids) if candidate is not None}
        self.shelf.asked.name(self.index, self.shorts)

    @property
    def record(self) -> Any:
        """The record."""
        return self.shelf.table[self.index]
