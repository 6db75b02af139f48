"""SafeCl on hyperplanes with a margin: quiet is what lies near the convex hull of the contexts that proved quiet."""

from __future__ import annotations

from typing import Any

import numpy as np

from swerve.classifiers.nearest import search, work_layout
from swerve.core.contract import begin_pool, clear, domain, learn, merge, pool_layout, predict
from swerve.core.engine import Entry
from swerve.core.rng import mix, wrap_add
from swerve.core.spec import Natural, Positive, Spec, record_dtype
from swerve.core.verbs import kernel

ONE = np.uint64(1)
ROUNDING = 1.0 + 1e-9  # a context computed to lie on the ball's surface has not left it


class Hull(Spec):
    """Negative within twice the margin of the convex hull of the false-labelled contexts, positive beyond it.

    With N the false-labelled contexts, x is negative iff L2(x, conv N) ≤ 2δ: then, and only then, no hyperplane that keeps the
    distance δ to both sides can part x from N. With N empty everything is positive. `margin` is δ, `max_points` the most contexts
    kept.

    The state is a join semilattice: N only grows, by union. As long as the table has room, merges commute, associate and repeat
    harmlessly, up to the order of the points, which no prediction depends on. A stale copy knows a subset of N, hence a smaller
    hull: it raises more false alarms and never misses an event that a fresh copy would have caught. A full table, which refuses
    points (`spilled` counts them), is such a subset too.

    Paper: HYP(d, δ), with the bound (1 + 1/δ)^d on its false positives.

    >>> import numpy as np
    >>> from swerve.classifiers import Learner
    >>> hull = Learner(Hull(margin=0.05), d=2)
    >>> hull.predict([0.4, 0.4])
    True
    >>> for x in np.random.default_rng(1).uniform(0.0, 0.6, (50, 2)):
    ...     hull.learn(x)
    >>> [hull.predict(x) for x in ([0.4, 0.4], [0.65, 0.4], [0.8, 0.4])]
    [False, False, True]
    >>> compact(hull.classifier, hull.pools[0]), int(hull.pools[0].count)
    (39, 11)
    """

    margin: Positive = 0.1
    max_points: Natural = 512
    radius: Positive = 1.0  # contexts lie in the L2 ball of this radius around the origin; others are refused


@pool_layout.register(Hull)
def _(spec: Any, features: int) -> list[tuple[Any, ...]]:
    return [
        ("d", "i8"),
        ("count", "i8"),
        ("version", "i8"),  # a hash of the points: what a search remembers holds for one version, whichever group it was made for
        ("spilled", "i8"),
        ("points", "f8", (spec.max_points, features)),
        ("work", record_dtype(work_layout(features))),
    ]


@begin_pool.register(Hull)
def _(spec, pool, d):
    pool.d = d
    pool.count = 0
    pool.version = 0
    pool.spilled = 0
    pool.work.kept = 0
    pool.work.turn = 0
    return 0


@predict.register(Hull)
def _(spec, pool, delta, x, told):
    work = delta.work  # the pool is shared and only read here; what the search remembers of it lies with the writer
    work.version = pool.version
    return search(pool.points, pool.count, pool.d, x, 2.0 * spec.margin, work) == 1


@domain.register(Hull)
def _(spec, pool, x):
    square = 0.0
    for k in range(len(x)):
        square += x[k] * x[k]
    return square <= (spec.radius * ROUNDING) ** 2


@learn.register(Hull)
def _(spec, delta, x):
    append(delta, x)
    return 0


@merge.register(Hull)
def _(spec, pool, delta):
    for j in range(delta.count):
        append(pool, delta.points[j])
    pool.spilled += delta.spilled
    return 0


@clear.register(Hull)
def _(spec, delta):
    delta.count = 0
    delta.spilled = 0
    delta.version = 0
    return 0


@kernel
def stamp(version, number):
    """The version after one more number: groups that share a searcher's memory must never be mistaken for each other."""
    return np.int64(mix(wrap_add(version, np.int64(number * 2.0**40))) >> ONE)


@kernel
def append(pool, x):
    """Add x to the table unless it is there already, number for number; a full table refuses it."""
    for j in range(pool.count):
        same = True
        for k in range(pool.d):
            if pool.points[j, k] != x[k]:
                same = False
                break
        if same:
            return
    if pool.count == pool.points.shape[0]:
        pool.spilled += 1
        return
    for k in range(pool.d):
        pool.points[pool.count, k] = x[k]
        pool.version = stamp(pool.version, x[k])
    pool.count += 1


@kernel
def swap(pool, i, j):
    """Exchange two points of the table."""
    for k in range(pool.d):
        kept = pool.points[i, k]
        pool.points[i, k] = pool.points[j, k]
        pool.points[j, k] = kept


@kernel
def thin(pool):
    """Drop every point that lies in the hull of the others; return how many went."""
    dropped = 0
    for j in range(pool.count - 1, -1, -1):
        if pool.count == 1:
            break
        last = pool.count - 1
        swap(pool, j, last)
        pool.work.kept = 0  # directions hold for one set of points, and here the set changes at every turn
        if search(pool.points, last, pool.d, pool.points[last], 0.0, pool.work) == 0:
            pool.count = last
            dropped += 1
        else:
            swap(pool, j, last)
    pool.work.kept = 0
    pool.work.turn = 0
    if dropped > 0:
        pool.version = stamp(pool.version, float(dropped))
    return dropped


@Entry
def _thin(pool):
    return thin(pool)


def compact(spec: Hull, pool: Any) -> int:
    """Drop every stored context that lies in the hull of the others; return how many went. Predictions stay the same.

    A point counts as inside at a distance of at most `RESOLUTION`, so that the hull moves by no more than that per point dropped.
    The last one always stays.
    """
    return int(_thin.bind()(pool))
