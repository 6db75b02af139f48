"""Rivals of the live service on the same traffic: the paper's BWC, UCB1, an oracle, and the search engine's own order.

All policies meet the same users with the same random draws, in the order of time. A rival learns of each click at once; the service
learns of a click when its batch of requests is answered. Each rival chooses the first result; the others follow
in the search engine's order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from swerve.core.engine import Entry
from swerve.core.errors import SwerveError
from swerve.core.fleet import Decision, Fleet
from swerve.core.rng import split
from swerve.core.spec import pack
from swerve.core.tables import nested
from swerve.policies import policy
from swerve.signals import (
    ABANDONMENT,
    COUNT,
    REFORMULATION,
    VOLUME,
    Senses,
    answered,
    reformulated,
    season_layout,
    sense,
    senses_layout,
    set_up,
)

#: Arms of the rivals' tables: more than the documents that a query finds in the course of a scenario.
RIVAL_ARMS = 32
#: Signals that BWC hears: those of the service's default configuration, and a count of news.
PLAN = (VOLUME, ABANDONMENT, REFORMULATION, COUNT)
#: A number's signal has its kind in the low byte and the number's index above it.
INDEX_SHIFT = 8


class Ask(NamedTuple):
    """A request as a rival sees it: the query, the arms on offer in the search engine's order and as a mask, the time, and the
    stories of the last hour. Only the oracle reads `told`: whether an event has happened since the last request."""

    query: int
    arms: tuple[int, ...]
    mask: int
    now: float
    news: float
    told: bool


class Rival(Protocol):
    """Chooses the first result, and learns of the outcome at once."""

    def choose(self, ask: Ask) -> int:
        """Return the arm to show first."""

    def learn(self, ask: Ask, top: bool, any_click: bool, again: bool) -> None:
        """Learn the outcome: a click on the first result, a click at all, another question."""


class Fixed:
    """The search engine's order."""

    def choose(self, ask: Ask) -> int:
        return ask.arms[0]

    def learn(self, ask: Ask, top: bool, any_click: bool, again: bool) -> None:
        """Learn nothing."""


class Told:
    """A policy without signals: UCB1, and the oracle that is told of every event."""

    def __init__(self, spec: str, queries: int, seed: int) -> None:
        self.fleet = Fleet(policy(spec, arms=RIVAL_ARMS), queries=queries, arms=RIVAL_ARMS, seed=seed)
        self._last = Decision(0, 0)

    def choose(self, ask: Ask) -> int:
        self._last = self.fleet.select(ask.query, available=ask.mask, told=ask.told, now=ask.now)
        return self._last.arm

    def learn(self, ask: Ask, top: bool, any_click: bool, again: bool) -> None:
        if top:
            self.fleet.reward(ask.query, self._last, now=ask.now)


class Hearing:
    """A policy with contexts and its own senses, which hear the outcomes of its own rankings."""

    def __init__(self, spec: str, queries: int, seed: int, now: float) -> None:
        self.fleet = Fleet(policy(spec, arms=RIVAL_ARMS), queries=queries, arms=RIVAL_ARMS, features=len(PLAN), seed=seed)
        self.spec = Senses()
        self._params = pack(self.spec)
        self._table = np.zeros(queries, nested(senses_layout(1)))
        self._seasons = np.zeros(1, nested(season_layout()))
        set_up.fitting(queries, self.spec)(self._params, self._table, self._seasons, now)
        self._hear, self._tell = hear.bind(self.spec), tell.bind(self.spec)
        self._plan = np.array([*PLAN[:-1], COUNT | 0 << INDEX_SHIFT], np.int64)
        self._numbers, self.x = np.zeros(1), np.zeros(len(PLAN))
        self._last = Decision(0, 0)

    def choose(self, ask: Ask) -> int:
        self._numbers[0] = ask.news
        self._hear(self._params, self._table, ask.query, self._seasons, self._plan, self._numbers, ask.now, self.x)
        self._last = self.fleet.select(ask.query, self.x, available=ask.mask, now=ask.now)
        return self._last.arm

    def learn(self, ask: Ask, top: bool, any_click: bool, again: bool) -> None:
        if top:
            self.fleet.reward(ask.query, self._last, now=ask.now)
        if any_click or again:
            self._tell(self._params, self._table, ask.query, any_click, again, ask.now)


@Entry
def hear(params: Any, table: Any, i: Any, seasons: Any, plan: Any, numbers: Any, now: Any, x: Any) -> None:
    """Run a request of row i through the senses."""
    sense(params[0], table[i], seasons[0], plan, numbers, math.nan, math.nan, 1, now, x)


@Entry
def tell(params: Any, table: Any, i: Any, clicked: Any, again: Any, now: Any) -> None:
    """Report the outcome of the request just heard."""
    if clicked:
        answered(params[0], table[i], now, 1, now)
    if again:
        reformulated(params[0], table[i], now, now)


class Arms:
    """The arm of each document of a query. A document keeps its arm for good."""

    def __init__(self) -> None:
        self._arms: dict[str, dict[str, int]] = {}

    def arm(self, query: str, document: str) -> int:
        """Return the document's arm; the next free one if it is new."""
        taken = self._arms.setdefault(query, {})
        arm = taken.setdefault(document, len(taken))
        if arm >= RIVAL_ARMS:
            raise SwerveError(f"{query!r} has found more than {RIVAL_ARMS} documents; the rivals have no arm for {document!r}")
        return arm


def rivals(queries: int, seed: int, now: float) -> dict[str, Rival]:
    """Return fresh rivals by name, for this many queries, from the time `now` on."""
    return {
        "bwc": Hearing("bwc", queries, split(seed, "bwc") >> 1, now),
        "ucb1": Told("ucb1", queries, split(seed, "ucb1") >> 1),
        "oracle": Told("oracle-ts", queries, split(seed, "oracle") >> 1),
        "fixed": Fixed(),
    }


def warm() -> None:
    """Compile the rivals' kernels, or load them from the cache, so that no simulated user waits."""
    for rival in rivals(1, 0, 0.0).values():
        ask = Ask(0, (0, 1), 0b11, 0.0, 0.0, False)
        rival.choose(ask)
        rival.learn(ask, True, True, True)
