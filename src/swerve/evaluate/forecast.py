"""A forecast by traffic band: policies are played on the click model of a log. Every number of it is the model's.

Each query is played from its first list to its last, through its shifts, and the policy learns from clicks that are drawn from the
model. A page counts by its expected clicks, so that only the policy's own draws are random. Intervals are over queries.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from swerve.evaluate.model import CURVE_VALUES, Model, Segment
from swerve.evaluate.rates import PRIOR
from swerve.experiments.intervals import CONFIDENCE, student_quantile
from swerve.simulate.cluster import is_ray, ship
from swerve.simulate.devices import CPU

#: Lists from which a query belongs to a band, most first.
BANDS = {"head": 1000, "torso": 20, "tail": 1}
#: Lists of a band that are played, and of one query; a longer query is shortened, all its segments in proportion.
PLAYED, MOST_LISTS = 30_000, 3000
#: Impressions of a query after which gains are compared.
CHECKPOINTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
ARMS = 32
#: Played queries of a band from which its gains have intervals: few of them say too little about the others.
LEAST_QUERIES = 10
#: Degrees of freedom from which Student's distribution is as good as normal.
MANY = 1000
POLICIES = ("swerve", "clicks", "best")


class Gain(msgspec.Struct):
    """What a policy gains over the log's own ranking, by the model: in clicks per list and in percent, with 95 % intervals;
    below `LEAST_QUERIES` played queries there is none."""

    per_list: float
    percent: float | None
    percent_low: float | None
    percent_high: float | None
    breaks_even: int | None  # impressions of a query until the gains so far are above 0, and stay there; None: not in the log


class Band(msgspec.Struct):
    """The queries of a band."""

    name: str
    queries: int
    lists: int
    played_queries: int
    played_lists: int
    logged: float  # clicks per list of the log's own ranking
    gains: dict[str, Gain]


class Forecast(msgspec.Struct):
    """All bands, and all traffic together."""

    bands: list[Band]
    everything: dict[str, Gain]
    prior_weight: float  # examinations that the model's prior counts for
    model: str = (
        "position-based click model fitted to the log, attractiveness by query and result between shifts; not a measurement"
    )


class Player(Protocol):
    """A policy that orders the results of a query, by their numbers."""

    def begin(self, query: int) -> None:
        """Begin a query."""

    def order(self, segment: Segment, now: float) -> NDArray[np.int64]:
        """Return the indexes in `segment.results` to show."""

    def learn(self, segment: Segment, order: NDArray[np.int64], clicks: NDArray[np.bool_]) -> None:
        """Learn the clicks on an order."""


class Best:
    """Knows the model: nothing can be better on it."""

    def begin(self, query: int) -> None:
        """Nothing is learnt."""

    def order(self, segment: Segment, now: float) -> NDArray[np.int64]:
        """Return the most attractive results."""
        return np.argsort(-segment.attractive, kind="stable")[: segment.slots]

    def learn(self, segment: Segment, order: NDArray[np.int64], clicks: NDArray[np.bool_]) -> None:
        """Nothing is learnt."""


class ByClicks:
    """Orders by clicks per examination so far, with a prior; ties as in the log."""

    def __init__(self, mean: float) -> None:
        self.mean = mean
        self.sums: dict[int, list[float]] = {}

    def begin(self, query: int) -> None:
        """Forget the query before."""
        self.sums = {}

    def order(self, segment: Segment, now: float) -> NDArray[np.int64]:
        """Return the results with the highest rates."""
        known = [self.sums.get(result, (0.0, 0.0)) for result in segment.results.tolist()]
        rates = [(clicks + PRIOR * self.mean) / (examined + PRIOR) for clicks, examined in known]
        return np.array(sorted(range(len(rates)), key=lambda i: -rates[i])[: segment.slots])

    def learn(self, segment: Segment, order: NDArray[np.int64], clicks: NDArray[np.bool_]) -> None:
        """Count clicks and examinations."""
        for slot, (index, clicked) in enumerate(zip(order.tolist(), clicks.tolist(), strict=True)):
            sums = self.sums.setdefault(int(segment.results[index]), [0.0, 0.0])
            sums[0] += clicked
            sums[1] += CURVE_VALUES[slot]


class BySwerve:
    """Swerve's own policy for pages, without signals; the log's own ranking is the given order."""

    def __init__(self, queries: int, seed: int) -> None:
        from swerve.core.page_fleet import PageFleet
        from swerve.policies import Listed

        self.fleet = PageFleet(Listed(), queries=max(queries, 1), arms=ARMS, features=1, seed=seed)
        self.row, self.arms = 0, dict[int, int]()
        self.page: object = None

    def begin(self, query: int) -> None:
        """Go on to the row of another query."""
        self.row, self.arms = query, {}

    def order(self, segment: Segment, now: float) -> NDArray[np.int64]:
        """Return a page of the policy; results that it has no room for are not offered to it."""
        for result in segment.results.tolist():
            if result not in self.arms and len(self.arms) < ARMS:
                self.arms[result] = len(self.arms)
        index = {self.arms[result]: i for i, result in enumerate(segment.results.tolist()) if result in self.arms}
        if not index:
            self.page = None
            return np.arange(segment.slots)
        page = self.fleet.order(self.row, list(index), [math.nan], slots=min(segment.slots, len(index)), now=now)
        self.page = page
        return np.array([index[arm] for arm in page.arms])

    def learn(self, segment: Segment, order: NDArray[np.int64], clicks: NDArray[np.bool_]) -> None:
        """Give the clicks to the policy."""
        if self.page is not None and clicks.any():
            self.fleet.respond(self.row, self.page, np.flatnonzero(clicks).tolist())  # type: ignore[arg-type]


def play(segments: list[Segment], player: Player, query: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the gain over the log's own ranking of each list of a query, in its order."""
    player.begin(query)
    total = sum(segment.lists for segment in segments)
    shorter = min(1.0, MOST_LISTS / total)
    gains: list[float] = []
    for segment in segments:
        logged, lists = segment.logged, max(1, round(segment.lists * shorter))
        draws = rng.random((lists, segment.slots))
        for number in range(lists):
            order = player.order(segment, float(len(gains)))
            gains.append(segment.value(order) - logged)
            seen = segment.attractive[order] * CURVE_VALUES[: len(order)]
            player.learn(segment, order, draws[number, : len(order)] < seen)
    return np.array(gains)


