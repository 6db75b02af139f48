"""Compiled code for what sessions have asked and been shown, see `swerve.serving.people`.

There are two tables. One has the last query of each session. The other has, for each session and query, a *page*: the last ranking,
so that it can be shown again, and the units of evidence that the session has used. Each table has two generations: the older one is
dropped when the younger is full, and whatever is used moves to the younger. An index, by hash, leads to a page's place.

Tests: tests/serving/test_people.py, tests/serving/test_evidence.py, tests/serving/test_pages.py.
"""

from __future__ import annotations

import numpy as np

from swerve.core.engine import Entry
from swerve.core.examination import SLOTS
from swerve.core.rng import mix
from swerve.core.tables import bit
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

#: The words of a line of the index: a session, the key of a query, and the place of the page.
WHO, WHAT, WHAT_2, PLACE, INDEXED = range(5)
#: The words of a session's last query: the session, the key, the shelf and row, and the time (a floating-point number).
LAST_WHERE, LAST_AT, LASTED = 3, 4, 5
#: The words of a page. `MADE`: how its ranking was asked, see `swerve.serving.kernels: KEEP`; 0 if there is none. `PENDING`: the
#: first decision of the call that will fill it. `TAUGHT`: how many results have taught, 0 for none, `APART` if that is kept in
#: Python; `CLICKED` is a mask of those that were clicked. `ASIDE`: the number of what is kept in Python, 0 for nothing.
MADE, AT, OF_NUMBER, OF_PHASE, OF_START, OF_SEEN, OF_EXPLORED, OF_OFFER, OF_FILLED, OF_SIZE, OF_SWAPPED = range(11)
PENDING, TAUGHT, TAUGHT_PHASE, CLICKED, ASIDE = range(11, 16)
TAUGHT_SHORTS, OF_CODES, OF_CHANCES, OF_SHORTS = 16, 16 + SLOTS, 16 + 2 * SLOTS, 16 + 3 * SLOTS
APART = np.uint64(255)
#: The state of the tables: which generation is the younger one, and how many are in it, for pages and for last queries; how often
#: pages have changed generations.
YOUNG, COUNT, YOUNG_LAST, COUNT_LAST, TURNS, STATES = range(6)
#: What is true of all calls: whether pages are kept, units of evidence for a session, seconds in which another query is a
#: reformulation.
TRACKED, LIMIT, WINDOW, LIMITS = range(4)
#: What Python has to do for a request, in the first column of `moves`: the row that the session came from is elsewhere, its key is
#: in the other columns; what the session has taught is kept in Python; the page teaches more than is kept here. `before` returns
#: those of all requests together, with `LEFT_A_ROW`: a session came from a row of the shelf.
FROM_ELSEWHERE, SPENT_APART, TEACHES_MORE, LEFT_A_ROW = 1, 2, 4, 8
MOVES = 3


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
def found(indices, generation, who, what, what_2):
    """Return the place of a page in a generation, −1 if there is none."""
    at = line_of(indices[generation], who, what, what_2)
    return np.int64(indices[generation, at, PLACE]) if indices[generation, at, WHO] != 0 else np.int64(-1)


@kernel
def page_at(indices, state, who, what, what_2):
    """Return generation and place of a page; −1 as the place if there is none."""
    generation = state[YOUNG]
    place = found(indices, generation, who, what, what_2)
    if place < 0:
        generation = 1 - generation
        place = found(indices, generation, who, what, what_2)
    return generation, place


@kernel
def claim(indices, pages, state, who, what, what_2):
    """Return the place of a page in the younger generation: it is moved there from the older one, or new."""
    young = state[YOUNG]
    place = found(indices, young, who, what, what_2)
    if place >= 0:
        return place
    old = 1 - young
    before = found(indices, old, who, what, what_2)
    if state[COUNT] >= pages.shape[1]:
        state[YOUNG], state[COUNT] = old, 0
        state[TURNS] += 1
        for at in range(indices.shape[1]):
            indices[old, at, WHO] = 0
        young = old
    place = state[COUNT]
    state[COUNT] += 1
    line = indices[young, line_of(indices[young], who, what, what_2)]
    line[WHO], line[WHAT], line[WHAT_2], line[PLACE] = who, what, what_2, np.uint64(place)
    for word in range(pages.shape[2]):
        pages[young, place, word] = pages[old, before, word] if before >= 0 else np.uint64(0)
    return place


