"""Reads rank requests that come as columns of an Arrow stream, in one compiled call; `swerve.serving.bulk` decides them.

A column is a field of a request, with the same name and meaning; null means left out. Entries are plain as those of a JSON list are
(`swerve.serving.scanning`), and then no object is made for them: the query, the candidates and the session become hashes, the
candidates also the text that a JSON request would have of them. For any other entry that request is made, when it is needed, so
that the same checks refuse it with the same words.

Tests: tests/serving/test_gathering.py, tests/service/test_arrow.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.errors import nearest, shown
from swerve.core.examination import SLOTS
from swerve.core.siphash import siphash
from swerve.core.verbs import kernel
from swerve.serving.arrow import (
    BOOL,
    FLOAT,
    INT,
    LARGE_LIST,
    LARGE_TEXT,
    LIST,
    NULL,
    STRUCTURE,
    TEXT,
    TIME,
    UNITS,
    Batch,
    Column,
    Field,
    Message,
    not_taken,
)
from swerve.serving.checks import Limits
from swerve.serving.messages import Asked, Refused, encode
from swerve.serving.people import SECRET
from swerve.serving.scanning import (
    BACKSLASH,
    CLOSE_LIST,
    COMMA,
    ENTRY,
    FIRST_PRINTED,
    LAST_ASCII,
    OPEN_LIST,
    OTHER,
    PERSON,
    QUERY,
    QUERY_2,
    QUOTE,
    RAW,
    RAW_2,
    RAW_AT,
    SHELF,
    WANTED,
)

TEXTS, LISTS, NUMBERS = (TEXT, LARGE_TEXT), (LIST, LARGE_LIST), (INT, FLOAT)
COLUMNS = Asked.__struct_fields__
NEEDED = ("query", "candidates")
#: The fields that a plain entry has.
PLAIN = ("query", "candidates", "slots", "signals", "session")
#: Bytes that a text takes in JSON besides its own: quotes, a comma; and those of a number.
TEXT_BYTES, NUMBER_BYTES = 3, 8


@kernel
def is_printed(body, begin, end):
    """Return whether a text is ASCII without controls."""
    printed = True
    for at in range(begin, end):
        printed &= FIRST_PRINTED <= body[at] <= LAST_ASCII
    return printed


@Entry
def gather(key, body, queries, lists, ids, sessions, present, longest, first, last, entries, text, at):
    """Read entries from `first` to `last`, of those that may be plain, into `entries`, and their candidates as JSON into `text`,
    from `at` on; return the offset behind them.

    `queries`, `ids` and `sessions` are where texts begin in the body, `lists` where each entry's begin in `ids`; `present` says
    which entries have a session, whose characters are at most `longest`.
    """
    for k in range(first, last):
        entry = entries[k]
        if entry[OTHER]:
            continue
        begin, end = sessions[k], sessions[k + 1]
        if present[k]:
            if not 0 < end - begin <= longest or not is_printed(body, begin, end):
                entry[OTHER] = 1
                continue
            low, _ = siphash(key, body, begin, end)
            entry[PERSON] = np.int64(low) if low != 0 else np.int64(1)
        start = at
        text[at] = OPEN_LIST
        at += 1
        for index in range(lists[k], lists[k + 1]):
            if index > lists[k]:
                text[at] = COMMA
                at += 1
            text[at] = QUOTE
            at += 1
            for spot in range(ids[index], ids[index + 1]):
                byte = body[spot]
                if byte in (QUOTE, BACKSLASH) or byte < FIRST_PRINTED:
                    entry[OTHER] = 1
                text[at] = byte
                at += 1
            text[at] = QUOTE
            at += 1
        text[at] = CLOSE_LIST
        at += 1
        low, high = siphash(key, text, start, at)
        entry[RAW], entry[RAW_2], entry[RAW_AT] = np.int64(low), np.int64(high), start
        low, high = siphash(key, body, queries[k], queries[k + 1])
        entry[QUERY], entry[QUERY_2] = np.int64(low), np.int64(high)
    return at


def check_fields(fields: Sequence[Field]) -> None:
    """Refuse columns that requests do not have, two of a name, missing ones, and other types than they have."""
    names = [field.name for field in fields]
    for field in fields:
        if field.name not in COLUMNS:
            listed = f"requests have {', '.join(COLUMNS)}{nearest(field.name, COLUMNS)}"
            raise Refused(422, "invalid", f"the stream has a column {shown(field.name)}; {listed}", field.name)
        if names.count(field.name) > 1:
            raise Refused(422, "repeated", f"the stream has two columns {shown(field.name)}", field.name)
        if field.kind != NULL and not _fits(field):
            raise not_taken(field.name, str(field))
    for name in NEEDED:
        if name not in names:
            raise Refused(422, "invalid", f"the stream has no column {name}", name)


def _fits(field: Field) -> bool:
    if field.name == "slots":
        return field.kind == INT
    if field.name == "signals":
        return field.kind == STRUCTURE and _differ(field) and all(child.kind in (*NUMBERS, NULL) for child in field.children)
    if field.name != "candidates":
        return field.kind in TEXTS
    if field.kind not in LISTS:
        return False
    (item,) = field.children
    if item.kind != STRUCTURE:
        return item.kind in (*TEXTS, NULL)
    kinds: dict[str, tuple[int, ...]] = {"id": TEXTS, "published_at": (*NUMBERS, TIME, NULL), "score": (*NUMBERS, NULL)}
    return _differ(item) and all(child.kind in kinds.get(child.name, ()) for child in item.children)


def _differ(field: Field) -> bool:
    """Return whether no two fields of a structure have one name."""
    return len({child.name for child in field.children}) == len(field.children)


def weights(column: Column) -> NDArray[np.int64]:
    """Return about how many bytes of JSON each value of a column is."""
    if column.field.kind in TEXTS:
        return column.ends[1:] - column.ends[:-1] + TEXT_BYTES
    if column.field.kind in LISTS:
        so_far = np.concatenate([np.zeros(1, np.int64), np.cumsum(weights(column.children[0]))])
        total: NDArray[np.int64] = so_far[column.ends[1:]] - so_far[column.ends[:-1]] + TEXT_BYTES
        return total
    found = np.full(len(column), NUMBER_BYTES, np.int64)
    for child in column.children:
        found += weights(child)
    return found


class Gathered:
    """Requests in the columns of one batch of a stream; see `swerve.serving.bulk.Read`, whose methods it has.

    `entry_bytes` is how large one may be. The columns of entries are set by `begin`, and by `gather`, a part after the other; they
    are apart so that a large batch can be read in turns.
    """

    def __init__(
        self, body: bytes, message: Message, fields: Sequence[Field], numbers: Sequence[str], limits: Limits, entry_bytes: int
    ) -> None:
        self._body, self._limits, self._entry_bytes, self._names = body, limits, entry_bytes, numbers
        batch = Batch(body, message, limits.batch)
        self.columns = {field.name: batch.column(field, batch.length) for field in fields}
        batch.done()
        count = batch.length
        self.entries = np.zeros((count, ENTRY), np.int64)
        self.entries[:, SHELF] = -1
        self.numbers = np.full((count, len(numbers)), np.nan)
        self._weights: NDArray[np.int64] | None = None
        self.text: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._at = 0

    def begin(self) -> None:
        """Find out which entries are not plain, before any is gathered."""
        count, limit = len(self), self._entry_bytes
        other = self.weights > limit if len(self._body) > limit else np.zeros(count, np.bool_)
        for name, column in self.columns.items():
            if name in NEEDED:
                other |= ~column.valid
            elif name not in PLAIN:
                other |= column.valid
        other |= self._wanted() | self._given(self._names)
        candidates = self.columns["candidates"]
        if candidates.field.kind == NULL or candidates.children[0].field.kind not in TEXTS:
            other[:] = True
        else:
            ids = candidates.children[0]
            if not ids.valid.all():
                missing = np.concatenate([np.zeros(1, np.int64), np.cumsum(~ids.valid)])
                other |= missing[candidates.ends[1:]] > missing[candidates.ends[:-1]]
        self.entries[:, OTHER] = other
        size = 0 if other.all() else int(ids.ends[-1] - ids.ends[0]) + TEXT_BYTES * (len(ids) + count)
        self.text = np.empty(size, np.uint8)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def weights(self) -> NDArray[np.int64]:
        """About how many bytes of JSON each entry is."""
        if self._weights is None:
            self._weights = sum((weights(column) for column in self.columns.values()), np.zeros(len(self.entries), np.int64))
        return self._weights

    def _wanted(self) -> NDArray[np.bool_]:
        """Set the slots to fill; return which entries are not plain for them."""
        column = self.columns.get("slots")
        if column is None or column.field.kind == NULL:
            return np.zeros(len(self), np.bool_)
        fine = column.valid & (column.numbers >= 1) & (column.numbers <= SLOTS)
        self.entries[fine, WANTED] = column.numbers[fine].astype(np.int64)
        out: NDArray[np.bool_] = column.valid & ~fine
        return out

    def _given(self, numbers: Sequence[str]) -> NDArray[np.bool_]:
        """Set the numbers; return which entries are not plain for theirs."""
        other = np.zeros(len(self), np.bool_)
        column = self.columns.get("signals")
        for child in () if column is None else column.children:
            assert column is not None
            if child.field.name not in numbers:
                other |= column.valid
            elif child.field.kind != NULL:
                given = child.numbers.astype(np.float64)
                there = column.valid & child.valid
                self.numbers[there, numbers.index(child.field.name)] = given[there]
                other |= there & ~np.isfinite(given)
        return other

    def gather(self, compiled: Any, longest: int, first: int, last: int) -> None:
        """Read entries from `first` to `last`, by the compiled `gather`; from the first on, in parts."""
        if not len(self.text):
            return
        none, candidates, session = np.zeros(len(self) + 1, np.int64), self.columns["candidates"], self.columns.get("session")
        given = session is not None and session.field.kind != NULL
        self._at = compiled(
            SECRET, np.frombuffer(self._body, np.uint8), self.columns["query"].ends, candidates.ends, candidates.children[0].ends,
            session.ends if session is not None and given else none,
            session.valid if session is not None and given else none[:-1].astype(np.bool_),
            longest, first, last, self.entries, self.text, self._at,
        )  # fmt: skip

    # ------------------------------------------------------------------ as JSON
    def part(self, index: int) -> bytes:
        """Return an entry as JSON; raises `Refused` for what JSON cannot say."""
        if len(self._body) > self._entry_bytes and self.weights[index] > self._entry_bytes:
            raise Refused(413, "too_large", f"the entry is larger than the {self._entry_bytes} bytes that [limits] allows")
        candidates = self.columns["candidates"]
        if candidates.field.kind != NULL and candidates.valid[index]:
            count, most = int(candidates.ends[index + 1] - candidates.ends[index]), self._limits.candidates
            if count > most:  # before an object is made for each
                message = f"candidates has {count} entries; at most {most} are allowed"
                raise Refused(422, "too_many", message, "candidates", most)
        found = {name: self._value(column, index, name) for name, column in self.columns.items()}
        return encode({name: value for name, value in found.items() if value is not None})

    def moved(self, refused: Refused, index: int) -> Refused:
        """Return the refusal of an entry as that of the body."""
        return refused

    def _value(self, column: Column, index: int, path: str) -> Any:
        field = column.field
        if not column.valid[index]:
            return None
        if field.kind in TEXTS:
            try:
                return self._body[column.ends[index] : column.ends[index + 1]].decode()
            except UnicodeDecodeError as trouble:
                raise Refused(400, "not_arrow", f"column {shown(path)} is not UTF-8: {trouble.reason}", path) from None
        if field.kind in LISTS:
            each = range(column.ends[index], column.ends[index + 1])
            return [self._value(column.children[0], at, f"{path}[{at - each[0]}]") for at in each]
        if field.kind == STRUCTURE:
            return {child.field.name: self._value(child, index, f"{path}.{child.field.name}") for child in column.children}
        value = column.numbers[index].item()
        if field.kind == FLOAT and not math.isfinite(value):
            raise Refused(422, "invalid", f"{path} is {value}; numbers must be finite", path)
        return value if field.kind in (INT, BOOL, FLOAT) else value / UNITS[field.unit]
