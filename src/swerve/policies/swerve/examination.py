"""What all queries teach about pages: which slots users look at, and what a position in the given order is worth.

*Examination*: γ[r, d] is the probability that a user looks at slot r when the last click above it was d slots higher (d = 0: there
was none). A click at slot r happens with probability γ · a, a being the click probability of the result. The estimate is
(w γ₀ + clicks) / (w + Σ a) over results whose click probability is known well. The top slot is always seen.

*Given positions*: the clicks per play of the results that the search engine put at position r, over all queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.core.examination import EXAMINATION, SLOTS, UBM
from swerve.core.rng import at, unit
from swerve.core.verbs import kernel

#: Pairs of a slot and a distance: slot r has r distances, and "no click above".
PAIRS = SLOTS * (SLOTS + 1) // 2
#: Positions in the given order that are told apart; the last stands for all below.
RANKS = 20

#: Click probabilities by given position before anything is learnt, and the plays that they weigh: a falling curve, so that the
#: given order is kept where nothing else is known.
FIRST_WORTH = tuple(0.4 / (1.0 + 0.6 * rank) for rank in range(RANKS))
WORTH_PLAYS = 30.0


#: γ₀: the user browsing model, the most realistic of the published tables.
LOOKS = EXAMINATION[UBM]
WORTH = np.array(FIRST_WORTH)


def examination_layout() -> list[tuple[Any, ...]]:
    """Return the fields of the pool: clicks and expected clicks by slot and distance; clicks and plays by given position."""
    return [
        ("fresh", "i8"),  # in a delta: whether there is anything to fold
        ("clicks", "f8", PAIRS),
        ("expected", "f8", PAIRS),
        ("rank_clicks", "f8", RANKS),
        ("rank_plays", "f8", RANKS),
    ]


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
def rank_worth(pool, rank):
    """Return the click probability of results at a given position."""
    return (WORTH_PLAYS * WORTH[rank] + pool.rank_clicks[rank]) / (WORTH_PLAYS + pool.rank_plays[rank])


@kernel
def counts_as_seen(look, chance, number, slot):
    """Draw whether a skipped slot was seen: P(seen | not clicked) = γ (1 − a) / (1 − γ a). The decision determines the draw."""
    return unit(at(number, slot)) * (1.0 - look * chance) < look * (1.0 - chance)


@kernel
def merge_examination(pool, delta):
    """Add a delta to the pool."""
    if delta.fresh == 0:
        return
    for k in range(PAIRS):
        pool.clicks[k] += delta.clicks[k]
        pool.expected[k] += delta.expected[k]
    for k in range(RANKS):
        pool.rank_clicks[k] += delta.rank_clicks[k]
        pool.rank_plays[k] += delta.rank_plays[k]


@kernel
def clear_examination(delta):
    """Empty a delta."""
    if delta.fresh == 0:
        return
    delta.fresh = 0
    for k in range(PAIRS):
        delta.clicks[k] = 0.0
        delta.expected[k] = 0.0
    for k in range(RANKS):
        delta.rank_clicks[k] = 0.0
        delta.rank_plays[k] = 0.0
