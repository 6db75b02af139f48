"""Pages of `Listed` whose plays `swerve.policies.patient` holds back, and hands over when their clicks are known.

Tests: tests/policies/test_patient_pages.py, tests/serving/test_pages.py.
"""

from __future__ import annotations

import numpy as np

from swerve.core.contract import LEARNT
from swerve.core.examination import SLOTS
from swerve.core.pages import PARTS, drop_held, hand, hold, hold_final, hold_page, move_held, study, turn
from swerve.core.tables import has
from swerve.core.verbs import kernel
from swerve.policies.swerve.credit import UNKNOWN, after_verdicts, judge_diversity, measure, teach_looks
from swerve.policies.swerve.examination import MEASURED
from swerve.policies.swerve.lifecycle import follow_up
from swerve.policies.swerve.listed import DIVERSITY_MASK, STUDIED, Listed
from swerve.policies.swerve.policy import count_earned, count_shown, settle_play


@hand.register(Listed)
def _(spec, row, pool, delta, arm, value, now):
    state = row.bandit
    before = state.test.moved | state.test.stayed
    tested = state.open != 0
    count_shown(spec.bandit, state, arm)
    if value > 0.0:
        count_earned(spec.bandit, state, arm, value, now)
    report = 0
    if row.measured[arm] < MEASURED:
        measure(row, delta.pages, arm, value > 0.0)
        report = LEARNT
    report |= settle_play(spec.bandit, state, pool.bandit, delta.bandit, arm, value, False, True, now)
    after_verdicts(spec, row, before, tested)
    return report


@hold_page.register(Listed)
def _(spec, row, page, number, now):
    row.held_pages[0] += 1
    if row.filled == 0 and len(page) > 1:
        row.filled = min(len(page), SLOTS)
        row.seen = STUDIED
        row.number = np.uint64(number)
        row.clicks = 0
        row.studied = now
        for slot in range(row.filled):
            row.page[slot] = page[slot]


@hold.register(Listed)
def _(spec, row, part, page, seen, clicks, sign):
    above = False
    for slot in range(min(len(page), SLOTS)):
        arm = page[slot]
        clicked = has(clicks, slot)
        if above and arm >= 0 and has(seen, slot):
            row.held_plays[arm, part] = np.int64(row.held_plays[arm, part]) + sign
            if clicked:
                row.held_clicks[arm, part] = np.int64(row.held_clicks[arm, part]) + sign
        above |= clicked


@hold_final.register(Listed)
def _(spec, row, final, after, number):
    if row.filled > 0 and row.number == np.uint64(number):
        row.clicks = after
        row.filled = min(len(final), SLOTS)
        for slot in range(row.filled):
            row.page[slot] = final[slot] if final[slot] >= 0 else UNKNOWN


@move_held.register(Listed)
def _(spec, row):
    for part in range(PARTS - 1, 0, -1):
        row.held_pages[part] = row.held_pages[part - 1]
        for arm in range(row.rank.shape[0]):
            row.held_plays[arm, part] = row.held_plays[arm, part - 1]
            row.held_clicks[arm, part] = row.held_clicks[arm, part - 1]
    empty_part(row, 0)


@kernel
def empty_part(row, part):
    """Forget what a part holds."""
    row.held_pages[part] = 0
    for arm in range(row.rank.shape[0]):
        row.held_plays[arm, part] = 0
        row.held_clicks[arm, part] = 0


@drop_held.register(Listed)
def _(spec, row):
    row.filled = 0
    for part in range(PARTS):
        empty_part(row, part)


@study.register(Listed)
def _(spec, row, delta, wait, now):
    if row.filled == 0 or now < row.studied + wait:
        return 0
    teach_looks(spec, row, delta.pages, row.page[: row.filled], row.clicks)
    row.filled = 0
    return LEARNT


@turn.register(Listed)
def _(spec, row, pool, delta, part, now):
    state = row.bandit
    for arm in range(row.rank.shape[0]):
        row.below_plays[arm] += np.float32(row.held_plays[arm, part])
        row.below_clicks[arm] += np.float32(row.held_clicks[arm, part])
    report, judge = 0, False
    for _ in range(row.held_pages[part]):  # each page is a round
        state.t += 1
        judge |= state.t & DIVERSITY_MASK == 0
        if state.open != 0:
            report |= follow_up(spec.bandit, state, delta.bandit)
    if judge:
        judge_diversity(spec, row)
    empty_part(row, part)
    return report
