"""Search traffic beyond the paper's: the kind of shifts, their speed and the quality of the signals are settings."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from swerve.core.elementary import sine
from swerve.core.errors import SwerveError
from swerve.core.hashing import SCRATCH
from swerve.core.rng import GOLDEN, Stream, at, mix, split, unit, wrap_add
from swerve.core.spec import Choice, Count, Natural, NonNegative, Positive, Probability, Range, Spec
from swerve.core.tables import CAPACITIES, capacity
from swerve.core.verbs import kernel
from swerve.environments.drawing import CROWDED, DETAILS, FITTING, TRIES, drawer, lottery, refuse
from swerve.environments.histories import CEILING, INTENTS, MOVES, RISE, ROUNDING, draw_queries, most_lines
from swerve.environments.schedule import ORDERS, arrange, traffic_shares
from swerve.environments.worlds import World, blank, context, scene_of, world

MISSING = ("nan", "zero", "quiet")
EXTREME = ("edge", "tenfold", "quiet")
AS_NAN, AS_ZERO, EDGE, TENFOLD = 0, 1, 0, 1  # indices in the two lists above
TEN = 10.0  # the factor of an extreme value
SPOILT = np.uint64(0x4D49_5353_494E_4721)  # separates the draws of missing and extreme values from those of the context


class Shifts(Spec):
    """Queries whose best result may change in many ways, with signals that may be clear, missing, false, early or late.

    One result has p ~ U[best_low, best_high], the others U[other_low, other_high], and the best leads by at least `minimum_gap`. A
    fraction `shifting_share` of the queries has k ~ U{events_low … events_high} events at uniform rounds. `moves` defines an event:

    - `all`: every result is redrawn, and another one is best;
    - `one`: in turn, another result rises above the best, which does not move, and then the best falls; half the time some other
      result is redrawn too, without coming near the top;
    - `return`: each query has three intents, drawn once, and an event switches to another one of them.

    With `glide_rounds` the probabilities move over that many rounds, in steps of five; the event is the first round in which
    another result is best.

    Quiet contexts are uniform in a box [0, edge]^d; a signal has one feature at least `margin` beyond its edge. A signal comes with
    the event (with the start of a glide), or up to `lead_rounds` before or `lag_rounds` after it. A share `silent_share` of the
    events has no signal; a share `spurious_share` of the quiet rounds looks like a signal. A share `bursting_share` of the queries
    never shifts and sends a signal every `burst_every` rounds. A share `poison_share` of the quiet contexts has the largest
    possible value in one of the first `poisoned_features` features. Edges swing by `edge_drift` over `season_rounds` rounds.
    Features share a common part by `feature_correlation`. Signals use only the first `signal_features` features (0: all of them).

    Every value of a context, a signal's too, is missing with probability `missing_share` and extreme with probability
    `extreme_share`. A missing value is NaN, or 0 with `missing_as="zero"`. An extreme value is 1, the largest there is; with
    `extreme_as="tenfold"` it is ten times the value, at most 1. `missing_as="quiet"` and `extreme_as="quiet"` are for comparisons:
    such a value is an ordinary one, so that the signals in it are lost and nothing else changes.

    The defaults are the workload `clear`; see `swerve.environments.WORKLOADS` for the others.

    Paper: Experiments, extended: its search traffic with every assumption about events and signals made a setting.

    >>> drawn = world(Shifts(queries=4, impressions=4000, shifting_share=0.5, silent_share=1.0), 0)
    >>> [int((drawn.events > 0).sum()), int(drawn.segments["signal"].sum())]
    [2, 0]
    """

    queries: Natural = 100
    impressions: Natural = 3_000_000
    results: Annotated[int, Range(3, CAPACITIES[-1])] = 5
    shifting_share: Probability = 0.1
    events_low: Count = 1
    events_high: Count = 10
    best_low: Probability = 0.6
    best_high: Probability = 0.9
    other_low: Probability = 0.05
    other_high: Probability = 0.4
    minimum_gap: Probability = 0.0
    minimum_event_distance: Count = 0
    moves: Annotated[str, Choice(MOVES)] = "all"
    glide_rounds: Count = 0
    features: Annotated[int, Range(0, CAPACITIES[-1])] = 10
    margin: Positive = 0.1
    edge_low: Probability = 0.4
    edge_high: Probability = 0.6
    silent_share: Probability = 0.0
    spurious_share: Probability = 0.0
    lead_rounds: Count = 0
    lag_rounds: Count = 0
    bursting_share: Probability = 0.0
    burst_every: Natural = 1000
    poison_share: Probability = 0.0
    poisoned_features: Natural = 1
    edge_drift: NonNegative = 0.0
    season_rounds: Natural = 30_000
    feature_correlation: Probability = 0.0
    signal_features: Count = 0
    missing_share: Probability = 0.0
    missing_as: Annotated[str, Choice(MISSING)] = "nan"
    extreme_share: Probability = 0.0
    extreme_as: Annotated[str, Choice(EXTREME)] = "edge"
    order: Annotated[str, Choice(ORDERS)] = "uniform"
    zipf_exponent: NonNegative = 1.0

    def check(self) -> None:
        self.ordered("events", "best", "other", "edge")
        if self.edge_high + self.edge_drift + self.margin > 1.0:
            self.refuse(
                "edge_high", f"≤ 1 − margin − edge_drift = {1.0 - self.margin - self.edge_drift:g}, or a signal has no room"
            )
        if self.edge_drift > self.edge_low:
            self.refuse("edge_drift", f"≤ edge_low = {self.edge_low:g}, or a box has no inside")
        if self.best_high <= self.other_low:
            self.refuse("best_high", f"> other_low = {self.other_low:g}, or no draw makes the relevant result the best")
        if self.moves == "one" and (self.best_low <= self.other_high or self.best_high + RISE > CEILING):
            self.refuse("moves", f"'all' or 'return' unless other_high < best_low and best_high ≤ {CEILING - RISE:g}")
        if self.moves == "one" and self.minimum_gap > min(RISE, self.best_low - self.other_high):
            self.refuse("minimum_gap", f"≤ {min(RISE, self.best_low - self.other_high):g}, by which a new best result may lead")
        if self.impressions < self.queries:
            self.refuse("impressions", f"≥ queries = {self.queries}")
        if self.features > 0 and max(self.signal_features, self.poisoned_features) > self.features:
            self.refuse(
                "features", f"≥ {max(self.signal_features, self.poisoned_features)}, the features that signals and poison use"
            )
        if self.missing_share + self.extreme_share > 1.0 + ROUNDING:
            self.refuse("extreme_share", f"≤ 1 − missing_share = {1.0 - self.missing_share:g}")
        if self.shifting_share + self.bursting_share > 1.0 + ROUNDING:
            self.refuse("bursting_share", f"≤ 1 − shifting_share = {1.0 - self.shifting_share:g}")

    @property
    def rounds_per_query(self) -> int:
        """Return the rounds of the busiest query."""
        return int(traffic_shares(self.queries, self.impressions, self.order, self.zipf_exponent).max())


@world.register(Shifts)
def _(spec: Shifts, seed: int) -> World:
    shares = traffic_shares(spec.queries, spec.impressions, spec.order, spec.zipf_exponent)
    drawn = lottery(split(seed, "shifting"), spec.queries)
    shifting, bursting = round(spec.shifting_share * spec.queries), round(spec.bursting_share * spec.queries)
    movers, bursters = np.zeros((2, spec.queries), np.bool_)
    movers[drawn[:shifting]] = bursters[drawn[shifting : shifting + bursting]] = True
    most = min(spec.events_high, int(shares.max()))
    segments, owner, cursors = blank(spec.queries, most_lines(spec, shares, movers, bursters), spec.results)
    signals = np.zeros(most + int(shares.max()) // spec.burst_every + 1, np.int64)
    starts, keys, values = np.zeros((3, most), np.int64)
    trouble = np.zeros(DETAILS, np.int64)
    lines = drawer(draw_queries, spec, seed)(
        shares, movers, bursters, segments, owner, cursors, starts, keys, values, signals,
        np.zeros((most + 1 + INTENTS, spec.results)), np.zeros(SCRATCH + 1, np.uint64), trouble,
    )  # fmt: skip
    if trouble[0] == CROWDED:
        apart = max(1, spec.minimum_event_distance, spec.glide_rounds)
        refuse("Shifts", "events_high, glide_rounds or minimum_event_distance", apart, trouble)
    if trouble[0] != FITTING:
        raise SwerveError(
            f"Shifts: {TRIES} draws gave no best result that leads by {spec.minimum_gap:g}; lower minimum_gap or widen the ranges"
        )
    stream = Stream(split(seed, "scene"))
    size = capacity("features", spec.features)
    padding = [0.0] * (size - spec.features)
    scene = scene_of(
        [("edge", "f8", size), ("phase", "f8", size)],
        {
            "edge": [stream.uniform(spec.edge_low, spec.edge_high) for _ in range(spec.features)] + padding,
            "phase": [stream.uniform() for _ in range(spec.features)] + padding,
        },
    )
    schedule = arrange(shares, spec.order, seed)
    return World(
        spec, seed, spec.results, spec.features, schedule, shares, cursors, segments[:lines].copy(), scene, owner[:lines].copy()
    )


@kernel
def edge_of(spec, scene, cursor, j):
    """Return the current upper edge of the box of quiet contexts."""
    if spec.edge_drift == 0.0:
        return scene.edge[j]
    return scene.edge[j] + spec.edge_drift * sine(2.0 * math.pi * (cursor.t / spec.season_rounds + scene.phase[j]))


@kernel
def spoil(spec, key, x, which, quiet):
    """Make values of a context missing or extreme; `quiet` is the value that feature `which` would have without a signal."""
    word = key ^ SPOILT
    for j in range(len(x)):
        word = wrap_add(word, GOLDEN)
        chance = unit(mix(word))
        if chance < spec.missing_share:
            if spec.missing_as == AS_NAN:
                x[j] = math.nan
            elif spec.missing_as == AS_ZERO:
                x[j] = 0.0
            elif j == which:
                x[j] = quiet
        elif chance >= 1.0 - spec.extreme_share:
            if spec.extreme_as == EDGE:
                x[j] = 1.0
            elif spec.extreme_as == TENFOLD:
                x[j] = min(1.0, TEN * x[j])
            elif j == which:
                x[j] = quiet


@context.register(Shifts)
def _(spec, scene, cursor, event, x):
    d = len(x)
    key = at(cursor.contexts, cursor.t)
    word = key
    common = spec.feature_correlation * unit(mix(wrap_add(key, key)))
    if spec.edge_drift == 0.0:  # a loop of its own: compiled for several features at once, a loop with both cases takes every sine
        for j in range(d):
            word = wrap_add(word, GOLDEN)
            x[j] = (common + (1.0 - spec.feature_correlation) * unit(mix(word))) * scene.edge[j]
    else:
        for j in range(d):
            word = wrap_add(word, GOLDEN)
            x[j] = (common + (1.0 - spec.feature_correlation) * unit(mix(word))) * edge_of(spec, scene, cursor, j)
    if d == 0:
        return
    word = wrap_add(word, GOLDEN)
    chance = unit(mix(word))  # decides whether a quiet round looks like a signal or is poisoned
    which, quiet = -1, 0.0
    if cursor.signal != 0 or (event == 0 and chance < spec.spurious_share):
        which = int(unit(key) * (spec.signal_features if spec.signal_features > 0 else d))
        quiet = x[which]
        outside = edge_of(spec, scene, cursor, which) + spec.margin
        x[which] = min(1.0, outside + unit(mix(wrap_add(word, GOLDEN))) * (1.0 - outside))
    elif event == 0 and chance >= 1.0 - spec.poison_share:
        x[int(unit(key) * spec.poisoned_features)] = 1.0
    if spec.missing_share > 0.0 or spec.extreme_share > 0.0:
        spoil(spec, key, x, which, quiet)
