"""The open page of a bandit that orders pages: it counts when the query's next round begins.

Until then clicks arrive in any order, and the page is counted once, with all of them. A click that arrives after the next page was
shown is not learnt. The verb `finish` counts a page; `settle` calls it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.bandits.counts import count_restart
from swerve.core.contract import settle
from swerve.core.examination import SLOTS
from swerve.core.pages import NOT_LEARNT, present, respond
from swerve.core.verbs import kernel, verb

GONE = -1  # in place of an arm that was forgotten while its page was open


@verb
def depth_of(spec, clicks, filled):
    """Return how many of the filled slots of a page count as looked at, from the top, given its clicks."""


@verb
def finish(spec, row, page, clicks, number):
    """Count a page with its clicks, a mask of slots; arms that were forgotten meanwhile are −1."""


def open_layout() -> list[tuple[Any, ...]]:
    """Return the fields of the open page: its arms, the number of its slots (0: none is open), its clicks and its number."""
    return [("open", "i8", SLOTS), ("filled", "i8"), ("clicks", "i8"), ("number", "i8")]


@kernel
def close(row):
    """Discard the open page, and leave nothing of it."""
    for slot in range(row.filled):
        row.open[slot] = 0
    row.filled = 0
    row.clicks = 0
    row.number = 0


@kernel
def drop(row, arm):
    """Take a forgotten arm out of the open page."""
    for slot in range(row.filled):
        if row.open[slot] == arm:
            row.open[slot] = GONE


@kernel
def restart_open(spec, row):
    """Start over with counts and without the open page."""
    close(row)
    count_restart(spec, row)


@kernel
def settle_open(spec, row, pool, delta, now):
    if row.filled > 0:
        finish(spec, row, row.open[: row.filled], row.clicks, row.number)
        close(row)
    return 0


@kernel
def present_open(spec, row, pool, page, number, now):
    close(row)
    for slot in range(len(page)):
        row.open[slot] = page[slot]
    row.filled = len(page)
    row.number = number
    return (np.int64(1) << np.int64(len(page))) - 1


@kernel
def respond_open(spec, row, pool, page, seen, before, final, after, number, shown, now):
    if row.filled == 0 or row.number != number:
        return NOT_LEARNT
    for slot in range(len(final)):
        if slot >= row.filled or final[slot] != page[slot]:  # else the arm may have been forgotten since
            row.open[slot] = final[slot]
    row.filled = len(final)
    row.clicks = after
    return (np.int64(1) << np.int64(len(final))) - 1


@kernel
def by_score(scores, given, page):
    """Fill the page with the arms of the highest scores; equal scores keep the given order. Return how many slots were filled."""
    filled = min(len(page), len(given))
    for rank in range(len(given)):
        slot = min(rank, filled)  # slots before this one are sorted
        arm = given[rank]
        while slot > 0 and scores[page[slot - 1]] < scores[arm]:
            if slot < filled:
                page[slot] = page[slot - 1]
            slot -= 1
        if slot < filled:
            page[slot] = arm
    return filled


@kernel
def to_first_click(spec, clicks, filled):
    for slot in range(filled):
        if clicked_at(clicks, slot):
            return slot + 1
    return filled


@kernel
def to_last_click(spec, clicks, filled):
    for slot in range(filled - 1, -1, -1):
        if clicked_at(clicks, slot):
            return slot + 1
    return filled


@kernel
def clicked_at(clicks, slot):
    """Return 1 if the slot is in the mask of clicks, else 0."""
    return clicks >> np.int64(slot) & 1


@kernel
def count_read(spec, row, page, clicks):
    """Count a page in plays and totals: the slots that were looked at, with a reward of 1 for each click."""
    row.t += 1
    for slot in range(depth_of(spec, clicks, len(page))):
        if page[slot] >= 0:
            row.plays[page[slot]] += 1
            row.total[page[slot]] += float(clicked_at(clicks, slot))


def opening(cls: type) -> type:
    """Register `settle`, `present` and `respond` for a class with the fields of `open_layout` and the verb `finish`."""
    settle.register(cls)(settle_open)
    present.register(cls)(present_open)
    respond.register(cls)(respond_open)
    return cls
