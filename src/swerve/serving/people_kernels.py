"""Compiled code for what sessions have asked and been shown, see `swerve.serving.people`.

There are two tables. One has the last query of each session. The other has, for each session and query, a *page*: the last ranking,
so that it can be shown again, and the units of evidence that the session has used. Each table has two generations: the older one is
dropped when the younger is full, and whatever is used moves to the younger. An index, by hash, leads to a page's place.

Tests: tests/serving/test_people.py, tests/serving/test_evidence.py, tests/serving/test_pages.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.engine import Entry
from swerve.core.examination import SLOTS
from swerve.core.rng import mix
from swerve.core.spec import record_dtype
from swerve.core.tables import CAPACITIES, bit
from swerve.core.verbs import kernel
from swerve.serving.columns import KEY, KEY_2 as ROW_KEY_2, ROW_BITS, SHORTS
from swerve.serving.kernels import (
    ANSWERED_ORDER,
    CANDIDATES,
    CHANCES,
    EVIDENCE,
    EXPLORED,
    FILLED,
    KEEP,
    KEEP_PAGE,
    KEPT_APART,
    KEY_2,
    LEFT,
    LEFT_AT,
    LEFT_OWNER,
    NUMBER,
    OFFER,
    OWNER,
    PAGE,
    PERSON,
    PHASE,
    ROW,
    SEEN,
    SPENT,
    SPENT_PHASE,
    START,
    SWAPPED,
)

#: The words of a line of the index: a session, the key of a query, and the place of the page. Those of a session's last query: the
#: session, the key, and the shelf and row; its time is in `last_at`.
WHO, WHAT, WHAT_2, PLACE, LINE = range(5)
#: The words of a page. `MADE`: how its ranking was asked, see `swerve.serving.kernels: KEEP`; 0 if there is none. `PENDING`: the
#: first decision of the call that will fill it. `TAUGHT`: how many results have taught, 0 for none, `APART` if that is kept in
#: Python; `CLICKED` is a mask of those that were clicked. `ASIDE`: the number of what is kept in Python, 0 for nothing.
MADE, OF_NUMBER, OF_PHASE, OF_START, OF_SEEN, OF_EXPLORED, OF_OFFER, OF_FILLED, OF_SIZE, OF_SWAPPED = range(10)
PENDING, TAUGHT, TAUGHT_PHASE, CLICKED, ASIDE = range(10, 15)
TAUGHT_SHORTS, OF_CODES, OF_SHORTS = 15, 15 + SLOTS, 15 + 2 * SLOTS
APART = np.uint64(255)
#: What Python has to do for a request, in the first column of `moves`: the row that the session came from is elsewhere, its key is
#: in the other columns; what the session has taught is kept in Python; the page teaches more than is kept here. `before` returns
#: those of all requests together, with `LEFT_A_ROW`: a session came from a row of the shelf.
FROM_ELSEWHERE, SPENT_APART, TEACHES_MORE, LEFT_A_ROW = 1, 2, 4, 8
MOVES = 3
#: What `click` returns if nothing is known of the session here, or if it is kept in Python.
NOT_KNOWN, KEPT_IN_PYTHON = -1, -2


def people_dtype(most: int) -> np.dtype[Any]:
    """Return the record that holds the tables: one argument of a call instead of ten, each of which costs time.

    A page has room for the largest capacity, so that code is compiled once for all settings of `arms`.
    """
    half, lines = most // 2, 1 << (most - 1).bit_length()  # half of the lines of an index are free
    return record_dtype(
        [
            ("lasts", "u8", (2, lines, LINE)),
            ("last_at", "f8", (2, lines)),
            ("indices", "u8", (2, lines, LINE)),
            ("pages", "u8", (2, half, OF_SHORTS + CAPACITIES[-1])),
            ("page_at", "f8", (2, half)),  # when the ranking was made,
            ("chances", "f8", (2, half, SLOTS)),  # and the propensities of its slots
            ("young", "i8"),  # the younger generation of pages, and how many are in it
            ("count", "i8"),
            ("young_last", "i8"),  # and of last queries
            ("count_last", "i8"),
            ("turns", "i8"),  # how often pages have changed generations
            ("tracked", "i8"),  # whether pages are kept
            ("steady", "i8"),  # whether rankings are shown again
            ("limit", "i8"),  # units of evidence for a session
            ("window", "f8"),  # seconds in which another query is a reformulation
        ]
    )


@kernel
def word_of(number):
    """Return a signed number as the word that it is."""
    return np.uint64(np.int64(number))


@kernel
def line_of(index, who, what, what_2):
    """Return the line of a session and a query in an index, or the free one where it belongs."""
    last = len(index) - 1
    at = np.int64(mix(who ^ what ^ what_2)) & last
    while index[at, WHO] != 0:
        if index[at, WHO] == who and index[at, WHAT] == what and index[at, WHAT_2] == what_2:
            break
        at = (at + 1) & last
    return at


@kernel
def found(people, generation, who, what, what_2):
    """Return the place of a page in a generation, −1 if there is none."""
    index = people.indices[generation]
    at = line_of(index, who, what, what_2)
    return np.int64(index[at, PLACE]) if index[at, WHO] != 0 else np.int64(-1)


@kernel
def page_at(people, who, what, what_2):
    """Return generation and place of a page; −1 as the place if there is none."""
    generation = people.young
    place = found(people, generation, who, what, what_2)
    if place < 0:
        generation = 1 - generation
        place = found(people, generation, who, what, what_2)
    return generation, place


@kernel
def claim(people, who, what, what_2):
    """Return the place of a page in the younger generation: it is moved there from the older one, or new."""
    young = people.young
    place = found(people, young, who, what, what_2)
    if place >= 0:
        return place
    old = 1 - young
    before = found(people, old, who, what, what_2)
    if people.count >= people.pages.shape[1]:
        people.young, people.count = old, 0
        people.turns += 1
        for at in range(people.indices.shape[1]):
            people.indices[old, at, WHO] = 0
        young = old
    place = people.count
    people.count += 1
    line = people.indices[young, line_of(people.indices[young], who, what, what_2)]
    line[WHO], line[WHAT], line[WHAT_2], line[PLACE] = who, what, what_2, np.uint64(place)
    page = people.pages[young, place]
    if before < 0:
        for word in range(TAUGHT_SHORTS):  # what comes behind is not read
            page[word] = np.uint64(0)
        return place
    for word in range(len(page)):
        page[word] = people.pages[old, before, word]
    people.page_at[young, place] = people.page_at[old, before]
    for slot in range(SLOTS):
        people.chances[young, place, slot] = people.chances[old, before, slot]
    return place


@kernel
def last_line(lasts, who):
    """Return the line of a session's last query, or the free one where it belongs."""
    last = len(lasts) - 1
    line = np.int64(mix(who)) & last
    while lasts[line, WHO] != 0 and lasts[line, WHO] != who:
        line = (line + 1) & last
    return line


