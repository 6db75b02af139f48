"""Diameters against brute force over all sequences, with independent arithmetic: predicates, fractions, a QP by `nnls`."""

import doctest
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import nnls

from swerve.core.errors import SpecError
from swerve.theory import diameters
from swerve.theory.diameters import finite_diameter, hyperplane_bound, hyperplane_diameter, line_diameter, rectangle_diameter


def test_doctests():
    failed, attempted = doctest.testmod(diameters)
    assert failed == 0 and attempted > 0


def longest(count, may_follow):
    """Return, by brute force, the length of the longest sequence of distinct contexts, each allowed after the earlier ones."""

    def extend(chosen):
        return max((1 + extend((*chosen, x)) for x in range(count) if x not in chosen and may_follow(chosen, x)), default=0)

    return extend(())


# --- finite classes ---------------------------------------------------------------------------------------------------


def brute_finite(matrix):
    def may_follow(chosen, x):
        return any(row[x] == 1 and all(row[s] == -1 for s in chosen) for row in matrix)

    return longest(len(matrix[0]), may_follow)


@pytest.mark.parametrize("seed", range(40))
def test_finite_class_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 9), rng.integers(1, 7)
    matrix = rng.choice([-1, 0, 1], shape, p=[0.6, 0.1, 0.3])
    assert finite_diameter(matrix) == brute_finite(matrix.tolist())


def test_finite_class_known_values():
    singletons = 2 * np.eye(40, dtype=int) - 1
    assert finite_diameter(singletons) == 40
    thresholds = np.where(np.arange(30)[None] >= np.arange(31)[:, None], 1, -1)
    assert finite_diameter(thresholds) == 30
    everything = np.array(list(itertools.product((-1, 1), repeat=6)))
    assert finite_diameter(everything) == 6
    assert finite_diameter(np.array([[1, 1, 1]])) == 1
    assert finite_diameter(np.array([[0, -1]])) == 0
    assert finite_diameter(np.zeros((0, 3), int)) == 0


def test_finite_class_ignores_copies_and_order():
    rng = np.random.default_rng(3)
    matrix = rng.choice([-1, 1], (10, 6))
    twice = np.repeat(np.repeat(matrix, 2, axis=0), 2, axis=1)
    assert finite_diameter(twice[rng.permutation(20)][:, rng.permutation(12)]) == finite_diameter(matrix)


def test_search_that_would_be_too_large():
    matrix = np.random.default_rng(4).choice([-1, 1], (40, 40), p=[0.8, 0.2])
    with pytest.raises(SpecError, match="over 50 states"):
        finite_diameter(matrix, states=50)
    with pytest.raises(SpecError, match="at most 300"):
        finite_diameter(2 * np.eye(301, dtype=int) - 1)


def test_the_deepest_allowed_class_does_not_exhaust_the_stack():
    assert finite_diameter(2 * np.eye(diameters.DEEPEST, dtype=int) - 1) == diameters.DEEPEST


# --- rectangles -------------------------------------------------------------------------------------------------------


def rectangles_on_grid(d, steps):
    """Return every rectangle of APR(d, 2/steps) with corners on the grid of steps + 1 values per feature, in units of δ."""
    contexts = list(itertools.product(range(steps + 1), repeat=d))
    intervals = list(itertools.combinations_with_replacement(range(steps + 1), 2))
    table = []
    for box in itertools.product(intervals, repeat=d):
        row = []
        for x in contexts:
            distance = max(max(low - v, v - high, 0) for v, (low, high) in zip(x, box, strict=True))
            row.append(1 if distance >= 1 else -1)
        table.append(row)
    # A rectangle may lie outside the ball: +1 everywhere.
    return [*table, [1] * len(contexts)]


@pytest.mark.parametrize(("d", "steps"), [(1, 1), (1, 2), (1, 5), (2, 1), (2, 2), (3, 1)])
def test_rectangles_equal_the_finite_search(d, steps):
    assert finite_diameter(rectangles_on_grid(d, steps)) == rectangle_diameter(d, 2 / steps) == 1 + d * steps


def test_rectangles_between_grid_steps():
    """A δ slightly above 2/m loses one step; computed with fractions."""
    for numerator, denominator in itertools.product(range(1, 12), range(1, 40)):
        margin = Fraction(numerator, denominator)
        assert rectangle_diameter(3, float(margin)) == 1 + 3 * math.floor(2 / margin)
    assert rectangle_diameter(1, 0.1 * (1 + 1e-9)) == 20
    assert rectangle_diameter(1, 0.1 * (1 - 1e-9)) == 21


def test_every_whole_number_of_steps_survives_rounding():
    assert [rectangle_diameter(1, 2 / m) - 1 for m in range(1, 2_000)] == list(range(1, 2_000))


# --- hyperplanes ------------------------------------------------------------------------------------------------------


def nnls_distance(points, x):
    """Return the distance to the hull by non-negative least squares, another method than the tested one."""
    weights, _ = nnls(np.vstack([(points - x).T, np.ones(len(points))]), np.r_[np.zeros(len(x)), 1.0])
    return float(np.linalg.norm(weights @ points / weights.sum() - x))


