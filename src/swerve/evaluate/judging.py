"""Would another ranking have helped? Reads lists in their order, asks each target for its own, and estimates its value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from swerve.core.examination import SLOTS
from swerve.evaluate.estimators import Estimation, Judgement, empty
from swerve.evaluate.history import CURVE
from swerve.evaluate.lists import Shown
from swerve.evaluate.rates import Rates
from swerve.evaluate.targets import Target, offered_in

#: Lists whose numbers wait to be added.
BATCH = 2048
CLICK, PROPENSITY, CHANCE, EXPECTED, WORTH = range(5)


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
    rooms = [empty(BATCH) for _ in targets]
    filled = 0
    for entry in entries:
        if entry.propensities is not None and entry.top <= SLOTS:
            offered = offered_in(entry, rates)
            for target, room in zip(targets, rooms, strict=True):
                fill(room, filled, entry, offered, target.order(entry, offered, rates), rates)
            filled += 1
            if filled == BATCH:
                flush(found, rooms, filled)
                rooms, filled = [empty(BATCH) for _ in targets], 0
            for target in targets:
                target.learn(entry)
        rates.learn(entry)
    flush(found, rooms, filled)
    return [each.judge() for each in found]


def flush(found: list[Estimation], rooms: list[list[NDArray[np.float64]]], filled: int) -> None:
    """Add the numbers that wait."""
    if filled:
        for estimation, room in zip(found, rooms, strict=True):
            estimation.add(*(array[:filled] for array in room))


def fill(
    room: list[NDArray[np.float64]], row: int, entry: Shown, offered: list[str], order: list[str] | None, rates: Rates
) -> None:
    """Write the numbers of a list for one target: clicks, propensities, the target's chances, and what the model expects."""
    assert entry.propensities is not None
    first = entry.top - 1
    slots = range(first, min(first + len(entry.shown), SLOTS))
    expected = rates.attractive(entry.query, entry.shown)
    wanted = order or []
    if order is None:
        mean = float(np.mean(rates.attractive(entry.query, offered))) if offered else 0.0
        worth = dict.fromkeys(slots, mean)
    else:
        worth = dict(zip(slots, rates.attractive(entry.query, wanted[first : slots.stop]), strict=False))
    for slot in slots:
        index, seen = slot - first, CURVE[slot]
        room[PROPENSITY][row, slot] = entry.propensities[index]
        room[EXPECTED][row, slot] = expected[index] * seen
        room[WORTH][row, slot] = worth.get(slot, 0.0) * seen
        if order is None:
            room[CHANCE][row, slot] = 1.0 / len(offered) if entry.shown[index] in offered else 0.0
        elif slot < len(wanted) and wanted[slot] == entry.shown[index]:
            room[CHANCE][row, slot] = 1.0
    for position in entry.clicks:
        if position <= SLOTS:
            room[CLICK][row, position - 1] = 1.0
