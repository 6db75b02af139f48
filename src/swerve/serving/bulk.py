"""Batches in columns: a JSON list or an Arrow stream of requests is read, decided and answered in a few compiled calls, without
objects per request.

Plain requests (`swerve.serving.scanning`) that repeat the candidates of their query's last request are decided here, those of one
shelf together. All others are the caller's to decide, one by one, with `Ranker.rank`. Answers, tokens and records are the same
bytes either way.

Tests: tests/service/test_ranking.py, tests/serving/test_scanning.py, tests/serving/test_sealing.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from swerve.serving import kernels, scanning
from swerve.serving.columns import (
    ALARMED,
    CHANGED,
    FOUND,
    NAME_WORDS,
    UNFILLED,
    WAYS,
    WORD,
    Columns,
    Names,
    ask,
    check,
    locate,
    put_asked,
    put_name,
    settle,
    spans_of,
    unknown,
)
from swerve.serving.gathering import Gathered, gather
from swerve.serving.ledger import MISPLACED
from swerve.serving.messages import Problem, RankResponse, Refused, encode
from swerve.serving.people import SECRET
from swerve.serving.place import Place
from swerve.serving.ranker import Ranker
from swerve.serving.requests import Misplaced
from swerve.serving.rows import Shelf
from swerve.serving.sealing import ENDS, MOST_BYTES, SWAP_ENDS, TOKEN_ENDS, Said, Seal, answer, answer_columns
from swerve.serving.tokens import LENGTHS, LONGEST_KEY, Tokens

SHORTEST = 24  # bytes of a request at least: bounds how many a body can have


#: The compiled code of this module, which is the same for all policies.
ENTRIES = (scanning.scan, gather, locate, check, ask, unknown, settle, answer, answer_columns, put_name, put_asked)


def digest() -> str:
    """Return the fingerprint of the compiled code."""
    return hashlib.blake2b(" ".join(entry.digest() for entry in ENTRIES).encode(), digest_size=WORD).hexdigest()


def compile_for(ranker: Ranker) -> None:
    """Compile (or load) the code of batches, by calls for no entry."""
    Bulk(ranker, Tokens((bytes(LONGEST_KEY),), ranker.life), 1).idle()


class Listed(NamedTuple):
    """The entries of a JSON list, in columns; see `swerve.serving.scanning`."""

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

    def moved(self, refused: Refused, index: int) -> Refused:
        """Return the refusal of an entry as that of the body: offsets count from its begin."""
        return refused.moved(int(self.entries[index, scanning.BEGIN]))


#: The entries of a body, in columns.
Read = Listed | Gathered


class Decisions(NamedTuple):
    """Decided requests, in columns, for who writes the answers."""

    text: NDArray[np.uint8]
    entries: NDArray[np.int64]
    asks: NDArray[np.int64]
    orders: NDArray[np.uint8]
    facts: NDArray[np.float64]
    shelf: Shelf
    now: float


class Form(Protocol):
    """How answers are written."""

    def columns(self, bulk: Bulk, decided: Decisions) -> Any:
        """Return the answers to requests that were decided in columns."""

    def one(self, answer: RankResponse | Problem) -> Any:
        """Return one answer."""


class Json:
    """Answers as JSON: what both methods return has commas between it, and none around it."""

    def columns(self, bulk: Bulk, decided: Decisions) -> bytes:
        return bulk.said(decided)

    def one(self, answer: RankResponse | Problem) -> bytes:
        return encode(answer)


JSON = Json()


class Told(NamedTuple):
    """What a caller must know of decided requests besides their answers."""

    content: list[Any]  # the answers, in pieces, in the form that was asked for
    decided: int  # how many requests
    explored: int  # how many of them explore a result
    given: int  # how many have no decision: their context cannot be used, and they are answered in the given order
    alarms: list[tuple[bytes, int, int, int]]  # of those with an alarm or a restart: key, report, signal, phase


class Bulk:
    """Decides batches for a ranker; `longest` is the number of characters of a session at most."""

    def __init__(self, ranker: Ranker, tokens: Tokens, longest: int) -> None:
        self.ranker, self.tokens, self.longest = ranker, tokens, longest
        self.names, self._seal = Names(), Seal(tokens.signing_state)
        self._number_names = scanning.names_of(ranker.settings.numbers)
        self._scan, self._answer = scanning.scan.bind(), answer.bind()
        self._put_name, self._put_asked = put_name.bind(), put_asked.bind()
        self._locate, self._check, self._ask = locate.bind(), check.bind(), ask.bind()
        self._unknown, self._settle = unknown.bind(), settle.bind()
        self._gather, self._columns = gather.bind(), answer_columns.bind()
        self._out, self._found = np.zeros(0, np.uint8), np.zeros((FOUND, 1), np.int64)
        self._shelves = {shelf: number for number, shelf in enumerate(ranker.rows.tables)}

    def read(self, body: bytes, most: int) -> Listed | None:
        """Read a list of requests into columns; None if it is none, or has more than `most` entries: the decoder says what is
        wrong."""
        text, room = np.frombuffer(body, np.uint8), min(most, len(body) // SHORTEST + 1)
        entries = np.empty((room, scanning.ENTRY), np.int64)
        numbers = np.empty((room, len(self.ranker.settings.numbers)))
        count = self._scan(SECRET, text, *self._number_names, self.longest, entries, numbers)
        return None if count < 0 else Listed(body, text, entries[:count], numbers[:count])

    def idle(self) -> None:
        """Call everything that is compiled, for no entry."""
        read, shelf, packing = self.read(b"[]", 1), self.ranker.rows.tables[0], self.ranker.packing
        assert read is not None
        arrays, asked = packing.room_for(1), shelf.asked
        one = Columns(1, asked.arms)
        self._put_asked(SECRET, b"[]", b"", b"", 0, 0.0, one.words, one.floats, one.spans, one.given, 0)
        self._put_name(np.zeros((WAYS + 1, NAME_WORDS), np.uint64), SECRET, b"", 0, 0, 0, 0)
        self._locate(self.names.table, read.entries)
        self._check(asked.words, 0, 0, read.entries)
        columns = arrays.asks[:0], arrays.orders[:0], arrays.facts[:0]
        self._ask(asked.words, asked.floats, asked.given, read.entries, read.numbers, 0, 1, 1, *columns)
        self._unknown(asked.flags, columns[0], 0, self._found[CHANGED])
        self._settle(asked.flags, columns[0], self._found)
        decided = Decisions(read.text, read.entries, *columns, shelf, 0.0)
        self.said(decided)
        self.said_in_columns(decided._replace(text=self._out))
        entries, ends = np.zeros((0, scanning.ENTRY), np.int64), np.zeros(1, np.int64)
        self._gather(SECRET, read.text, ends, ends, ends, ends, np.zeros(0, np.bool_), 1, 0, 0, entries, self._out, 0)

    def gather(self, gathered: Gathered, first: int, last: int) -> None:
        """Read entries of a batch in columns, from the first on, in parts."""
        gathered.gather(self._gather, self.longest, first, last)

    # ------------------------------------------------------------------ what rows were asked
    def note(self, text: str, place: Place) -> None:
        """Note the candidates that a row was asked last, and that a text, as it was sent, leads to it."""
        if place.raw is None or place.namespace is not None or place.shelf.rival:
            return
        if not place.noted and not self._note(place, bytes(place.raw)):
            return
        sent, shelf = text.encode("utf-8", "surrogatepass"), self._shelves[place.shelf]
        self._put_name(self.names.table, SECRET, sent, place.owner, place.second, shelf, place.index)

    def _note(self, place: Place, raw: bytes) -> bool:
        """Write the columns of a row; return whether its candidates are such that their text can be used."""
        asked, row = place.shelf.asked, place.index
        columns = asked.words, asked.floats, asked.spans, asked.given, row
        if not self._put_asked(SECRET, raw, place.order, place.grades, place.mask, place.published, *columns):
            spans = spans_of(raw, place.last, [encode(name) for name in place.last])
            if spans is None:
                asked.clear(row)
                return False
            asked.spans[row, : len(spans)] = spans
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
            self._check(shelf.asked.words, len(shelf), number, entries)

    def decide(
        self, read: Read, first: int, last: int, now: float, leave: Collection[bytes] = (), form: Form = JSON
    ) -> Told | None:
        """Decide entries from the first on, as many as lie on one shelf and repeat what their rows were asked last, and write their
        answers in a form; None if the first one is not such an entry, or a query of `leave`, or its session has asked the same
        query before."""
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
        if leave:
            keys = (shelf.owners[row].key for row in asks[:count, kernels.ROW].tolist())
            count = next((k for k, key in enumerate(keys) if key in leave), count)
        owners, found = shelf.owners, self._room_for(count)
        if ranker.notes is not None:
            strange = self._unknown(asked.flags, asks[:count], ranker.notes.generation, found[CHANGED])
            for row in found[CHANGED, :strange].tolist():
                ranker.notes.know(owners[row])
        if count:
            common = owners[int(asks[0, kernels.ROW])].common
            count = packing.decide_columns(shelf, common, asks[:count], orders[:count], facts[:count], now, steady=True)
        if count == 0:
            return None
        asks, orders, facts = asks[:count], orders[:count], facts[:count]
        changed, unfilled, alarmed, explored = self._settle(asked.flags, asks, found)
        for row in found[CHANGED, :changed].tolist():
            ranker.mark(owners[row], now)
        left, places = found[UNFILLED, :unfilled].tolist(), dict[int, Place]()
        for k in left:
            place = places[k] = owners[asks[k, kernels.ROW]]
            if asks[k, kernels.FILLED] == MISPLACED:
                raise Misplaced(place)
        alarms = [
            (owners[asks[k, kernels.ROW]].key, *asks[k, [kernels.REPORT, kernels.SIGNAL, kernels.PHASE]].tolist())
            for k in found[ALARMED, :alarmed].tolist()
        ]
        content, begin = list[Any](), 0
        for k in (*left, count):
            if k > begin:
                columns = entries[begin:k], asks[begin:k], orders[begin:k], facts[begin:k]
                content.append(form.columns(self, Decisions(read.text, *columns, shelf, now)))
            if k < count:
                content.append(form.one(RankResponse(None, places[k].last, None, None, None, True)))
            begin = k + 1
        return Told(content, count, explored, len(left), alarms)

    def _room_for(self, count: int) -> NDArray[np.int64]:
        """Return room for what is found out about so many requests."""
        if self._found.shape[1] < count:
            self._found = np.zeros((FOUND, count), np.int64)
        return self._found

    def said(self, decided: Decisions) -> bytes:
        """Return the answers to decided entries as JSON, with commas between them."""
        room = len(decided.asks) * MOST_BYTES + len(decided.text)
        if len(self._out) < room:
            self._out = np.zeros(room, np.uint8)
        size = self._answer(*self._sealed(decided), self.ranker.settings.draws > 0, self._out)
        return self._out[:size].tobytes()

    def said_in_columns(self, decided: Decisions) -> Said:
        """Return the answers to decided entries in columns."""
        asks = decided.asks
        count, slots, results = len(asks), int(asks[:, kernels.FILLED].sum()), int(asks[:, kernels.CANDIDATES].sum())
        signed, texts = np.empty(count * LENGTHS[-1], np.uint8), np.empty(len(decided.text), np.uint8)
        ends, text_ends = np.zeros((ENDS, count + 1), np.int32), np.zeros(results + 1, np.int32)
        shares, swaps = np.empty(slots), np.empty(2 * count, np.int64)
        size = self._columns(*self._sealed(decided), signed, ends, texts, text_ends, shares, swaps)
        return Said(signed[: ends[TOKEN_ENDS, -1]], ends, texts[:size], text_ends, shares, swaps[: ends[SWAP_ENDS, -1]])

    def _sealed(self, decided: Decisions) -> tuple[Any, ...]:
        """Return what `answer` and `answer_columns` take first."""
        text, entries, asks, orders, facts, shelf, now = decided
        life, seal, asked = self.tokens.life, self._seal, shelf.asked
        fixed = np.array([np.float64(now).view(np.uint64), life.store, life.mark], np.uint64)
        return (
            text, entries, asks, orders, facts, asked.words, asked.spans, seal.state, seal.words, seal.bytes, seal.spots, fixed
        )  # fmt: skip