class Part(NamedTuple):
    """What a policy plays of a band: nothing of another part is needed for it, so that it may be played elsewhere."""

    policy: str
    queries: list[list[Segment]]
    starts: list[int]  # of the random numbers of each query
    mean: float  # attractiveness at the top
    seed: int


def play_part(part: Part, done: Callable[[], None] = lambda: None) -> list[NDArray[np.float64]]:
    """Play a part; return the gains of each query. `done` is called after each."""
    player: Player = (
        BySwerve(len(part.queries), part.seed)
        if part.policy == "swerve"
        else ByClicks(part.mean)
        if part.policy == "clicks"
        else Best()
    )
    out = []
    for number, (segments, start) in enumerate(zip(part.queries, part.starts, strict=True)):
        out.append(play(segments, player, number, np.random.default_rng(start)))
        done()
    return out


def play_shipped(policy: str, queries: list[list[tuple[Any, ...]]], starts: list[int], mean: float, seed: int) -> list[Any]:
    """Play a part whose segments are plain data: on a node of a cluster."""
    return play_part(Part(policy, [[Segment(*segment) for segment in own] for own in queries], starts, mean, seed))


def play_all(parts: list[Part], device: str, progress: Callable[[int, int], None]) -> list[list[NDArray[np.float64]]]:
    """Play all parts here one after the other, or on the nodes of a cluster; return their gains in the order of the parts."""
    total, count = sum(len(part.queries) for part in parts), 0

    def done(queries: int = 1) -> None:
        nonlocal count
        count += queries
        progress(count, total)

    if not is_ray(device):
        return [play_part(part, done) for part in parts]
    fields = [field.name for field in dataclasses.fields(Segment)]
    orders = [
        (part.policy, [[tuple(getattr(each, name) for name in fields) for each in own] for own in part.queries], *part[2:])
        for part in parts
    ]
    found: dict[int, list[NDArray[np.float64]]] = {}
    for number, gains in ship(device, "part of a forecast", play_shipped, orders):
        found[number] = gains
        done(len(gains))
    return [found[number] for number in range(len(parts))]


