"""BubbleRank: neighbours of the given order change places when clicks prove it wrong."""

from __future__ import annotations

import math

from swerve.bandits.listing import GONE, clicked_at, close, drop, finish, open_layout, opening
from swerve.bandits.pairs import forget_pairs, pair_layout, prefer
from swerve.bandits.solo import alone, solo_layout
from swerve.core.contract import begin, evict, layout, restart, room
from swerve.core.elementary import log
from swerve.core.pages import mask_of, order
from swerve.core.rng import draw
from swerve.core.spec import Gap, Spec
from swerve.core.tables import bit, has
from swerve.core.verbs import kernel


@alone
@opening
class BubbleRank(Spec):
    """Keep an order, at first the given one. On each page swap random neighbours, and keep a swap when clicks prove it better.

    In even pages the pairs of slots (1, 2), (3, 4), …, in odd ones (2, 3), (4, 5), … Each pair is swapped with probability 1/2,
    unless it is decided. s counts the pages on which only the first of two arms was clicked minus those on which only the second
    was, n all of both; the first is better for certain if s > 2 √(n ln(1/δ)), and then moves above the second for good.

    The pair of the last slot and the first arm below the page shows one of the two; a click on it counts for it. An arm that joins
    later goes to the end of the order.

    Safety: an order never has more wrong pairs than the given one, except with a probability of the order of δ, and a page differs
    from the order by swaps of neighbours.

    Source: Li, Kveton, Lattimore, Markov, de Rijke, Szepesvári and Zoghi, "BubbleRank: safe online learning to re-rank via implicit
    click feedback" (UAI 2019), for pages that show all arms; the pair at the end of the page is an extension.

    >>> from swerve import Pages, simulate
    >>> quiet = Pages(queries=2, impressions=4000, results=6, slots=6, events_low=0, events_high=0)
    >>> found = simulate(BubbleRank(delta=0.1), quiet, runs=1, points=1)
    >>> bool(found.count("churn")[0] < 6 * 0.75)
    True
    """

    delta: Gap = 0.1


@layout.register(BubbleRank)
def _(spec, arms, features):
    return [
        ("t", "i8"),
        ("rng", "u8"),
        *open_layout(),
        *pair_layout(arms),
        *solo_layout(arms),
        ("ranked", "i8", arms),  # the order, of `known` arms
        ("known", "i8"),
        ("below", "i8"),  # the arm below the open page that its last slot was compared with, or −1
        ("listed", "i8", arms),  # scratch space: the order of the arms on offer
    ]


@begin.register(BubbleRank)
def _(spec, row, word):
    row.rng = word
    restart(spec, row)


@restart.register(BubbleRank)
def _(spec, row):
    close(row)
    for arm in range(row.ranked.shape[0]):
        evict(spec, row, arm)
    row.t = 0
    row.below = GONE


@evict.register(BubbleRank)
def _(spec, row, arm):
    forget_pairs(row, arm)
    drop(row, arm)
    if row.below == arm:
        row.below = GONE
    kept = 0
    for rank in range(row.known):
        if row.ranked[rank] != arm:
            row.ranked[kept] = row.ranked[rank]
            kept += 1
    row.known = kept


@room.register(BubbleRank)
def _(spec, row):
    return row.ranked.shape[0]


@kernel
def certain(spec, row, better, worse):
    """Return whether the first arm is better than the second for certain."""
    lead = row.lead[better, worse]
    return lead > 0 and lead > 2.0 * math.sqrt(row.compared[better, worse] * -log(spec.delta))


@kernel
def list_known(row, given):
    """Write the order of the arms on offer into `row.listed`; return their number. New arms go to the end, in the given order."""
    known, mask, offered = 0, mask_of(given), 0
    for rank in range(row.known):
        known |= bit(row.ranked[rank])
    for arm in given:
        if not has(known, arm):
            row.ranked[row.known] = arm
            row.known += 1
    for rank in range(row.known):
        if has(mask, row.ranked[rank]):
            row.listed[offered] = row.ranked[rank]
            offered += 1
    return offered


@order.register(BubbleRank)
def _(spec, row, pool, given, page, now):
    offered = list_known(row, given)
    filled = min(offered, len(page))
    row.below = GONE
    for slot in range(row.t % 2, min(filled, offered - 1), 2):
        upper, lower = row.listed[slot], row.listed[slot + 1]
        if not certain(spec, row, upper, lower) and draw(row) < 0.5:
            row.listed[slot], row.listed[slot + 1] = lower, upper
        if slot + 1 == filled:
            row.below = row.listed[slot + 1]
    for slot in range(filled):
        page[slot] = row.listed[slot]
    return filled


@finish.register(BubbleRank)
def _(spec, row, page, clicks, number):
    filled = len(page)
    for slot in range(row.t % 2, filled, 2):
        upper = page[slot]
        lower = page[slot + 1] if slot + 1 < filled else row.below
        first = clicked_at(clicks, slot)
        second = clicked_at(clicks, slot + 1) if slot + 1 < filled else 0
        if upper >= 0 and lower >= 0 and first != second:
            prefer(row, upper if first else lower, lower if first else upper)
    for rank in range(row.known - 1):
        upper, lower = row.ranked[rank], row.ranked[rank + 1]
        if certain(spec, row, lower, upper):
            row.ranked[rank], row.ranked[rank + 1] = lower, upper
    row.t += 1
