"""Search traffic beyond the paper's: the kind of shifts, their speed and the quality of the signals are settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import numpy as np

from swerve.core.errors import SwerveError
from swerve.core.rng import GOLDEN, Stream, at, mix, split, unit, wrap_add
from swerve.core.spec import Choice, Count, Natural, NonNegative, Positive, Probability, Range, Spec
from swerve.core.tables import CAPACITIES, capacity
from swerve.core.verbs import kernel
from swerve.environments.schedule import ORDERS, arrange, event_rounds, traffic_shares
from swerve.environments.worlds import Line, World, assemble, context, world

MOVES = ("all", "one", "return")
TRIES = 100_000  # draws before a setting is refused as impossible
MISSING = ("nan", "zero", "quiet")
EXTREME = ("edge", "tenfold", "quiet")
AS_NAN, AS_ZERO, EDGE, TENFOLD = 0, 1, 0, 1  # indices in the two lists above
TEN = 10.0  # the factor of an extreme value
STEP = 5  # a glide is a staircase with one step every this many rounds
INTENTS = 3  # the number of meanings of a query with recurring intents
SPOILT = np.uint64(0x4D49_5353_494E_4721)  # separates the draws of missing and extreme values from those of the context
ROUNDING = 1e-12  # sums of shares may exceed 1 by this much, and a tie is a gap below it


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


RISE = 0.05  # a rising result ends at least this far above the best one
CEILING = 0.98  # and at most here


def leader(chances: list[float]) -> int:
    """Return the best result."""
    return chances.index(max(chances))


def draw_intent(spec: Shifts, stream: Stream, taken: set[int]) -> list[float]:
    """Draw click probabilities of all results such that none of `taken` is the best."""
    for _ in range(TRIES):
        best = stream.integer(0, spec.results - 1)
        chances = [stream.uniform(spec.other_low, spec.other_high) for _ in range(spec.results)]
        chances[best] = stream.uniform(spec.best_low, spec.best_high)
        ranked = sorted(chances)
        if leader(chances) not in taken and ranked[-1] - ranked[-2] >= max(spec.minimum_gap, ROUNDING):
            return chances
    raise SwerveError(
        f"Shifts: {TRIES} draws gave no best result that leads by {spec.minimum_gap:g}; lower minimum_gap or widen the ranges"
    )


def move_one(spec: Shifts, stream: Stream, former: list[float], turn: int) -> list[float]:
    """Let another result rise in even turns and the best fall in odd ones; half the time redraw some other result low."""
    out, best = list(former), leader(former)
    others = [arm for arm in range(spec.results) if arm != best]
    if turn % 2 == 0:
        moved = others[stream.integer(0, len(others) - 1)]
        out[moved] = stream.uniform(former[best] + RISE, CEILING)
    else:
        moved = best
        out[moved] = stream.uniform(spec.other_low, spec.other_high)
    bystanders = [arm for arm in range(spec.results) if arm not in {moved, leader(out), best}]
    if stream.uniform() < 0.5:
        out[bystanders[stream.integer(0, len(bystanders) - 1)]] = stream.uniform(spec.other_low, spec.other_high)
    return out


def draw_intents(spec: Shifts, stream: Stream, events: int) -> list[list[float]]:
    """Return the click probabilities before the first event and after each."""
    out = [draw_intent(spec, stream, set())]
    if spec.moves == "return":
        meanings = out[:]
        while len(meanings) < min(INTENTS, spec.results):
            meanings.append(draw_intent(spec, stream, {leader(meaning) for meaning in meanings}))
        now = 0
        for _ in range(events):
            now = (now + stream.integer(1, len(meanings) - 1)) % len(meanings)
            out.append(meanings[now])
        return out
    for turn in range(events):
        if spec.moves == "one":
            out.append(move_one(spec, stream, out[-1], turn))
        else:
            out.append(draw_intent(spec, stream, {leader(out[-1])}))
    return out


def glided(spec: Shifts, start: int, former: list[float], target: list[float]) -> list[Line]:
    """Return the staircase from one set of click probabilities to the next; the event is where another result first leads.

    A third result may lead for some steps in between. Then the event is where the third one takes the lead, and there is no second.
    """
    out: list[Line] = []
    stairs = math.ceil(spec.glide_rounds / STEP)
    crossed = False
    for i in range(stairs):
        share = (i + 1) / stairs
        chances = [a + (b - a) * share for a, b in zip(former, target, strict=True)]
        crossing = not crossed and leader(chances) != leader(former)
        out.append(Line(start + i * STEP, chances, crossing, False))
        crossed |= crossing
    return out


def draw_history(spec: Shifts, stream: Stream, rounds: int, shifts: bool, bursts: bool) -> list[Line]:
    """Return the history of a query, line by line: its changes, and signals, which may have rounds of their own."""
    apart = max(1, spec.minimum_event_distance, spec.glide_rounds)
    starts: list[int] = []
    if shifts:
        starts = event_rounds(
            "Shifts",
            "events_high, glide_rounds or minimum_event_distance",
            stream,
            rounds,
            spec.events_low,
            spec.events_high,
            apart,
        )
    intents = draw_intents(spec, stream, len(starts))
    lines = {1: Line(1, intents[0], False, False)}
    signals = []
    for start, former, target in zip(starts, intents[:-1], intents[1:], strict=True):
        steps = glided(spec, start, former, target) if spec.glide_rounds else [Line(start, target, True, False)]
        lines.update((step.since, step) for step in steps if step.since <= rounds)  # a glide may outlast its query
        if stream.uniform() >= spec.silent_share:
            signals.append(start + stream.integer(-spec.lead_rounds, spec.lag_rounds))
    if bursts:
        signals += range(1 + stream.integer(1, spec.burst_every), rounds + 1, spec.burst_every)
    return announced(lines, [min(max(2, signal), rounds) for signal in signals])


def announced(lines: dict[int, Line], signals: list[int]) -> list[Line]:
    """Return the lines in order with the signals added: a signal between two changes is a line that changes nothing."""
    out: list[Line] = []
    for since in sorted({*lines, *signals}):
        line = lines.get(since) or replace(out[-1], since=since, event=False)
        out.append(replace(line, signal=since in signals))
    return out


@world.register(Shifts)
def _(spec: Shifts, seed: int) -> World:
    shares = traffic_shares(spec.queries, spec.impressions, spec.order, spec.zipf_exponent)
    lottery = Stream(split(seed, "shifting")).choose(spec.queries, spec.queries)
    shifting = round(spec.shifting_share * spec.queries)
    bursting = set(lottery[shifting : shifting + round(spec.bursting_share * spec.queries)])
    movers = set(lottery[:shifting])
    histories = [
        draw_history(spec, Stream(split(seed, "query", query)), int(shares[query]), query in movers, query in bursting)
        for query in range(spec.queries)
    ]
    stream = Stream(split(seed, "scene"))
    size = capacity("features", spec.features)
    padding = [0.0] * (size - spec.features)
    return assemble(
        spec,
        seed,
        arms=spec.results,
        features=spec.features,
        histories=histories,
        schedule=arrange(shares, spec.order, seed),
        scene=[("edge", "f8", size), ("phase", "f8", size)],
        facts={
            "edge": [stream.uniform(spec.edge_low, spec.edge_high) for _ in range(spec.features)] + padding,
            "phase": [stream.uniform() for _ in range(spec.features)] + padding,
        },
    )


@kernel
def edge_of(spec, scene, cursor, j):
    """Return the current upper edge of the box of quiet contexts."""
    if spec.edge_drift == 0.0:
        return scene.edge[j]
    return scene.edge[j] + spec.edge_drift * math.sin(2.0 * math.pi * (cursor.t / spec.season_rounds + scene.phase[j]))


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
