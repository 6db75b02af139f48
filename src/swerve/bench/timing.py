"""Timing in pairs: reference and contender take turns, so that a slow moment of the machine affects both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Clock = Callable[[], float]


class Contender(NamedTuple):
    """Something to time: `prepare` sets it up and returns the timed call, which does `units` pieces of work."""

    name: str
    units: int
    prepare: Callable[[], Callable[[], object]]


class Pairs(NamedTuple):
    """Seconds per piece of work in each turn: the reference's and the contender's own."""

    reference: list[float]
    own: list[float]

    @property
    def value(self) -> float:
        """The contender's median."""
        return statistics.median(self.own)

    @property
    def reference_value(self) -> float:
        """The reference's median."""
        return statistics.median(self.reference)

    @property
    def ratio(self) -> float:
        """The median of own ÷ reference over the turns, which differs from the quotient of the two medians.

        >>> Pairs([1.0, 10.0, 2.0], [2.0, 10.0, 8.0]).ratio
        2.0
        """
        return statistics.median(own / reference for reference, own in zip(self.reference, self.own, strict=True))


def seconds_per_unit(contender: Contender, clock: Clock = time.perf_counter) -> float:
    """Time one call, without its set-up."""
    call = contender.prepare()
    begun = clock()
    call()
    return (clock() - begun) / contender.units


def interleave(
    reference: Contender,
    contenders: Sequence[Contender],
    repeats: int,
    clock: Clock = time.perf_counter,
    tick: Callable[[int], None] | None = None,
) -> dict[str, Pairs]:
    """Time `reference, a, reference, b, …`, `repeats` times, after one uncounted call of each, which may compile.

    A contender is compared with the reference's call right before it. `tick` receives the number of finished turns.
    """
    out = {contender.name: Pairs([], []) for contender in contenders}
    for warm in (reference, *contenders):
        warm.prepare()()
    for turn in range(repeats):
        for contender in contenders:
            pairs = out[contender.name]
            pairs.reference.append(seconds_per_unit(reference, clock))
            pairs.own.append(seconds_per_unit(contender, clock))
        if tick is not None:
            tick(turn + 1)
    return out
