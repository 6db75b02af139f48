"""What the environments draw their instances with, in compiled code.

The draws are those of `rng.Stream`, in the same order, from a stream whose word is `stream[0]`: an instance has the same bytes
whether it is drawn by compiled code or not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.errors import SwerveError
from swerve.core.hashing import LONGEST, path_of
from swerve.core.rng import GOLDEN, mix, unit, wrap_add
from swerve.core.spec import Spec, pack
from swerve.core.tables import Table
from swerve.core.verbs import kernel
from swerve.environments.worlds import NEVER

TRIES = 100_000  # draws before a setting is refused as impossible
#: Up to this many queries are drawn by uncompiled code, which takes less time than loading the compiled one.
FEW = 8

# Reasons why an instance cannot be drawn, as compiled code reports them in `trouble[0]`. The details are in the numbers after it.
FITTING, CROWDED, NO_LEADER, NO_SHIFT = range(4)
DETAILS = 3


@kernel
def uniform(stream, low, high):
    """Return the stream's next number in [low, high)."""
    stream[0] = wrap_add(stream[0], GOLDEN)
    return low + (high - low) * unit(mix(stream[0]))


@kernel
def integer(stream, low, high):
    """Return the stream's next whole number from low to high, both included."""
    return low + int(uniform(stream, 0.0, 1.0) * (high - low + 1))


@kernel
def found(keys, count, key):
    """Return the place of a key among the first `count`, or −1."""
    for i in range(count):
        if keys[i] == key:
            return i
    return -1


@kernel
def choose(stream, n, count, out, keys, values):
    """Write `count` distinct whole numbers below n into `out`, in random order: a Fisher–Yates shuffle of few out of many.

    `keys` and `values` are scratch space for the numbers that have changed places.
    """
    moved = 0
    for i in range(count):
        j = integer(stream, i, n - 1)
        at_j, at_i = found(keys, moved, j), found(keys, moved, i)
        out[i] = j if at_j < 0 else values[at_j]
        put = i if at_i < 0 else values[at_i]
        if at_j < 0:
            keys[moved], values[moved] = j, put
            moved += 1
        else:
            values[at_j] = put


@kernel
def in_order(items, count):
    """Sort the first `count` items. They are few, or nearly in order."""
    for i in range(1, count):
        item, j = items[i], i
        while j > 0 and items[j - 1] > item:
            items[j] = items[j - 1]
            j -= 1
        items[j] = item


@kernel
def event_rounds(stream, rounds, low, high, apart, out, keys, values, trouble):
    """Write the rounds of k ~ U{low … high} events of a query into `out`; return k, or −1 if they do not fit.

    They are uniform over the sets of rounds that are at least `apart` rounds apart: k points on a line that is shortened by the
    gaps, which are then inserted.
    """
    k = integer(stream, low, high)
    room = rounds - 1 - k * (apart - 1)
    if room < k:
        trouble[0], trouble[1], trouble[2] = CROWDED, k, rounds
        return -1
    choose(stream, room, k, out, keys, values)
    in_order(out, k)
    for i in range(k):
        out[i] += 2 + (i + 1) * (apart - 1)
    return k


@kernel
def leader(chances, arms):
    """Return the best result: the first one with the highest click probability."""
    best = 0
    for arm in range(1, arms):
        if chances[arm] > chances[best]:
            best = arm
    return best


@kernel
def close_query(query, first, line, arms, clicks, contexts, segments, owner, cursors):
    """Complete the lines `first` to before `line` of a query, and its cursor: what follows from their rounds and probabilities."""
    for i in range(first, line):
        segments[i].until = segments[i + 1].since if i + 1 < line else NEVER
        segments[i].best = segments[i].chance[leader(segments[i].chance, arms)]
        owner[i] = query
    segments[first].event, segments[first].signal = 0, 0  # the first round of a query cannot be an event
    cursors[query].segment = first
    cursors[query].ahead = segments[first].until
    cursors[query].clicks = clicks
    cursors[query].contexts = contexts


@Entry
def shuffle_all(stream, items):
    """Shuffle all items in place, as `Stream.choose(n, n)` does."""
    for i in range(len(items)):
        j = integer(stream, i, len(items) - 1)
        items[i], items[j] = items[j], items[i]


def lottery(word: int, count: int) -> NDArray[np.int64]:
    """Return the numbers below `count` in random order, `Stream(word).choose(count, count)`."""
    items = np.arange(count)
    (shuffle_all.bind() if count > FEW else shuffle_all.plain)(np.array([word], np.uint64), items)
    return items


@functools.lru_cache(64)
def packed(spec: Spec) -> Table:
    """Return the packed spec of an environment, made once: an experiment draws many instances of each."""
    return pack(spec)


def drawer(entry: Entry, spec: Spec, seed: int) -> Callable[..., int]:
    """Return the function that draws the queries of an instance, with the spec and the paths of the queries' streams filled in."""
    paths = [path_of(seed, name) for name in ("query", "clicks", "contexts")]
    plain = getattr(spec, "queries", 1) <= FEW or max(map(len, paths)) > LONGEST
    return functools.partial(entry.plain if plain else entry.bind(spec), packed(spec), *paths)


def refuse(what: str, remedy: str, apart: int, trouble: NDArray[np.int64]) -> NoReturn:
    """Raise the error for events that do not fit into their query."""
    raise SwerveError(
        f"{what}: {trouble[1]} events at least {apart} rounds apart do not fit into the {trouble[2]} rounds of a query; "
        f"lower {remedy}, or raise impressions"
    )
