"""What rows were last asked, in columns beside their table, so that a batch of repeats needs no objects.

A row's columns have the key of its query and the hashes of its candidates by arm. If it was *noted*, they also have the hash of the
candidates of the last request as they were sent, and everything about these that a compiled call needs: their arms and grades,
their mask, when the newest was published, and where their ids are in the text. `Names` leads from the hash of a query's text to its
row. It is a hint: a row that belongs to another query, or was asked other candidates, is found in the usual way, and noted anew.

Tests: tests/service/test_ranking.py.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from swerve.core.contract import ALARM, RESTARTED
from swerve.core.engine import Entry
from swerve.core.siphash import siphash
from swerve.core.verbs import kernel
from swerve.serving.kernels import (
    AS_GIVEN,
    CANDIDATES,
    EXPLORED,
    FACTS,
    FILL,
    FILLED,
    GRADED,
    GRADES_AT,
    KEEP,
    KEEP_PAGE,
    KEY_2 as ASKED_KEY_2,
    LEFT,
    LEFT_AT,
    LEFT_OWNER,
    NEWEST,
    NUMBER,
    OFFER,
    OWNER,
    PERSON as ASKED_PERSON,
    REPORT,
    ROW as ASKED_ROW,
    SPENT,
    SPENT_PHASE,
)
from swerve.serving.scanning import (
    OPEN,
    OTHER,
    OWNED,
    OWNED_2,
    PERSON,
    QUERY,
    QUERY_2,
    QUOTE,
    RAW,
    RAW_2,
    ROW,
    SHELF,
    WANTED,
    string_end,
)

#: The words of a row: the key of its query, the hash of the candidates, their mask, when the newest was published (a floating-point
#: number), how many there are and, times 256, how many have grades; from `SHORTS` on the keyed hash of each arm's candidate.
KEY, KEY_2, ASKED, ASKED_2, MASK, PUBLISHED, SIZES, SHORTS = range(8)
GRADED_BITS = 8
#: Bits of a row's flags: the row has unwritten changes; it was used since it was last considered for leaving memory; and, times
#: `TOLD`, the generation of the journal in which it was written down. A batch sees and sets them without a look at any `Place`,
#: which would have to come from memory.
DIRTY, USED, TOLD = 1, 2, 4
#: Bytes of a word, and of the place of an id: where it begins, and its length.
WORD, SPAN = 8, 4

#: The words of a name: the hash of a text, the key of its query, its shelf and its row.
NAME, NAME_2, NAMED, NAMED_2, AT, NAME_WORDS = range(6)
ROW_BITS = 32
#: Names that are kept at most, a power of two, twice as many as it takes for a hundred thousand queries to lose hardly any; and how
#: many may stand where the hash says.
MOST_NAMES, WAYS = 1 << 18, 4


class Columns:
    """The columns of one shelf, with memory for `room` rows of `arms` arms, which the system provides where it is used."""

    def __init__(self, room: int, arms: int) -> None:
        self.arms, self.size = arms, width_of(arms)
        memory = mmap.mmap(-1, room * self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.rows = np.frombuffer(memory, np.uint8).reshape(room, self.size)
        words = np.frombuffer(memory, np.uint64).reshape(room, self.size // WORD)
        spans = (SHORTS + arms) * WORD
        self.words, self.floats = words, words.view(np.float64)
        self.spans = np.frombuffer(memory, np.uint16).reshape(room, self.size // 2)[:, spans // 2 : spans // 2 + 2 * arms]
        self.given = self.rows[:, spans + SPAN * arms :]  # arms in the given order, then grades
        self.flags = np.zeros(room, np.uint64)  # apart: those of many rows arrive together
        self.memory = memory

    def clear(self, row: int) -> None:
        """Forget what a row was asked."""
        self.words[row, ASKED : ASKED_2 + 1] = 0

    def begin(self, row: int, key: bytes, flags: int = 0) -> None:
        """Give a row to another query."""
        self.words[row] = 0
        self.words[row, : len(key) // WORD] = np.frombuffer(key, np.uint64)
        self.flags[row] = flags

    def flag(self, row: int, flags: int) -> None:
        """Set the flags of a row, except whether it was used."""
        self.flags[row] = int(self.flags[row]) & USED | flags

    def move(self, row: int, to: int) -> None:
        """Copy what is known of a row to another one."""
        self.rows[to], self.flags[to] = self.rows[row], self.flags[row]

    def used(self, row: int) -> bool:
        """Return whether a row was used since the last call."""
        flags = int(self.flags[row])
        self.flags[row] = flags & ~USED
        return flags & USED != 0

    def name(self, row: int, shorts: Sequence[int], arm: int = 0) -> None:
        """Set the hashes of candidates, from an arm on."""
        self.words[row, SHORTS + arm : SHORTS + arm + len(shorts)] = shorts


def width_of(arms: int) -> int:
    """Return the bytes of a row's columns."""
    return (SHORTS + arms) * WORD + SPAN * arms + 2 * arms


