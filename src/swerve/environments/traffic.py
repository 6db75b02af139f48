"""The paper's synthetic search traffic."""

from __future__ import annotations

import math
from typing import Annotated

from swerve.core.errors import SwerveError
from swerve.core.rng import GOLDEN, Stream, at, mix, split, unit, wrap_add
from swerve.core.spec import Choice, Count, Natural, NonNegative, Positive, Probability, Range, Spec
from swerve.core.tables import CAPACITIES, capacity
from swerve.core.verbs import kernel
from swerve.environments.schedule import ORDERS, arrange, event_rounds, traffic_shares
from swerve.environments.worlds import World, assemble, context, world

ORACLES = ("rectangle", "hyperplane")
HYPERPLANE = ORACLES.index("hyperplane")
TRIES = 100_000  # draws before a setting is refused as impossible
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


def draw_chances(spec: Traffic, stream: Stream, former: list[float] | None) -> list[float]:
    """Draw the click probabilities of a segment until another result is best than before, by enough."""
    for _ in range(TRIES):
        best = stream.integer(0, spec.results - 1)
        chances = [stream.uniform(spec.other_low, spec.other_high) for _ in range(spec.results)]
        chances[best] = stream.uniform(spec.best_low, spec.best_high)
        top = max(chances)
        if former is None:
            if chances.index(top) == best:
                return chances
        else:
            old = former.index(max(former))
            if chances.index(top) != old and top - chances[old] > spec.minimum_shift:
                return chances
    if former is None:
        raise SwerveError(
            f"Traffic: best_low = {spec.best_low:g}, best_high = {spec.best_high:g} did not beat {spec.results - 1} results in "
            f"[{spec.other_low:g}, {spec.other_high:g}] in {TRIES} draws; raise best_high or lower other_high"
        )
    raise SwerveError(
        f"Traffic: minimum_shift = {spec.minimum_shift:g} is not reached by these click probabilities in {TRIES} draws"
    )


def draw_history(spec: Traffic, stream: Stream, rounds: int, shifts: bool) -> list[tuple[int, list[float]]]:
    """Return the rounds at which a query's click probabilities change, and the new probabilities."""
    apart = max(1, spec.minimum_event_distance)
    starts: list[int] = []
    if shifts:
        starts = event_rounds(
            "Traffic", "events_high or minimum_event_distance", stream, rounds, spec.events_low, spec.events_high, apart
        )
    history = [(1, draw_chances(spec, stream, None))]
    for start in starts:
        history.append((start, draw_chances(spec, stream, history[-1][1])))
    return history


@world.register(Traffic)
def _(spec: Traffic, seed: int) -> World:
    shares = traffic_shares(spec.queries, spec.impressions, spec.order, spec.zipf_exponent)
    lottery = Stream(split(seed, "shifting"))
    shifting = set(lottery.choose(spec.queries, round(spec.shifting_share * spec.queries)))
    histories = [
        draw_history(spec, Stream(split(seed, "query", query)), int(shares[query]), query in shifting)
        for query in range(spec.queries)
    ]
    stream = Stream(split(seed, "scene"))
    size = capacity("features", spec.features)
    edges = [stream.uniform(spec.edge_low, spec.edge_high) for _ in range(spec.features)]
    normal = [stream.uniform(-1.0, 1.0) for _ in range(spec.features)]
    length = math.sqrt(sum(w * w for w in normal)) or 1.0
    return assemble(
        spec,
        seed,
        arms=spec.results,
        features=spec.features,
        histories=histories,
        schedule=arrange(shares, spec.order, seed),
        scene=[("edge", "f8", size), ("normal", "f8", size)],
        facts={
            "edge": edges + [0.0] * (size - spec.features),
            "normal": [w / length for w in normal] + [0.0] * (size - spec.features),
        },
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
