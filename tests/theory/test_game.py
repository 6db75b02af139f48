"""The game against plain twins of `SafeCl`, exhaustive search, and the diameters."""

import doctest
import itertools

import numpy as np
import pytest
from scipy.optimize import nnls

from swerve.core.errors import SpecError
from swerve.theory import game
from swerve.theory.diameters import hyperplane_diameter, line_diameter, rectangle_diameter
from swerve.theory.game import Score, cube, fp_complexity, greedy, play, quiet, sphere, staircase


class Box:
    """`SafeCl` on rectangles: negative iff closer than δ to the box around the learnt contexts."""

    def __init__(self, margin):
        self.margin, self.low, self.high = margin, np.inf, -np.inf

    def predict(self, x):
        return bool(np.any((self.low - x >= self.margin) | (x - self.high >= self.margin)))

    def learn(self, x):
        self.low, self.high = np.minimum(self.low, x), np.maximum(self.high, x)


class SumBox(Box):
    """The same test written as a sum, which rounds differently."""

    def predict(self, x):
        return bool(np.any((x <= self.low - self.margin) | (x >= self.high + self.margin)))


class Hull:
    """`SafeCl` on hyperplanes: negative iff within 2δ of the hull of the learnt contexts."""

    def __init__(self, margin):
        self.margin, self.points = margin, []

    def predict(self, x):
        if not self.points:
            return True
        points = np.array(self.points)
        weights, _ = nnls(np.vstack([(points - x).T, np.ones(len(points))]), np.r_[np.zeros(len(x)), 1.0])
        return bool(np.linalg.norm(weights @ points / weights.sum() - x) > 2 * self.margin + 1e-9)

    def learn(self, x):
        self.points.append(x.copy())


class Fixed:
    def __init__(self, answer):
        self.answer, self.learnt = answer, []

    def predict(self, x):
        return self.answer

    def learn(self, x):
        self.learnt.append(x.tolist())


def rectangle(low, high, margin):
    """Return f_{R,δ} of the paper, with null."""

    def concept(x):
        distance = np.max(np.maximum(np.maximum(low - x, x - high), 0))
        return 1 if distance >= margin else -1 if distance == 0 else None

    return concept


def hyperplane(w, u, margin):
    """Return f_{u,w,δ} of the paper, with null."""

    def concept(x):
        side = np.dot(w, x + u)
        return 1 if side >= margin else -1 if side < -margin else None

    return concept


def test_doctests():
    failed, attempted = doctest.testmod(game)
    assert failed == 0 and attempted > 0


def test_only_false_positives_are_learnt():
    truth = rectangle(np.zeros(1), np.ones(1), 0.5)
    contexts = [[0.5], [2.0], [1.0], [-0.5]]
    always, never = Fixed(True), Fixed(False)
    assert play(always, contexts, truth) == Score(false_positives=2, misses=0, true_positives=2)
    assert always.learnt == [[0.5], [1.0]]
    assert play(never, contexts, truth) == Score(false_positives=0, misses=2, true_positives=0)
    assert never.learnt == []


def test_null_contexts_are_refused():
    with pytest.raises(SpecError, match="null"):
        play(Fixed(True), [[1.2]], rectangle(np.zeros(1), np.ones(1), 0.5))
    with pytest.raises(SpecError, match="concept"):
        play(Fixed(True), [[1.2]], lambda x: 7)


# --- rectangles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", [Box, SumBox])
@pytest.mark.parametrize("d", [1, 3, 10])
@pytest.mark.parametrize("margin", [0.1, 0.3, 0.5, 2 / 3, 2 / 7, 2 / 11, 0.07, 0.013, 1.0, 2.0, 2.5])
def test_staircase_attains_the_diameter(twin, d, margin):
    contexts = list(staircase(d, margin))
    assert len(contexts) == rectangle_diameter(d, margin)
    assert np.abs(contexts).max() <= 1 + 1e-12
    one = twin(margin)
    assert play(one, contexts, quiet) == Score(rectangle_diameter(d, margin), 0, 0)
    if margin <= 2:  # the box has grown to within δ of the whole ball
        assert not any(one.predict(x) for x in cube(d, 200))


@pytest.mark.parametrize("power", [1, 2, 4, 6])
def test_staircase_stays_in_the_ball_where_the_margin_is_exact(power):
    assert np.abs(list(staircase(2, 2.0**-power))).max() == 1


