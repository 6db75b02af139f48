"""The order in which queries arrive, and the rounds of their events."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.errors import SwerveError
from swerve.core.rng import Stream, at, split

ORDERS = ("sequential", "uniform", "zipf")


@Entry
def shuffle(items, word):
    """Shuffle in place (Fisher–Yates); `word` determines the permutation."""
    for i in range(len(items) - 1, 0, -1):
        # the high half of a word times (i + 1), shifted right: a number in 0 … i with a bias below 2⁻³²·i
        j = ((at(word, i) >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32)
        items[i], items[np.int64(j)] = items[np.int64(j)], items[i]


def traffic_shares(queries: int, impressions: int, order: str, exponent: float) -> NDArray[np.int64]:
    """Return the impressions of each query: equal shares, or Zipf's by rank, at least one each, with the exact total.

    >>> traffic_shares(3, 11, "zipf", 1.0).tolist()
    [5, 3, 3]
    """
    if impressions < queries:
        raise SwerveError(f"impressions = {impressions} is not allowed; every one of the {queries} queries needs at least one")
    weights = np.arange(1, queries + 1, dtype=np.float64) ** (-exponent if order == "zipf" else 0.0)
    wanted = weights / weights.sum() * (impressions - queries)
    shares: NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    left = impressions - queries - int(shares.sum())
    shares[np.argsort(-(wanted - shares), kind="stable")[:left]] += 1
    shares += 1
    return shares


def arrange(shares: NDArray[np.int64], order: str, seed: int) -> NDArray[np.int32]:
    """Return the query of every round: one query after the other, or all of them shuffled together."""
    if order not in ORDERS:
        raise SwerveError(f"order = {order!r} is not allowed; order must be one of {', '.join(ORDERS)}")
    schedule = np.repeat(np.arange(len(shares), dtype=np.int32), shares)
    if order != "sequential":
        shuffle.bind()(schedule, np.uint64(split(seed, "order")))
    return schedule


def event_rounds(what: str, remedy: str, stream: Stream, rounds: int, low: int, high: int, apart: int) -> list[int]:
    """Return the rounds of k ~ U{low … high} events of a query, uniform over the sets that are at least `apart` rounds apart."""
    k = stream.integer(low, high)
    room = rounds - 1 - k * (apart - 1)  # draw k points on a line shortened by the gaps, then insert the gaps
    if room < k:
        raise SwerveError(
            f"{what}: {k} events at least {apart} rounds apart do not fit into the {rounds} rounds of a query; "
            f"lower {remedy}, or raise impressions"
        )
    return [2 + point + (i + 1) * (apart - 1) for i, point in enumerate(sorted(stream.choose(room, k)))]