@kernel
def move(people, who, what, what_2, where, now):
    """Note the query of a session; return whether it has asked one before, with the key, the place and the time of that one."""
    young = people.young_last
    line = last_line(people.lasts[young], who)
    old = 1 - young
    older = last_line(people.lasts[old], who)
    generation, found_at = young, line
    if people.lasts[young, line, WHO] == 0:
        generation, found_at = old, older
    entry = people.lasts[generation, found_at]
    known, key, key_2, there = entry[WHO] != 0, entry[WHAT], entry[WHAT_2], entry[PLACE]
    at = people.last_at[generation, found_at]
    if people.lasts[young, line, WHO] == 0:
        if people.count_last >= people.pages.shape[1]:
            young = old
            people.young_last, people.count_last = young, 0
            for other in range(people.lasts.shape[1]):
                people.lasts[young, other, WHO] = 0
            line = last_line(people.lasts[young], who)
        people.count_last += 1
    entry = people.lasts[young, line]
    entry[WHO], entry[WHAT], entry[WHAT_2], entry[PLACE] = who, what, what_2, where
    people.last_at[young, line] = now
    return known, key, key_2, there, at


@kernel
def before(people, words, rows, shelf, steady, asks, facts, moves, now):
    """Add what sessions have done before to requests; return how many can be decided together, and what is left to do.

    It ends with a request whose session has asked the same query in this call, or was shown a ranking of it in the last `steady`
    seconds. `people` is the record of `people_dtype`, `words` are the columns of the shelf, which has `rows` rows. `moves` says
    what is left to do, see above.
    """
    run = np.uint64(asks[0, NUMBER]) if len(asks) > 0 else np.uint64(0)
    todo = 0
    for k in range(len(asks)):
        ask = asks[k]
        who, what, what_2 = np.uint64(ask[PERSON]), np.uint64(ask[OWNER]), np.uint64(ask[KEY_2])
        moves[k, 0] = 0
        if who == 0:
            continue
        if people.tracked:
            generation, place = page_at(people, who, what, what_2)
            if place >= 0:
                page = people.pages[generation, place]
                if page[PENDING] == run:
                    return k, todo
                if page[MADE] != 0 and 0.0 <= now - people.page_at[generation, place] <= steady:
                    return k, todo
            place = claim(people, who, what, what_2)
            page = people.pages[people.young, place]
            page[PENDING] = run
            if page[TAUGHT] == APART:
                moves[k, 0] |= np.uint64(SPENT_APART)
                todo |= SPENT_APART
            elif page[TAUGHT] != 0:
                ask[SPENT_PHASE] = np.int64(page[TAUGHT_PHASE])
                if people.limit == 1:
                    for arm in range(words.shape[1] - SHORTS):
                        if words[ask[ROW], SHORTS + arm] == page[TAUGHT_SHORTS]:
                            ask[SPENT] = bit(arm)
        where = np.uint64(shelf) << np.uint64(ROW_BITS) | np.uint64(ask[ROW])
        known, key, key_2, there, at = move(people, who, what, what_2, where, now)
        if not known or (key == what and key_2 == what_2) or now - at > people.window:
            continue
        facts[k, LEFT_AT] = at
        row = np.int64(there & np.uint64((1 << ROW_BITS) - 1))
        here = np.int64(there >> np.uint64(ROW_BITS)) == shelf and row < rows
        if here and words[row, KEY] == key and words[row, ROW_KEY_2] == key_2:
            ask[LEFT], ask[LEFT_OWNER] = row, np.int64(key)
            todo |= LEFT_A_ROW
        else:
            moves[k, 0] |= np.uint64(FROM_ELSEWHERE)
            moves[k, 1], moves[k, 2] = key, key_2
            todo |= FROM_ELSEWHERE
    return len(asks), todo


