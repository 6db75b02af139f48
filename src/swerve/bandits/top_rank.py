"""TopRank: blocks of arms that clicks have not told apart yet, each in random order."""

from __future__ import annotations

import math

import numpy as np

from swerve.bandits.listing import clicked_at, close, drop, finish, open_layout, opening
from swerve.bandits.pairs import forget_pairs, pair_layout, prefer
from swerve.bandits.solo import alone, solo_layout
from swerve.core.contract import begin, evict, layout, restart, room
from swerve.core.elementary import log
from swerve.core.pages import mask_of, order
from swerve.core.rng import draw
from swerve.core.spec import Gap, Spec
from swerve.core.tables import bit, has
from swerve.core.verbs import kernel

SURPLUS = 4.0 * math.sqrt(2.0 / math.pi) / math.erf(math.sqrt(2.0))  # the constant of the authors' bound, 3.43


@alone
@opening
class TopRank(Spec):
    """Show arms in blocks, better blocks first and each in random order; clicks on one arm of a block and not another divide it.

    The first block has the arms that no other arm is known to beat, the second those that only arms of the first beat, and so on.
    For two arms of a block, s counts the pages on which only the first was clicked minus those on which only the second was, n all
    of both; the first beats the second once s ≥ √(2 n ln(c √n / δ)), c = 3.43. An arm that is not shown is not clicked.

    If clicks that contradict each other leave no arm unbeaten, everything known about who beats whom is forgotten.

    Source: Lattimore, Kveton, Li and Szepesvári, "TopRank: a practical algorithm for online stochastic ranking" (NeurIPS 2018).

    >>> from swerve import Pages, simulate
    >>> quiet = Pages(queries=1, impressions=100_000, results=6, slots=3, clicks="cascade", events_low=0, events_high=0)
    >>> found = simulate(TopRank(delta=0.1), quiet, runs=1, points=2)
    >>> bool(found.curves[0, 1] < 1.01 * found.curves[0, 0])
    True
    """

    delta: Gap = 0.1


@layout.register(TopRank)
def _(spec, arms, features):
    return [
        ("t", "i8"),
        ("rng", "u8"),
        *open_layout(),
        *pair_layout(arms),
        *solo_layout(arms),
        ("beaten", "i8", arms),  # by which arms, as a mask
        ("block", "i8", arms),  # scratch space: the number of each arm's block
        ("offer", "i8"),  # the arms on offer when the open page was made
    ]


@begin.register(TopRank)
def _(spec, row, word):
    row.rng = word
    restart(spec, row)


@restart.register(TopRank)
def _(spec, row):
    close(row)
    for arm in range(row.beaten.shape[0]):
        evict(spec, row, arm)
    row.t = 0
    row.offer = 0


@evict.register(TopRank)
def _(spec, row, arm):
    forget_pairs(row, arm)
    drop(row, arm)
    row.offer &= ~bit(arm)
    row.beaten[arm] = 0
    for other in range(row.beaten.shape[0]):
        row.beaten[other] &= ~bit(arm)


@room.register(TopRank)
def _(spec, row):
    return row.beaten.shape[0]


@kernel
def divide(row, offer):
    """Write the block of each arm on offer into `row.block`; return the number of blocks."""
    left, blocks = offer, 0
    while left != 0:
        block = np.int64(0)
        for arm in range(row.beaten.shape[0]):
            if has(left, arm) and row.beaten[arm] & left == 0:
                block |= bit(arm)
                row.block[arm] = blocks
        if block == 0:  # a circle of arms that beat each other
            for arm in range(row.beaten.shape[0]):
                row.beaten[arm] = 0
            left, blocks = offer, 0
            continue
        left &= ~block
        blocks += 1
    return blocks


@order.register(TopRank)
def _(spec, row, pool, given, page, now):
    row.offer = mask_of(given)
    blocks = divide(row, row.offer)
    filled = 0
    for block in range(blocks):
        count = 0
        for arm in given:
            if row.block[arm] == block:
                row.offered[count] = arm
                count += 1
        while count > 0 and filled < len(page):  # a random order, as far as there are slots
            turn = int(draw(row) * count)
            page[filled] = row.offered[turn]
            filled += 1
            count -= 1
            row.offered[turn] = row.offered[count]
    return filled


@kernel
def beats(spec, row, better, worse):
    """Return whether the first arm is known to beat the second."""
    lead, compared = row.lead[better, worse], float(row.compared[better, worse])
    return lead > 0 and lead >= math.sqrt(2.0 * compared * log(SURPLUS * math.sqrt(compared) / spec.delta))


@finish.register(TopRank)
def _(spec, row, page, clicks, number):
    divide(row, row.offer)
    hit = np.int64(0)
    for slot in range(len(page)):
        if page[slot] >= 0 and clicked_at(clicks, slot):
            hit |= bit(page[slot])
    for better in range(row.beaten.shape[0]):
        if has(hit & row.offer, better):
            for worse in range(row.beaten.shape[0]):
                if has(row.offer & ~hit, worse) and row.block[worse] == row.block[better]:
                    prefer(row, better, worse)
    for better in range(row.beaten.shape[0]):
        if has(hit & row.offer, better):
            for worse in range(row.beaten.shape[0]):
                if has(row.offer & ~hit, worse) and row.block[worse] == row.block[better] and beats(spec, row, better, worse):
                    row.beaten[worse] |= bit(better)
    row.t += 1