@kernel
def move(lasts, times, state, half, who, what, what_2, where, now):
    """Note the query of a session; return the generation and the line of its last one before, −1 as the line if there is none.

    The line is that of the older generation, or that of the younger as it was: then its content is returned too.
    """
    young = state[YOUNG_LAST]
    last = lasts.shape[1] - 1
    key, key_2, at, there, known = np.uint64(0), np.uint64(0), 0.0, np.uint64(0), False
    for turn in range(2):
        generation = young if turn == 0 else 1 - young
        line = np.int64(mix(who)) & last
        while lasts[generation, line, WHO] != 0 and lasts[generation, line, WHO] != who:
            line = (line + 1) & last
        if lasts[generation, line, WHO] == who:
            key, key_2 = lasts[generation, line, WHAT], lasts[generation, line, WHAT_2]
            there, at, known = lasts[generation, line, LAST_WHERE], times[generation, line, LAST_AT], True
            break
    if not (known and generation == young):
        if state[COUNT_LAST] >= half:
            young = 1 - young
            state[YOUNG_LAST], state[COUNT_LAST] = young, 0
            for other in range(lasts.shape[1]):
                lasts[young, other, WHO] = 0
        state[COUNT_LAST] += 1
        line = np.int64(mix(who)) & last
        while lasts[young, line, WHO] != 0:
            line = (line + 1) & last
    entry = lasts[young, line]
    entry[WHO], entry[WHAT], entry[WHAT_2], entry[LAST_WHERE] = who, what, what_2, where
    times[young, line, LAST_AT] = now
    return known, key, key_2, there, at


@Entry
def before(lasts, times, indices, pages, page_times, state, limits, words, rows, shelf, steady, asks, facts, moves, now):
    """Add what sessions have done before to requests; return how many can be decided together, and what is left to do.

    It ends with a request whose session has asked the same query in this call, or was shown a ranking of it in the last `steady`
    seconds. `words` are the columns of the shelf, which has `rows` rows. `moves` says what is left to do, see above.
    """
    run = np.uint64(asks[0, NUMBER]) if len(asks) > 0 else np.uint64(0)
    arms, half = pages.shape[2] - OF_SHORTS, pages.shape[1]
    todo = 0
    for k in range(len(asks)):
        ask = asks[k]
        who, what, what_2 = np.uint64(ask[PERSON]), np.uint64(ask[OWNER]), np.uint64(ask[KEY_2])
        moves[k, 0] = 0
        if who == 0:
            continue
        if limits[TRACKED] != 0.0:
            generation, place = page_at(indices, state, who, what, what_2)
            if place >= 0:
                page = pages[generation, place]
                if page[PENDING] == run:
                    return k, todo
                if page[MADE] != 0 and 0.0 <= now - page_times[generation, place, AT] <= steady:
                    return k, todo
            place = claim(indices, pages, state, who, what, what_2)
            page = pages[state[YOUNG], place]
            page[PENDING] = run
            if page[TAUGHT] == APART:
                moves[k, 0] |= np.uint64(SPENT_APART)
                todo |= SPENT_APART
            elif page[TAUGHT] != 0:
                ask[SPENT_PHASE] = np.int64(page[TAUGHT_PHASE])
                if limits[LIMIT] == 1.0:
                    for arm in range(min(arms, words.shape[1] - SHORTS)):
                        if words[ask[ROW], SHORTS + arm] == page[TAUGHT_SHORTS]:
                            ask[SPENT] = bit(arm)
        where = np.uint64(shelf) << np.uint64(ROW_BITS) | np.uint64(ask[ROW])
        known, key, key_2, there, at = move(lasts, times, state, half, who, what, what_2, where, now)
        if not known or (key == what and key_2 == what_2) or now - at > limits[WINDOW]:
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


