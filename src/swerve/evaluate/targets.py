"""Target rankings: what would have been shown in place of the log's own lists. They learn from the log, from earlier lists only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from swerve.core.errors import SwerveError, nearest
from swerve.core.examination import SLOTS
from swerve.evaluate.lists import Shown
from swerve.evaluate.rates import Rates

#: Queries and results of a query that the policy has room for: beyond, its order is the offered one.
MOST_ROWS, ARMS = 20_000, 32
#: The policy reads signals; here each list has one that is missing, which is silent.
FEATURES = 1


class Target(Protocol):
    """A ranking to judge."""

    name: str

    def order(self, entry: Shown, offered: list[str], values: dict[str, float]) -> list[str] | None:
        """Return the results to show, from position 1; None means that every result is as likely as any other everywhere.

        `values` has the attractiveness of the results on offer, as far as earlier lists tell.
        """

    def learn(self, entry: Shown) -> None:
        """Learn from a list of the log, after it was judged."""


class Given:
    """The given order."""

    name = "given"

    def order(self, entry: Shown, offered: list[str], values: dict[str, float]) -> list[str] | None:
        """Return the given order, as far as the log has it."""
        return entry.given or []

    def learn(self, entry: Shown) -> None:
        """Nothing is learnt."""


class Uniform(Given):
    """Any result, with the same probability."""

    name = "uniform"

    def order(self, entry: Shown, offered: list[str], values: dict[str, float]) -> list[str] | None:
        """Return None: no order."""
        return None


class Clicks(Given):
    """The results with the most clicks per examination so far, first; ties in the offered order."""

    name = "clicks"

    def order(self, entry: Shown, offered: list[str], values: dict[str, float]) -> list[str] | None:
        """Return the offered results by their rates."""
        return sorted(offered, key=values.__getitem__, reverse=True)  # a stable sort: ties stay as offered


class Policy:
    """Swerve's own policy for pages, `Listed`, without signals. It learns from the lists that the log's ranking showed."""

    name = "swerve"

    def __init__(self, rows: int = MOST_ROWS, arms: int = ARMS, seed: int = 0) -> None:
        from swerve.core.page_fleet import PageFleet
        from swerve.policies import Listed

        self.fleet = PageFleet(Listed(), queries=rows, arms=arms, features=FEATURES, seed=seed)
        self.rows: dict[str, tuple[int, dict[str, int]]] = {}
        self._page: object = None
        self._silent = np.full(FEATURES, math.nan)

    def arms_of(self, query: str, results: list[str]) -> tuple[int, list[int]] | None:
        """Return the row of a query and the arms of results; None without room."""
        known = self.rows.get(query)
        if known is None:
            if len(self.rows) == self.fleet.queries:
                return None
            known = self.rows[query] = (len(self.rows), {})
        row, arms = known
        for result in results:
            if result not in arms:
                if len(arms) == self.fleet.arms:
                    return None
                arms[result] = len(arms)
        return row, [arms[result] for result in results]

    def order(self, entry: Shown, offered: list[str], values: dict[str, float]) -> list[str] | None:
        """Return one page that the policy draws; the rest is as offered."""
        found = self.arms_of(entry.query, offered) if offered else None
        if found is None:
            return offered
        row, arms = found
        slots = min(SLOTS, max(len(entry.shown) + entry.top - 1, 1))
        page = self.fleet.order(row, arms, self._silent, slots=slots, now=max(entry.time, 0.0) if entry.time == entry.time else 0.0)
        self._page = (entry, row, page)
        names = dict(zip(arms, offered, strict=True))
        top = [names[arm] for arm in page.arms]
        return [*top, *(result for result in offered if result not in top)]

    def learn(self, entry: Shown) -> None:
        """Tell the policy what was really shown instead of its page, and clicked."""
        if not isinstance(self._page, tuple) or self._page[0] is not entry:
            return
        _, row, page = self._page
        self._page = None
        found = self.arms_of(entry.query, entry.shown)
        if found is not None and entry.top == 1:
            self.fleet.respond(row, page, [p - 1 for p in entry.clicks if p <= SLOTS], shown=found[1][:SLOTS])


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
