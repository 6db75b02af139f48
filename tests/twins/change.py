"""The posterior of an event and its changed arms, by enumeration for a few arms; and the rates of alarms from lists."""

from __future__ import annotations

import dataclasses
import itertools
import math


def log_marginal(clicks: float, skips: float, a: float, b: float) -> float:
    """Return ln P(one sequence with these clicks and skips), if the click probability is Beta(a, b) distributed."""

    def log_beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    return log_beta(a + clicks, b + skips) - log_beta(a, b)


@dataclasses.dataclass(frozen=True)
class Arm:
    """An arm: its records before and since, its prior, and the slab's second parameter."""

    old: tuple[float, float]  # clicks, skips
    new: tuple[float, float]
    given: float
    anyway: float
    slab: float
    a: float = 1.0
    b: float = 1.0

    @property
    def factor(self) -> float:
        """Return P(new record | slab) ÷ P(new record | unchanged)."""
        fresh = log_marginal(*self.new, self.a, self.slab)
        return math.exp(fresh - log_marginal(*self.new, self.a + self.old[0], self.b + self.old[1]))


class Cases:
    """The posterior over (event or not, set of changed arms), by enumeration."""

    def __init__(self, arms: list[Arm], odds: float, found: bool = False) -> None:
        self.weights: dict[tuple[bool, frozenset[int]], float] = {}
        for event in (True, False):
            prior = {}
            for flags in itertools.product((False, True), repeat=len(arms)):
                which = frozenset(i for i, flag in enumerate(flags) if flag)
                chance = 1.0
                for arm, flag in zip(arms, flags, strict=True):
                    p = arm.given if event else arm.anyway
                    chance *= p if flag else 1.0 - p
                if which or found or not event:  # an event changes at least one arm, unless its changes are known already
                    prior[which] = chance
            everything = sum(prior.values())
            for which, chance in prior.items():
                likely = math.prod(arms[i].factor for i in which)
                if everything > 0.0:
                    self.weights[event, which] = (odds if event else 1.0) * chance / everything * likely

    def mass(self, event: bool | None = None, inside: frozenset[int] = frozenset(), outside: frozenset[int] = frozenset()) -> float:
        """Return the weight of the cases in which all of `inside` and none of `outside` have changed."""
        return sum(
            weight
            for (happened, which), weight in self.weights.items()
            if event in (None, happened) and inside <= which and not outside & which
        )

    def chance(self, event: bool | None = None, inside: tuple[int, ...] = (), outside: tuple[int, ...] = ()) -> float:
        return self.mass(event, frozenset(inside), frozenset(outside)) / self.mass()

    def odds(self, inside: tuple[int, ...] = (), outside: tuple[int, ...] = ()) -> float:
        """Return the odds of an event, if all of `inside` and none of `outside` are known to have changed."""
        never = self.mass(False, frozenset(inside), frozenset(outside))
        return self.mass(True, frozenset(inside), frozenset(outside)) / never if never > 0.0 else math.inf

    def sets(self) -> dict[frozenset[int], float]:
        """Return the probability of each set of changed arms, with or without an event."""
        out: dict[frozenset[int], float] = {}
        for (_, which), weight in self.weights.items():
            out[which] = out.get(which, 0.0) + weight / self.mass()
        return out