def brute_hyperplane(points, margin):
    def may_follow(chosen, x):
        return not chosen or nnls_distance(points[list(chosen)], points[x]) > 2 * margin + 1e-9

    return longest(len(points), may_follow)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_hyperplanes_equal_brute_force(d, seed):
    rng = np.random.default_rng([d, seed])
    points = rng.normal(size=(6, d))
    points *= (rng.random(6) ** (1 / d) / np.linalg.norm(points, axis=1))[:, None]
    for margin in (0.05, 0.15, 0.3):
        assert hyperplane_diameter(points, margin) == brute_hyperplane(points, margin)


def test_hyperplanes_with_degenerate_points():
    """Copies, points on one line, a grid: simplices without volume."""
    line = np.array([[t, t / 2] for t in (-0.8, -0.4, 0.0, 0.0, 0.4, 0.8)])
    grid = np.array(list(itertools.product((-0.5, 0.0, 0.5), repeat=2)))[:7]
    for points in (line, grid, np.zeros((4, 3)), np.full((1, 2), 0.1)):
        for margin in (0.1, 0.2, 0.24):
            assert hyperplane_diameter(points, margin) == brute_hyperplane(points, margin)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_simplex_table_gives_the_distance(d):
    rng = np.random.default_rng(d)
    points = rng.uniform(-0.5, 0.5, (9, d))
    corners, distances = diameters._simplices(points)
    for chosen in (0b111, 0b1011011, 0b11111, 0b1):
        faces = (corners & ~chosen) == 0
        hull = points[[j for j in range(9) if chosen >> j & 1]]
        for j in range(9):
            assert distances[faces, j].min() == pytest.approx(nnls_distance(hull, points[j]), abs=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_pruning_bound_is_never_below_what_fits(seed):
    """The bound is at least the size of the largest set of points no two of which are close, found by trying all sets."""
    rng = np.random.default_rng(seed)
    table = rng.random((7, 7)) < 0.35
    close = [diameters._mask(row) | 1 << j for j, row in enumerate(table | table.T)]
    fits = max(chosen.bit_count() for chosen in range(128) if all(chosen & close[j] == 1 << j for j in range(7) if chosen >> j & 1))
    assert fits <= diameters._cliques(127, close) <= 7


@pytest.mark.parametrize("margin", [0.07, 0.1, 0.15, 0.25, 0.3, 0.5, 0.7, 1.0])
def test_line_is_attained_and_never_exceeded(margin):
    m = line_diameter(margin)
    equal = np.linspace(-1, 1, m)[:, None] if m > 1 else np.zeros((1, 1))
    assert hyperplane_diameter(equal, margin) == m
    rng = np.random.default_rng(5)
    for count in (5, 12, 20):
        assert hyperplane_diameter(rng.uniform(-1, 1, (count, 1)), margin) <= m
    assert hyperplane_diameter(np.linspace(-1, 1, m + 1)[:, None], margin) <= m


def test_line_with_fractions():
    for numerator, denominator in itertools.product(range(1, 12), range(1, 40)):
        margin = Fraction(numerator, denominator)
        m = line_diameter(float(margin))
        assert (m - 1) * 2 * margin < 2 <= m * 2 * margin


def test_volume_bound_holds():
    rng = np.random.default_rng(6)
    for d, margin in itertools.product((1, 2, 3), (0.2, 0.4, 0.8)):
        points = rng.normal(size=(14, d))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        assert hyperplane_diameter(points, margin) <= hyperplane_bound(d, margin)
        assert line_diameter(margin) <= hyperplane_bound(1, margin)
    assert hyperplane_bound(4_000, 0.1) == math.inf


def test_hyperplanes_on_a_regular_polygon():
    """Twelve points on the circle: all of them while 2δ is below the height of one point above its two neighbours."""
    angles = np.arange(12) * math.tau / 12
    polygon = np.column_stack([np.cos(angles), np.sin(angles)])
    height = 1 - math.cos(math.tau / 12)
    assert hyperplane_diameter(polygon, 0.499 * height) == 12
    assert hyperplane_diameter(polygon, 0.5 * height) < 12


@pytest.mark.parametrize(
    "call",
    [
        lambda: rectangle_diameter(0, 0.1),
        lambda: rectangle_diameter(1, 0.0),
        lambda: hyperplane_bound(1, -1.0),
        lambda: line_diameter(math.nan),
        lambda: finite_diameter([[1, 2]]),
        lambda: finite_diameter([1, -1]),
        lambda: hyperplane_diameter(np.zeros((25, 2)), 0.1),
        lambda: hyperplane_diameter(np.zeros((3, 4)), 0.1),
        lambda: hyperplane_diameter([[1.0, 1.0]], 0.1),
        lambda: hyperplane_diameter(np.random.default_rng(0).uniform(-0.5, 0.5, (20, 2)), 0.1, states=3),
    ],
)
def test_refusals(call):
    with pytest.raises(SpecError, match="must be"):
        call()