def spans_of(raw: bytes, ids: Sequence[str], encoded: Sequence[bytes]) -> list[int] | None:
    """Return where the ids are in the text of candidates, as pairs of offset and length, quotes included; None unless each is there
    as the encoder writes it.

    >>> spans_of(b'["a", {"score": 2, "id": "b"}]', ["a", "b"], [b'"a"', b'"b"'])
    [1, 3, 25, 3]
    """
    if b"\\" in raw:
        return None
    pieces, at, found = raw.split(b'"'), 0, list[int]()
    objects = b"{" in pieces[0] or any(b"{" in piece for piece in pieces[2::2])
    named, inside = False, 0
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            inside += piece.count(b"{") - piece.count(b"}")
        else:
            key = objects and inside > 0 and pieces[index + 1].lstrip().startswith(b":")
            if not key and (inside == 0 or named):
                found += (at - 1, len(piece) + 2)
            named = key and piece == b"id"
        at += len(piece) + 1
    if len(found) != 2 * len(ids):
        return None
    same = all(raw[start : start + size] == text for start, size, text in zip(found[::2], found[1::2], encoded, strict=True))
    return found if same else None


class Names:
    """Where the query of a text lies, by the hash of the text. A full bucket forgets one of its names."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self.table: NDArray[np.uint64] = np.zeros((most + WAYS, NAME_WORDS), np.uint64)

    def forget(self, keys: Collection[tuple[int, int]]) -> None:
        """Forget the names of queries."""
        for first, second in keys:
            gone = (self.table[:, NAMED] == first) & (self.table[:, NAMED_2] == second)
            self.table[gone] = 0


@Entry
def put_name(names, key, text, owner, second, shelf, row):
    """Note where the query of a text, given as bytes, lies; `owner` and `second` are its key."""
    low, high = siphash(key, text, 0, len(text))
    begin = np.int64(low & np.uint64(len(names) - WAYS - 1))
    free = begin + np.int64(high % np.uint64(WAYS))
    for way in range(begin, begin + WAYS):
        if names[way, NAME] == 0 or names[way, NAME] == low:
            free = way
            break
    names[free, NAME], names[free, NAME_2] = low, high
    names[free, NAMED], names[free, NAMED_2] = np.uint64(np.int64(owner)), np.uint64(np.int64(second))
    names[free, AT] = np.uint64(shelf) << np.uint64(ROW_BITS) | np.uint64(row)


@kernel
def put_spans(raw, spans):
    """Write where the ids are in a list of texts, quotes included; return how many there are, −1 if the list has anything else, or
    escapes."""
    count, at = 0, 0
    while at < len(raw):
        byte = raw[at]
        if byte == QUOTE:
            stop = string_end(raw, at, 255)
            if stop < 0 or 2 * count >= len(spans):
                return -1
            spans[2 * count], spans[2 * count + 1] = at, stop + 1 - at
            count += 1
            at = stop
        elif byte == OPEN:
            return -1
        at += 1
    return count


@Entry
def put_asked(key, raw, order, grades, mask, published, words, floats, spans, given, row):
    """Write what a row was asked into its columns: the candidates as they were sent, their arms and grades, their mask, and when
    the newest was published. Return whether they are a list of texts; otherwise the spans are the caller's to write."""
    arms = given.shape[1] // 2
    low, high = siphash(key, raw, 0, len(raw))
    words[row, ASKED], words[row, ASKED_2] = low, high
    words[row, MASK] = np.uint64(np.int64(mask))
    words[row, SIZES] = np.uint64(len(order) | len(grades) << GRADED_BITS)
    floats[row, PUBLISHED] = published
    for position in range(len(order)):
        given[row, position] = order[position]
    for position in range(len(grades)):
        given[row, arms + position] = grades[position]
    return put_spans(raw, spans[row]) == len(order)


@Entry
def locate(names, entries):
    """Write the shelf and the row of each plain entry's query, −1 where it is not known."""
    mask = np.uint64(len(names) - WAYS - 1)
    for k in range(len(entries)):
        entry = entries[k]
        entry[SHELF] = -1
        if entry[OTHER]:
            continue
        low, high = np.uint64(entry[QUERY]), np.uint64(entry[QUERY_2])
        begin = np.int64(low & mask)
        for way in range(begin, begin + WAYS):
            if names[way, NAME] == low and names[way, NAME_2] == high:
                entry[SHELF] = np.int64(names[way, AT] >> np.uint64(ROW_BITS))
                entry[ROW] = np.int64(names[way, AT] & np.uint64((1 << ROW_BITS) - 1))
                entry[OWNED], entry[OWNED_2] = np.int64(names[way, NAMED]), np.int64(names[way, NAMED_2])
                break


