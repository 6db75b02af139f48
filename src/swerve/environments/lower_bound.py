"""The paper's lower bounds as problems: families of instances on which some algorithms, or all, must do badly.

All have one query and `horizon` rounds, divided into phases of equal length; leftover rounds extend the last phase. The seed of a
family determines clicks and contexts. The instance is a field, so that instances can be compared round by round: two instances of
one family with one seed have the same contexts and the same click draws until they diverge.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from swerve.core.rng import GOLDEN, Stream, at, mix, split, unit, wrap_add
from swerve.core.spec import Count, Natural, Probability, Range, Spec
from swerve.core.tables import CAPACITIES
from swerve.core.verbs import kernel
from swerve.environments.worlds import World, assemble, context, world
from swerve.theory.bounds import cube_root

RATIO = math.exp(1 / 3)  # Theorem 6 (ii): the odds of a click on arm z are 1 : RATIO before the event, RATIO : 1 after it

Half = Annotated[float, Range(0.0, 0.5, open_low=True, open_high=True)]
Quarter = Annotated[float, Range(0.0, 0.25, open_low=True, open_high=True)]
Features = Annotated[int, Range(1, CAPACITIES[-1])]
Margin = Annotated[float, Range(0.0, 1.0, open_low=True, open_high=True)]

History = list[tuple[int, list[float]]]


class SingleEvent(Spec):
    """One event at an unknown time: without contexts no algorithm can be both prepared for it and economical.

    N = ⌊√T⌋ phases of N rounds, arms y (number 0) and z (number 1). p(y) = 1/2; p(z) = 1/2 − ε, and 1/2 + ε from the first round of
    phase `instance` on. That round is the event. ε_S = Δ = ε. Instance 0 has no event; instance 1 is refused, because round 1 has
    no previous round to differ from. The T − N² leftover rounds extend phase N.

    An algorithm that ignores contexts either plays z in most phases of instance 0, or is late in an instance whose phase it
    skipped: regret Ω(ε√T). Contexts would help: quiet ones are uniform in [0, edge]^d, and the event's has one feature at least
    `margin` above the edge, so the oracle is a rectangle of APR(d, margin).

    Paper: Theorem 5.

    >>> from swerve.environments import world
    >>> instance = world(SingleEvent(horizon=10_000, epsilon=0.4, instance=3), 0)
    >>> instance.k, instance.segments["since"].tolist(), instance.chances.tolist()
    (1, [1, 201], [[0.5, 0.09999999999999998], [0.5, 0.9]])
    """

    horizon: Annotated[int, Range(4)] = 10_000
    epsilon: Half = 0.4
    instance: Count = 2
    features: Features = 1
    margin: Margin = 0.1
    edge: Probability = 0.8

    def check(self) -> None:
        check_edge(self, self.edge, self.margin)
        check_instance(self, self.instance, self.phases)

    @property
    def phases(self) -> int:
        """Return N, which is also the length of a phase."""
        return math.isqrt(self.horizon)

    @property
    def rounds_per_query(self) -> int:
        """Return T: there is one query."""
        return self.horizon


class ManyPhases(Spec):
    """k phases, each with its own best arm: even an algorithm that is told when they begin must search again in each.

    `phases` = k phases of ⌊T/k⌋ rounds. In each, one arm has p = 1/2 + ε and all others 1/2 − ε; the seed determines the best arms,
    never the same twice in a row. k phases make k − 1 events, and the gaps are ε_S = Δ = 2ε. Leftover rounds extend phase k.

    Every algorithm has regret Ω(k · n/ε) · ln(T/k) on some instance. Contexts are those of `SingleEvent`.

    Paper: Theorem 6 (i).

    >>> from swerve.environments import world
    >>> instance = world(ManyPhases(horizon=1000, arms=3, phases=4, epsilon=0.125), 0)
    >>> instance.k, instance.shift, instance.gap, instance.distance
    (3, 0.25, 0.25, 250)
    """

    horizon: Natural = 100_000
    arms: Annotated[int, Range(3, CAPACITIES[-1])] = 5
    phases: Natural = 10
    epsilon: Quarter = 0.2
    features: Features = 1
    margin: Margin = 0.1
    edge: Probability = 0.8

    def check(self) -> None:
        check_edge(self, self.edge, self.margin)
        if self.phases > self.horizon:
            self.refuse("phases", f"≤ horizon = {self.horizon}, or a phase has no round")

    @property
    def rounds_per_query(self) -> int:
        """Return T: there is one query."""
        return self.horizon


class FalsePositives(Spec):
    """A class of diameter d_F makes every algorithm examine d_F contexts that may be events: it pays for each, or for the event.

    N = min(d_F, ⌊T^(1/3)⌋) phases of ⌊T/N⌋ rounds, arms y (number 0) and z (number 1). p(y) = 1/2; p(z) = 1/(1 + e^(1/3)), and
    e^(1/3)/(1 + e^(1/3)) from the first round of phase `instance` on. ε_S = Δ = tanh(1/6)/2 ≈ 0.083. Instance 0 has no event,
    instance 1 is refused (see `SingleEvent`). Leftover rounds extend phase N.

    The class consists of the rectangles with margin δ that contain the origin, on [−1, 1]^d. So x⁻ = 0 is negative for every
    concept. It is the context of all rounds except the first round of each phase j ≤ i in instance i (of every phase in instance
    0). These have the context y_j, which lies one step of δ further outward along one half of an axis than any context before: y_1,
    …, y_m go up the first axis, the next m go down it, and so on. The first round of a phase j < i is a false positive, that of
    phase i the event: the smallest rectangle around 0, y_1, …, y_{i−1} is a concept that is −1 on all of these and +1 on y_i.

    d_F = 2·d·m, where m = ⌊1/δ⌋ steps lead from 0 to 1. Not more: y_j must be at distance ≥ δ from the smallest rectangle R around
    0 and all earlier contexts, or every concept that is −1 on those is not +1 on y_j. So y_j moves one of the 2d faces of R by δ or
    more. Faces start at 0, never move back and end at ±1 at the latest: m times each. Not fewer: the sequence moves each face m
    times. Steps are taken in floats as `Rectangle` measures them: the smallest y with y − high ≥ δ. Where 1/δ is whole but δ is
    above its reciprocal in binary (0.1), the last step would leave the ball by rounding, and m is one less (9).

    Every algorithm has regret Ω(min(T^(1/3), d_F·ln T)) on some instance. `Rectangle` does not know that the origin is negative and
    pays one more false positive to learn it.

    Paper: Theorem 6 (ii), appendix.

    >>> family = FalsePositives(horizon=1000, features=1, margin=0.5, instance=3)
    >>> family.diameter, family.phases, family.length
    (4, 4, 250)
    """

    horizon: Annotated[int, Range(8)] = 100_000
    features: Features = 1
    margin: Annotated[float, Range(0.001, 1.0)] = 0.125
    instance: Count = 2

    def check(self) -> None:
        check_instance(self, self.instance, self.phases)

    @property
    def steps(self) -> int:
        """Return m, the number of steps of δ from the origin to the edge of the ball."""
        taken, high = 0, climb(0.0, self.margin)
        while high <= 1.0:
            taken, high = taken + 1, climb(high, self.margin)
        return taken

    @property
    def diameter(self) -> int:
        """Return d_F of rectangles with this margin that contain the origin."""
        return 2 * self.features * self.steps

    @property
    def phases(self) -> int:
        """Return N = min(d_F, ⌊T^(1/3)⌋)."""
        return min(self.diameter, cube_root(self.horizon))

    @property
    def length(self) -> int:
        """Return the rounds of a phase."""
        return self.horizon // self.phases

    @property
    def rounds_per_query(self) -> int:
        """Return T: there is one query."""
        return self.horizon


class OutsideClass(Spec):
    """One event whose context no rectangle can tell from the quiet ones: a safe classifier for rectangles learns to miss it.

    Arms, phases and instances are those of `SingleEvent`. In a quiet context each feature lies in [0, 1/2 − margin] or in
    [1/2 + margin, 1], with equal probability; the event's context is 1/2 everywhere. The oracle is simple (is the context near the
    middle?), but a rectangle that contains quiet contexts of both sides also contains the event's: f is not in the class.

    So BWC with `Rectangle` loses its guarantee: once both sides were false positives, the event is called negative, and BWC must
    detect it from clicks alone, like the algorithms of Theorem 5.

    Paper: remark before Theorem 5.

    >>> from swerve import Learner, Rectangle
    >>> box = Learner(Rectangle(margin=0.1), d=1)
    >>> box.learn([0.3]), box.learn([0.7]), box.predict([0.5])
    (None, None, False)
    """

    horizon: Annotated[int, Range(4)] = 10_000
    epsilon: Half = 0.4
    instance: Count = 2
    features: Features = 1
    margin: Half = 0.15

    def check(self) -> None:
        check_instance(self, self.instance, self.phases)

    @property
    def phases(self) -> int:
        """Return N = ⌊√T⌋, which is also the length of a phase."""
        return math.isqrt(self.horizon)

    @property
    def rounds_per_query(self) -> int:
        """Return T: there is one query."""
        return self.horizon


# ---------------------------------------------------------------- instances
def check_instance(spec: Spec, instance: int, phases: int) -> None:
    """Refuse an instance whose event is in round 1 or after the last phase."""
    if instance == 1 or instance > phases:
        spec.refuse("instance", f"0 (no event) or in [2, {phases}] (the phase that begins with it: round 1 has no round before it)")


def check_edge(spec: Spec, edge: float, margin: float) -> None:
    """Refuse a box that is empty or leaves no room for an event's context."""
    if not 0.0 < edge <= 1.0 - margin:
        spec.refuse("edge", f"in (0, {1.0 - margin:g}], or there is no room on one side of it (margin = {margin:g})")