def test_no_adversary_beats_the_rectangle_diameter():
    """Exhaustive on a grid of δ: every order of every context, by depth-first search over boxes."""
    for d, steps in ((1, 4), (2, 2)):
        grid = [np.array(x) for x in itertools.product(np.linspace(-1, 1, steps + 1), repeat=d)]
        seen = {}

        def worst(low, high, grid=grid, margin=2 / steps, seen=seen):
            if (low, high) not in seen:
                box = Box(margin)
                box.low, box.high = np.array(low), np.array(high)
                ways = [0]
                for x in grid:
                    if box.predict(x):
                        ways.append(1 + worst(tuple(np.minimum(low, x).tolist()), tuple(np.maximum(high, x).tolist())))
                seen[low, high] = max(ways)
            return seen[low, high]

        assert worst((np.inf,) * d, (-np.inf,) * d) == rectangle_diameter(d, 2 / steps)


def test_greedy_on_rectangles_is_between_random_and_the_diameter():
    margin, pool = 0.4, cube(2, 150, seed=1)
    blind = play(Box(margin), pool, quiet).false_positives
    clever = fp_complexity(lambda: Box(margin), [lambda one: greedy(one, pool, tries=24)])
    assert blind < clever <= rectangle_diameter(2, margin)


def test_safe_classifiers_never_miss():
    """Random oracles of each class, random feasible contexts: no misses, no more false positives than the diameter."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        ends = np.sort(rng.uniform(-1, 1, (2, 2)), axis=0)
        truth = rectangle(ends[0], ends[1], 0.3)
        score = play(Box(0.3), [x for x in rng.uniform(-1, 1, (100, 2)) if truth(x) is not None], truth)
        assert score.misses == 0 and score.true_positives > 0
        assert score.false_positives <= rectangle_diameter(2, 0.3)
    for _ in range(10):
        w = sphere(2, 1, seed=int(rng.integers(1_000)))[0]
        truth = hyperplane(w, rng.uniform(-0.5, 0.5) * w, 0.1)
        contexts = sphere(2, 60, seed=int(rng.integers(1_000))) * rng.random((60, 1)) ** 0.5
        score = play(Hull(0.1), [x for x in contexts if truth(x) is not None], truth)
        assert score.misses == 0


# --- hyperplanes ------------------------------------------------------------------------------------------------------


def test_one_concept_for_the_whole_game_can_cost_less_than_the_diameter():
    """d = 1, δ = 0.3: the diameter is 4, but a half-line of the class leaves (1 − δ, 1] out, and only 3 steps fit."""
    margin = 0.3
    truth = hyperplane(np.ones(1), -np.ones(1), margin)
    pool = np.linspace(-1, 1, 41)[:, None]
    feasible = np.array([x for x in pool if truth(x) == -1])
    assert feasible.max() < 1 - margin
    forced = fp_complexity(lambda: Hull(margin), [lambda one: greedy(one, pool, truth, tries=41)], truth)
    assert forced == 3 == hyperplane_diameter(feasible[::2][:24], margin) < line_diameter(margin) == 4


def test_greedy_on_hulls_is_at_most_the_exact_search_and_close_to_it():
    margin = 0.1
    truth = hyperplane(np.array([1.0, 0.0]), np.array([-1.0, 0.0]), margin)
    pool = sphere(2, 18, seed=3)
    feasible = np.array([x for x in pool if truth(x) == -1])
    exact = hyperplane_diameter(feasible, margin)
    forced = fp_complexity(
        lambda: Hull(margin), [lambda one, seed=seed: greedy(one, pool, truth, seed=seed) for seed in range(2)], truth
    )
    assert exact - 2 <= forced <= exact


def test_greedy_repeats_and_ends():
    pool = cube(2, 40, seed=5)
    runs = []
    for _ in range(2):
        box = Box(0.4)
        emitted = []
        for x in greedy(box, pool, seed=9):
            emitted.append(x.tolist())
            box.learn(x)
        runs.append(emitted)
    assert runs[0] == runs[1]
    assert len(list(greedy(Fixed(True), pool))) == 40, "a classifier that never learns gets each context once"


def test_pools():
    assert np.allclose(np.linalg.norm(sphere(4, 50), axis=1), 1)
    assert np.array_equal(cube(3, 5, seed=1), cube(3, 5, seed=1))
    assert not np.array_equal(cube(3, 5, seed=1), cube(3, 5, seed=2))


@pytest.mark.parametrize(
    "call",
    [
        lambda: staircase(0, 0.1),
        lambda: staircase(1, 0.0),
        lambda: greedy(Fixed(True), [1.0, 2.0]),
        lambda: greedy(Fixed(True), [[1.0]], tries=0),
        lambda: sphere(0, 5),
        lambda: cube(2, 0),
    ],
)
def test_refusals(call):
    with pytest.raises(SpecError, match="must be"):
        call()
