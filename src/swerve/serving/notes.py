"""What a ranker does, written down as entries for a journal, see `swerve.serving.entries`.

Tests: tests/serving/test_playing.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.serving.entries import (
    AFTER_AT,
    BEFORE_AT,
    BEGUN,
    BODY,
    BYTE,
    CLICKED,
    DELETED,
    F_EVIDENCE_AT,
    F_SEEN_AT,
    FILL_UP_AT,
    FIRST_AT,
    FLAGS_AT,
    FRESH_AT,
    GONE_ON,
    GROWN,
    IN_PLACE,
    KEPT,
    LOADED,
    MOST_RANKED,
    NAMED,
    NO_CODE,
    NOW_AT,
    PHASE_AT,
    REPORTED,
    RESPONDED,
    RULED,
    SAME_PAGE,
    SHIFTED,
    SIZE_AT,
    STARTED,
    TAKEN_UP,
    TOLD,
    VACATED,
    Started,
    table_name,
)
from swerve.serving.entry_kernels import write_ranked

if TYPE_CHECKING:
    from swerve.serving.contributions import Part
    from swerve.serving.messages import Event
    from swerve.serving.place import Place
    from swerve.serving.ranker import Ranker

_HEAD = struct.Struct("<Q16sd")
_RESPONDED = struct.Struct("<QdQQ")
_CODES = tuple(struct.Struct(f"<{count}H") for count in range(SLOTS + 1))
_WORD, _TIME = struct.Struct("<q"), struct.Struct("<d")
_encode = msgspec.msgpack.Encoder().encode


def write_down(ranker: Ranker, config: dict[str, Any], now: float, texts: bool = True) -> Notes:
    """Write down everything that a ranker does from now on. `config` is that of its settings, and is in the entry of the start;
    `texts` says whether the texts of queries, and what callers have reported, are written down too, which evaluation needs."""
    notes = ranker.notes = ranker.arms.notes = ranker.notes or Notes(len(ranker.settings.numbers), texts)
    notes.generation += 1
    notes.started(_started(ranker, config, now), now)
    return notes


def write_again(ranker: Ranker, config: dict[str, Any], now: float) -> None:
    """Begin another generation: whoever plays entries can begin here. Each query is written down again when it next changes."""
    assert ranker.notes is not None, "see `write_down`"
    ranker.notes.generation += 1
    ranker.notes.started(_started(ranker, config, now), now, goes_on=True)


def _started(ranker: Ranker, config: dict[str, Any], now: float) -> Started:
    life, settings = ranker.life, ranker.settings
    shared, secrets, lived = ranker.shared(now), ranker.key_of(""), (life.store, life.mark, life.id)
    layouts = {table_name(shelf.arms, shelf.rival): shelf.description for shelf in ranker.rows.tables}
    return Started(config, lived, ranker.issued, shared, secrets, settings.numbers, settings.draws, layouts)


class Notes:
    """Writes down what a ranker does, as entries, until they are taken for a journal."""

    def __init__(self, numbers: int, texts: bool = True) -> None:
        self.texts = texts
        self._width = MOST_RANKED + numbers
        self._room = np.zeros(self._width, np.int64)
        self._write = write_ranked.bind()
        self._pieces: list[bytes] = []
        self._count = 0
        self.generation = 1  # entries can be played from the begin of one on

    def take(self) -> tuple[bytes, int]:
        """Return the entries since the last call, and how many they are."""
        found = b"".join(self._pieces), self._count
        self._pieces, self._count = [], 0
        return found

    def ranked(self, keys: NDArray[Any], asks: NDArray[Any], orders: NDArray[Any], facts: NDArray[Any], now: float) -> None:
        """Requests were decided, see `write_ranked`."""
        if len(self._room) < len(asks) * self._width:
            self._room = np.zeros(len(asks) * self._width, np.int64)
        words, count = self._write(keys.view(np.int64), asks, orders, facts, now, self._room)
        self._pieces.append(self._room[:words].tobytes())
        self._count += count

    def _add(self, kind: int, key: bytes, now: float, body: bytes = b"", flags: int = 0) -> None:
        fill = -len(body) % BYTE
        body += bytes(fill)
        head = kind | flags << FLAGS_AT | fill << FILL_UP_AT | (BODY + len(body) // BYTE) << SIZE_AT
        self._pieces.append(_HEAD.pack(head, key, now) + body)
        self._count += 1

    def responded(
        self,
        key: bytes,
        head: Sequence[int],
        was: Sequence[int],
        final: Sequence[int],
        shown: float,
        now: float,
        outcome: int = -1,
        fresh: int = 0,
    ) -> None:
        """Feedback was applied, with these columns of `swerve.serving.feedback_kernel` and so many new clicks; `outcome` is
        negative where a rule has put results in place of a page."""
        _, _, start, phase, number, evidence, seen, before, after, first = head
        sizes = len(was) | len(final) << NOW_AT | int(evidence) << F_EVIDENCE_AT | int(first) << FIRST_AT
        sizes |= seen << F_SEEN_AT | before << BEFORE_AT | after << AFTER_AT | fresh << FRESH_AT
        same = was is final or list(was) == list(final)
        body = _RESPONDED.pack(number, shown, start | phase << PHASE_AT, sizes) + _codes(was)
        if not same:
            body += _codes(final)
        if outcome >= 0:
            body += outcome.to_bytes(-(-max(outcome.bit_length(), 1) // 64) * BYTE, "little")
        self._add(RESPONDED, key, now, body, same * SAME_PAGE | (outcome < 0) * IN_PLACE)

    def gone_on(self, key: bytes, when: float, now: float) -> None:
        """A session that asked the query at `when` went on to another one."""
        self._add(GONE_ON, key, now, _TIME.pack(when))

    def clicked(self, key: bytes, arm: int, now: float) -> None:
        """The ledger counts a click on an arm."""
        self._add(CLICKED, key, now, _WORD.pack(arm))

    def know(self, place: Place) -> None:
        """A query is about to change: its record must be in this generation."""
        if place.told >> 1 != self.generation:
            self.loaded(place)

    def tell(self, place: Place, text: str) -> None:
        """A query is about to be ranked: its text, see `messages.key_text`, must be in this generation."""
        self.know(place)
        if self.texts and not place.told & 1:
            place.told |= 1
            self._add(TOLD, place.key, 0.0, text.encode())

    def begun(self, place: Place, word: int, now: float) -> None:
        """A query is new, with the random stream `word`."""
        place.told = 2 * self.generation
        self._add(BEGUN, place.key, now, word.to_bytes(BYTE, "little") + _encode(self._of(place)))

    def loaded(self, place: Place) -> None:
        """A query was taken up from the store, or its record must be written down again."""
        place.told = 2 * self.generation
        self._add(LOADED, place.key, 0.0, _encode((*self._of(place), place.shelf.words[place.index].tobytes(), place.names())))

    @staticmethod
    def _of(place: Place) -> tuple[int, bool, str | None]:
        return place.shelf.arms, place.shelf.rival, place.namespace

    def grown(self, place: Place, now: float) -> None:
        """A query's record has the room of its new shelf."""
        self._add(GROWN, place.key, now, _WORD.pack(place.shelf.arms))

    def named(self, place: Place, arm: int, first: bool, now: float) -> None:
        """An arm was given to a candidate; `first` says whether that is when the candidate was first seen."""
        self._add(NAMED, place.key, now, _WORD.pack(arm) + str(place.ids[arm]).encode(), int(first))

    def vacated(self, key: bytes, arm: int, unnamed: bool = False) -> None:
        """An arm was freed; `unnamed` says that its candidate was deleted."""
        self._add(VACATED, key, 0.0, _WORD.pack(arm), int(unnamed))

    def shifted(self, key: bytes, now: float) -> None:
        """An operator's shift."""
        self._add(SHIFTED, key, now)

    def deleted(self, key: bytes, now: float) -> None:
        """A query was deleted."""
        self._add(DELETED, key, now)

    def ruled(self, key: bytes, number: int, results: Sequence[str], chances: Sequence[float], now: float) -> None:
        """The results of a page after an operator's rules, and the propensity of each."""
        if self.texts:
            self._add(RULED, key, now, _encode((number, list(results), list(chances))))

    def reported(self, key: bytes, number: int, events: Sequence[Event], shown: Sequence[str] | None, now: float) -> None:
        """A caller has reported other user events than clicks, or results that were really shown."""
        if self.texts:
            self._add(REPORTED, key, now, _encode((number, list(events), shown)))

    def kept(self, records: Mapping[str, bytes], now: float) -> None:
        """Records that operators have set."""
        self._add(KEPT, bytes(2 * BYTE), now, _encode(dict(records)))

    def taken_up(self, worker: int, parts: Mapping[str, Part], now: float) -> None:
        """What was new of another worker's learning was folded in."""
        self._add(TAKEN_UP, bytes(2 * BYTE), now, _encode((worker, dict(parts))))

    def started(self, started: Started, now: float, goes_on: bool = False) -> None:
        """A start of the service, or of another generation, in which it goes on."""
        self._add(STARTED, bytes(2 * BYTE), now, msgspec.msgpack.encode(started), int(goes_on))


def _codes(codes: Sequence[int]) -> bytes:
    """Return the codes of a page, two bytes each, up to a whole word."""
    packed = _CODES[len(codes)].pack(*[NO_CODE if code < 0 else code for code in codes])
    return packed + bytes(-len(packed) % BYTE)