def forecast(
    model: Model,
    unwatched: int = 0,
    policies: tuple[str, ...] = POLICIES,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    device: str = CPU,
) -> Forecast:
    """Play policies on a model. `unwatched` lists belong to rare queries that the model does not have.

    `device` is "cpu", or "ray" or "ray:ADDRESS" for a cluster, which gives the same bytes.
    """
    rng = np.random.default_rng(seed)
    chosen = {name: choose(model, name, rng) for name in BANDS}
    parts: list[Part] = []
    for _, played in chosen.values():
        starts = [int(rng.integers(1 << 62)) for _ in played]
        queries = [model.queries[query] for query in played]
        parts += [Part(policy, queries, starts, float(model.means[0]), seed) for policy in policies]
    every = iter(play_all(parts, device, progress))
    bands: list[Band] = []
    for name, (own, played) in chosen.items():
        lists = sum(lists_of(model, query) for query in own) + (unwatched if name == "tail" else 0)
        gains = {policy: next(every) for policy in policies}
        # a query's clicks per list, by as many lists as were played of it
        sizes = np.array([len(each) for each in gains[policies[0]]], float)
        logged = sizes * np.array([query_value(model.queries[query]) for query in played])
        bands.append(
            Band(
                name, len(own), lists, len(played), int(sizes.sum()), float(logged.sum() / max(sizes.sum(), 1.0)),
                {policy: gain_of(found, logged) for policy, found in gains.items()} if played else {},
            )
        )  # fmt: skip
    return Forecast(bands, {policy: together(bands, policy) for policy in policies}, model.weight)


def choose(model: Model, band: str, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return the queries of a band, and those of them that are played."""
    low = BANDS[band]
    high = min((limit for limit in BANDS.values() if limit > low), default=math.inf)
    own = [query for query in model.queries if low <= lists_of(model, query) < high]
    played, room = [], PLAYED
    for index in rng.permutation(len(own)).tolist():
        need = min(lists_of(model, own[index]), MOST_LISTS)
        if need > room:
            break
        room -= need
        played.append(own[index])
    return own, played


def lists_of(model: Model, query: str) -> int:
    """Return the lists of a query."""
    return sum(segment.lists for segment in model.queries[query])


def query_value(segments: list[Segment]) -> float:
    """Return the clicks per list of the log's own ranking for a query."""
    return sum(segment.logged * segment.lists for segment in segments) / sum(segment.lists for segment in segments)


def gain_of(gains: list[NDArray[np.float64]], logged: NDArray[np.float64]) -> Gain:
    """Return the gain over the queries of a band; `logged` has the clicks of the log's own ranking for each."""
    own, lists = np.array([each.sum() for each in gains]), sum(len(each) for each in gains)
    base = float(logged.sum())
    share = float(own.sum()) / base if base > 0.0 else None
    half = None
    if share is not None and len(own) >= LEAST_QUERIES:
        residuals = own - share * logged
        half = student_quantile(CONFIDENCE, min(len(own) - 1, MANY)) * float(residuals.std(ddof=1)) * math.sqrt(len(own)) / base
    low, high = (None, None) if share is None or half is None else (100 * (share - half), 100 * (share + half))
    return Gain(float(own.sum()) / lists, None if share is None else 100 * share, low, high, break_even(gains))


def break_even(gains: list[NDArray[np.float64]]) -> int | None:
    """Return after how many impressions of a query the mean of the gains so far is not below 0, and stays so."""
    good: int | None = None
    for checkpoint in CHECKPOINTS:
        long = [each[:checkpoint].sum() for each in gains if len(each) >= checkpoint]
        if not long:
            break
        if np.mean(long) < -1e-9:
            good = None
        elif good is None:
            good = checkpoint
    return good


def together(bands: list[Band], policy: str) -> Gain:
    """Return the gain over all traffic: each band by its lists."""
    own = [band for band in bands if policy in band.gains]
    lists = sum(band.lists for band in own)
    if not lists:
        return Gain(0.0, None, None, None, None)
    per_list = sum(band.gains[policy].per_list * band.lists for band in own) / lists
    logged = sum(band.logged * band.lists for band in own) / lists
    if logged <= 0.0:
        return Gain(per_list, None, None, None, None)
    halves = []
    for band in own:
        gain = band.gains[policy]
        if gain.percent_high is None or gain.percent is None:
            return Gain(per_list, 100 * per_list / logged, None, None, None)
        halves.append((gain.percent_high - gain.percent) * band.logged * band.lists / lists / logged)
    half = math.hypot(*halves)
    share = 100 * per_list / logged
    return Gain(per_list, share, share - half, share + half, None)
