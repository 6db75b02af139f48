"""Target rankings: what would have been shown in place of the log's own lists. They learn from the log, from earlier lists only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from swerve.core.errors import SwerveError, nearest
from swerve.core.examination import SLOTS
from swerve.evaluate.lists import Shown
from swerve.evaluate.rates import Rates

#: Queries and results of a query that the policy has room for: beyond, its order is the offered one.
MOST_ROWS, ARMS = 20_000, 32
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


class Policy:
    """Swerve's own policy for pages, `Listed`, without signals. It learns from the lists that the log's ranking showed."""

    name = "swerve"

    def __init__(self, rows: int = MOST_ROWS, arms: int = ARMS, seed: int = 0) -> None:
        from swerve.core.page_fleet import PageFleet
        from swerve.policies import Listed

        self.fleet = PageFleet(Listed(), queries=rows, arms=arms, features=FEATURES, seed=seed)
        self.rows: dict[str, Row] = {}

    def row_of(self, query: str) -> Row | None:
        """Return the row of a query; None without room."""
        row = self.rows.get(query)
        if row is None and len(self.rows) < self.fleet.queries:
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
                if len(arms) == self.fleet.arms:
                    return None
                arms[result] = len(arms)
                row.names.append(result)
        return [arms[result] for result in results]

    def orders(self, lists: Sequence[Asked]) -> list[list[str] | None]:
        """Return one page that the policy draws for each list; it learns from what was really shown, and clicked."""
        out: list[list[str] | None] = []
        asked, given, finals, times, rows = [], [], [], [], []
        no_room, width = [0] * SLOTS, self.fleet.arms
        for entry, offered, _ in lists:
            row = self.row_of(entry.query) if offered else None
            arms = None if row is None else self.arms_of(row, offered)
            out.append(offered)
            if row is None or arms is None:
                continue
            shown = self.arms_of(row, entry.shown) if entry.top == 1 else None
            clicks = 0
            for position in entry.clicks:
                clicks |= 1 << position - 1
            room = min(SLOTS, max(len(entry.shown) + entry.top - 1, 1), len(arms))
            final = no_room if shown is None else shown[:SLOTS] if len(shown) >= SLOTS else shown + no_room[len(shown) :]
            asked.append((row.number, len(arms), room, -1 if shown is None else min(len(shown), SLOTS), clicks & (1 << SLOTS) - 1))
            given.append(arms + [0] * (width - len(arms)))
            finals.append(final)
            times.append(max(entry.time, 0.0) if entry.time == entry.time else 0.0)
            rows.append((len(out) - 1, row.names))
        if asked:
            table = np.array(asked, np.int64)
            pages = self.fleet.replay(table, np.array(given, np.int64), np.array(finals, np.int64), np.array(times)).tolist()
            for (at, names), page, (_, _, room, _, _) in zip(rows, pages, asked, strict=True):
                out[at] = [names[arm] for arm in page[:room]]
        return out


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


def offered_in(entry: Shown, rates: Rates) -> list[str]:
    """Return the results that could have been shown, in the given order, or else in the usual order of the log's ranking so far.

    A target must not know what was chosen this time: the order of the list, and of the choices that some logs put the chosen one
    first in, would tell it. Where the log has one result a line and no choices, the results are those shown before.
    """
    if entry.given is not None:
        return entry.given
    if entry.choices is None and len(entry.shown) == 1:
        return rates.usual(entry.query, rates.known(entry.query))
    return rates.usual(entry.query, entry.choices or entry.shown)
