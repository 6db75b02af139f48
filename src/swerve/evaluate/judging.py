"""Would another ranking have helped? Reads lists in their order, asks each target for its own, and estimates its value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.evaluate.estimators import Estimation, Judgement
from swerve.evaluate.history import CURVE, MOST_QUERIES
from swerve.evaluate.lists import Shown
from swerve.evaluate.rates import Known, Rates
from swerve.evaluate.targets import Asked, Target, offered_in

#: Lists that are judged together: more of them leave the cache of the processor.
BATCH = 256

#: A number for each slot of a list.
Row = list[float]
#: A row for each list.
Slots = NDArray[np.float64]


class Least:
    """The smallest propensity of each slot, from a first reading of the log, and what the log offers besides."""

    def __init__(self) -> None:
        self.by_slot = np.full(SLOTS, np.inf)
        self.given = self.choices = False

    def add(self, entry: Shown) -> None:
        """Add a list."""
        if entry.propensities is None:
            return
        self.given = self.given or entry.given is not None
        self.choices = self.choices or entry.choices is not None
        for slot, chance in enumerate(entry.propensities, entry.top - 1):
            if slot < SLOTS and chance < self.by_slot[slot]:
                self.by_slot[slot] = chance

    def merge(self, other: Least) -> None:
        """Add the next part of a log."""
        self.by_slot = np.minimum(self.by_slot, other.by_slot)
        self.given, self.choices = self.given or other.given, self.choices or other.choices

    def usual(self) -> list[str]:
        """Return the names of the targets that the log allows."""
        return ["swerve", "clicks", *(["given"] if self.given else []), *(["uniform"] if self.choices else [])]


def judge(
    entries: Iterable[Shown], targets: Sequence[Target], least: NDArray[np.float64], most: int = MOST_QUERIES
) -> list[Judgement]:
    """Return the judgement on each target. Positions below the tenth are left out; at most so many queries are known at a time."""
    rates = Rates(most)
    found = [Estimation(target.name, least) for target in targets]
    waiting: list[Asked] = []
    expected: list[Row] = []  # what the reward model expects of what was shown, for the lists that wait
    for entry in entries:
        if is_judged(entry):
            asked, row = asked_of(entry, rates, rates.prior)
            waiting.append(asked)
            expected.append(row)
            if len(waiting) == BATCH:
                flush(found, targets, waiting, expected)
        rates.learn(entry)
    flush(found, targets, waiting, expected)
    return [each.judge() for each in found]


def is_judged(entry: Shown) -> bool:
    """Return whether the log says enough of a list to judge it by."""
    return entry.propensities is not None and entry.top <= SLOTS


def asked_of(entry: Shown, rates: Known, prior: float) -> tuple[Asked, Row]:
    """Return a list to judge, and what the reward model expects of the results that were shown."""
    offered = offered_in(entry, rates)
    values = dict(zip(offered, rates.worth(entry.query, offered, prior), strict=False))
    try:
        return Asked(entry, offered, values), [values[result] for result in entry.shown]
    except KeyError:
        return Asked(entry, offered, values), rates.worth(entry.query, entry.shown, prior)


def flush(found: list[Estimation], targets: Sequence[Target], waiting: list[Asked], expected: list[Row]) -> None:
    """Judge the lists that wait, and forget them."""
    if not waiting:
        return
    clicks, propensities, hoped = logged(waiting, expected)
    for estimation, target in zip(found, targets, strict=True):
        chances, worth = chosen(waiting, target.orders(waiting))
        estimation.add(clicks, propensities, chances, hoped, worth)
    waiting.clear()
    expected.clear()


def chosen(lists: Sequence[Asked], orders: Sequence[list[str] | None]) -> tuple[Slots, Slots]:
    """Return the chances of what was shown under a target's orders, and what the reward model expects of these."""
    chances: list[Row] = []
    worth: list[Row] = []
    for asked, order in zip(lists, orders, strict=True):
        chance, value = judged(asked, order, seen_of(asked.entry))
        chances.append(chance)
        worth.append(value)
    return np.array(chances), np.array(worth)


def padded(first: int, values: Row, fill: float = 0.0) -> Row:
    """Return a row of all slots, with values from slot `first` on.

    >>> padded(2, [1.0])
    [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    row = [fill] * first + values[: SLOTS - first]
    return row + [fill] * (SLOTS - len(row))


def logged(lists: Sequence[Asked], expected: Sequence[Row]) -> tuple[Slots, Slots, Slots]:
    """Return the clicks and the propensities of lists, and what the reward model expects of them, a row each."""
    clicks, propensities, hoped = np.zeros((len(lists), SLOTS)), [], []
    for number, (asked, row) in enumerate(zip(lists, expected, strict=True)):
        entry = asked.entry
        assert entry.propensities is not None, "lists without propensities are not judged"
        for position in entry.clicks:
            if position <= SLOTS:
                clicks[number, position - 1] = 1.0
        propensities.append(padded(entry.top - 1, entry.propensities, math.nan))
        looks = [value * look for value, look in zip(row, seen_of(entry), strict=False)]
        hoped.append(padded(entry.top - 1, looks))
    return clicks, np.array(propensities), np.array(hoped)


def seen_of(entry: Shown) -> Sequence[float]:
    """Return how likely each position of a list is looked at, down to the tenth."""
    return CURVE[entry.top - 1 : entry.top - 1 + len(entry.shown)]


def judged(asked: Asked, order: list[str] | None, seen: Sequence[float]) -> tuple[Row, Row]:
    """Return a target's chances of what was shown, and what the reward model expects of the target's own choice."""
    entry, offered, values = asked
    first, count = entry.top - 1, len(seen)
    if order is None:
        even = 1.0 / len(offered) if offered else 0.0
        mean = sum(values.values()) * even
        chances = [even if result in values else 0.0 for result in entry.shown[:count]]
        worth = [mean * look for look in seen]
    else:
        wanted = order[first : first + count]
        chances = [1.0 if result == want else 0.0 for result, want in zip(entry.shown, wanted, strict=False)]
        worth = [values.get(want, 0.0) * look for want, look in zip(wanted, seen, strict=False)]
    return padded(first, chances), padded(first, worth)
