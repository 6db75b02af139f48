"""Verbs for whole pages: a policy fills the slots of a page and learns from every click on it.

A round with a page calls `order` and `present` instead of `select` and `show`, and `respond` instead of `reward`, or
`present_and_respond` where the clicks are known at once. Every policy can do that: by default it chooses the top slot, leaves the
rest in the given order, and learns from clicks on the top alone.

The arguments are those of `swerve.core.contract`, and:

`given`
    the arms on offer in the given order, the search engine's, its best first;
`page`
    the arms of a page, by slot, the top one first; negative for a result that has no arm any more;
`before`, `after`
    clicks, as masks of slots: bit 0 is the top;
`number`
    the decision's number. It determines which of the slots that were not clicked count as seen.

A policy that delays learning (`swerve.policies.patient`) counts pages itself and hands the plays over later. For it, a policy that
learns from slots below the top has the verbs from `looks` on. Pages are held in `PARTS` parts by time, part 0 being the latest.
"""

from __future__ import annotations

import numpy as np

from swerve.core.contract import plays_of, reward, select, settle, show
from swerve.core.tables import bit
from swerve.core.verbs import kernel, verb

#: What `respond` returns when the policy has learnt nothing.
NOT_LEARNT = -1
#: What `redraw` returns when the policy has no such shortcut.
CANNOT = -1
#: Parts in which plays and pages are held. Measured: with 2, regret at clicks 100 rounds late was 1.4 times as high, because plays
#: wait up to twice as long as they must.
PARTS = 4


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
    return 1


@kernel
def _respond(spec, row, pool, page, seen, before, final, after, number, shown, now):
    arm = final[0]
    if arm >= 0 and arm != page[0]:  # another result was on top: it was shown too
        show(spec, row, arm, now)
    if after & 1 == 0 or (before & 1 != 0 and page[0] == arm):
        return seen
    if arm < 0 or plays_of(spec, row, arm) == 0 or not reward(spec, row, arm, 1.0, shown, now):
        return NOT_LEARNT
    return seen


@kernel
def _present_and_respond(spec, row, pool, page, clicks, number, now):
    seen = present(spec, row, pool, page, number, now)
    if clicks != 0:
        return respond(spec, row, pool, page, seen, np.int64(0), page, clicks, number, now, now)
    return seen


@kernel
def _top(spec, row, pool, page, clicks, number):
    return 1


@kernel
def _hand(spec, row, pool, delta, arm, value, now):
    show(spec, row, arm, now)
    if value > 0.0:
        reward(spec, row, arm, value, now, now)
    return settle(spec, row, pool, delta, now)


@kernel
def _nothing(spec, *args):
    return 0


@kernel
def _cannot(spec, *args):
    return CANNOT


@verb(default=_order)
def order(spec, row, pool, given, page, now):
    """Fill `page` from the arms in `given`, at most as many as it has slots; return how many were filled."""


@verb(default=_cannot)
def redraw(spec, row, given, page, other, word):
    """Draw another page, from the state in which `order` has just filled `page`, on the random stream that begins with `word`.

    Write it to `other` and nothing else; return how many slots were filled. This saves `order` on a copy of the row, for policies
    that can: others return `CANNOT`.
    """


@verb(default=_nothing)
def grade(spec, row, given, grades):
    """Note what the search engine's scores say of the arms in `given`, before `order`; see `swerve.core.examination.grades_of`."""


@verb(default=_present)
def present(spec, row, pool, page, number, now):
    """Count a page as shown and not clicked; return the mask of the slots that count as seen.

    Users do not look at every slot. Whether a slot counts as seen is a draw; `number`, the decision's, determines it.
    """


@verb(default=_respond)
def respond(spec, row, pool, page, seen, before, final, after, number, shown, now):
    """Replace what a page shown at `shown` has taught; return the slots that count as seen from now on, or `NOT_LEARNT`.

    So far `page` counted as shown, with the slots `seen` and the clicks `before`. From now on `final` counts, with the clicks
    `after`: the same page after another click, or the results that were really shown. Clicks arrive in any order and one at a time
    or together. As long as no other page of the query is learnt from in between, the row ends in the same bytes.
    """


@verb(default=_present_and_respond)
def present_and_respond(spec, row, pool, page, clicks, number, now):
    """Count the page that `order` has just filled, whose clicks are known already; return what `respond` would.

    This is `present` and then, if there are clicks, `respond`. A policy may have a shorter way to the same bytes.
    """


@verb(default=_top)
def looks(spec, row, pool, page, clicks, number):
    """Return the mask of the slots that count as seen when these clicks are known. Writes nothing."""


@verb(default=_hand)
def hand(spec, row, pool, delta, arm, value, now):
    """Learn from one play whose reward is known, and finish everything that is due; return report bits."""


@verb(default=_nothing)
def hold_page(spec, row, page, number, now):
    """Note a page that was shown at `now`, in part 0."""


@verb(default=_nothing)
def hold(spec, row, part, page, seen, clicks, sign):
    """Add what a page in a part says besides its plays and clicks (`sign` 1), or take it back (−1)."""


@verb(default=_nothing)
def hold_final(spec, row, final, after, number):
    """Note what was really shown, and the clicks, of a page that is held."""


@verb(default=_nothing)
def move_held(spec, row):
    """Move every held part on by one; the last one was handed over, and part 0 is empty afterwards."""


@verb(default=_nothing)
def drop_held(spec, row):
    """Discard everything that is held."""


@verb(default=_nothing)
def turn(spec, row, pool, delta, part, now):
    """Learn from what a part holds after its plays were handed over, and empty it; return report bits."""


@verb(default=_nothing)
def study(spec, row, delta, wait, now):
    """Learn how users look at slots from a page that was held for `wait`, if there is one; return report bits."""


#: The verbs of a policy whose pages another one holds. A wrapper has them in terms of its own `show`, `reward` and `settle`.
HOLDING = (looks, hand, hold_page, hold, hold_final, move_held, drop_held, turn, study)