@kernel
def after(people, words, asks, orders, facts, moves, now):
    """Note what was shown to sessions by the answers of a call; return whether a page teaches more than is kept here."""
    more = 0
    for k in range(len(asks)):
        ask = asks[k]
        who = np.uint64(ask[PERSON])
        moves[k, 0] = 0
        if who == 0 or not people.tracked:
            continue
        generation, place = page_at(people, who, np.uint64(ask[OWNER]), np.uint64(ask[KEY_2]))
        page = people.pages[generation, place]
        page[PENDING] = 0
        if ask[FILLED] <= 0 or ask[KEEP] & KEPT_APART:
            continue
        if ask[EVIDENCE] and people.limit > 0:
            if page[TAUGHT] != 0 and page[TAUGHT_PHASE] == np.uint64(ask[PHASE]):
                moves[k, 0] = np.uint64(TEACHES_MORE)
                more = 1
            else:
                page[TAUGHT], page[TAUGHT_PHASE], page[CLICKED] = np.uint64(ask[FILLED]), np.uint64(ask[PHASE]), np.uint64(0)
                for slot in range(ask[FILLED]):
                    page[TAUGHT_SHORTS + slot] = words[ask[ROW], SHORTS + orders[k, ANSWERED_ORDER + slot]]
        if people.steady and ask[KEEP] & KEEP_PAGE:
            page[MADE] = np.uint64(ask[KEEP])
            people.page_at[generation, place] = now
            page[OF_NUMBER], page[OF_PHASE], page[OF_START] = np.uint64(ask[NUMBER]), np.uint64(ask[PHASE]), np.uint64(ask[START])
            page[OF_SEEN] = np.uint64(ask[SEEN] << 1 | ask[EVIDENCE])
            page[OF_EXPLORED], page[OF_OFFER] = np.uint64(ask[EXPLORED]), np.uint64(ask[OFFER])
            page[OF_FILLED], page[OF_SIZE] = np.uint64(ask[FILLED]), np.uint64(ask[CANDIDATES])
            page[OF_SWAPPED] = np.uint64(ask[SWAPPED])
            for slot in range(ask[FILLED]):
                page[OF_CODES + slot] = np.uint64(ask[PAGE + slot])
                people.chances[generation, place, slot] = facts[k, CHANCES + slot]
            for position in range(ask[CANDIDATES]):
                page[OF_SHORTS + position] = words[ask[ROW], SHORTS + orders[k, ANSWERED_ORDER + position]]
    return more


