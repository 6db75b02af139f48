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
from swerve.evaluate.targets import Target, offered_in

#: Lists whose numbers wait to be added.
BATCH = 2048

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
    logged: list[list[Row]] = [[], []]  # clicks and propensities of the lists that wait
    rooms: list[list[list[Row]]] = [[[], [], []] for _ in targets]  # chances, expected and worth, for each target
    for entry in entries:
        if entry.propensities is not None and entry.top <= SLOTS:
            offered = offered_in(entry, rates)
            worth = rates.attractive(entry.query, [*offered, *entry.shown])
            expected, values = worth[len(offered) :], dict(zip(offered, worth, strict=False))
            note_log(logged, entry)
            for target, room in zip(targets, rooms, strict=True):
                note_target(room, entry, target.order(entry, offered, values), offered, values, expected)
            if len(logged[0]) == BATCH:
                flush(found, logged, rooms)
            for target in targets:
                target.learn(entry)
        rates.learn(entry)
    flush(found, logged, rooms)
    return [each.judge() for each in found]


def flush(found: list[Estimation], logged: list[list[Row]], rooms: list[list[list[Row]]]) -> None:
    """Add the numbers that wait, and forget them."""
    if not logged[0]:
        return
    clicks, propensities = (np.array(rows) for rows in logged)
    for estimation, room in zip(found, rooms, strict=True):
        chances, expected, worth = (np.array(rows) for rows in room)
        estimation.add(clicks, propensities, chances, expected, worth)
    for rows in (*logged, *(rows for room in rooms for rows in room)):
        rows.clear()


def padded(first: int, values: Row, fill: float = 0.0) -> Row:
    """Return a row of all slots, with values from slot `first` on.

    >>> padded(2, [1.0])
    [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    row = [fill] * first + values[: SLOTS - first]
    return row + [fill] * (SLOTS - len(row))


def note_log(logged: list[list[Row]], entry: Shown) -> None:
    """Note the clicks and the propensities of a list."""
    assert entry.propensities is not None
    clicks = [0.0] * SLOTS
    for position in entry.clicks:
        if position <= SLOTS:
            clicks[position - 1] = 1.0
    logged[0].append(clicks)
    logged[1].append(padded(entry.top - 1, entry.propensities, math.nan))


def note_target(
    room: list[list[Row]], entry: Shown, order: list[str] | None, offered: list[str], values: dict[str, float], expected: Row
) -> None:
    """Note a target's chances of what was shown, and what the reward model expects of that and of the target's own choice."""
    first = entry.top - 1
    last = min(first + len(entry.shown), SLOTS)
    seen = CURVE[first:last]
    if order is None:
        even = 1.0 / len(offered) if offered else 0.0
        mean = sum(values.values()) * even
        chances = [even if result in values else 0.0 for result in entry.shown[: last - first]]
        worth = [mean * look for look in seen]
    else:
        wanted = order[first:last]
        chances = [float(result == want) for result, want in zip(entry.shown, wanted, strict=False)]
        chances += [0.0] * (last - first - len(chances))
        worth = [values.get(want, 0.0) * look for want, look in zip(wanted, seen, strict=False)]
    room[0].append(padded(first, chances))
    room[1].append(padded(first, [value * look for value, look in zip(expected, seen, strict=False)]))
    room[2].append(padded(first, worth))
