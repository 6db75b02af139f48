"""The paper's synthetic search traffic."""

from __future__ import annotations

import math
from typing import Annotated, NoReturn

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.errors import SwerveError
from swerve.core.hashing import SCRATCH, word_of
from swerve.core.rng import GOLDEN, Stream, at, mix, split, unit, wrap_add
from swerve.core.spec import Choice, Count, Natural, NonNegative, Positive, Probability, Range, Spec
from swerve.core.tables import CAPACITIES, capacity
from swerve.core.verbs import kernel
from swerve.environments.drawing import (
    CROWDED,
    DETAILS,
    FITTING,
    NO_LEADER,
    NO_SHIFT,
    TRIES,
    close_query,
    drawer,
    event_rounds,
    integer,
    leader,
    lottery,
    refuse,
    uniform,
)
from swerve.environments.schedule import ORDERS, arrange, traffic_shares
from swerve.environments.worlds import World, blank, context, scene_of, world

ORACLES = ("rectangle", "hyperplane")
HYPERPLANE = ORACLES.index("hyperplane")
INSIDE = 1.0 - 1e-12  # shrinks a context a little, so that rounding never moves it out of the ball


class Traffic(Spec):
    """Queries whose best result may change, with signals that announce the changes.

    Each query has one relevant result with p ~ U[best_low, best_high] and others with p ~ U[other_low, other_high]. A fraction
    `shifting_share` of the queries has k ~ U{events_low … events_high} events at uniform rounds. An event redraws all results until
    another one is best, by more than `minimum_shift` over the former best if that is set. `minimum_event_distance` (the paper's 2L)
    separates events from each other and from the start.

    With `oracle = "rectangle"` quiet contexts are uniform in a box [0, edge]^d, and the context of an event has one feature at
    distance ≥ margin outside it. With `"hyperplane"` contexts lie in the L2 unit ball: at least `margin` below the plane w·x = edge
    when quiet, at least `margin` above it at an event, with random w. `order` is the order of the queries: one after the other
    ("sequential"), all equally often at random ("uniform"), or by Zipf's law ("zipf") with `zipf_exponent`.

    The defaults are the workload that reproduces the paper's figures.

    Paper: Problem Formulation, Experiments.
    """

    queries: Natural = 100
    impressions: Natural = 3_000_000
    results: Annotated[int, Range(2, CAPACITIES[-1])] = 5
    shifting_share: Probability = 0.1
    events_low: Count = 1
    events_high: Count = 10
    best_low: Probability = 0.4
    best_high: Probability = 0.8
    other_low: Probability = 0.0
    other_high: Probability = 0.3
    minimum_shift: NonNegative = 0.0
    minimum_event_distance: Count = 0
    features: Annotated[int, Range(0, CAPACITIES[-1])] = 10
    oracle: Annotated[str, Choice(ORACLES)] = "rectangle"
    margin: Positive = 0.1
    edge_low: Probability = 0.8
    edge_high: Probability = 0.8
    order: Annotated[str, Choice(ORDERS)] = "sequential"
    zipf_exponent: NonNegative = 1.0

    def check(self) -> None:
        self.ordered("events", "best", "other", "edge")
        if self.edge_high + self.margin > 1.0:
            self.refuse("edge_high", f"≤ 1 − margin = {1.0 - self.margin:g}, or an event's context has no room")
        if self.oracle == "hyperplane" and self.features == 1 and self.edge_low < self.margin:
            self.refuse("edge_low", f"≥ margin = {self.margin:g} with one feature")
        if self.best_high <= self.other_low:
            self.refuse("best_high", f"> other_low = {self.other_low:g}, or no draw makes the relevant result the best")
        reach = max(self.best_high - self.other_low, self.other_high - self.best_low)
        if self.results > 2:
            reach = max(reach, self.other_high - self.other_low)
        if self.minimum_shift >= reach and self.events_high > 0 and round(self.shifting_share * self.queries) > 0:
            self.refuse("minimum_shift", f"< {reach:g}, the most that these click probabilities can shift")
        if self.impressions < self.queries:
            self.refuse("impressions", f"≥ queries = {self.queries}")

    @property
    def rounds_per_query(self) -> int:
        """Return the rounds of the busiest query."""
        return int(traffic_shares(self.queries, self.impressions, self.order, self.zipf_exponent).max())


@kernel
def draw_chances(spec, stream, segments, line, old):
    """Draw the click probabilities of a line until another result is best than `old`, by enough; −1: until the relevant one is.

    Return whether a draw did.
    """
    chances = segments[line].chance
    for _ in range(TRIES):
        best = integer(stream, 0, spec.results - 1)
        for arm in range(spec.results):
            chances[arm] = uniform(stream, spec.other_low, spec.other_high)
        chances[best] = uniform(stream, spec.best_low, spec.best_high)
        top = leader(chances, spec.results)
        if old < 0:
            if top == best:
                return True
        elif top != old and chances[top] - chances[old] > spec.minimum_shift:
            return True
    return False