@Entry
def after(indices, pages, page_times, state, limits, words, steady, asks, orders, facts, moves, now):
    """Note what was shown to sessions by the answers of a call; return whether a page teaches more than is kept here."""
    more = 0
    for k in range(len(asks)):
        ask = asks[k]
        who = np.uint64(ask[PERSON])
        moves[k, 0] = 0
        if who == 0 or limits[TRACKED] == 0.0:
            continue
        generation, place = page_at(indices, state, who, np.uint64(ask[OWNER]), np.uint64(ask[KEY_2]))
        page = pages[generation, place]
        page[PENDING] = 0
        if ask[FILLED] <= 0 or ask[KEEP] & KEPT_APART:
            continue
        if ask[EVIDENCE] and limits[LIMIT] > 0.0:
            if page[TAUGHT] != 0 and page[TAUGHT_PHASE] == np.uint64(ask[PHASE]):
                moves[k, 0] = np.uint64(TEACHES_MORE)
                more = 1
            else:
                page[TAUGHT], page[TAUGHT_PHASE], page[CLICKED] = np.uint64(ask[FILLED]), np.uint64(ask[PHASE]), np.uint64(0)
                for slot in range(ask[FILLED]):
                    page[TAUGHT_SHORTS + slot] = words[ask[ROW], SHORTS + orders[k, ANSWERED_ORDER + slot]]
        if steady > 0.0 and ask[KEEP] & KEEP_PAGE:
            page[MADE] = np.uint64(ask[KEEP])
            page_times[generation, place, AT] = now
            page[OF_NUMBER], page[OF_PHASE], page[OF_START] = np.uint64(ask[NUMBER]), np.uint64(ask[PHASE]), np.uint64(ask[START])
            page[OF_SEEN] = np.uint64(ask[SEEN] << 1 | ask[EVIDENCE])
            page[OF_EXPLORED], page[OF_OFFER] = np.uint64(ask[EXPLORED]), np.uint64(ask[OFFER])
            page[OF_FILLED], page[OF_SIZE] = np.uint64(ask[FILLED]), np.uint64(ask[CANDIDATES])
            page[OF_SWAPPED] = np.uint64(ask[SWAPPED])
            for slot in range(ask[FILLED]):
                page[OF_CODES + slot] = np.uint64(ask[PAGE + slot])
                page_times[generation, place, OF_CHANCES + slot] = facts[k, CHANCES + slot]
            for position in range(ask[CANDIDATES]):
                page[OF_SHORTS + position] = words[ask[ROW], SHORTS + orders[k, ANSWERED_ORDER + position]]
    return more


@Entry
def page_of_pair(indices, pages, state, who, what, what_2, claimed):
    """Return generation and place of a page, −1 as the place if there is none; `claimed`: it is made, or moved to the younger
    generation."""
    if claimed:
        place = claim(indices, pages, state, who, what, what_2)
        return state[YOUNG], place
    return page_at(indices, state, who, what, what_2)


@Entry
def click(indices, pages, state, who, what, what_2, phase, result):
    """Note a click of a session on a result of a query: return 1 if it is evidence, 0 if not, −1 if that is not known here, −2 if
    it is kept in Python."""
    generation, place = page_at(indices, state, who, what, what_2)
    if place < 0:
        return -1
    page = pages[generation, place]
    if page[TAUGHT] == APART:
        return -2
    if page[TAUGHT] == 0 or page[TAUGHT_PHASE] != phase:
        return -1
    for slot in range(np.int64(page[TAUGHT])):
        if page[TAUGHT_SHORTS + slot] == result:
            clicked = page[CLICKED] >> np.uint64(slot) & np.uint64(1)
            page[CLICKED] |= np.uint64(1) << np.uint64(slot)
            return 1 - np.int64(clicked)
    return 0