@Entry
def page_of_pair(table, person, owner, second, claimed):
    """Return generation and place of a page, −1 as the place if there is none; `claimed`: it is made, or moved to the younger
    generation. The session and the two words of the key are signed numbers."""
    people = table[0]
    who, what, what_2 = word_of(person), word_of(owner), word_of(second)
    if claimed:
        place = claim(people, who, what, what_2)
        return people.young, place
    return page_at(people, who, what, what_2)


@Entry
def click(table, person, owner, second, phase, result):
    """Note a click of a session on a result of a query; return 1 if it is evidence, 0 if not, or one of the numbers above."""
    people = table[0]
    generation, place = page_at(people, word_of(person), word_of(owner), word_of(second))
    if place < 0:
        return NOT_KNOWN
    page = people.pages[generation, place]
    if page[TAUGHT] == APART:
        return KEPT_IN_PYTHON
    if page[TAUGHT] == 0 or page[TAUGHT_PHASE] != np.uint64(phase):
        return NOT_KNOWN
    for slot in range(np.int64(page[TAUGHT])):
        if page[TAUGHT_SHORTS + slot] == word_of(result):
            clicked = page[CLICKED] >> np.uint64(slot) & np.uint64(1)
            page[CLICKED] |= np.uint64(1) << np.uint64(slot)
            return 1 - np.int64(clicked)
    return 0


@Entry
def gone_elsewhere(table, who, at, lines, times):
    """Note that sessions have asked elsewhere at these times; write the key and the time of what each has asked here before that,
    if the other query is a reformulation, and return how many these are.

    What a session asks next does not come from that query any more.
    """
    people, count = table[0], 0
    for k in range(len(who)):
        if who[k] == 0:
            continue
        generation = people.young_last
        line = last_line(people.lasts[generation], who[k])
        if people.lasts[generation, line, WHO] == 0:
            generation = 1 - generation
            line = last_line(people.lasts[generation], who[k])
        entry, asked = people.lasts[generation, line], people.last_at[generation, line]
        if entry[WHO] == 0 or asked > at[k] or (entry[WHAT] == 0 and entry[WHAT_2] == 0):
            continue
        if at[k] - asked <= people.window:
            lines[count, 0], lines[count, 1], times[count] = entry[WHAT], entry[WHAT_2], asked
            count += 1
        people.last_at[generation, line] = -np.inf
    return count
