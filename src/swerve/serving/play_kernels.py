"""The compiled code that plays entries of a journal on rows: many in one call, or one for the code that serves.

Tests: tests/serving/test_playing.py.
"""

from __future__ import annotations

import numpy as np

from swerve.core.engine import Entry
from swerve.core.verbs import kernel
from swerve.serving import feedback_kernel, kernels
from swerve.serving.entries import (
    BODY,
    COMPILED,
    F_SHOWN,
    F_SIZES,
    FLAGS_AT,
    FRESH_AT,
    GONE_ON,
    IN_PLACE,
    MASK,
    NOW,
    OWNER,
    RANKED,
    RESPONDED,
    SECOND,
    SIZE_AT,
)
from swerve.serving.entry_kernels import (
    ANSWERS,
    CLICKS,
    COMMON_AT,
    DECISIONS,
    FIRST_OTHER,
    LINE_TAKEN,
    LINE_WHERE,
    NOWHERE,
    OTHERS,
    ROWS_MASK,
    SHELF_AT,
    as_written,
    line_of,
    sound,
    unpack_ranked,
    unpack_responded,
)
from swerve.serving.ledger import MISPLACED, count_click
from swerve.signals import reformulated


@kernel
def unpack_next(entries, at, lines, shelf, common, arms, asks, orders, facts, ask):
    """Read a decision or feedback for a row of one shelf, which shares with others what it learns, into columns.

    Return its kind, the row, and the word of a decision's page; `NOWHERE` as the kind of any other entry. `lines` lead from keys to
    rows.
    """
    kind, floats, numbers = entries[at] & MASK, entries.view(np.float64), facts.shape[1] - kernels.FACTS
    if kind > COMPILED or not sound(entries, at, arms, numbers):
        return NOWHERE, 0, 0
    line = line_of(lines, entries[at + OWNER], entries[at + SECOND])
    where = lines[line, LINE_WHERE]
    if lines[line, LINE_TAKEN] == 0 or where < 0 or where >> COMMON_AT != shelf << SHELF_AT - COMMON_AT | common:
        return NOWHERE, 0, 0
    i, page = where & ROWS_MASK, 0
    if kind == RANKED:
        page = unpack_ranked(entries, floats, at, i, lines, shelf, arms, asks, orders, facts)
        if page == NOWHERE:
            return NOWHERE, 0, 0
    elif kind == RESPONDED:
        unpack_responded(entries, at, i, ask)
    return kind, i, page


@kernel
def count_decided(entries, at, page, asks, counts):
    """Count a decision that was made again, and whether it has another page than its entry."""
    counts[DECISIONS] += 1
    if not as_written(entries, at, page, asks):
        counts[OTHERS] += 1
        if counts[FIRST_OTHER] == 0:
            counts[FIRST_OTHER] = counts[DECISIONS]


@kernel
def count_responded(entries, at, counts):
    """Count feedback that was applied again."""
    if entries[at] >> FLAGS_AT & IN_PLACE == 0:
        counts[ANSWERS] += 1
        counts[CLICKS] += entries[at + F_SIZES] >> FRESH_AT


@Entry
def play_many(
    params, senses, table, words, fixed, pools, owns, seasons, work, lines, shelf, common, entries, at, asks, orders, facts, ask,
    counts,
):  # fmt: skip
    """Play entries, from a word on, as long as they are decisions and feedback for rows of one shelf, which share what they learn;
    return the word of the first that is not. Decisions are made without draws: these change nothing that is kept."""
    floats, arms = entries.view(np.float64), table[0].policy.generation.shape[0]
    while at < len(entries):
        kind, i, page = unpack_next(entries, at, lines, shelf, common, arms, asks, orders, facts, ask)
        if kind == NOWHERE:
            return at
        now = floats[at + NOW]
        if kind == RANKED:
            kernels.decide_many(
                params[0], senses[0], table, words, fixed, pools, owns, seasons, work, asks, orders, facts, now, 0
            )  # fmt: skip
            if asks[0, kernels.FILLED] == MISPLACED:
                return at
            count_decided(entries, at, page, asks, counts)
        elif kind == RESPONDED:
            if feedback_kernel.respond_row(params[0], senses[0], table[i], pools[0], ask, floats[at + F_SHOWN], now) == MISPLACED:
                return at
            count_responded(entries, at, counts)
        elif kind == GONE_ON:
            reformulated(senses[0], table[i].senses, floats[at + BODY], now)
        else:
            count_click(table[i].ledger, entries[at + BODY])
        at += entries[at] >> SIZE_AT
    return at


@Entry
def unpack_one(entries, at, lines, shelf, common, arms, asks, orders, facts, ask):
    """Read one entry, see `unpack_next`; for callers that play it by the code that serves."""
    return unpack_next(entries, at, lines, shelf, common, arms, asks, orders, facts, ask)


@Entry
def count_one(entries, at, page, asks, counts):
    """Count a decision or feedback that was played."""
    if entries[at] & MASK == RANKED:
        count_decided(entries, at, page, asks, counts)
    else:
        count_responded(entries, at, counts)
