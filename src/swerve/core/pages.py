"""Verbs for whole pages: a policy fills the slots of a page and learns from every click on it.

A round with a page calls `order` and `present` instead of `select` and `show`, and `respond` instead of `reward`. Every policy can
do that: by default it chooses the top slot, leaves the rest in the given order, and learns from clicks on the top alone.

The arguments are those of `swerve.core.contract`, and:

`given`
    the arms on offer in the given order, the search engine's, its best first;
`page`
    the arms of a page, by slot, the top one first;
`before`, `after`
    clicks, as masks of slots: bit 0 is the top.
"""

from __future__ import annotations

import numpy as np

from swerve.core.contract import reward, select, show
from swerve.core.tables import bit
from swerve.core.verbs import kernel, verb


@kernel
def mask_of(given):
    """Return the arms on offer as a mask."""
    available = np.int64(0)
    for arm in given:
        available |= bit(arm)
    return available


@kernel
def _order(spec, row, pool, given, page, now):
    arm = select(spec, row, pool, mask_of(given), now)
    if arm < 0:
        return 0
    page[0] = arm
    filled = 1
    for other in given:
        if other != arm and filled < len(page):
            page[filled] = other
            filled += 1
    return filled


@kernel
def _present(spec, row, pool, page, number, now):
    show(spec, row, page[0], now)
    return 0


@kernel
def _respond(spec, row, pool, page, before, after, number, shown, now):
    if after & ~before & 1 == 0:
        return False
    return reward(spec, row, page[0], 1.0, shown, now)


@verb(default=_order)
def order(spec, row, pool, given, page, now):
    """Fill `page` from the arms in `given`, at most as many as it has slots; return how many were filled."""


@verb(default=_present)
def present(spec, row, pool, page, number, now):
    """Count a page as shown and not clicked. `number` is the decision's: latent draws are a function of it."""


@verb(default=_respond)
def respond(spec, row, pool, page, before, after, number, shown, now):
    """Replace the clicks `before` of a page shown at `shown` by `after`; return whether the policy learnt anything.

    Both are masks of slots: bit 0 is the top. Clicks arrive in any order and one at a time or together. As long as no other page
    of the query is shown in between, the row ends in the same bytes.
    """
