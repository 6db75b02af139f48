"""Batches in columns: a JSON list of requests is read, decided and answered in a few compiled calls, without objects per request.

Plain requests (`swerve.serving.scanning`) that repeat the candidates of their query's last request are decided here, those of one
shelf together. All others are the caller's to decide, one by one, with `Ranker.rank`. Answers, tokens and records are the same
bytes either way.

Tests: tests/serving/test_bulk.py, tests/service/test_batches_in_columns.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.core.contract import ALARM, RESTARTED
from swerve.core.siphash import hash_text
from swerve.serving import kernels, scanning
from swerve.serving.columns import (
    ASKED,
    ASKED_2,
    GRADED_BITS,
    KEY,
    KEY_2,
    MASK,
    PUBLISHED,
    SHORTS,
    SIZES,
    WORD,
    Names,
    ask,
    check,
    locate,
    spans_of,
)
from swerve.serving.ledger import MISPLACED
from swerve.serving.messages import RankResponse, encode
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Decided, Misplaced
from swerve.serving.responses import NAMES
from swerve.serving.rows import Place, Shelf
from swerve.serving.sealing import MOST_BYTES, Seal, answer
from swerve.serving.sessions import MASK as WORDS, SECRET
from swerve.serving.tokens import Signed, Tokens, page_of

SHORTEST = 24  # bytes of a request at least: bounds how many a body can have
SWAPPED = kernels.SWAPPED


class Read(NamedTuple):
    """The entries of a body, in columns; see `swerve.serving.scanning`."""

    body: bytes
    text: NDArray[np.uint8]
    entries: NDArray[np.int64]
    numbers: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.entries)

    def part(self, index: int) -> bytes:
        """Return the JSON of an entry."""
        begin, end = self.entries[index, : scanning.END + 1].tolist()
        return self.body[begin:end]


class Told(NamedTuple):
    """What a caller must know of decided requests besides their answers."""

    content: bytes  # the answers as JSON, with commas between them
    decided: int  # how many requests
    explored: int  # how many of them explore a result
    given: int  # how many have no decision: their context cannot be used, and they are answered in the given order
    alarms: list[tuple[bytes, int, int, int]]  # of those with an alarm or a restart: key, report, signal, phase


class Run:
    """Decisions that were made together, as the compiled call left them: sessions keep them for repeats."""

    __slots__ = ("asks", "facts", "now", "orders")

    def __init__(self, asks: Any, orders: Any, facts: Any, now: float) -> None:
        self.asks, self.orders, self.facts, self.now = asks.copy(), orders.copy(), facts.copy(), now


class Kept(msgspec.Struct, gc=False):
    """One decision of a run."""

    run: Run
    index: int
    session: int
    key: bytes
    last: list[Any]  # the candidates in the given order,
    order: bytes  # their arms,
    shorts: tuple[int, ...]  # their hashes by arm,
    raw: msgspec.Raw | None  # and their text

    def decided(self) -> Decided:
        """Return the decision."""
        ask = self.run.asks[self.index].tolist()
        filled, start, phase, explored, report, signal, evidence, seen = ask[kernels.FILLED : kernels.PAGE]
        begin = kernels.ANSWERED_ORDER
        shown = self.run.orders[self.index, begin : begin + len(self.order)].tolist()
        named = dict(zip(self.order, self.last, strict=True))
        page = page_of(ask[kernels.PAGE : kernels.PAGE + filled], [self.shorts[arm] & NAMES for arm in shown[:filled]])
        number, offer = ask[kernels.NUMBER], ask[kernels.OFFER]
        token = Signed(self.key, start, phase, number, self.session, evidence != 0, seen, offer, page)
        chances = self.run.facts[self.index, kernels.CHANCES : kernels.CHANCES + filled].tolist()
        made = Decided([named[arm] for arm in shown], token, chances, explored, phase, report, signal, self.run.now)
        if swapped := ask[SWAPPED]:
            made.swapped = [swapped & 15, swapped >> 4]
        made.raw = self.raw
        return made


class Bulk:
    """Decides batches for a ranker; `longest` is the number of characters of a session at most."""

    def __init__(self, ranker: Ranker, tokens: Tokens, longest: int) -> None:
        self.ranker, self.tokens, self.longest = ranker, tokens, longest
        self.names, self._seal = Names(), Seal(tokens.signing_state)
        self._number_names = scanning.names_of(ranker.settings.numbers)
        self._scan, self._answer, self._hash = scanning.scan.bind(), answer.bind(), hash_text.bind()
        self._locate, self._check, self._ask = locate.bind(), check.bind(), ask.bind()
        self._out = np.zeros(0, np.uint8)
        self._shelves = {shelf: number for number, shelf in enumerate(ranker.rows.tables)}

    def read(self, body: bytes, most: int) -> Read | None:
        """Read a list of requests into columns; None if it is none, or has more than `most` entries: the decoder says what is
        wrong."""
        text, room = np.frombuffer(body, np.uint8), min(most, len(body) // SHORTEST + 1)
        entries = np.empty((room, scanning.ENTRY), np.int64)
        numbers = np.empty((room, len(self.ranker.settings.numbers)))
        count = self._scan(SECRET, text, *self._number_names, self.longest, entries, numbers)
        return None if count < 0 else Read(body, text, entries[:count], numbers[:count])

    # ------------------------------------------------------------------ what rows were asked
    def note(self, text: str, place: Place) -> None:
        """Note the candidates that a row was asked last, and that a text, as it was sent, leads to it."""
        if place.raw is None or place.namespace is not None or place.shelf.rival:
            return
        key = int.from_bytes(place.key[:WORD], "little"), int.from_bytes(place.key[WORD:], "little")
        if not place.noted and not self._note(place, key):
            return
        low, high = self._hash(SECRET, text.encode("utf-8", "surrogatepass"))
        self.names.put(low, high, key, self._shelves[place.shelf], place.index)

    def _note(self, place: Place, key: tuple[int, int]) -> bool:
        """Write the columns of a row; return whether its candidates are such that their text can be used."""
        raw, asked, row, size = bytes(place.raw or b""), place.shelf.asked, place.index, len(place.order)
        spans = spans_of(raw, place.last, [encode(name) for name in place.last])
        if spans is None:
            return False
        words, arms = asked.words[row], asked.arms
        words[KEY], words[KEY_2] = key
        words[ASKED], words[ASKED_2] = self._hash(SECRET, raw)
        words[MASK], words[SIZES] = place.mask & WORDS, size | len(place.grades) << GRADED_BITS
        asked.floats[row, PUBLISHED] = place.published
        words[SHORTS : SHORTS + len(place.shorts)] = place.shorts
        asked.spans[row, : len(spans)] = spans
        asked.given[row, :size] = np.frombuffer(place.order, np.uint8)
        asked.given[row, arms : arms + len(place.grades)] = np.frombuffer(place.grades, np.uint8)
        place.noted = True
        return True

    def forget(self, keys: Collection[bytes]) -> None:
        """Forget the names of queries."""
        self.names.forget([(int.from_bytes(key[:WORD], "little"), int.from_bytes(key[WORD:], "little")) for key in keys])

    # ------------------------------------------------------------------ decide
    def locate(self, read: Read, first: int, last: int) -> None:
        """Find the rows of entries; their shelf is negative unless they repeat what their rows were asked last."""
        entries = read.entries[first:last]
        self._locate(self.names.table, entries)
        for number, shelf in enumerate(self.ranker.rows.tables):
            if len(shelf):
                self._check(shelf.asked.words, len(shelf), number, entries)

    def decide(self, read: Read, first: int, last: int, now: float, leave: Collection[bytes] = ()) -> Told | None:
        """Decide entries from the first on, as many as lie on one shelf and repeat what their rows were asked last; None if the
        first one is not such an entry, or a query of `leave`, or its session has asked the same query before."""
        ranker, entries, numbers = self.ranker, read.entries[first:last], read.numbers[first:last]
        number = int(entries[0, scanning.SHELF])
        if number < 0:
            return None
        shelf, packing = ranker.rows.tables[number], ranker.packing
        arrays, asked = packing.room_for(len(entries)), shelf.asked
        asks, orders, facts = arrays.asks, arrays.orders, arrays.facts
        count = self._ask(
            asked.words, asked.floats, asked.given, entries, numbers, len(shelf), ranker.settings.slots, ranker.next_number,
            asks, orders, facts,
        )  # fmt: skip
        places = list(map(shelf.owners.__getitem__, asks[:count, kernels.ROW].tolist()))
        persons = entries[:count, scanning.PERSON].view(np.uint64).tolist()
        count = self._sessions(places, persons, asks, facts, now, leave)
        if count == 0:
            return None
        del places[count:], persons[count:]
        asks, orders, facts = asks[:count], orders[:count], facts[:count]
        packing.call(shelf, places[0].common, asks, orders, facts, now)
        if (misplaced := np.flatnonzero(asks[:, kernels.FILLED] == MISPLACED)).size:
            raise Misplaced(places[int(misplaced[0])])
        self._keep(places, persons, Run(asks, orders, facts, now))
        reports = asks[:, kernels.REPORT]
        alarms = [
            (places[k].key, *asks[k, [kernels.REPORT, kernels.SIGNAL, kernels.PHASE]].tolist())
            for k in np.flatnonzero(reports & (ALARM | RESTARTED)).tolist()
        ]
        left = np.flatnonzero(asks[:, kernels.FILLED] <= 0).tolist()
        content, begin = list[bytes](), 0
        for k in (*left, count):
            if k > begin:
                content.append(self._said(read.text, entries[begin:k], asks[begin:k], orders[begin:k], facts[begin:k], shelf, now))
            if k < count:
                content.append(encode(RankResponse(None, places[k].last, None, None, None, True)))
            begin = k + 1
        explored = int(((asks[:, kernels.EXPLORED] >= 0) & (asks[:, kernels.FILLED] > 0)).sum())
        return Told(b",".join(content), count, explored, len(left), alarms)

    def _sessions(
        self, places: list[Place], persons: list[int], asks: Any, facts: Any, now: float, leave: Collection[bytes]
    ) -> int:
        """Add what sessions have done before to the columns; return how many requests can be decided together."""
        ranker = self.ranker
        find, moved, spent_by, asked_by = ranker.steady.find, ranker.sessions.moved, ranker.evidence.spent_by, set()
        for k, (place, person) in enumerate(zip(places, persons, strict=True)):
            key = place.key
            if leave and key in leave:
                return k
            if not person:
                continue
            if (person, key) in asked_by or find(person, key) is not None:
                return k  # the earlier one must be decided first, and may be shown again
            asked_by.add((person, key))
            before = moved(person, key, now)
            if before is not None:
                asks[k, kernels.LEFT], asks[k, kernels.LEFT_OWNER], facts[k, kernels.LEFT_AT] = ranker.left(place, before, now)
            found = spent_by(person, key)
            if found is not None:
                asks[k, kernels.SPENT], asks[k, kernels.SPENT_PHASE] = place.mask_of(found.results), found.phase
        return len(places)

    def _keep(self, places: list[Place], persons: list[int], run: Run) -> None:
        """Note what was shown to whom, and which rows have changed."""
        ranker = self.ranker
        limited, steady = ranker.evidence.limit > 0, ranker.settings.steady > 0.0
        shown, keep, mark, touch = ranker.evidence.shown, ranker.steady.keep, ranker.mark, ranker.rows.touch
        filled, phases, evidence = (run.asks[:, c].tolist() for c in (kernels.FILLED, kernels.PHASE, kernels.EVIDENCE))
        orders = run.orders[:, kernels.ANSWERED_ORDER :].tolist()
        for k, (place, person) in enumerate(zip(places, persons, strict=True)):
            touch(place.key)
            if filled[k] <= 0:
                continue
            if not place.dirty:
                mark(place, run.now)
            if not person:
                continue
            shorts = place.shorts
            if evidence[k] and limited:
                shown(person, place.key, phases[k], [shorts[arm] for arm in orders[k][: filled[k]]])
            if steady:
                keep(person, place.key, Kept(run, k, person, place.key, place.last, place.order, tuple(shorts), place.raw))

    def _said(self, text: Any, entries: Any, asks: Any, orders: Any, facts: Any, shelf: Shelf, now: float) -> bytes:
        """Return the answers to decided entries as JSON, with commas between them."""
        room = len(asks) * MOST_BYTES + int(entries[-1, scanning.END] - entries[0, scanning.BEGIN])
        if len(self._out) < room:
            self._out = np.zeros(room, np.uint8)
        life, seal, asked = self.tokens.life, self._seal, shelf.asked
        fixed = np.array([np.float64(now).view(np.uint64), life.store, life.mark], np.uint64)
        size = self._answer(
            text, entries, asks, orders, facts, asked.words, asked.spans, seal.state, seal.words, seal.bytes, seal.spots, fixed,
            self.ranker.settings.draws > 0, self._out,
        )  # fmt: skip
        return self._out[:size].tobytes()
