"""The lower-bound families: the statements of the theorems, checked on drawn worlds and on runs."""

import doctest
import itertools
import math
from fractions import Fraction
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swerve import BWC, UCB1, Learner, Oracle, Rectangle, SpecError, SwerveError, Testable, simulate
from swerve.core.spec import pack
from swerve.core.verbs import MARKERS
from swerve.environments import FalsePositives, ManyPhases, OutsideClass, SingleEvent, lower_bound, world
from swerve.environments.worlds import NEVER, advance, click, context
from swerve.theory import finite_diameter, play, test_length, theorem5

GAP = math.tanh(1 / 6) / 2
SMALL = [
    SingleEvent(horizon=150, instance=5, features=3),
    ManyPhases(horizon=150, arms=4, phases=7, features=2),
    FalsePositives(horizon=150, features=2, margin=0.3, instance=3),
    OutsideClass(horizon=150, instance=5, features=3),
]


def rounds(params, scene, segments, cursors, arm, xs, told, clicks):
    """Play the environment's part of every round, without a policy."""
    for t in range(len(xs)):
        told[t] = advance(params[0], scene[0], segments, cursors[0])
        context(params[0], scene[0], cursors[0], told[t], xs[t])
        clicks[t] = click(params[0], scene[0], segments, cursors[0], arm)


compiled_rounds = numba.njit(rounds)


def recorded(spec, seed=0, arm=1, play=compiled_rounds):
    """Return contexts, events and the clicks of one arm over the whole horizon."""
    drawn = world(spec, seed)
    xs = np.full((spec.horizon, drawn.features), np.nan)
    told, clicks = np.zeros(spec.horizon, np.int64), np.zeros(spec.horizon, np.int64)
    play(pack(spec), drawn.scene, drawn.segments, drawn.cursors.copy(), arm, xs, told, clicks)
    return xs, told, clicks


def bwc(horizon, epsilon, margin=0.1):
    return BWC(Testable(UCB1(), length=test_length(2, epsilon, horizon), epsilon=epsilon), Rectangle(margin=margin))


@pytest.mark.slow
def test_page(monkeypatch):
    for verb in (world, context):  # the page registers its own environment: remove it afterwards
        monkeypatch.setattr(verb, "implementations", dict(verb.implementations))
    known = set(MARKERS)
    page = Path(__file__).parents[2] / "docs" / "environments.md"
    # compiled code of a module without source stays in memory: old code of an edited page never runs
    failed, attempted = doctest.testfile(str(page), module_relative=False, encoding="utf-8", globs={"__name__": "page"})
    for marker in set(MARKERS) - known:
        del MARKERS[marker]
    assert failed == 0
    assert attempted > 0


# --- all families -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SMALL, ids=lambda spec: type(spec).__name__)
def test_one_query_plays_the_whole_horizon(spec):
    drawn = world(spec, 3)
    assert drawn.queries == 1
    assert drawn.rounds.tolist() == [spec.horizon] == [spec.rounds_per_query]
    assert drawn.schedule.dtype == np.int32
    assert not drawn.schedule.any()
    xs, told, _ = recorded(spec, 3)
    assert np.abs(xs).max() <= 1.0  # no feature was left unwritten: NaN fails too
    assert (np.flatnonzero(told) + 1).tolist() == drawn.segments["since"][1:].tolist()


