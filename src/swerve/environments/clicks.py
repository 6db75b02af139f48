"""Clicks on a page, and the value of a page, under the click models of `swerve.core.examination`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.examination import AFTER_CLICK, AFTER_SKIP, CLICKS, DCM, DISCOUNT, EXAMINATION, SLOTS
from swerve.core.rng import at, unit
from swerve.core.tables import bit
from swerve.core.verbs import kernel

#: The word of a round that decides which intent the person has. The words before it belong to slots, two for each.
WHOSE = 2 * SLOTS
NEAR = 1e-12  # a bound that exceeds the best page by less than this is rounding


@kernel
def clicks_on(model, attraction, page, word):
    """Return the clicked slots of a page as a mask. `attraction` is by arm; `word` is the round's.

    Slot r uses the words 2r (is it clicked) and 2r + 1 (does the person read on) of the round, whatever the page shows.
    """
    mask, last = np.int64(0), 0
    stops = model >= DCM
    for slot in range(len(page)):
        chance = attraction[page[slot]]
        if not stops:
            chance *= EXAMINATION[model, slot, last]
        clicked = unit(at(word, 2 * slot)) < chance
        if clicked:
            mask |= bit(slot)
            last = slot + 1
        if stops and unit(at(word, 2 * slot + 1)) >= (AFTER_CLICK[model] if clicked else AFTER_SKIP[model]):
            break
    return mask


@kernel
def intent_of(shares, word):
    """Return the intent of the round's person."""
    left, last = unit(at(word, WHOSE)), len(shares) - 1
    for intent in range(last):
        left -= shares[intent]
        if left < 0.0:
            return intent
    return last


@kernel
def gain_of(attraction, page):
    """Return the discounted cumulative gain of a page: Σ attractiveness / log₂(1 + position)."""
    total = 0.0
    for slot in range(len(page)):
        total += attraction[page[slot]] * DISCOUNT[slot]
    return total


@kernel
def unclicked(model, slot, alive, chance):
    """Return the probability that a person is still there and has clicked nothing after one more slot, and that of a click on it.

    `alive` is the probability of the same before the slot. For `ubm` and `pbm` nobody leaves.
    """
    if model >= DCM:
        return alive * (1.0 - chance) * AFTER_SKIP[model], alive * chance
    seen = chance * EXAMINATION[model, slot, 0]
    return alive * (1.0 - seen), alive * seen


@kernel
def any_click(model, attraction, page):
    """Return the probability of at least one click on a page, for one intent."""
    alive, clicked = 1.0, 0.0
    for slot in range(len(page)):
        alive, more = unclicked(model, slot, alive, attraction[page[slot]])
        clicked += more
    return clicked


@kernel
def search_page(model, shares, attractions, ranked, trial, slots, alive, clicked, chosen, used):
    """Return the highest probability of at least one click on a page, over all pages.

    Depth first over the slots, with a bound: nobody's chance is higher than with the intent's own best results in the slots left.
    `ranked` has the best results of each intent; `trial` the arms in the order in which they are tried. The rest is scratch space.
    """
    intents, arms = len(shares), len(trial)
    for intent in range(intents):
        alive[0, intent], clicked[0, intent] = 1.0, 0.0
    for slot in range(slots):
        chosen[slot] = -1
    for arm in range(arms):
        used[arm] = False
    top, depth = 0.0, 0
    while depth >= 0:
        turn = chosen[depth]
        if turn >= 0:
            used[turn] = False
        turn += 1
        while turn < arms and used[turn]:
            turn += 1
        if turn >= arms:
            chosen[depth] = -1
            depth -= 1
            continue
        chosen[depth] = turn
        used[turn] = True
        arm = trial[turn]
        bound, reached = 0.0, 0.0
        for intent in range(intents):
            alive[depth + 1, intent], more = unclicked(model, depth, alive[depth, intent], attractions[intent, arm])
            clicked[depth + 1, intent] = clicked[depth, intent] + more
            reached += shares[intent] * clicked[depth + 1, intent]
            here, hoped = alive[depth + 1, intent], clicked[depth + 1, intent]
            for slot in range(depth + 1, slots):
                here, more = unclicked(model, slot, here, ranked[intent, slot - depth - 1])
                hoped += more
            bound += shares[intent] * hoped
        if depth + 1 == slots:
            top = max(top, reached)
        elif bound > top + NEAR:
            depth += 1
    return top


@Entry
def search_pages(model, shares, attractions, ranked, trial, slots, alive, clicked, chosen, used, out):
    """Write the highest probability of at least one click of every segment into `out`."""
    for line in range(len(out)):
        out[line] = search_page(
            model, shares[line], attractions[line], ranked[line], trial[line], slots, alive, clicked, chosen, used
        )


def best_clicks(
    clicks: str, shares: NDArray[np.float64], attractions: NDArray[np.float64], slots: int, *, compiled: bool = True
) -> NDArray[np.float64]:
    """Return the highest probability of at least one click of every segment, over all pages.

    `shares` is by segment and intent, `attractions` by segment, intent and arm.
    """
    lines, intents, arms = attractions.shape
    ranked = -np.sort(-attractions, axis=2)[:, :, :slots]
    overall = (shares[:, :, None] * attractions).sum(axis=1)
    trial = np.argsort(-overall, axis=1, kind="stable")  # good pages first: the bound then cuts off most of the others
    alive, out = np.zeros((slots + 1, intents)), np.zeros(lines)
    search_pages_here = search_pages.bind() if compiled else search_pages.plain
    search_pages_here(
        CLICKS.index(clicks), np.ascontiguousarray(shares), np.ascontiguousarray(attractions), np.ascontiguousarray(ranked), trial,
        slots, alive, np.zeros_like(alive), np.zeros(slots, np.int64), np.zeros(arms, np.bool_), out,
    )  # fmt: skip
    return out


def best_gains(chances: NDArray[np.float64], slots: int) -> NDArray[np.float64]:
    """Return the highest discounted cumulative gain of every segment: the most attractive results in order."""
    ranked: NDArray[np.float64] = -np.sort(-chances, axis=1)[:, :slots]
    out = np.zeros(len(chances))
    for slot in range(slots):  # in the order in which `gain_of` adds, so that the best page has no regret at all
        out += ranked[:, slot] * DISCOUNT[slot]
    return out
