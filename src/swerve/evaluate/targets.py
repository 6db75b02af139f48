"""Target rankings: what would have been shown in place of the log's own lists. They learn from the log, from earlier lists only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from swerve.core.errors import SwerveError, nearest
from swerve.core.examination import SLOTS
from swerve.evaluate.lists import Shown
from swerve.evaluate.rates import Known

#: Queries and results of a query that the policy has room for: beyond, its order is the offered one.
MOST_ROWS, ARMS = 20_000, 32
Arms = NDArray[np.int64]
#: The policy reads signals; here each list has one that is missing, which is silent.
FEATURES = 1


class Asked(NamedTuple):
    """A list to judge: what was shown, what was on offer, and the attractiveness of that, as far as earlier lists tell."""

    entry: Shown
    offered: list[str]
    values: dict[str, float]


class Target(Protocol):
    """A ranking to judge."""

    name: str

    def orders(self, lists: Sequence[Asked]) -> list[list[str] | None]:
        """Return for each list the results to show, from position 1 down to the last that the log shows; None means that every
        result is as likely as any other everywhere. The lists are in the order of the log: a target may learn from each, after it
        has chosen its own."""


class Given:
    """The given order, as far as the log has it."""

    name = "given"

    def orders(self, lists: Sequence[Asked]) -> list[list[str] | None]:
        """Return the given orders."""
        return [asked.entry.given or [] for asked in lists]


class Uniform:
    """Any result, with the same probability."""

    name = "uniform"

    def orders(self, lists: Sequence[Asked]) -> list[list[str] | None]:
        """Return None for each: no order."""
        return [None] * len(lists)


class Clicks:
    """The results with the most clicks per examination so far, first; ties in the offered order."""

    name = "clicks"

    def orders(self, lists: Sequence[Asked]) -> list[list[str] | None]:
        """Return the offered results by their rates."""
        # a stable sort: ties stay as offered
        return [sorted(offered, key=values.__getitem__, reverse=True) for _, offered, values in lists]


class Row(NamedTuple):
    """A query of the policy: its row, the arms of its results, and the results by arm."""

    number: int
    arms: dict[str, int]
    names: list[str]


class Line(NamedTuple):
    """What the policy is asked for a list, in arms: the slots that it fills, what was shown and clicked, what is on offer, when."""

    row: Row
    room: int
    shown: list[int] | None  # None: the policy does not learn it
    clicks: int  # as a mask
    offered: list[int]
    now: float


class Numbered:
    """The results of queries as arms, in the order in which the lists have them."""

    def __init__(self, most: int, arms: int) -> None:
        self.most, self.most_arms = most, arms
        self.rows: dict[str, Row] = {}

    def row_of(self, query: str) -> Row | None:
        """Return the row of a query; None without room."""
        row = self.rows.get(query)
        if row is None and len(self.rows) < self.most:
            row = self.rows[query] = Row(len(self.rows), {}, [])
        return row

    def arms_of(self, row: Row, results: list[str]) -> list[int] | None:
        """Return the arms of results; None without room."""
        arms = row.arms
        try:
            return [arms[result] for result in results]
        except KeyError:
            pass
        for result in results:
            if result not in arms:
                if len(arms) == self.most_arms:
                    return None
                arms[result] = len(arms)
                row.names.append(result)
        return [arms[result] for result in results]

    def line_of(self, asked: Asked) -> Line | None:
        """Return what the policy is asked for a list; None where there is no room, or nothing to choose from."""
        entry, offered, _ = asked
        row = self.row_of(entry.query) if offered else None
        arms = None if row is None else self.arms_of(row, offered)
        if row is None or arms is None:
            return None
        shown = self.arms_of(row, entry.shown) if entry.top == 1 else None
        clicks = 0
        for position in entry.clicks:
            clicks |= 1 << position - 1
        room = min(SLOTS, max(len(entry.shown) + entry.top - 1, 1), len(arms))
        return Line(row, room, shown, clicks & (1 << SLOTS) - 1, arms, max(entry.time, 0.0) if entry.time == entry.time else 0.0)


class Policy(Numbered):
    """Swerve's own policy for pages, `Listed`, without signals. It learns from the lists that the log's ranking showed."""

    name = "swerve"

    def __init__(self, rows: int = MOST_ROWS, arms: int = ARMS, seed: int = 0) -> None:
        from swerve.core.page_fleet import PageFleet
        from swerve.policies import Listed

        super().__init__(rows, arms)
        self.fleet = PageFleet(Listed(), queries=rows, arms=arms, features=FEATURES, seed=seed)

    def orders(self, lists: Sequence[Asked]) -> list[list[str] | None]:
        """Return one page that the policy draws for each list; it learns from what was really shown, and clicked."""
        out: list[list[str] | None] = [asked.offered for asked in lists]
        lines = [(at, line) for at, asked in enumerate(lists) if (line := self.line_of(asked)) is not None]
        if lines:
            asked, given, finals = tables_of([line for _, line in lines], self.fleet.arms)
            pages = self.fleet.replay(asked, given, finals, np.array([line.now for _, line in lines])).tolist()
            for (at, line), page in zip(lines, pages, strict=True):
                out[at] = [line.row.names[arm] for arm in page[: line.room]]
        return out


def tables_of(lines: Sequence[Line], width: int) -> tuple[Arms, Arms, Arms]:
    """Return the tables that a fleet of so many arms replays, see `PageFleet.replay`."""
    asked, given, finals, none = [], [], [], [0] * max(SLOTS, width)
    for row, room, shown, clicks, offered, _ in lines:
        asked.append((row.number, len(offered), room, -1 if shown is None else min(len(shown), SLOTS), clicks))
        given.append(offered + none[: width - len(offered)])
        finals.append(none[:SLOTS] if shown is None else shown[:SLOTS] + none[: max(SLOTS - len(shown), 0)])
    return np.array(asked, np.int64), np.array(given, np.int64), np.array(finals, np.int64)


TARGETS: dict[str, Callable[[], Target]] = {"swerve": Policy, "clicks": Clicks, "given": Given, "uniform": Uniform}


def check_names(names: Iterable[str]) -> None:
    """Refuse names that no target has."""
    for name in names:
        if name not in TARGETS:
            raise SwerveError(f"--target {name} is not allowed; it must be one of {', '.join(TARGETS)}{nearest(name, TARGETS)}")


def target_of(name: str) -> Target:
    """Return a target by its name."""
    check_names([name])
    return TARGETS[name]()


def offered_in(entry: Shown, rates: Known) -> list[str]:
    """Return the results that could have been shown, in the given order, or else in the usual order of the log's ranking so far.

    A target must not know what was chosen this time: the order of the list, and of the choices that some logs put the chosen one
    first in, would tell it. Where the log has one result a line and no choices, the results are those shown before.
    """
    if entry.given is not None:
        return entry.given
    if entry.choices is None and len(entry.shown) == 1:
        return rates.usual(entry.query, rates.known(entry.query))
    return rates.usual(entry.query, entry.choices or entry.shown)
