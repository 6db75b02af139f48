"""SafeCl on hyperplanes with a margin: contexts near the convex hull of the harmless contexts are quiet."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from swerve.classifiers.joining import exchanged_by_joining
from swerve.classifiers.nearest import search, work_layout
from swerve.core.contract import all_missing, begin_pool, clear, domain, learn, merge, pool_layout, predict
from swerve.core.engine import Entry
from swerve.core.rng import mix, wrap_add
from swerve.core.spec import Natural, Positive, Spec, record_dtype
from swerve.core.verbs import kernel

ONE = np.uint64(1)
ROUNDING = 1.0 + 1e-9  # a context on the surface of the ball is inside it, despite rounding
GRID = 2.0**40  # numbers are hashed to this resolution


@exchanged_by_joining
class Hull(Spec):
    """Negative within twice the margin of the convex hull of the false-labelled contexts, positive beyond it.

    With N the false-labelled contexts, x is negative iff L2(x, conv N) ≤ 2δ. Exactly then no hyperplane with distance δ to both
    sides separates x from N. With N empty everything is positive. `margin` is δ; `max_points` limits the number of stored contexts.

    The state is a join semilattice: N only grows, by union. While the table has room, `merge` is commutative, associative and
    idempotent, up to the order of the points, which no prediction depends on. A stale copy has a subset of N, hence a smaller hull:
    it raises more false alarms and never misses an event that an up-to-date copy would catch. A full table refuses points
    (`spilled` counts them) and is such a subset too.

    A context with missing features (NaN) is compared with the projection of conv N on the features that are present. It is positive
    iff it would be positive whatever the missing features were. A false-labelled context with a missing feature is not stored.

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
    radius: Positive = 1.0  # contexts outside the L2 ball of this radius around the origin are refused


@pool_layout.register(Hull)
def _(spec: Any, features: int) -> list[tuple[Any, ...]]:
    return [
        ("d", "i8"),
        ("count", "i8"),
        ("version", "i8"),  # a hash of the points: remembered directions are valid for one version only
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
    work = delta.work  # the pool is shared and only read here; the search keeps its memory in the writer's delta
    work.version = pool.version
    for k in range(pool.d):
        if math.isnan(x[k]):
            return not all_missing(x) and beyond_projection(spec, pool, delta, x)
    # a slice has the type of the projected points: `search` is compiled once, not twice
    return search(pool.points[:], pool.count, pool.d, x, 2.0 * spec.margin, work) == 1


@domain.register(Hull)
def _(spec, pool, x):
    square = 0.0
    for k in range(len(x)):
        if not math.isnan(x[k]):
            square += x[k] * x[k]
    return square <= (spec.radius * ROUNDING) ** 2


@learn.register(Hull)
def _(spec, delta, x):
    for k in range(delta.d):
        if math.isnan(x[k]):
            return 0
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
    """Return the version after one more number. Groups that share a search memory must never have equal versions by accident."""
    return np.int64(mix(wrap_add(version, np.int64(number * GRID))) >> ONE)


@kernel
def project(points, j, x, source):
    """Write a point into row j of the table, with 0 in the features that are missing in x."""
    for k in range(len(x)):
        points[j, k] = 0.0 if math.isnan(x[k]) else source[k]


@kernel
def beyond_projection(spec, pool, delta, x):
    """Return whether x is too far from the hull's projection on the features that are present in x.

    The projected points are written behind the contexts in the delta's table, which are few. Points that do not fit are left out: a
    smaller hull raises more alarms, and misses nothing.
    """
    first = delta.count
    if first == delta.points.shape[0]:
        return True  # no room: an alarm is the safe answer
    project(delta.points, first, x, x)
    count = min(pool.count, delta.points.shape[0] - first - 1)
    for j in range(count):
        project(delta.points, first + 1 + j, x, pool.points[j])
    for k in range(pool.d):
        if math.isnan(x[k]):  # directions are remembered for this projection only
            delta.work.version = stamp(delta.work.version, k + 1.0)
    return search(delta.points[first + 1 :], count, pool.d, delta.points[first], 2.0 * spec.margin, delta.work) == 1


@kernel
def append(pool, x):
    """Add x to the table unless an equal point is in it; a full table refuses it."""
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
    """Drop every point that lies in the hull of the others; return the number dropped."""
    dropped = 0
    for j in range(pool.count - 1, -1, -1):
        if pool.count == 1:
            break
        last = pool.count - 1
        swap(pool, j, last)
        pool.work.kept = 0  # remembered directions are valid for one set of points, and the set changes in every turn
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
    """Drop every stored context that lies in the hull of the others; return the number dropped. Predictions stay the same.

    A point within `RESOLUTION` of the hull counts as inside, so the hull moves by at most that much per dropped point. The last
    point always stays.
    """
    return int(_thin.bind()(pool))