@Entry
def draw_queries(params, query, clicks, contexts, shares, shifts, segments, owner, cursors, starts, keys, values, scratch, trouble):
    """Draw the history of every query into `segments`; return the number of lines. `trouble` says if that is impossible.

    `query`, `clicks` and `contexts` are the paths of the queries' streams. The arguments after `cursors` are scratch space.
    """
    spec = params[0]
    stream = scratch[SCRATCH:]
    apart = max(1, spec.minimum_event_distance)
    line = 0
    for number in range(len(shares)):
        stream[0] = word_of(query, number, scratch)
        events = 0
        if shifts[number]:
            events = event_rounds(stream, shares[number], spec.events_low, spec.events_high, apart, starts, keys, values, trouble)
            if events < 0:
                return line
        first = line
        for turn in range(events + 1):
            old = leader(segments[line - 1].chance, spec.results) if turn > 0 else -1
            if not draw_chances(spec, stream, segments, line, old):
                trouble[0] = NO_LEADER if turn == 0 else NO_SHIFT
                return line
            segments[line].since = starts[turn - 1] if turn > 0 else 1
            segments[line].event, segments[line].signal = 1, 1
            line += 1
        close_query(
            number,
            first,
            line,
            spec.results,
            word_of(clicks, number, scratch),
            word_of(contexts, number, scratch),
            segments,
            owner,
            cursors,
        )
    return line


@world.register(Traffic)
def _(spec: Traffic, seed: int) -> World:
    shares = traffic_shares(spec.queries, spec.impressions, spec.order, spec.zipf_exponent)
    shifts = np.zeros(spec.queries, np.bool_)
    shifts[lottery(split(seed, "shifting"), spec.queries)[: round(spec.shifting_share * spec.queries)]] = True
    most = min(spec.events_high, int(shares.max()))
    segments, owner, cursors = blank(spec.queries, spec.queries + int(shifts.sum()) * most, spec.results)
    trouble = np.zeros(DETAILS, np.int64)
    lines = drawer(draw_queries, spec, seed)(
        shares, shifts, segments, owner, cursors, np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64),
        np.zeros(SCRATCH + 1, np.uint64), trouble,
    )  # fmt: skip
    if trouble[0] != FITTING:
        refuse_traffic(spec, trouble)
    stream = Stream(split(seed, "scene"))
    size = capacity("features", spec.features)
    edges = [stream.uniform(spec.edge_low, spec.edge_high) for _ in range(spec.features)]
    normal = [stream.uniform(-1.0, 1.0) for _ in range(spec.features)]
    square = 0.0
    for w in normal:  # `sum` rounds differently from Python 3.12 on
        square += w * w
    length = math.sqrt(square) or 1.0
    scene = scene_of(
        [("edge", "f8", size), ("normal", "f8", size)],
        {
            "edge": edges + [0.0] * (size - spec.features),
            "normal": [w / length for w in normal] + [0.0] * (size - spec.features),
        },
    )
    schedule = arrange(shares, spec.order, seed)
    return World(
        spec, seed, spec.results, spec.features, schedule, shares, cursors, segments[:lines].copy(), scene, owner[:lines].copy()
    )


def refuse_traffic(spec: Traffic, trouble: NDArray[np.int64]) -> NoReturn:
    """Raise the error for an instance that cannot be drawn."""
    if trouble[0] == CROWDED:
        refuse("Traffic", "events_high or minimum_event_distance", max(1, spec.minimum_event_distance), trouble)
    if trouble[0] == NO_LEADER:
        raise SwerveError(
            f"Traffic: best_low = {spec.best_low:g}, best_high = {spec.best_high:g} did not beat {spec.results - 1} results in "
            f"[{spec.other_low:g}, {spec.other_high:g}] in {TRIES} draws; raise best_high or lower other_high"
        )
    raise SwerveError(
        f"Traffic: minimum_shift = {spec.minimum_shift:g} is not reached by these click probabilities in {TRIES} draws"
    )


@context.register(Traffic)
def _(spec, scene, cursor, event, x):
    key = at(cursor.contexts, cursor.t)
    if spec.oracle == HYPERPLANE:
        beside_plane(spec, scene, key, event, x)
        return
    word = key
    for j in range(len(x)):
        word = wrap_add(word, GOLDEN)
        x[j] = unit(mix(word)) * scene.edge[j]
    if event != 0 and len(x) > 0:
        which = int(unit(key) * len(x))
        outside = scene.edge[which] + spec.margin
        x[which] = min(1.0, outside + unit(mix(wrap_add(word, GOLDEN))) * (1.0 - outside))


@kernel
def beside_plane(spec, scene, key, event, x):
    """Write a context of the hyperplane oracle: a height along the normal, and a uniform direction beside it inside the ball."""
    word = key
    along = 0.0
    for j in range(len(x)):
        word = wrap_add(word, GOLDEN)
        x[j] = 2.0 * unit(mix(word)) - 1.0
        along += x[j] * scene.normal[j]
    square = 0.0
    for j in range(len(x)):
        x[j] -= along * scene.normal[j]
        square += x[j] * x[j]
    low, high = -1.0, scene.edge[0] - spec.margin
    if event != 0:
        low, high = scene.edge[0] + spec.margin, 1.0
    word = wrap_add(word, GOLDEN)
    height = low + unit(mix(word)) * (high - low)
    word = wrap_add(word, GOLDEN)
    scale = math.sqrt((1.0 - height * height) * unit(mix(word)) / square) * INSIDE if square > 0.0 else 0.0
    for j in range(len(x)):
        x[j] = scale * x[j] + height * scene.normal[j]