def one_event(start: int, before: float, after: float, instance: int) -> History:
    """Return a history: arm y at 1/2 throughout, arm z from `before` to `after` in round `start`; instance 0 has no event."""
    history = [(1, [0.5, before])]
    if instance > 0:
        history.append((start, [0.5, after]))
    return history


def one_query(spec: Any, seed: int, arms: int, history: History, facts: dict[str, float | int]) -> World:
    """Return the world of a single query, with the facts that its contexts need."""
    return assemble(
        spec,
        seed,
        arms=arms,
        features=spec.features,
        histories=[history],
        schedule=np.zeros(spec.horizon, np.int32),
        scene=[(name, "f8" if isinstance(fact, float) else "i8") for name, fact in facts.items()],
        facts=facts,
    )


def box(edge: float, margin: float) -> dict[str, float | int]:
    """Return the edge of quiet contexts and the start of an event's, at a distance ≥ margin as `Rectangle` computes it."""
    outside = min(1.0, edge + margin)
    while outside - edge < margin:  # 0.9 − 0.8 < 0.1 in floats: shrink the box, because the ball is fixed
        edge = math.nextafter(edge, 0.0)
    return {"edge": edge, "outside": outside}


@world.register(SingleEvent)
def _(spec: SingleEvent, seed: int) -> World:
    start = (spec.instance - 1) * spec.phases + 1
    history = one_event(start, 0.5 - spec.epsilon, 0.5 + spec.epsilon, spec.instance)
    return one_query(spec, seed, 2, history, box(spec.edge, spec.margin))


