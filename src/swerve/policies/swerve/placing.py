"""How a page is filled: sorted by posterior means, with one result moved up, and what such a move may cost.

The kernels work on a row of `Listed` (`swerve.policies.swerve.listed`), whose `spare` holds the posterior means.
"""

from __future__ import annotations

import numpy as np

from swerve.core.examination import DISCOUNT
from swerve.core.rng import beta, gamma_scale
from swerve.core.tables import bit, has
from swerve.core.verbs import kernel
from swerve.policies.swerve.credit import below_of
from swerve.policies.swerve.draws import draw_chance, draw_changed, nearer
from swerve.policies.swerve.posterior import plays_in, total_in


@kernel
def draw_alone(spec, row, arm, word):
    """Draw an unchanged arm's click probability from its plays without a click above."""
    test, prior = row.bandit.test, spec.bandit.test
    less, clicked = below_of(row, arm)
    clicks = prior.a + total_in(test, arm) - clicked
    skips = prior.b + (plays_in(test, arm) - less) - (total_in(test, arm) - clicked)
    theta, word = beta(word, clicks, skips, gamma_scale(clicks), gamma_scale(skips))
    return nearer(spec.bandit.sample_spread, theta, clicks, skips), word


@kernel
def insert(row, page, filled, slots, arm):
    """Put an arm where its mean belongs among the first `filled` slots, unless it falls off; return how many are filled then.

    Of equal means the one whose given position, in `spot`, is higher comes first.
    """
    mean, position = row.spare[arm], row.spot[arm]
    at = filled
    while at > 0:
        above = page[at - 1]
        if mean < row.spare[above] or (mean == row.spare[above] and position > row.spot[above]):
            break
        if at < slots:
            page[at] = above
        at -= 1
    if at < slots:
        page[at] = arm
        filled = min(filled + 1, slots)
    return filled


@kernel
def sort_page(row, given, available, page, slots):
    """Put the arms with the highest means into the page, the given order first among equals; `spot` holds the given positions.

    The arms of the query's last page come first: hardly anything has to be moved then, and nearly all others fall off at once.
    """
    filled, left = 0, available
    for slot in range(slots):
        arm = np.int64(row.page[slot])
        if arm < row.spot.shape[0] and has(left, arm):
            left &= ~bit(arm)
            filled = insert(row, page, filled, slots, arm)
    for arm in given:
        if has(left, arm):
            filled = insert(row, page, filled, slots, arm)
    for arm in given:
        row.spot[arm] = slots
    for slot in range(filled):
        row.spot[page[slot]] = slot


@kernel
def move_up(row, page, slots, arm, slot):
    """Put an arm into a higher slot; the arms from there on move down."""
    for other in range(min(row.spot[arm], slots - 1), slot, -1):
        page[other] = page[other - 1]
    page[slot] = arm


@kernel
def page_value(row, page, slots):
    """Return the discounted cumulative gain that a page sorted by posterior means is expected to have."""
    total = 0.0
    for slot in range(slots):
        total += DISCOUNT[slot] * row.spare[page[slot]]
    return total


@kernel
def move_cost(row, page, slots, arm, slot):
    """Return what the page is expected to lose when an arm of it, or one below it, is shown in a higher slot."""
    cost = DISCOUNT[slot] * (row.spare[page[slot]] - row.spare[arm])
    for other in range(slot + 1, min(row.spot[arm] + 1, slots)):
        cost -= DISCOUNT[other] * (row.spare[page[other - 1]] - row.spare[page[other]])
    return cost


@kernel
def draw_move(spec, row, available, page, slots, slack, drawn):
    """Draw which arm of a sorted page is explored, and where; return the arm (−1: none), its slot, its cost and the stream's word.

    `available` are the arms on offer, `drawn` is what `begin_draws` returned. A move that costs more than `slack` is not made.
    """
    inner, test, tested = spec.bandit, row.bandit.test, row.bandit.open != 0
    odds, none, rise, event, bold, word = drawn
    best, winner = -1.0, -1
    highest, mover = -1.0, -1
    for arm in range(test.given.shape[0]):
        changed = False
        if tested:
            # a result below the top is seen anyway: only results outside the page, and the top one, are worth a look
            inside = has(available, arm) and 0 < row.spot[arm] < slots
            changed, none, word = draw_changed(inner, test, arm, odds, none, rise, event, bold, not inside, word)
        if has(available, arm):
            if row.mixed != 0 and not changed:
                theta, word = draw_alone(spec, row, arm, word)
            else:
                theta, word = draw_chance(inner, test, arm, changed, word)
            if theta > best:
                best, winner = theta, arm
            spot = row.spot[arm]
            # one branch, rarely taken: nobody could predict each of the three
            if (spot > 0) & (theta > highest) & (theta > row.spare[page[max(spot, 1) - 1]]):
                highest, mover = theta, arm
    if winner != page[0]:
        cost = move_cost(row, page, slots, winner, 0)
        if cost <= slack:
            return winner, 0, cost, word
    if mover >= 0:
        slot = 1
        while slot < slots and highest <= row.spare[page[slot]]:
            slot += 1
        if slot < slots and slot < row.spot[mover]:
            cost = move_cost(row, page, slots, mover, slot)
            if cost <= slack:
                return mover, slot, cost, word
    return -1, 0, 0.0, word