@pytest.mark.parametrize("spec", SMALL, ids=lambda spec: type(spec).__name__)
def test_compiled_equals_interpreted(spec):
    for one, other in zip(recorded(spec), recorded(spec, play=rounds), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("spec", SMALL, ids=lambda spec: type(spec).__name__)
def test_a_test_longer_than_the_horizon_is_refused(spec):
    with pytest.raises(SwerveError, match="L = 200 is not allowed"):
        simulate(BWC(Testable(UCB1(), length=200), Rectangle()), spec, runs=1)


@pytest.mark.parametrize(
    ("cls", "fields", "message"),
    [
        (SingleEvent, {"instance": 1}, "instance = 1 is not allowed; instance must be 0 .no event. or in .2, 100."),
        (SingleEvent, {"instance": 101}, "instance = 101 .* in .2, 100."),
        (SingleEvent, {"horizon": 3}, "horizon = 3 "),
        (SingleEvent, {"epsilon": 0.5}, "epsilon = 0.5 .* in .0, 0.5."),
        (SingleEvent, {"epsilon": 0.0}, "epsilon = 0.0 "),
        (SingleEvent, {"edge": 0.95}, "edge = 0.95 .* in .0, 0.9."),
        (SingleEvent, {"edge": 0.0}, "edge = 0.0 "),
        (SingleEvent, {"margin": 0.0}, "margin = 0.0 "),
        (ManyPhases, {"epsilon": 0.25}, "epsilon = 0.25 .* in .0, 0.25."),
        (ManyPhases, {"arms": 2}, "arms = 2 .* in .3, 64."),
        (ManyPhases, {"phases": 0}, "phases = 0 "),
        (ManyPhases, {"horizon": 9, "phases": 10}, "phases = 10 .* ≤ horizon = 9"),
        (ManyPhases, {"edge": 0.95}, "edge = 0.95 "),
        (FalsePositives, {"instance": 1}, "instance = 1 .* in .2, 16."),
        (FalsePositives, {"instance": 17}, "instance = 17 .* in .2, 16."),
        (FalsePositives, {"horizon": 7}, "horizon = 7 "),
        (FalsePositives, {"margin": 1.5}, "margin = 1.5 "),
        (OutsideClass, {"instance": 1}, "instance = 1 .* in .2, 100."),
        (OutsideClass, {"margin": 0.5}, "margin = 0.5 "),
    ],
)
def test_bad_fields_are_refused_in_one_line(cls, fields, message):
    with pytest.raises(SpecError, match=message) as error:
        cls(**fields)
    assert str(error.value).startswith(f"{cls.__name__}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cls", [SingleEvent, OutsideClass])
@pytest.mark.parametrize("instance", [2, 7, 31])
def test_an_instance_is_instance_0_until_its_event(cls, instance):
    """The proof needs this: before phase i, rounds, contexts and clicks of instances i and 0 are identical."""
    quiet, eventful = cls(horizon=1000, instance=0), cls(horizon=1000, instance=instance)
    start = (instance - 1) * 31  # rounds before the event
    xs, told, clicks = recorded(quiet, 5)
    other_xs, other_told, other_clicks = recorded(eventful, 5)
    assert told.sum() == 0
    assert np.flatnonzero(other_told).tolist() == [start]
    assert xs[:start].tobytes() == other_xs[:start].tobytes()
    assert not np.array_equal(xs[start], other_xs[start])
    assert xs[start + 1 :].tobytes() == other_xs[start + 1 :].tobytes()
    assert clicks[:start].tobytes() == other_clicks[:start].tobytes()
    # one uniform per round decides in both: the better z is clicked whenever the worse one is, and more often
    assert (other_clicks[start:] >= clicks[start:]).all()
    assert other_clicks[start:].sum() > clicks[start:].sum()
    assert recorded(quiet, 5, arm=0)[2].tobytes() == recorded(eventful, 5, arm=0)[2].tobytes()


# --- Theorem 5 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [SingleEvent, OutsideClass])
@pytest.mark.parametrize(("horizon", "n"), [(4, 2), (100, 10), (120, 10), (121, 11), (10**6, 1000)])
@pytest.mark.parametrize("epsilon", [0.1, 0.4])
def test_single_event_is_as_the_theorem_says(cls, horizon, n, epsilon):
    for instance in {2, n}:
        drawn = world(cls(horizon=horizon, epsilon=epsilon, instance=instance), 0)
        assert drawn.k == 1
        assert drawn.distance == (instance - 1) * n
        assert drawn.segments["since"].tolist() == [1, (instance - 1) * n + 1]
        assert drawn.shift == pytest.approx(epsilon, rel=1e-12)
        assert drawn.gap == pytest.approx(epsilon, rel=1e-12)
    still = world(cls(horizon=horizon, epsilon=epsilon, instance=0), 0)
    assert still.k == 0
    assert still.distance == NEVER
    assert still.gap == pytest.approx(epsilon, rel=1e-12)
    assert still.chances[0].tolist() == [0.5, 0.5 - epsilon]


@pytest.mark.parametrize(("edge", "margin"), [(0.8, 0.1), (0.9, 0.1), (0.7, 0.1), (0.1, 0.2), (0.5, 0.5), (0.3, 0.7)])
@pytest.mark.parametrize("cls", [SingleEvent, ManyPhases])
def test_the_oracle_is_a_rectangle_with_margin(cls, edge, margin):
    """A classifier that knows the whole quiet box, corners included, must be positive on every event."""
    which = set()
    for seed in range(20):
        spec = cls(horizon=400, features=2, edge=edge, margin=margin)
        xs, told, _ = recorded(spec, seed)
        quiet, events = xs[told == 0], xs[told == 1]
        far = float(world(spec, seed).scene["edge"][0])
        assert edge - 1e-15 <= far <= edge
        assert len(events) == world(spec, seed).k > 0
        assert quiet.min() >= 0.0
        assert quiet.max() <= far
        assert quiet.max() > 0.95 * edge
        assert abs(quiet.mean() - edge / 2) < 0.05 * edge
        box = Learner(Rectangle(margin=margin), d=2)
        box.learn([0.0, 0.0])
        box.learn([far, far])
        assert all(box.predict(x) for x in events)
        assert not any(box.predict(x) for x in quiet)
        assert ((events > edge).sum(axis=1) == 1).all()
        which |= set((events > edge).argmax(axis=1).tolist())
    assert which == {0, 1}  # every feature occurs


def worst(policy, horizon, instances, runs=8):
    """Return the mean regret on the worst of these instances."""
    specs = [SingleEvent(horizon=horizon, epsilon=0.4, instance=i) for i in instances]
    return max(simulate(policy, spec, runs=runs, points=1).regret.mean() for spec in specs)


def test_only_who_reads_contexts_escapes_theorem_5():
    """A short form of the slow test: growth of the worst instance's regret from 10⁴ to 10⁵ rounds, and the theorem itself."""
    regret = {}
    for horizon, instances in ((10**4, [0, 2, 50, 75]), (10**5, [0, 2, 158, 237])):
        regret["ucb1", horizon] = worst(UCB1(), horizon, instances)
        regret["bwc", horizon] = worst(bwc(horizon, 0.4), horizon, instances)
        assert regret["ucb1", horizon] >= theorem5(horizon, 0.4)
    growth = {name: math.log10(regret[name, 10**5] / regret[name, 10**4]) for name in ("ucb1", "bwc")}
    assert growth["ucb1"] >= 0.6
    assert growth["bwc"] <= 0.25


# --- Theorem 6 (i) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("horizon", "arms", "phases", "epsilon"), [(1000, 3, 7, 0.2), (10, 5, 10, 0.1), (1000, 64, 1, 0.2)])
def test_many_phases_is_as_the_theorem_says(horizon, arms, phases, epsilon):
    for seed in range(10):
        drawn = world(ManyPhases(horizon=horizon, arms=arms, phases=phases, epsilon=epsilon), seed)
        assert drawn.arms == arms
        assert drawn.k == phases - 1
        assert drawn.segments["since"].tolist() == [1 + i * (horizon // phases) for i in range(phases)]
        assert drawn.distance == (horizon // phases if phases > 1 else NEVER)
        best = drawn.chances.argmax(axis=1)
        assert (np.diff(best) != 0).all()
        assert sorted(set(drawn.chances.ravel().tolist())) == [0.5 - epsilon, 0.5 + epsilon]
        assert ((drawn.chances > 0.5).sum(axis=1) == 1).all()
        assert drawn.gap == pytest.approx(2 * epsilon, rel=1e-12)
        assert drawn.shift == (pytest.approx(2 * epsilon, rel=1e-12) if phases > 1 else math.inf)


def test_the_next_best_arm_is_any_other():
    best = world(ManyPhases(horizon=3000, arms=3, phases=3000), 1).chances.argmax(axis=1)
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (best[:-1], best[1:]), 1)
    off = pairs[~np.eye(3, dtype=bool)]
    assert np.diag(pairs).sum() == 0
    assert abs(off / off.sum() - 1 / 6).max() < 0.03
    first = {int(world(ManyPhases(horizon=10, arms=3, phases=2), seed).chances[0].argmax()) for seed in range(20)}
    assert first == {0, 1, 2}


def test_every_phase_is_a_fresh_search():
    """Even a policy that is told of every event pays k times for k phases of equal length."""
    one, eight = (
        simulate(Oracle(UCB1()), ManyPhases(horizon=4000 * k, arms=4, phases=k), runs=16, points=1).regret.mean() for k in (1, 8)
    )
    assert 7.0 < eight / one < 9.0


# --- Theorem 6 (ii) -----------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.one_of(st.floats(0.005, 1.0), st.integers(1, 200).map(lambda n: 1 / n)))
def test_steps_are_the_smallest_that_the_rectangle_sees(margin):
    """In exact arithmetic: each step is ≥ δ, the next smaller float would be < δ, and one more step leaves the ball."""
    spec, exact, heights = FalsePositives(margin=margin, instance=0), Fraction(margin), []
    while len(heights) < spec.steps:
        heights.append(lower_bound.climb(heights[-1] if heights else 0.0, margin))
    for low, high in itertools.pairwise([0.0, *heights]):
        assert high - low >= margin
        assert Fraction(high) - Fraction(low) >= exact
        assert math.nextafter(high, 0.0) - low < margin
    assert heights[-1] <= 1.0 < lower_bound.climb(heights[-1], margin)
    assert 1 // exact - 1 <= spec.steps <= 1 // exact
    if 1 / exact - 1 // exact > 1e-9:  # except near whole numbers, where rounding may cost the last step
        assert spec.steps == 1 // exact


@pytest.mark.parametrize(("d", "margin"), [(1, 0.5), (1, 0.25), (2, 1.0), (2, 0.5), (1, 0.4)])
def test_diameter_is_that_of_the_class(d, margin):
    """The formula equals the longest sequence found by search, on a grid that contains the walk."""
    line = [margin * k for k in range(-FalsePositives(margin=margin).steps, FalsePositives(margin=margin).steps + 1)]
    contexts = list(itertools.product(line, repeat=d))
    sides = [(low, high) for low in line for high in line if low <= 0.0 <= high]

    def label(concept, x):
        distance = max(max(low - v, v - high, 0.0) for (low, high), v in zip(concept, x, strict=True))
        return -1 if distance == 0.0 else 1 if distance >= margin - 1e-12 else 0

    matrix = [[label(concept, x) for x in contexts] for concept in itertools.product(sides, repeat=d)]
    assert finite_diameter(matrix) == FalsePositives(features=d, margin=margin, instance=0).diameter


@pytest.mark.parametrize(
    ("horizon", "features", "margin", "phases"),
    [(8, 1, 0.125, 2), (1000, 1, 0.125, 10), (999, 1, 0.125, 9), (1000, 1, 0.5, 4), (10**6, 3, 0.3, 18), (343, 64, 0.1, 7)],
)
def test_false_positives_is_as_the_theorem_says(horizon, features, margin, phases):
    spec = FalsePositives(horizon=horizon, features=features, margin=margin, instance=phases)
    assert spec.phases == phases
    assert spec.length == horizon // phases
    drawn = world(spec, 0)
    assert drawn.k == 1
    assert drawn.segments["since"].tolist() == [1, (phases - 1) * (horizon // phases) + 1]
    assert drawn.shift == pytest.approx(GAP, rel=1e-12)
    assert drawn.gap == pytest.approx(GAP, rel=1e-12)
    odds = drawn.chances / (1 - drawn.chances)
    assert np.log(odds).ravel().tolist() == pytest.approx([0, -1 / 3, 0, 1 / 3], abs=1e-12)
    assert world(FalsePositives(horizon=horizon, features=features, margin=margin, instance=0), 0).k == 0


@pytest.mark.parametrize("instance", [2, 4, 8])
def test_contexts_agree_through_phase_i(instance):
    """The appendix's Claim: instances 0 and i show the same contexts through phase i; after it, i is quiet."""
    xs, _, clicks = recorded(FalsePositives(horizon=1003, margin=0.25, instance=0))
    other_xs, told, other_clicks = recorded(FalsePositives(horizon=1003, margin=0.25, instance=instance))
    end = instance * 125
    assert xs[:end].tobytes() == other_xs[:end].tobytes()
    assert not other_xs[end:].any()
    assert clicks[: end - 125].tobytes() == other_clicks[: end - 125].tobytes()
    assert np.flatnonzero(told).tolist() == [end - 125]
    # instance 0 signals at the start of each of the 8 phases, and not in the 3 remaining rounds
    assert np.flatnonzero(xs.any(axis=1)).tolist() == [125 * j for j in range(8)]


@pytest.mark.parametrize(("features", "margin"), [(1, 0.25), (2, 0.4), (3, 0.5), (1, 0.1), (2, 1.0)])
def test_a_rectangle_falls_for_every_signal(features, margin):
    """On instance 0 there are N false positives if the origin is known to be quiet, and N + 1 otherwise."""
    spec = FalsePositives(horizon=30_000, features=features, margin=margin, instance=0)
    assert spec.phases == spec.diameter
    xs = recorded(spec)[0]
    signals = np.flatnonzero(xs.any(axis=1))
    xs = xs[np.sort(np.r_[signals, signals + 1])]  # each signal and the quiet round after it; the other rounds repeat the quiet one
    assert len(xs) == 2 * spec.phases
    knows = Learner(Rectangle(margin=margin), d=features)
    knows.learn(np.zeros(features))
    assert play(knows, xs, lambda x: -1).false_positives == spec.diameter
    assert play(Learner(Rectangle(margin=margin), d=features), xs, lambda x: -1).false_positives == spec.diameter + 1
    assert all(not knows.predict(x) for x in xs)
    corners = itertools.product((-1.0, 1.0), repeat=features)
    assert not any(knows.predict(x) for x in corners)  # no point of the ball is positive any more, so no sequence is longer


@pytest.mark.parametrize("instance", [2, 3, 7])
def test_the_event_is_consistent_with_all_signals_before_it(instance):
    """The oracle is the smallest rectangle around the origin and the earlier signals: i − 1 false positives, then the event."""
    xs, told, _ = recorded(FalsePositives(horizon=1000, features=2, margin=0.4, instance=instance))
    low, high = xs[told == 0].min(axis=0), xs[told == 0].max(axis=0)
    assert (low <= 0).all()
    assert (high >= 0).all()

    def oracle(x):
        distance = max((low - x).max(), (x - high).max())
        return -1 if distance <= 0 else 1 if distance >= 0.4 else None

    assert [oracle(x) for x in xs] == [1 if event else -1 for event in told]
    knows = Learner(Rectangle(margin=0.4), d=2)
    knows.learn([0.0, 0.0])
    assert play(knows, xs, oracle) == (instance - 1, 0, 1)


@pytest.mark.parametrize("instance", [0, 2, 4])
def test_bwc_pays_for_every_signal_and_never_misses(instance):
    """Four phases, each longer than 2L. Phase 1 begins inside the first test, but BWC must learn the origin instead."""
    results = simulate(bwc(200_000, GAP, 0.5), FalsePositives(horizon=200_000, margin=0.5, instance=instance), runs=5, points=1)
    assert results.count("false_alarms").tolist() == [(instance or 5) - 1] * 5
    assert results.count("true_alarms").tolist() == results.count("events").tolist() == [1 if instance else 0] * 5
    assert results.count("wrong_false_labels").sum() == results.count("misses").sum() == 0


# --- an oracle outside the class ----------------------------------------------------------------------------------------


def test_outside_class_surrounds_the_event():
    xs, told, _ = recorded(OutsideClass(horizon=4000, instance=30, features=2, margin=0.15))
    quiet = xs[told == 0]
    assert xs[told == 1].tolist() == [[0.5, 0.5]]
    assert (abs(quiet - 0.5) >= 0.15 - 1e-15).all()
    assert quiet.min() >= 0.0
    assert quiet.max() <= 1.0
    sides = quiet > 0.5
    assert abs(sides.mean(axis=0) - 0.5).max() < 0.04
    assert abs((sides[:, 0] == sides[:, 1]).mean() - 0.5) < 0.04
    for side in (quiet[~sides], 1.0 - quiet[sides]):  # both sides are uniform in [0, 0.35]
        assert abs(side.mean() - 0.175) < 0.01
        assert side.min() < 0.01
        assert side.max() > 0.34


def test_no_rectangle_is_negative_on_both_sides_and_positive_on_the_event():
    """The event lies between any two quiet contexts from opposite corners, so SafeCl must be negative on it."""
    xs, told, _ = recorded(OutsideClass(horizon=1000, instance=20, features=2))
    lower, upper = xs[(xs < 0.5).all(axis=1)], xs[(xs > 0.5).all(axis=1)]
    assert min(len(lower), len(upper)) > 100
    for one, other in zip(lower, upper, strict=False):
        box = Learner(Rectangle(margin=1e-6), d=2)
        box.learn(one)
        box.learn(other)
        assert not box.predict(xs[told == 1][0])


def test_bwc_misses_what_is_outside_its_class():
    policy = bwc(10_000, 0.4)
    outside = simulate(policy, OutsideClass(horizon=10_000, instance=60), runs=20, points=1)
    inside = simulate(policy, SingleEvent(horizon=10_000, instance=60), runs=20, points=1)
    assert outside.count("misses").sum() >= 15
    assert outside.count("wrong_false_labels").sum() == 0
    assert inside.count("misses").sum() == 0
    assert inside.count("true_alarms").sum() >= 19