@world.register(ManyPhases)
def _(spec: ManyPhases, seed: int) -> World:
    stream = Stream(split(seed, "best"))
    best = stream.integer(0, spec.arms - 1)
    history: History = []
    for i in range(spec.phases):
        if i > 0:
            best = (best + stream.integer(1, spec.arms - 1)) % spec.arms  # any arm but the one before
        chances = [0.5 + spec.epsilon if arm == best else 0.5 - spec.epsilon for arm in range(spec.arms)]
        history.append((1 + i * (spec.horizon // spec.phases), chances))
    return one_query(spec, seed, spec.arms, history, box(spec.edge, spec.margin))


@world.register(FalsePositives)
def _(spec: FalsePositives, seed: int) -> World:
    start = (spec.instance - 1) * spec.length + 1
    history = one_event(start, 1.0 / (1.0 + RATIO), RATIO / (1.0 + RATIO), spec.instance)
    signalled = spec.instance if spec.instance > 0 else spec.phases
    return one_query(spec, seed, 2, history, {"length": spec.length, "signalled": signalled, "steps": spec.steps})


@world.register(OutsideClass)
def _(spec: OutsideClass, seed: int) -> World:
    start = (spec.instance - 1) * spec.phases + 1
    history = one_event(start, 0.5 - spec.epsilon, 0.5 + spec.epsilon, spec.instance)
    return one_query(spec, seed, 2, history, {"reach": 0.5 - spec.margin})


# ---------------------------------------------------------------- contexts
@kernel
def climb(high: float, margin: float) -> float:
    """Return the smallest number whose distance from `high` ≥ 0 is at least `margin` in float arithmetic."""
    x = high + margin
    # x and high are 0 and δ, or within a factor of two of each other: x − high is exact, and only the sum can have been rounded
    return x if x - high >= margin else float(np.nextafter(x, np.inf))


@context.register(SingleEvent)
@context.register(ManyPhases)
def _(spec, scene, cursor, event, x):
    key = at(cursor.contexts, cursor.t)
    word = key
    for j in range(len(x)):
        word = wrap_add(word, GOLDEN)
        x[j] = unit(mix(word)) * scene.edge
    if event != 0:
        x[int(unit(key) * len(x))] = scene.outside + unit(mix(wrap_add(word, GOLDEN))) * (1.0 - scene.outside)


@context.register(FalsePositives)
def _(spec, scene, cursor, event, x):
    for j in range(len(x)):
        x[j] = 0.0
    number = (cursor.t - 1) // scene.length  # the phase, counted from 0
    if number < scene.signalled and number * scene.length == cursor.t - 1:
        face = number // scene.steps
        height = 0.0
        for _step in range(number - face * scene.steps + 1):
            height = climb(height, spec.margin)
        x[face // 2] = height if face % 2 == 0 else -height


@context.register(OutsideClass)
def _(spec, scene, cursor, event, x):
    word = at(cursor.contexts, cursor.t)
    for j in range(len(x)):
        word = wrap_add(word, GOLDEN)
        along = (2.0 * unit(mix(word)) - 1.0) * scene.reach  # in [−reach, reach): the sign is the side, the size the distance
        x[j] = 0.5 if event != 0 else (1.0 - along if along > 0.0 else -along)