@kernel
def repeats(words, rows, entry):
    """Return whether the row of an entry belongs to its query, and was last asked the same candidates."""
    i = entry[ROW]
    if i >= rows or words[i, KEY] != np.uint64(entry[OWNED]) or words[i, KEY_2] != np.uint64(entry[OWNED_2]):
        return False
    return words[i, ASKED] == np.uint64(entry[RAW]) and words[i, ASKED_2] == np.uint64(entry[RAW_2])


@Entry
def check(words, rows, shelf, entries):
    """Take entries off a shelf, which has `rows` rows, whose row belongs to another query or was last asked other candidates."""
    for k in range(len(entries)):
        if entries[k, SHELF] == shelf and not repeats(words, rows, entries[k]):
            entries[k, SHELF] = -1
    return 0


@Entry
def ask(words, floats, given, entries, numbers, rows, slots, number, asks, orders, facts):
    """Write the columns of `rank_many` for entries whose queries lie on one shelf; return for how many from the first on.

    It ends with an entry whose row has other candidates than the request, or has been given to another query. `given` are the
    arms and grades of rows, `rows` is how many rows the shelf has, `slots` is what an entry gets that names none, and `number` is
    that of the first decision.
    """
    arms = given.shape[1] // 2
    for k in range(len(entries)):
        entry = entries[k]
        if entry[SHELF] < 0 or entry[SHELF] != entries[0, SHELF] or not repeats(words, rows, entry):
            return k
        i = entry[ROW]
        size = np.int64(words[i, SIZES] & np.uint64((1 << GRADED_BITS) - 1))
        graded = np.int64(words[i, SIZES] >> np.uint64(GRADED_BITS))
        asks[k, ASKED_ROW] = i
        asks[k, OWNER] = np.int64(words[i, KEY])
        asks[k, ASKED_KEY_2] = np.int64(words[i, KEY_2])
        asks[k, OFFER] = np.int64(words[i, MASK])
        asks[k, ASKED_PERSON] = entry[PERSON]
        asks[k, KEEP] = KEEP_PAGE
        asks[k, LEFT] = -1
        asks[k, LEFT_OWNER] = 0
        asks[k, SPENT] = 0
        asks[k, SPENT_PHASE] = 0
        asks[k, CANDIDATES] = size
        asks[k, GRADED] = graded
        asks[k, FILL] = entry[WANTED] if entry[WANTED] > 0 else slots
        asks[k, AS_GIVEN] = 0
        asks[k, NUMBER] = number + k
        for position in range(size):
            orders[k, position] = given[i, position]
        for position in range(graded):
            orders[k, GRADES_AT + position] = given[i, arms + position]
        facts[k, NEWEST] = floats[i, PUBLISHED]
        facts[k, LEFT_AT] = 0.0
        for index in range(numbers.shape[1]):
            facts[k, FACTS + index] = numbers[k, index]
    return len(entries)


@Entry
def unknown(flags, asks, told, found):
    """Write the rows of requests that were not written down in a generation of the journal into `found`; return how many."""
    count = 0
    for k in range(len(asks)):
        if flags[asks[k, ASKED_ROW]] // np.uint64(TOLD) != np.uint64(told):
            found[count] = asks[k, ASKED_ROW]
            count += 1
    return count


#: The lines of `found` in `settle`.
CHANGED, UNFILLED, ALARMED, FOUND = range(4)


@Entry
def settle(flags, asks, found):
    """Note that the rows of decided requests were used and have changes.

    Return how many of them had none, how many requests have no page, how many an alarm or a restart, and how many explore a
    result; `found` gets the rows of the first, in the order of their requests, and the indices of the next two.
    """
    changed = unfilled = alarmed = explored = 0
    for k in range(len(asks)):
        row = asks[k, ASKED_ROW]
        if flags[row] & np.uint64(DIRTY) == 0:
            found[CHANGED, changed] = row
            changed += 1
        flags[row] |= np.uint64(DIRTY | USED)
        if asks[k, FILLED] <= 0:
            found[UNFILLED, unfilled] = k
            unfilled += 1
        elif asks[k, EXPLORED] >= 0:
            explored += 1
        if asks[k, REPORT] & (ALARM | RESTARTED):
            found[ALARMED, alarmed] = k
            alarmed += 1
    return changed, unfilled, alarmed, explored
