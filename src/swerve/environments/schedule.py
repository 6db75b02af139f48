"""The order in which queries arrive."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.errors import SwerveError
from swerve.core.rng import at, split

ORDERS = ("sequential", "uniform", "zipf")
BYTES = 256  # so many queries have numbers of one byte


@Entry
def shuffle(items, word):
    """Shuffle in place (Fisher–Yates); `word` determines the permutation."""
    for i in range(len(items) - 1, 0, -1):
        # the high half of a word times (i + 1), shifted right: a number in 0 … i with a bias below 2⁻³²·i
        j = ((at(word, i) >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32)
        items[i], items[np.int64(j)] = items[np.int64(j)], items[i]


@functools.lru_cache(64)
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
    shares.flags.writeable = False  # it is shared by all callers
    return shares


def arrange(shares: NDArray[np.int64], order: str, seed: int) -> NDArray[np.int32]:
    """Return the query of every round: one query after the other, or all of them shuffled together."""
    if order not in ORDERS:
        raise SwerveError(f"order = {order!r} is not allowed; order must be one of {', '.join(ORDERS)}")
    one_by_one = repeated(shares.tobytes())
    if order == "sequential":
        return one_by_one
    # the smaller the items, the more of them are in the processor's cache, and a shuffle jumps among all of them
    schedule = one_by_one.astype(np.uint8 if len(shares) <= BYTES else np.int32)
    shuffle.bind()(schedule, np.uint64(split(seed, "order")))
    return schedule.astype(np.int32, copy=False)


@functools.lru_cache(2)
def repeated(shares: bytes) -> NDArray[np.int32]:
    """Return each query as often as its share says, one query after the other. It is the same for all seeds, and so shared."""
    counts = np.frombuffer(shares, np.int64)
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)
