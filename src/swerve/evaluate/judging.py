"""Would another ranking have helped? Reads lists in their order, asks each target for its own, and estimates its value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.evaluate.estimators import Estimation, Judgement
from swerve.evaluate.history import CURVE
from swerve.evaluate.lists import Shown
from swerve.evaluate.rates import Rates
from swerve.evaluate.targets import Asked, Target, offered_in

#: Lists that are judged together: more of them leave the cache of the processor.
BATCH = 256

#: A number for each slot of a list.
Row = list[float]


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

    def usual(self) -> list[str]:
        """Return the names of the targets that the log allows."""
        return ["swerve", "clicks", *(["given"] if self.given else []), *(["uniform"] if self.choices else [])]


def judge(entries: Iterable[Shown], targets: Sequence[Target], least: NDArray[np.float64]) -> list[Judgement]:
    """Return the judgement on each target. Positions below the tenth are left out."""
    rates = Rates()
    found = [Estimation(target.name, least) for target in targets]
    waiting: list[Asked] = []
    expected: list[Row] = []  # what the reward model expects of what was shown, for the lists that wait
    for entry in entries:
        if entry.propensities is not None and entry.top <= SLOTS:
            offered = offered_in(entry, rates)
            values = dict(zip(offered, rates.attractive(entry.query, offered), strict=False))
            waiting.append(Asked(entry, offered, values))
            try:
                expected.append([values[result] for result in entry.shown])
            except KeyError:
                expected.append(rates.attractive(entry.query, entry.shown))
            if len(waiting) == BATCH:
                flush(found, targets, waiting, expected)
        rates.learn(entry)
    flush(found, targets, waiting, expected)
    return [each.judge() for each in found]


def flush(found: list[Estimation], targets: Sequence[Target], waiting: list[Asked], expected: list[Row]) -> None:
    """Judge the lists that wait, and forget them."""
    if not waiting:
        return
    clicks, propensities = logged([asked.entry for asked in waiting])
    seen = [seen_of(asked.entry) for asked in waiting]
    hoped = np.array(
        [
            padded(asked.entry.top - 1, [value * look for value, look in zip(row, looks, strict=False)])
            for asked, row, looks in zip(waiting, expected, seen, strict=True)
        ]
    )
    for estimation, target in zip(found, targets, strict=True):
        chances: list[Row] = []
        worth: list[Row] = []
        for asked, order, looks in zip(waiting, target.orders(waiting), seen, strict=True):
            chance, value = judged(asked, order, looks)
            chances.append(chance)
            worth.append(value)
        estimation.add(clicks, propensities, np.array(chances), hoped, np.array(worth))
    waiting.clear()
    expected.clear()


def padded(first: int, values: Row, fill: float = 0.0) -> Row:
    """Return a row of all slots, with values from slot `first` on.

    >>> padded(2, [1.0])
    [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    row = [fill] * first + values[: SLOTS - first]
    return row + [fill] * (SLOTS - len(row))


def logged(entries: Sequence[Shown]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the clicks and the propensities of lists, a row each."""
    clicks, propensities = np.zeros((len(entries), SLOTS)), []
    for number, entry in enumerate(entries):
        assert entry.propensities is not None, "lists without propensities are not judged"
        for position in entry.clicks:
            if position <= SLOTS:
                clicks[number, position - 1] = 1.0
        propensities.append(padded(entry.top - 1, entry.propensities, math.nan))
    return clicks, np.array(propensities)


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
