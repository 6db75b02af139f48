"""What all queries teach about pages: which slots users look at, and what a position in the given order is worth.

*Examination*: γ[r, d] is the probability that a user looks at slot r when the last click above it was d slots higher (d = 0: there
was none). A click at slot r happens with probability γ · a, a being the click probability of the result. The estimate is
(w γ₀ + clicks) / (w + Σ a) over results whose click probability is known well. The top slot is always seen.

*Given positions*: the mean and the variance of the click probabilities of results at position r of the given order, over all
queries, and by the grade of the engine's score where scores are sent. A result enters once, with the clicks of its first
`MEASURED` plays. The share of the variance that positions explain (R²) says how much the given order tells: nothing, if the
engine's order means nothing. Before positions are measured, a first guess stands for their means; its level, one number, is learnt
from all clicks on results that are being measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.examination import EXAMINATION, GRADES, NO_GRADE, SLOTS, UBM
from swerve.core.rng import at, unit
from swerve.core.verbs import kernel

#: Pairs of a slot and a distance: slot r has r distances, and "no click above".
PAIRS = SLOTS * (SLOTS + 1) // 2
#: Positions in the given order that are told apart; the last stands for all below.
RANKS = 20

#: Before anything is learnt, the mean falls with the position, and the variance is that of a Beta with `FIRST_PLAYS` plays; both
#: have a weight in results that the policy sets.
FIRST_MEAN = tuple(0.4 / (1.0 + 0.6 * rank) for rank in range(RANKS))
FIRST_PLAYS = 40.0
#: Plays after which a result counts as measured.
MEASURED = 20


#: γ₀: the user browsing model, the most realistic of the published tables.
LOOKS = EXAMINATION[UBM]
MEANS = np.array(FIRST_MEAN)
#: The level of the first guess is learnt from the clicks of all positions together, with the weight of this many expected clicks.
LEVEL_CLICKS = 20.0
MOST_LEVEL = 2.0  # keeps the guess of the top below 1


#: A delta has clicks and expected clicks by slot; it has measured results, which come rarely.
LOOKED, RATED = 1, 2


def examination_layout() -> list[tuple[Any, ...]]:
    """Return the fields of the pool: clicks and expected clicks by slot and distance; measured results by given position."""
    return [
        ("fresh", "i8"),  # in a delta: what there is to fold, `LOOKED` | `RATED`
        ("clicks", "f8", PAIRS),
        ("expected", "f8", PAIRS),
        ("results", "f8", RANKS),  # measured results by given position,
        ("rates", "f8", RANKS),  # the sum of their click rates,
        ("squares", "f8", RANKS),  # and of their squares
        ("graded", "f8", (RANKS, GRADES)),  # measured results by given position and grade, and the sum of their click rates
        ("graded_rates", "f8", (RANKS, GRADES)),
        ("level_clicks", "f8"),  # clicks of results that are being measured,
        ("level_expected", "f8"),  # and the clicks that the first guess expected
    ]


def examination_contribution_layout() -> list[tuple[Any, ...]]:
    """Return the fields: those of the pool, without the flag of deltas."""
    return [field for field in examination_layout() if field[0] != "fresh"]


@kernel
def pair_of(slot, last):
    """Return the index of a slot below the last click above it, at slot `last`; −1 for none."""
    return slot * (slot + 1) // 2 + (slot - last if last >= 0 else 0)


@kernel
def looks_at(weight, pool, slot, last):
    """Return γ: the probability that a user looks at a slot."""
    if slot == 0:
        return 1.0
    k = pair_of(slot, last)
    return min((weight * LOOKS[slot, last + 1] + pool.clicks[k]) / (weight + pool.expected[k]), 1.0)


@kernel
def rank_of(position):
    """Return the class of a position in the given order, counted from 0."""
    return min(position, RANKS - 1)


@kernel
def click_level(pool):
    """Return how often results are clicked, relative to the first guess."""
    return min((LEVEL_CLICKS + pool.level_clicks) / (LEVEL_CLICKS + pool.level_expected), MOST_LEVEL)


@kernel
def first_mean(pool, rank):
    """Return the first guess of the mean at a given position, at the level of all clicks so far."""
    return click_level(pool) * MEANS[rank]


@kernel
def rank_mean(weight, pool, rank):
    """Return the mean click probability of results at a given position; `weight` is that of the first guess, in results."""
    return (weight * first_mean(pool, rank) + pool.rates[rank]) / (weight + pool.results[rank])


@kernel
def falling_mean(weight, pool, rank):
    """Return the least mean down to a given position.

    Results below the page are measured only if they are good enough to stay on it: as they are, their means would be too high.
    """
    mean = 1.0
    for above in range(rank + 1):
        mean = min(mean, rank_mean(weight, pool, above))
    return mean


@kernel
def graded_mean(weight, graded_weight, pool, rank, grade):
    """Return the mean click probability of results at a given position whose scores have this grade.

    `graded_weight` is the weight of the position's mean, in results.
    """
    mean = falling_mean(weight, pool, rank)
    if grade == NO_GRADE:
        return mean
    return (graded_weight * mean + pool.graded_rates[rank, grade]) / (graded_weight + pool.graded[rank, grade])


@kernel
def order_tells(weight, pool):
    """Return R²: the share of the variance of click probabilities that the given positions explain."""
    count, total = 0.0, 0.0
    for rank in range(RANKS):
        n = weight + pool.results[rank]
        count += n
        total += n * rank_mean(weight, pool, rank)
    middle = total / count
    between, within = 0.0, 0.0
    for rank in range(RANKS):
        n, first, mean = weight + pool.results[rank], first_mean(pool, rank), rank_mean(weight, pool, rank)
        spread = first * (1.0 - first) * (1.0 / (FIRST_PLAYS + 1.0) + 1.0 / MEASURED)
        square = (weight * (first * first + spread) + pool.squares[rank]) / n
        # the rate of a few plays varies more than the click probability itself
        within += n * max(square - mean * mean - mean * (1.0 - mean) / MEASURED, 0.0)
        between += n * (mean - middle) * (mean - middle)
    return between / (between + within)


@kernel
def counts_as_seen(look, chance, number, slot):
    """Draw whether a skipped slot was seen: P(seen | not clicked) = γ (1 − a) / (1 − γ a). The decision determines the draw."""
    return unit(at(number, slot)) * (1.0 - look * chance) < look * (1.0 - chance)


@kernel
def add_looks(pool, delta):
    """Add clicks and expected clicks to those of a pool, or of a contribution."""
    for k in range(PAIRS):
        pool.clicks[k] += delta.clicks[k]
        pool.expected[k] += delta.expected[k]
    pool.level_clicks += delta.level_clicks
    pool.level_expected += delta.level_expected


@kernel
def add_rates(pool, delta):
    """Add measured results to those of a pool, or of a contribution."""
    for k in range(RANKS):
        pool.results[k] += delta.results[k]
        pool.rates[k] += delta.rates[k]
        pool.squares[k] += delta.squares[k]
        for g in range(GRADES):
            pool.graded[k, g] += delta.graded[k, g]
            pool.graded_rates[k, g] += delta.graded_rates[k, g]


@kernel
def merge_examination(pool, delta):
    """Add a delta to the pool, or to a contribution."""
    if delta.fresh == 0:
        return
    add_looks(pool, delta)
    if delta.fresh & RATED != 0:
        add_rates(pool, delta)


@kernel
def take_up_examination(pool, theirs, known):
    """Add what is new of a contribution to the pool."""
    add_looks(pool, theirs)
    add_rates(pool, theirs)
    add_looks(known, theirs)
    add_rates(known, theirs)


@kernel
def clear_examination(delta):
    """Empty a delta."""
    if delta.fresh == 0:
        return
    rated, delta.fresh = delta.fresh & RATED, 0
    for k in range(PAIRS):
        delta.clicks[k] = 0.0
        delta.expected[k] = 0.0
    delta.level_clicks = 0.0
    delta.level_expected = 0.0
    if rated == 0:
        return
    for k in range(RANKS):
        delta.results[k] = 0.0
        delta.rates[k] = 0.0
        delta.squares[k] = 0.0
        for g in range(GRADES):
            delta.graded[k, g] = 0.0
            delta.graded_rates[k, g] = 0.0


@kernel
def novel_examination(theirs, known):
    """Reduce another worker's contribution to what is not known of it; return whether there is anything."""
    theirs.level_clicks = max(theirs.level_clicks - known.level_clicks, 0.0)
    theirs.level_expected = max(theirs.level_expected - known.level_expected, 0.0)
    total = theirs.level_clicks + theirs.level_expected
    for k in range(PAIRS):
        theirs.clicks[k] = max(theirs.clicks[k] - known.clicks[k], 0.0)
        theirs.expected[k] = max(theirs.expected[k] - known.expected[k], 0.0)
        total += theirs.clicks[k] + theirs.expected[k]
    for k in range(RANKS):
        theirs.results[k] = max(theirs.results[k] - known.results[k], 0.0)
        theirs.rates[k] = max(theirs.rates[k] - known.rates[k], 0.0)
        theirs.squares[k] = max(theirs.squares[k] - known.squares[k], 0.0)
        total += theirs.results[k] + theirs.rates[k]
        for g in range(GRADES):
            theirs.graded[k, g] = max(theirs.graded[k, g] - known.graded[k, g], 0.0)
            theirs.graded_rates[k, g] = max(theirs.graded_rates[k, g] - known.graded_rates[k, g], 0.0)
    return total > 0.0
