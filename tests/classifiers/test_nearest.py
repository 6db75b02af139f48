"""The search for the nearest point of a hull, against SciPy's non-negative least squares and against the duality gap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import nnls

from swerve.classifiers.nearest import WIDEST, distance, search, work_layout
from swerve.core.engine import Entry
from swerve.core.spec import record_dtype

CAPACITY = WIDEST  # the type that `distance` uses: one search is compiled for both
EXACT = -1.0


def plain(points, count, d, x, limit, table, i):
    return search(points, count, d, x, limit, table[i])


compiled = Entry(plain).bind()


def fresh():
    return np.zeros(1, record_dtype(work_layout(CAPACITY)))


def ask(points, x, limit=EXACT, table=None):
    """Run the compiled search; return its answer and the work record."""
    table = fresh() if table is None else table
    return compiled(points, len(points), points.shape[1], x, limit, table, 0), table[0]


def reference(points, x):
    """Return the distance by SciPy: rows P - x plus a row of ones, at the scale of the points."""
    scale = max(np.abs(points - x).max(), 1e-300)
    matrix = np.vstack([(points - x).T / scale, np.ones(len(points))])
    target = np.zeros(len(matrix))
    target[-1] = 1.0
    weights, _ = nnls(matrix, target)
    return float(np.linalg.norm((points - x).T @ (weights / weights.sum())))


def gap(points, x, work):
    """Return |y|² - min y·q for the point y of the weights; if it is within rounding, y is the nearest point."""
    chosen = work.corral[: work.active]
    weights = work.weights[: work.active]
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert len(set(chosen.tolist())) == len(chosen) <= points.shape[1] + 1
    y = weights @ (points[chosen] - x)
    assert np.linalg.norm(y) == pytest.approx(work.upper, abs=1e-12)
    return y @ y - ((points - x) @ y).min()


def uniform(rng, n, d):
    return rng.random((n, d))


def sphere(rng, n, d):
    points = rng.standard_normal((n, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def duplicated(rng, n, d):
    return rng.random((max(n // 3, 1), d))[rng.integers(0, max(n // 3, 1), n)]


def collinear(rng, n, d):
    return rng.random(d) + np.outer(rng.integers(0, 9, n) / 8.0, rng.standard_normal(d))


def flat(rng, n, d):
    return rng.random((n, max(d // 2, 1))) @ rng.standard_normal((max(d // 2, 1), d))


def coincident(spread):
    def make(rng, n, d):
        centres = rng.random((max(n // 4, 1), d))
        return centres[rng.integers(0, len(centres), n)] + spread * rng.standard_normal((n, d))

    return make


FAMILIES = {
    "uniform": uniform,
    "sphere": sphere,
    "duplicated": duplicated,
    "collinear": collinear,
    "flat": flat,
    "1e-7 apart": coincident(1e-7),
    "1e-10 apart": coincident(1e-10),
}


def places(rng, points):
    """Yield contexts inside, on a vertex, on an edge, just beside a vertex, near and far outside."""
    n, d = points.shape
    few = points[rng.choice(n, min(n, d + 1), replace=False)]
    yield rng.dirichlet(np.ones(len(few))) @ few
    yield points.mean(axis=0)
    yield points[rng.integers(n)].copy()
    yield 0.25 * points[0] + 0.75 * points[n - 1]
    yield points[0] + 1e-8 * rng.standard_normal(d)
    yield points.mean(axis=0) + 0.5 * rng.standard_normal(d)
    yield points.mean(axis=0) + 20.0 * rng.standard_normal(d)


@pytest.mark.parametrize("family", FAMILIES)
def test_distance_agrees_with_scipy_and_closes_the_gap(family):
    rng = np.random.default_rng(3)
    sizes = [(1, 1), (2, 1), (40, 1), (3, 2), (100, 2), (30, 3), (300, 5), (8, 10), (300, 10), (60, 17), (20, 40), (150, 40)]
    for n, d in sizes:
        points = FAMILIES[family](rng, n, d)
        for x in places(rng, points):
            answer, work = ask(points, x)
            scale = max(1.0, np.abs(points - x).max())
            assert answer == 1
            assert work.upper == pytest.approx(reference(points, x), abs=1e-9 * scale), (n, d)
            assert gap(points, x, work) <= 1e-12 * scale**2, (n, d)
            assert 0.0 <= work.lower <= work.upper + 1e-15 * scale
            assert work.upper - work.lower <= 1e-9 * scale


@pytest.mark.parametrize("d", range(1, CAPACITY + 1))
def test_every_number_of_features(d):
    rng = np.random.default_rng(d)
    points = rng.random((50 + d, d))
    for x in places(rng, points):
        assert ask(points, x)[1].upper == pytest.approx(reference(points, x), abs=1e-9)


@pytest.mark.parametrize(("family", "d"), [("uniform", 5), ("sphere", 10), ("uniform", 40), ("sphere", 3), ("1e-7 apart", 10)])
def test_five_thousand_points(family, d):
    rng = np.random.default_rng(5)
    points = FAMILIES[family](rng, 5000, d)
    for x in (points.mean(axis=0) + 0.6 * rng.standard_normal(d), rng.dirichlet(np.ones(5000)) @ points):
        _, work = ask(points, x)
        assert work.upper == pytest.approx(reference(points, x), abs=1e-9)
        assert gap(points, x, work) <= 1e-12


def test_answers_with_a_limit_agree_with_the_distance_and_its_bounds_hold():
    rng = np.random.default_rng(7)
    asked = 0
    for n, d in [(1, 3), (5, 2), (60, 4), (300, 10), (80, 40)]:
        for family in ("uniform", "sphere", "duplicated", "flat"):
            points = FAMILIES[family](rng, n, d)
            for x in places(rng, points):
                exact = float(ask(points, x)[1].upper)
                limits = [
                    0.0,
                    exact,
                    *(exact * rng.uniform(0.2, 3.0, 4)),
                    *(exact + s for s in (-1e-8, 1e-8, -1e-4, 1e-4)),
                    0.01,
                    0.2,
                    1.0,
                ]
                for limit in limits:
                    answer, work = ask(points, x, max(limit, 0.0))
                    assert work.lower <= exact + 1e-12
                    assert work.upper >= exact - 1e-12
                    if abs(exact - max(limit, 0.0)) > 1e-9:
                        assert answer == (exact > limit), (n, d, family, exact, limit)
                        asked += 1
    assert asked > 1000


def test_what_is_remembered_changes_no_answer():
    rng = np.random.default_rng(11)
    points = rng.random((120, 6)) * 0.8
    contexts = 0.4 + 0.45 * rng.standard_normal((150, 6))
    alone = [ask(points, x, 0.2)[0] for x in contexts]
    assert 0.2 < np.mean(alone) < 0.95
    spared = 0
    for _ in range(3):
        order = rng.permutation(len(contexts))
        table = fresh()
        for i in order:
            answer, work = ask(points, contexts[i], 0.2, table)
            assert answer == alone[i]
            spared += work.passes == 0
    assert spared > 10  # the directions were used; otherwise this test is void


def test_a_remembered_direction_is_measured_again_when_the_points_change():
    points = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.5], [9.0, 0.5]])
    x = np.array([3.0, 0.5])
    near = points.copy()
    near[2] = [2.9, 0.5]
    for change in ("count", "version"):
        table = fresh()
        ask_count = lambda rows, count, table=table: compiled(rows, count, 2, x, 0.2, table, 0)  # noqa: E731
        assert ask_count(points, 3) == 1
        assert ask_count(points, 3) == 1
        assert table[0].passes == 0
        if change == "count":
            assert ask_count(points, 4) == 0  # the fourth point is on the other side, so x is inside
        else:
            table[0].version += 1
            assert ask_count(near, 3) == 0
        assert ask_count(points, 3) == 1


def test_compiled_and_interpreted_leave_the_same_bytes():
    rng = np.random.default_rng(13)
    points = np.vstack([rng.random((20, 4)), rng.random((3, 4)).repeat(2, axis=0)])
    one, two = fresh(), fresh()
    for i in range(24):
        x = 0.5 + 0.5 * rng.standard_normal(4)
        limit = (EXACT, 0.2, 0.05)[i % 3]
        count = 15 + i // 3
        assert compiled(points, count, 4, x, limit, one, 0) == plain(points, count, 4, x, limit, two, 0)
        assert one.tobytes() == two.tobytes(), i


@pytest.mark.parametrize("margin", [0.1, 0.05, 0.3, 1 / 3, 0.7, 2.5])
def test_a_tie_is_within(margin):
    for start in (0.0, 0.1, 0.3, 0.7, -0.4):
        for d in (1, 2, 5):
            point, x = np.full((1, d), start), np.full(d, start)
            x[d - 1] = start + 2 * margin
            assert ask(point, x, 2 * margin)[0] == 0
            x[d - 1] += 1e-9
            assert ask(point, x, 2 * margin)[0] == 1
    edge = np.array([[0.0, 0.1], [0.0, 0.9], [0.0, 1.7]])  # the nearest point lies between two stored points
    assert ask(edge, np.array([2 * margin, 0.35]), 2 * margin)[0] == 0
    assert ask(edge, np.array([2 * margin + 1e-9, 0.35]), 2 * margin)[0] == 1


def test_no_points_are_infinitely_far():
    answer, work = ask(np.zeros((0, 3)), np.zeros(3), 0.2)
    assert answer == 1
    assert work.lower == work.upper == math.inf
    assert distance(np.zeros((0, 3)), np.zeros(3)) == math.inf


def test_what_is_not_a_number_raises_an_alarm():
    points = np.random.default_rng(0).random((30, 3))
    for bad in (math.nan, math.inf):
        assert ask(points, np.array([0.5, bad, 0.5]), 0.2)[0] == 1


def test_distance_is_for_any_scale_and_place():
    rng = np.random.default_rng(17)
    points, x = rng.random((40, 5)), np.array([1.2, 0.5, 0.5, -0.2, 0.5])
    expected = reference(points, x)
    assert expected > 0.1
    for scale in (1e-6, 1.0, 1e6):
        assert distance(points * scale, x * scale) == pytest.approx(expected * scale, rel=1e-9)
    assert distance(points + 1000.0, x + 1000.0) == pytest.approx(expected, rel=1e-9)
    assert distance(np.asfortranarray(points), x) == distance(points, x)


def test_distance_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"points \(2, 3\) and x \(2,\) do not fit"):
        distance(np.zeros((2, 3)), np.zeros(2))
    with pytest.raises(ValueError, match="finite"):
        distance(np.zeros((2, 3)), np.array([0.0, math.nan, 0.0]))
