"""How a page is filled: sorted by posterior means, with one result moved up, and what such a move may cost.

The kernels work on a row of `Listed` (`swerve.policies.swerve.listed`), whose `spare` holds the posterior means.
"""

from __future__ import annotations

from swerve.core.examination import DISCOUNT
from swerve.core.rng import beta, gamma_scale
from swerve.core.verbs import kernel
from swerve.policies.swerve.credit import below_of
from swerve.policies.swerve.posterior import plays_in, total_in


@kernel
def draw_alone(spec, row, arm, word):
    """Draw an unchanged arm's click probability from its plays without a click above."""
    test, prior = row.bandit.test, spec.bandit.test
    less, clicked = below_of(row, arm)
    clicks = prior.a + total_in(test, arm) - clicked
    skips = prior.b + (plays_in(test, arm) - less) - (total_in(test, arm) - clicked)
    return beta(word, clicks, skips, gamma_scale(clicks), gamma_scale(skips))


@kernel
def sort_page(row, given, page, slots):
    """Put the arms with the highest means into the page, the given order first among equals."""
    filled = 0
    for arm in given:
        row.spot[arm] = slots
        at = filled
        while at > 0 and row.spare[arm] > row.spare[page[at - 1]]:
            at -= 1
        if at >= slots:
            continue
        for slot in range(min(filled, slots - 1), at, -1):
            page[slot] = page[slot - 1]
        page[at] = arm
        filled = min(filled + 1, slots)
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
def afford(row, page, slots, arm, slot):
    """Return whether the query can afford to show the arm in a higher slot; if so, it pays for it."""
    cost = DISCOUNT[slot] * (row.spare[page[slot]] - row.spare[arm])
    for other in range(slot + 1, min(row.spot[arm] + 1, slots)):
        cost -= DISCOUNT[other] * (row.spare[page[other - 1]] - row.spare[page[other]])
    if cost > row.slack:
        return False
    row.slack -= cost
    return True
