"""The compiled entry point of feedback: what a page that was shown has taught is replaced by what is known of it now.

Tests: tests/serving/test_pages.py, tests/serving/test_one_rule.py, tests/serving/test_evidence.py, tests/service/test_pages.py.
"""

from __future__ import annotations

import numpy as np

from swerve.core.contract import starts
from swerve.core.decisions import STARTS, decode
from swerve.core.engine import Entry
from swerve.core.examination import SLOTS
from swerve.core.pages import NOT_LEARNT, respond
from swerve.core.tables import bit, has
from swerve.core.verbs import kernel
from swerve.serving.ledger import MISPLACED, count_click, recount
from swerve.serving.outcomes import IGNORED, LATE, LEARNED
from swerve.signals import answered

#: The columns of feedback in `respond_one`. The call replaces `SEEN_SO_FAR` and `AFTER` by what counts as seen and clicked.
(
    F_ROW,  # the row of the query,
    F_OWNER,  # and the owner that this row must have
    F_START,  # the policy's start at the decision
    F_PHASE,  # the query's phase at the decision
    F_NUMBER,  # the decision's number
    F_EVIDENCE,  # 1: the policy may learn from it
    SEEN_SO_FAR,  # the slots that count as seen so far, as a mask
    BEFORE,  # the slots clicked so far, as a mask
    AFTER,  # the slots clicked from now on
    FIRST_CLICK,  # 1: this is the decision's first click
    SLOTS_SO_FAR,  # the slots of the page so far
    SLOTS_NOW,  # the slots of the page from now on
    PAGE_SO_FAR,  # from here on: the codes of the page so far; negative: the result has no arm
) = range(13)
PAGE_NOW = PAGE_SO_FAR + SLOTS
RESPONSE = PAGE_NOW + SLOTS


@kernel
def arms_in(row, codes):
    """Replace codes by arms; −1 where the arm was given to another candidate since the decision."""
    for slot in range(len(codes)):
        if codes[slot] >= 0:
            arm, generation, _ = decode(codes[slot])
            codes[slot] = arm if arm < len(row.generation) and row.generation[arm] == generation else -1


@kernel
def respond_row(spec, senses, row, pool, ask, shown, now):
    """Apply feedback to a ranking of a row that was made at `shown`; return its outcome.

    The columns of `ask` are named above. The policy decides what it learns, except for a click whose show a crash has lost: a
    policy must not see more clicks than plays.
    """
    book, state = row.ledger, row.policy
    if book.owner != ask[F_OWNER]:
        return MISPLACED
    answered(senses, row.senses, shown, ask[FIRST_CLICK], now)
    page = ask[PAGE_SO_FAR : PAGE_SO_FAR + ask[SLOTS_SO_FAR]]
    final = ask[PAGE_NOW : PAGE_NOW + ask[SLOTS_NOW]]
    arms_in(state, page)
    arms_in(state, final)
    before, after = ask[BEFORE], ask[AFTER]
    same_phase = book.phase == ask[F_PHASE]
    lost, alive = False, False
    recount(book, page, final, -1, same_phase and ask[F_EVIDENCE] != 0)
    recount(book, final, page, 1, same_phase and ask[F_EVIDENCE] != 0)
    for slot in range(len(page)):
        alive |= page[slot] >= 0  # what it has taught can be taken back
    for slot in range(len(final)):
        arm = final[slot]
        alive |= arm >= 0
        was = False
        for other in range(len(page)):
            was |= page[other] == arm and has(before, other)
        if has(after, slot) and not was:
            if arm >= 0:
                count_click(book, arm)
            if arm < 0 or (same_phase and ask[F_EVIDENCE] != 0 and book.phase_clicks[arm] >= book.phase_plays[arm]):
                after &= ~bit(slot)
                lost = True
    ask[AFTER] = before
    if np.int64(starts(spec, state)) & STARTS != ask[F_START] or not alive:
        return LATE
    if ask[F_EVIDENCE] == 0:
        return IGNORED
    same = len(page) == len(final) and before == after
    for slot in range(min(len(page), len(final))):
        same &= page[slot] == final[slot]
    if same:
        return LATE if lost else LEARNED
    number = ask[F_NUMBER]
    seen = respond(spec, state, pool, page, ask[SEEN_SO_FAR], before, final, after, number, shown, now)
    if seen == NOT_LEARNT:
        return LATE
    for slot in range(len(final)):
        was = False
        for other in range(len(page)):
            was |= page[other] == final[slot] and has(before, other)
        if same_phase and has(after, slot) and not was:
            book.phase_clicks[final[slot]] += 1
    ask[SEEN_SO_FAR] = seen
    ask[AFTER] = after
    return LATE if lost and after == before else LEARNED


@Entry
def respond_one(params, senses, table, pools, ask, shown, now):
    """Apply feedback to a ranking that was made at `shown`; return its outcome, see `respond_row`."""
    return respond_row(params[0], senses[0], table[ask[F_ROW]], pools[0], ask, shown, now)
