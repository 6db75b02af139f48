"""The safe classifier on hyperplanes: its rule, its theorems, and its state as a semilattice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import nnls
from scipy.spatial import ConvexHull

from swerve.classifiers.hull import Hull, compact
from swerve.core.contract import begin_pool, clear, learn, merge, pool_layout, predict
from swerve.core.engine import Entry
from swerve.core.errors import SpecError
from swerve.core.spec import pack, record_dtype

FEATURES = 4
WIDTH = 64  # of every table, whatever the number of features: one type, compiled once
SMALL = Hull(margin=0.0625, max_points=6)  # twice the margin is a step of the grid that the examples lie on, so that ties occur
LARGE = Hull(margin=0.0625, max_points=64)
PREDICT, LEARN, MERGE, CLEAR = range(4)


def act(params, pools, what, i, j, x):
    """Call one verb on rows of a table, compiled or interpreted from the same source."""
    spec = params[0]
    if what == PREDICT:
        return 1 if predict(spec, pools[i], pools[j], x, 0) else 0
    if what == LEARN:
        return learn(spec, pools[i], x)
    if what == MERGE:
        return merge(spec, pools[i], pools[j])
    return clear(spec, pools[i])


compiled = Entry(act).bind(LARGE)


def begun(spec, rows, d):
    pools = np.zeros(rows, record_dtype(pool_layout(spec, WIDTH)))
    for pool in pools:
        begin_pool(spec, pool, d)
    return pools


def filled(spec, *groups, d=2):
    """Return a pool that has learnt each group of points with one merge, and a delta for predictions."""
    pool, delta = begun(spec, 2, d)
    for group in groups:
        for x in group:
            learn(spec, delta, np.array(x))
        merge(spec, pool, delta)
        clear(spec, delta)
    return pool, delta


def asked(spec, pool, delta, contexts):
    return [predict(spec, pool, delta, np.array(x), 0) for x in contexts]


def twin(points, x, margin):
    """Return the prediction by SciPy."""
    if len(points) == 0:
        return True
    matrix = np.vstack([(points - x).T, np.ones(len(points))])
    weights, _ = nnls(matrix, np.eye(len(matrix))[-1])
    return bool(np.linalg.norm((points - x).T @ (weights / weights.sum())) > 2 * margin)


def test_the_rule_compiled():
    rng = np.random.default_rng(1)
    for d in (1, 2, 4):
        params, pools = pack(LARGE), begun(LARGE, 2, d)
        known = np.zeros((0, d))
        said = []
        for _ in range(150):
            x = 0.5 + 0.3 * rng.standard_normal(d)
            said.append(compiled(params, pools, PREDICT, 0, 1, x))
            assert said[-1] == twin(known, x, LARGE.margin)
            if said[-1] and len(known) < 60 and rng.random() < 0.6:
                compiled(params, pools, LEARN, 1, 0, x)
                compiled(params, pools, MERGE, 0, 1, x)
                compiled(params, pools, CLEAR, 1, 0, x)
                known = np.vstack([known, x])
        assert 0.05 < np.mean(said) < 0.95
        assert pools[0].count == len(known)


def test_empty_is_positive_and_a_tie_is_negative():
    pool, delta = filled(LARGE)
    assert asked(LARGE, pool, delta, [[0.0, 0.0]]) == [True]
    pool, delta = filled(LARGE, [(0.25, 0.5)])
    contexts = [[0.25, 0.5], [0.375, 0.5], [0.25, 0.375], [0.375 + 1e-9, 0.5]]
    assert asked(LARGE, pool, delta, contexts) == [False, False, False, True]
    for margin in (0.1, 0.3, 1 / 3):  # not representable in floats: the rule still follows the written number
        spec = Hull(margin=margin)
        pool, delta = filled(spec, [(0.1, 0.0)])
        assert asked(spec, pool, delta, [[0.1 + 2 * margin, 0.0], [0.1, -2 * margin]]) == [False, False]


def test_safe_and_few_false_alarms_when_a_hyperplane_is_the_truth():
    """Theorem: no event is missed, and at most (1 + 1/δ)^d quiet contexts of the unit ball raise an alarm."""
    rng = np.random.default_rng(2)
    d, margin = 2, 0.25
    spec = Hull(margin=margin, max_points=64)
    params = pack(spec)
    for _ in range(5):
        pools = begun(spec, 2, d)
        normal = rng.standard_normal(d)
        normal /= np.linalg.norm(normal)
        shift = rng.uniform(-0.3, 0.3)
        alarms = 0
        for _ in range(1500):
            x = rng.standard_normal(d)
            x *= rng.random() ** (1 / d) / np.linalg.norm(x)
            side = normal @ x + shift
            positive = compiled(params, pools, PREDICT, 0, 1, x)
            if side >= margin:
                assert positive
            elif side < -margin and positive:
                alarms += 1
                compiled(params, pools, LEARN, 1, 0, x)
                compiled(params, pools, MERGE, 0, 1, x)
                compiled(params, pools, CLEAR, 1, 0, x)
        assert 1 <= alarms <= (1 + 1 / margin) ** d


@pytest.mark.parametrize("d", [1, 2, 5, 10, 40])
@pytest.mark.parametrize("margin", [0.05, 0.1, 0.3])
def test_with_correct_labels_no_event_is_ever_missed(d, margin):
    """15 hyperplanes with 7,000 contexts each, a third of them exactly at the margin (quiet ones 1e-9 behind it).

    At d = 40 the table of 64 points is soon full; a full table is safe too.
    """
    rng = np.random.default_rng(100 * d + int(100 * margin))
    count = 7_000
    normal = rng.standard_normal(d)
    normal /= np.linalg.norm(normal)
    shift = rng.uniform(-0.3, 0.3)
    truth = rng.integers(0, 2, count)
    height = np.where(truth == 1, rng.uniform(margin, 1.0 + shift, count), rng.uniform(-1.0 + shift, -margin - 1e-9, count)) - shift
    edge = rng.random(count) < 1 / 3
    height[edge] = np.where(truth[edge] == 1, margin, -margin - 1e-9) - shift
    beside = rng.standard_normal((count, d))
    beside -= np.outer(beside @ normal, normal)
    norms = np.maximum(np.linalg.norm(beside, axis=1), 1e-12)
    room = np.sqrt(np.maximum(1.0 - height**2, 0.0)) * rng.random(count) ** (1 / max(d - 1, 1))
    contexts = np.ascontiguousarray(np.outer(height, normal) + beside * (room / norms)[:, None] * (d > 1))
    truth[(contexts @ normal + shift < margin) & (truth == 1)] = 2  # rounding has moved it inside the margin: never emitted
    kept = truth < 2
    spec = Hull(margin=margin, max_points=64)
    params, pools = pack(spec), begun(spec, 2, d)
    misses = events = alarms = 0
    for x, event in zip(contexts[kept], truth[kept], strict=True):
        positive = compiled(params, pools, PREDICT, 0, 1, x)
        if event:
            misses += 1 - positive
            events += 1
        elif positive:
            alarms += 1
            compiled(params, pools, LEARN, 1, 0, x)
            compiled(params, pools, MERGE, 0, 1, x)
            compiled(params, pools, CLEAR, 1, 0, x)
    assert misses == 0
    assert events > 1_500
    assert alarms >= 1


def test_compiled_and_interpreted_leave_the_same_bytes():
    rng = np.random.default_rng(3)
    params = pack(LARGE)
    one, two = begun(LARGE, 3, 3), begun(LARGE, 3, 3)
    for _ in range(60):
        what, i, j = int(rng.choice(4, p=[0.4, 0.4, 0.15, 0.05])), int(rng.integers(3)), int(rng.integers(3))
        x = np.round(rng.random(3), 1)
        assert compiled(params, one, what, i, j, x) == act([LARGE], two, what, i, j, x)
        assert one.tobytes() == two.tobytes()
    assert one["count"].max() > 5
    assert one["work"]["kept"].max() > 0


def test_predict_never_writes_to_the_pool():
    pool, delta = filled(LARGE, np.random.default_rng(4).random((12, 2)))
    before = pool.tobytes()
    asked(LARGE, pool, delta, np.random.default_rng(5).random((20, 2)) * 2)
    assert pool.tobytes() == before


# ---------------------------------------------------------------- the semilattice

grid = st.integers(0, 16).map(lambda i: i / 8.0 - 0.5)
point = st.tuples(grid, grid)
group = st.lists(point, max_size=5)
contexts = st.lists(point, min_size=1, max_size=8)
several = settings(max_examples=40, deadline=None, derandomize=True)


@several
@given(group, group, group, contexts)
def test_merge_commutes_and_associates(a, b, c, xs):
    expected = asked(LARGE, *filled(LARGE, a, b, c), xs)
    assert asked(LARGE, *filled(LARGE, c, a, b), xs) == expected
    assert asked(LARGE, *filled(LARGE, b + c + a), xs) == expected
    joined, _ = filled(LARGE, b, c)
    pool, delta = filled(LARGE, a)
    merge(LARGE, pool, joined)
    assert asked(LARGE, pool, delta, xs) == expected


@several
@given(group, group)
def test_merge_twice_is_merge_once(a, b):
    pool, _ = filled(LARGE, a)
    other, _ = filled(LARGE, b)
    merge(LARGE, pool, other)
    before = pool.tobytes()
    merge(LARGE, pool, other)
    merge(LARGE, pool, pool)
    assert pool.tobytes() == before


@several
@given(group, group, contexts)
def test_a_stale_copy_never_misses(a, b, xs):
    stale = asked(LARGE, *filled(LARGE, a), xs)
    current = asked(LARGE, *filled(LARGE, a, b), xs)
    assert all(old or not new for old, new in zip(stale, current, strict=True))


@several
@given(group, group, group, contexts)
def test_a_full_table_never_misses(a, b, c, xs):
    pool, delta = filled(SMALL, a, b, c)
    everything = set(a) | set(b) | set(c)
    limited = asked(SMALL, pool, delta, xs)
    unlimited = asked(LARGE, *filled(LARGE, a, b, c), xs)
    assert all(said or not full for said, full in zip(limited, unlimited, strict=True))
    assert pool.count == min(len(everything), SMALL.max_points)
    assert (pool.spilled > 0) == (len(everything) > SMALL.max_points)


# ---------------------------------------------------------------- compaction; compiled in the example of `Hull`


@pytest.mark.usefixtures("uncompiled")
def test_compact_keeps_the_vertices_and_the_predictions():
    rng = np.random.default_rng(6)
    square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    for cloud in (rng.random((50, 2)), [*rng.random((30, 2)), *square, (0.5, 0.0), (0.25, 0.0), (1.0, 0.5)]):
        pool, delta = filled(LARGE, cloud)
        xs = rng.uniform(-0.6, 1.6, (80, 2))
        before = asked(LARGE, pool, delta, xs)
        assert 0.1 < np.mean(before) < 0.9
        version, corners = int(pool.version), ConvexHull(np.array(cloud)).vertices
        assert compact(LARGE, pool) == len(cloud) - len(corners)
        assert pool.version != version
        assert sorted(map(tuple, pool.points[: pool.count, :2])) == sorted(tuple(cloud[i]) for i in corners)
        assert asked(LARGE, pool, delta, xs) == before
        kept = pool.points[: pool.count].copy()
        assert compact(LARGE, pool) == 0
        assert np.array_equal(kept, pool.points[: pool.count])


@pytest.mark.usefixtures("uncompiled")
def test_compact_of_degenerate_tables():
    line = [(i / 8.0, i / 4.0) for i in range(9)]
    pool, _ = filled(LARGE, line)
    assert compact(LARGE, pool) == 7
    assert sorted(map(tuple, pool.points[:2, :2])) == [line[0], line[-1]]
    pool, _ = filled(LARGE, [(0.5, 0.5)])
    pool.points[1:5] = pool.points[0]  # the same point five times: one must stay
    pool.count = 5
    assert compact(LARGE, pool) == 4
    pool, _ = filled(LARGE)
    assert compact(LARGE, pool) == 0


@pytest.mark.usefixtures("uncompiled")
def test_compact_makes_room():
    inside = [(i / 128.0, 0.25) for i in range(LARGE.max_points - 3)]
    pool, delta = filled(LARGE, [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)], inside, [(1.0, 1.0)])
    assert (pool.count, pool.spilled) == (64, 1)
    assert (compact(LARGE, pool), pool.count) == (61, 3)
    learn(LARGE, delta, np.array([1.0, 1.0]))
    merge(LARGE, pool, delta)
    assert (pool.count, pool.spilled) == (4, 1)


def test_the_spec_says_what_it_allows():
    with pytest.raises(SpecError, match="margin must be > 0"):
        Hull(margin=0.0)
    with pytest.raises(SpecError, match="points must be"):
        Hull(max_points=0)


def test_groups_that_share_a_writer_are_never_mistaken_for_each_other():
    """One delta serves all groups; its search must not use directions remembered for another group of the same size."""
    rng = np.random.default_rng(3)
    pools = begun(LARGE, 3, 2)
    clouds = [rng.uniform(0.0, 0.3, (6, 2)), rng.uniform(0.5, 0.8, (6, 2))]
    params = pack(LARGE)
    for group, cloud in enumerate(clouds):
        for x in cloud:
            compiled(params, pools, LEARN, group, 0, x)
    for _ in range(300):
        x, group = rng.uniform(0.0, 1.0, 2), int(rng.integers(2))
        assert compiled(params, pools, PREDICT, group, 2, x) == twin(clouds[group], x, LARGE.margin)


@pytest.mark.usefixtures("uncompiled")
def test_the_declared_ball_is_the_l2_ball():
    from swerve import Learner, SwerveError

    inside, outside = [0.6, 0.8], [0.7, 0.8]
    assert Learner(Hull(), d=2).predict(inside)
    with pytest.raises(SwerveError, match="outside the domain"):
        Learner(Hull(), d=2).predict(outside)
    assert Learner(Hull(radius=1.5), d=2).predict(outside)


# ---------------------------------------------------------------- missing features


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(1, 2**FEATURES - 2))
def test_a_context_with_holes_is_compared_with_the_projection(seed, count, mask):
    """The distance in the known features is the minimum over all values of the missing ones."""
    dice = np.random.default_rng(seed)
    points, x = dice.uniform(-0.4, 0.4, (count, FEATURES)), dice.uniform(-0.5, 0.5, FEATURES)
    there = np.array([mask >> k & 1 == 1 for k in range(FEATURES)])
    pool, delta = filled(LARGE, points, d=FEATURES)
    before = pool.tobytes()
    holed = np.where(there, x, np.nan)
    positive = predict(LARGE, pool, delta, holed, 0)
    assert positive == twin(points[:, there], x[there], LARGE.margin)
    assert pool.tobytes() == before
    if positive:
        for filling in dice.uniform(-1.0, 1.0, (5, FEATURES)):
            assert predict(LARGE, pool, delta, np.where(there, x, filling), 0)
    elif count:  # some point of the hull has values for the missing features of a negative context
        near = min(points, key=lambda point: np.linalg.norm((point - x)[there]))
        if np.linalg.norm((near - x)[there]) <= 2 * LARGE.margin:
            assert not predict(LARGE, pool, delta, np.where(there, x, near), 0)
    whole = dice.uniform(-0.5, 0.5, FEATURES)  # directions remembered from the projection do not apply to complete contexts
    assert predict(LARGE, pool, delta, whole, 0) == twin(points, whole, LARGE.margin)


def test_a_delta_with_contexts_in_it_keeps_them_when_holes_are_asked_about():
    pool, delta = filled(SMALL, [(0.0, 0.0), (0.1, 0.0)])
    learn(SMALL, delta, np.array([0.5, 0.5]))
    for _ in range(SMALL.max_points):
        assert predict(SMALL, pool, delta, np.array([np.nan, 0.6]), 0)
        assert not predict(SMALL, pool, delta, np.array([np.nan, 0.1]), 0)
    assert delta.points[0, :2].tolist() == [0.5, 0.5]
    for k in range(SMALL.max_points - 1):
        learn(SMALL, delta, np.array([0.01 * k, 0.5]))
    assert predict(SMALL, pool, delta, np.array([np.nan, 0.1]), 0)  # the table is full: an alarm is the safe answer
    assert delta.count == SMALL.max_points
    assert delta.points[-1, 1] == 0.5
