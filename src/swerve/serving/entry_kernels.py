"""The compiled code of entries: decisions written down, and entries played on rows.

Tests: tests/serving/test_playing.py.
"""

from __future__ import annotations

import numpy as np

from swerve.core.engine import Entry
from swerve.core.verbs import kernel
from swerve.serving import feedback_kernel, kernels
from swerve.serving.columns import KEY_2
from swerve.serving.entries import (
    AFTER_AT,
    BEFORE_AT,
    BODY,
    BYTE,
    COMPILED,
    EVIDENCE_AT,
    F_BODY,
    F_EVIDENCE_AT,
    F_NUMBER,
    F_SEEN_AT,
    F_SHOWN,
    F_SIZES,
    F_STARTED,
    FILL_AT,
    FIRST_AT,
    FLAGS_AT,
    FRESH_AT,
    GIVEN_AT,
    GONE_ON,
    GRADED_AT,
    HALVES,
    HAS_LEFT,
    HAS_NEWEST,
    HAS_SPENT,
    HEAD,
    IN_PLACE,
    KEEP_AT,
    KEEPS,
    MASK,
    NO_CODE,
    NO_SLOTS,
    NOW,
    NOW_AT,
    NUMBERS_AT,
    OWNER,
    PHASE_AT,
    QUARTERS,
    R_BODY,
    R_DONE,
    R_NUMBER,
    R_OFFER,
    R_PERSON,
    R_SIZES,
    RANKED,
    RESPONDED,
    SAME_PAGE,
    SECOND,
    SEEN_AT,
    SIZE_AT,
    SLOT_COUNT,
    SLOT_MASK,
    SWAPPED_AT,
)
from swerve.serving.ledger import MISPLACED, count_click
from swerve.signals import reformulated

#: The words of a line of the table that leads from keys to rows: the key, the row with what it shares (times 2^32) and its shelf
#: (times 2^48), and whether the line is taken.
LINE_OWNER, LINE_SECOND, LINE_WHERE, LINE_TAKEN, LINE_WORDS = range(5)
COMMON_AT, SHELF_AT, ROWS_MASK, COMMONS_MASK = 32, 48, (1 << 32) - 1, (1 << 16) - 1
NOWHERE, ELSEWHERE = -1, -2  # it is not known; it has left memory for a store

#: What is counted: decisions, those with another page than the entry has, the number of the first of them (from 1), feedback, and
#: clicks.
DECISIONS, OTHERS, FIRST_OTHER, ANSWERS, CLICKS, COUNTS = range(6)


@kernel
def put_bytes(out, at, row, begin, count):
    """Write numbers below 256, eight to a word; return the next word."""
    for k in range(count):
        if k % BYTE == 0:
            out[at + k // BYTE] = 0
        out[at + k // BYTE] |= np.int64(row[begin + k]) << 8 * (k % BYTE)
    return at + (count + BYTE - 1) // BYTE


@Entry
def write_ranked(keys, asks, orders, facts, now, out):
    """Write decided requests, with the columns of `swerve.serving.kernels`, as entries; `keys` are the columns of their shelf.
    Return the words written, and the number of entries."""
    floats = out.view(np.float64)
    at, written, numbers = 0, 0, facts.shape[1] - kernels.FACTS
    for k in range(len(asks)):
        ask = asks[k]
        if ask[kernels.FILLED] == MISPLACED:
            continue
        flags = 0
        out[at + OWNER], out[at + SECOND], floats[at + NOW] = ask[kernels.OWNER], ask[kernels.KEY_2], now
        out[at + R_NUMBER], out[at + R_OFFER], out[at + R_PERSON] = ask[kernels.NUMBER], ask[kernels.OFFER], ask[kernels.PERSON]
        out[at + R_SIZES] = ask[kernels.CANDIDATES] | ask[kernels.GRADED] << GRADED_AT | ask[kernels.FILL] << FILL_AT
        out[at + R_SIZES] |= ask[kernels.AS_GIVEN] << GIVEN_AT | ask[kernels.KEEP] << KEEP_AT | numbers << NUMBERS_AT
        filled = max(ask[kernels.FILLED], 0)
        out[at + R_DONE] = ask[kernels.FILLED] + NO_SLOTS
        if filled > 0:
            out[at + R_DONE] |= (
                ask[kernels.EVIDENCE] << EVIDENCE_AT | ask[kernels.SWAPPED] << SWAPPED_AT | ask[kernels.SEEN] << SEEN_AT
            )
        end = at + R_BODY
        if ask[kernels.LEFT] >= 0:
            flags |= HAS_LEFT
            out[end], out[end + 1], floats[end + 2] = (
                ask[kernels.LEFT_OWNER],
                keys[ask[kernels.LEFT], KEY_2],
                facts[k, kernels.LEFT_AT],
            )
            end += 3
        if ask[kernels.SPENT] != 0 or ask[kernels.SPENT_PHASE] != 0:
            flags |= HAS_SPENT
            out[end], out[end + 1] = ask[kernels.SPENT], ask[kernels.SPENT_PHASE]
            end += 2
        if not np.isnan(facts[k, kernels.NEWEST]):
            flags |= HAS_NEWEST
            floats[end] = facts[k, kernels.NEWEST]
            end += 1
        for j in range(numbers):
            floats[end + j] = facts[k, kernels.FACTS + j]
        end = put_bytes(out, end + numbers, orders[k], 0, ask[kernels.CANDIDATES])
        end = put_bytes(out, end, orders[k], kernels.GRADES_AT, ask[kernels.GRADED])
        for slot in range(filled):
            if slot % QUARTERS == 0:
                out[end + slot // QUARTERS] = 0
            out[end + slot // QUARTERS] |= ask[kernels.PAGE + slot] << 16 * (slot % QUARTERS)
        end += (filled + QUARTERS - 1) // QUARTERS
        for slot in range(filled):
            if slot % HALVES == 0:
                out[end + slot // HALVES] = 0
            out[end + slot // HALVES] |= np.int64(facts[k, kernels.CHANCES + slot] * kernels.FINE_STEPS + 0.5) << 32 * (
                slot % HALVES
            )
        end += (filled + HALVES - 1) // HALVES
        out[at + HEAD] = RANKED | flags << FLAGS_AT | (end - at) << SIZE_AT
        at = end
        written += 1
    return at, written


@kernel
def line_of(lines, owner, second):
    """Return the line of a key, or the free line where it belongs. The key is a hash: no other is needed."""
    mask = len(lines) - 1
    at = owner & mask
    while lines[at, LINE_TAKEN] != 0 and (lines[at, LINE_OWNER] != owner or lines[at, LINE_SECOND] != second):
        at = at + 1 & mask
    return at


@kernel
def put_line(lines, owner, second, where):
    """Set where the row of a key is; return whether the key is new."""
    at = line_of(lines, owner, second)
    new = lines[at, LINE_TAKEN] == 0
    lines[at, LINE_OWNER], lines[at, LINE_SECOND], lines[at, LINE_WHERE], lines[at, LINE_TAKEN] = owner, second, where, 1
    return new


@Entry
def spread_lines(lines, larger):
    """Copy all lines into a larger table."""
    for at in range(len(lines)):
        if lines[at, LINE_TAKEN] != 0:
            put_line(larger, lines[at, LINE_OWNER], lines[at, LINE_SECOND], lines[at, LINE_WHERE])


@kernel
def unpack_bytes(entries, at, count, row, begin):
    """Read numbers below 256, eight to a word; return the next word."""
    for k in range(count):
        row[begin + k] = entries[at + k // BYTE] >> 8 * (k % BYTE) & MASK
    return at + (count + BYTE - 1) // BYTE


@kernel
def unpack_codes(entries, at, count, row, begin):
    """Read the codes of a page; return the next word."""
    for k in range(count):
        code = entries[at + k // QUARTERS] >> 16 * (k % QUARTERS) & NO_CODE
        row[begin + k] = -1 if code == NO_CODE else code
    return at + (count + QUARTERS - 1) // QUARTERS


@kernel
def words_for(count, each):
    """Return the words that so many numbers take, `each` of them in a word."""
    return (count + each - 1) // each


@kernel
def sound(entries, at, arms, numbers):
    """Return whether an entry lies within the entries, and has the size and no larger counts than it may have: a checksum proves
    that an entry is what was written, not that what was written is one."""
    size = entries[at] >> SIZE_AT
    if size < BODY + 1 or size > len(entries) - at:
        return False
    kind, flags = entries[at] & MASK, entries[at] >> FLAGS_AT & MASK
    if kind == RANKED:
        if size < R_BODY:
            return False
        sizes, filled = entries[at + R_SIZES], max((entries[at + R_DONE] & MASK) - NO_SLOTS, 0)
        candidates, graded = sizes & MASK, sizes >> GRADED_AT & MASK
        wanted = R_BODY + (3 if flags & HAS_LEFT else 0) + (2 if flags & HAS_SPENT else 0) + (1 if flags & HAS_NEWEST else 0)
        wanted += numbers + words_for(candidates, BYTE) + words_for(graded, BYTE)
        wanted += words_for(filled, QUARTERS) + words_for(filled, HALVES)
        fits = candidates <= arms and (graded == 0 or graded == candidates) and sizes >> NUMBERS_AT == numbers
        return fits and filled <= kernels.SLOTS and wanted == size
    if kind == RESPONDED:
        if size < F_BODY:
            return False
        was, final = entries[at + F_SIZES] & SLOT_COUNT, entries[at + F_SIZES] >> NOW_AT & SLOT_COUNT
        wanted = F_BODY + words_for(was, QUARTERS) + (0 if flags & SAME_PAGE else words_for(final, QUARTERS))
        return was <= kernels.SLOTS and final <= kernels.SLOTS and wanted <= size
    return kind == GONE_ON or 0 <= entries[at + BODY] < arms


@kernel
def unpack_ranked(entries, floats, at, i, lines, shelf, arms, asks, orders, facts):
    """Read a decision into the columns of a request; return the word where its page begins, or `NOWHERE` if the row that its
    session came from is on another shelf, or if it names arms that the row does not have."""
    flags, sizes = entries[at] >> FLAGS_AT & MASK, entries[at + R_SIZES]
    ask = asks[0]
    ask[kernels.ROW], ask[kernels.OWNER], ask[kernels.KEY_2] = i, entries[at + OWNER], entries[at + SECOND]
    ask[kernels.OFFER], ask[kernels.PERSON], ask[kernels.NUMBER] = (
        entries[at + R_OFFER], entries[at + R_PERSON], entries[at + R_NUMBER]
    )  # fmt: skip
    ask[kernels.CANDIDATES], ask[kernels.GRADED] = sizes & MASK, sizes >> GRADED_AT & MASK
    ask[kernels.FILL], ask[kernels.AS_GIVEN] = sizes >> FILL_AT & MASK, sizes >> GIVEN_AT & MASK
    ask[kernels.KEEP] = sizes >> KEEP_AT & KEEPS
    ask[kernels.LEFT], ask[kernels.LEFT_OWNER], ask[kernels.SPENT], ask[kernels.SPENT_PHASE] = -1, 0, 0, 0
    facts[0, kernels.NEWEST], facts[0, kernels.LEFT_AT] = np.nan, 0.0
    end = at + R_BODY
    if flags & HAS_LEFT:
        line = line_of(lines, entries[end], entries[end + 1])
        where = lines[line, LINE_WHERE]
        if lines[line, LINE_TAKEN] != 0 and where == ELSEWHERE:
            return NOWHERE
        if lines[line, LINE_TAKEN] != 0 and where >= 0:  # else it is written down behind this one
            if where >> SHELF_AT != shelf:
                return NOWHERE
            ask[kernels.LEFT], ask[kernels.LEFT_OWNER] = where & ROWS_MASK, entries[end]
            facts[0, kernels.LEFT_AT] = floats[end + 2]
        end += 3
    if flags & HAS_SPENT:
        ask[kernels.SPENT], ask[kernels.SPENT_PHASE] = entries[end], entries[end + 1]
        end += 2
    if flags & HAS_NEWEST:
        facts[0, kernels.NEWEST] = floats[end]
        end += 1
    numbers, candidates = sizes >> NUMBERS_AT, ask[kernels.CANDIDATES]
    for j in range(numbers):
        facts[0, kernels.FACTS + j] = floats[end + j]
    end = unpack_bytes(entries, end + numbers, candidates, orders[0], 0)
    for k in range(candidates):
        if orders[0, k] >= arms:
            return NOWHERE
    return unpack_bytes(entries, end, ask[kernels.GRADED], orders[0], kernels.GRADES_AT)


@kernel
def as_written(entries, at, page, asks):
    """Return whether a decision has the page of its entry."""
    filled = (entries[at + R_DONE] & MASK) - NO_SLOTS
    if asks[0, kernels.FILLED] != filled:
        return False
    for slot in range(filled):
        if asks[0, kernels.PAGE + slot] != entries[page + slot // QUARTERS] >> 16 * (slot % QUARTERS) & NO_CODE:
            return False
    return True


@kernel
def unpack_responded(entries, at, i, ask):
    """Read feedback into the columns of a response; return the word where its outcome is."""
    flags, sizes = entries[at] >> FLAGS_AT & MASK, entries[at + F_SIZES]
    was, final = sizes & SLOT_COUNT, sizes >> NOW_AT & SLOT_COUNT
    ask[feedback_kernel.F_ROW], ask[feedback_kernel.F_OWNER] = i, entries[at + OWNER]
    started = entries[at + F_STARTED]
    ask[feedback_kernel.F_START], ask[feedback_kernel.F_PHASE] = started & ((1 << PHASE_AT) - 1), started >> PHASE_AT
    ask[feedback_kernel.F_NUMBER] = entries[at + F_NUMBER]
    ask[feedback_kernel.F_EVIDENCE], ask[feedback_kernel.FIRST_CLICK] = sizes >> F_EVIDENCE_AT & 1, sizes >> FIRST_AT & 1
    ask[feedback_kernel.SEEN_SO_FAR] = sizes >> F_SEEN_AT & SLOT_MASK
    ask[feedback_kernel.BEFORE], ask[feedback_kernel.AFTER] = sizes >> BEFORE_AT & SLOT_MASK, sizes >> AFTER_AT & SLOT_MASK
    ask[feedback_kernel.SLOTS_SO_FAR], ask[feedback_kernel.SLOTS_NOW] = was, final
    end = unpack_codes(entries, at + F_BODY, was, ask, feedback_kernel.PAGE_SO_FAR)
    if flags & SAME_PAGE:
        for slot in range(final):
            ask[feedback_kernel.PAGE_NOW + slot] = ask[feedback_kernel.PAGE_SO_FAR + slot]
        return end
    return unpack_codes(entries, end, final, ask, feedback_kernel.PAGE_NOW)


@Entry
def outcomes_in(entries, out):
    """Write the number of each decision that feedback has concerned, the word where its outcome begins and the word behind it;
    return
    how many there are. `out` has room for all."""
    at, found = 0, 0
    while at < len(entries):
        size = entries[at] >> SIZE_AT
        if size < BODY or size > len(entries) - at:
            return found  # who plays them says what is wrong
        if entries[at] & MASK == RESPONDED and entries[at] >> FLAGS_AT & IN_PLACE == 0 and size > F_BODY:
            was, final = entries[at + F_SIZES] & SLOT_COUNT, entries[at + F_SIZES] >> NOW_AT & SLOT_COUNT
            begin = at + F_BODY + words_for(was, QUARTERS)
            if entries[at] >> FLAGS_AT & SAME_PAGE == 0:
                begin += words_for(final, QUARTERS)
            if begin < at + size:
                out[found, 0], out[found, 1], out[found, 2] = entries[at + F_NUMBER], begin, at + size
                found += 1
        at += size
    return found


@Entry
def play_many(
    params, senses, table, words, fixed, pools, owns, seasons, work, lines, shelf, common, entries, at, asks, orders, facts, ask,
    counts,
):  # fmt: skip
    """Play entries, from a word on, as long as they are decisions and feedback for rows of one shelf, which share what they learn;
    return the word of the first that is not.

    `lines` lead from keys to rows. Decisions are made without draws: these change nothing that is kept.
    """
    floats, arms, numbers = entries.view(np.float64), table[0].policy.generation.shape[0], facts.shape[1] - kernels.FACTS
    while at < len(entries):
        kind = entries[at] & MASK
        if kind > COMPILED or not sound(entries, at, arms, numbers):
            return at
        line = line_of(lines, entries[at + OWNER], entries[at + SECOND])
        where = lines[line, LINE_WHERE]
        if lines[line, LINE_TAKEN] == 0 or where < 0 or where >> COMMON_AT != shelf << SHELF_AT - COMMON_AT | common:
            return at
        i, now = where & ROWS_MASK, floats[at + NOW]
        if kind == RANKED:
            page = unpack_ranked(entries, floats, at, i, lines, shelf, arms, asks, orders, facts)
            if page == NOWHERE:
                return at
            kernels.decide_many(
                params[0], senses[0], table, words, fixed, pools, owns, seasons, work, asks, orders, facts, now, 0
            )  # fmt: skip
            if asks[0, kernels.FILLED] == MISPLACED:
                return at
            counts[DECISIONS] += 1
            if not as_written(entries, at, page, asks):
                counts[OTHERS] += 1
                if counts[FIRST_OTHER] == 0:
                    counts[FIRST_OTHER] = counts[DECISIONS]
        elif kind == RESPONDED:
            unpack_responded(entries, at, i, ask)
            if feedback_kernel.respond_row(params[0], senses[0], table[i], pools[0], ask, floats[at + F_SHOWN], now) == MISPLACED:
                return at
            if entries[at] >> FLAGS_AT & IN_PLACE == 0:
                counts[ANSWERS] += 1
                counts[CLICKS] += entries[at + F_SIZES] >> FRESH_AT
        elif kind == GONE_ON:
            reformulated(senses[0], table[i].senses, floats[at + BODY], now)
        else:
            count_click(table[i].ledger, entries[at + BODY])
        at += entries[at] >> SIZE_AT
    return at
