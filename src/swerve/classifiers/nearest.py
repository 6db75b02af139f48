"""The distance from a point to the convex hull of others: a compiled search for the point of least norm.

With q_j = p_j - x, the nearest point of the hull is y = Σ w_j q_j of least norm, w ≥ 0, Σ w_j = 1. It is computed as the
non-negative least-squares fit of f = (0, …, 0, c) by columns (q_j, c): if z is that fit, w = z / Σz. Few columns have weight at a
time (the corral, at most d + 1, affinely independent), and their QR factorisation is updated as points enter and leave. Every step
gives two bounds that hold even if the search stops there: |y| from above, and min_j y·q_j / |y| from below, because the hull lies
entirely beyond the plane normal to y at that distance. A question "within `limit`?" is answered as soon as one bound decides it.

Method: C. Lawson, R. Hanson, Solving Least Squares Problems (1974), chapter 23; P. Wolfe, Finding the nearest point in a polytope
(1976). Shortlisting the last question's corral gained up to 17 % on slow walks of x, lost up to 6 % on independent ones: not done.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from swerve.classifiers.directions import lowest, remember, separated
from swerve.core.engine import Entry
from swerve.core.spec import record_dtype
from swerve.core.verbs import FROM_KERNELS, kernel

RESOLUTION = 1e-12  #: distances this close to the limit count as equal to it (relative to the limit when that is above 1)
SHORTLIST = 16  #: candidates kept from one pass; at d = 10, n = 300, 8 and 32 are 5 to 20 % slower outside the hull, equal inside
NORMALS = 8  #: separating directions remembered
TOLERANCE = 1e-14  #: a gap below this share of |y|·max|q| is rounding
BLUNT = 1e-3  #: below this share of max|q|, y is recomputed more exactly
FLOOR = 1e-15  #: |y| below this share of max|q| is zero: x lies in the hull
SURE = 1e-10  #: a search that stops this close above the limit counts as a tie
HASTE = 0.1  #: work on the shortlist stops at this share of the gap over all points (0.03 and 0.3 are no faster, d and n as above)
PATIENCE = 8  #: entries that bring y no closer, because of rounding, before the search stops
DEPENDENT = 1e-14  #: a column this close (relatively) to the span of the corral adds only rounding
ENTRIES, TURNS = 8 * SHORTLIST, 32  #: most entries per shortlist, most passes per d + 2: rounding could cause endless cycles
WIDEST = 64  #: `distance` uses one record type up to this many features: each new type is compiled


def work_layout(features: int, normals: int = NORMALS) -> list[tuple[Any, ...]]:
    """Return the fields of the scratch record of `search`, for points of up to `features` numbers.

    After a search, `lower` and `upper` bound the distance, the first `active` entries of `corral` and `weights` name the points
    that make up the nearest one, and `passes` counts the passes over all points. The caller sets `version`: remembered directions
    are valid for the points of that version only. A zeroed record is ready for use.
    """
    rows = features + 1
    return [
        *[(name, "f8") for name in ("lower", "upper", "lift", "total")],
        *[(name, "i8") for name in ("active", "passes", "version", "barred", "patience", "kept", "turn")],
        ("corral", "i8", (rows,)),
        *[(name, "f8", (rows,)) for name in ("weights", "trial", "column", "shares")],
        ("basis", "f8", (rows, rows)),
        ("tri", "f8", (rows, rows)),
        ("toward", "f8", (features,)),
        ("shortlist", "i8", (SHORTLIST,)),
        ("normals", "f8", (normals, features)),
        ("supports", "f8", (normals,)),
        *[(name, "i8", (normals,)) for name in ("counts", "versions")],
    ]


@kernel
def survey(points, count, d, x, work):
    """Put the nearest point of each block on the shortlist; return the nearest, the extreme squared distances, and the blocks."""
    least, most, at, listed = math.inf, 0.0, 0, 0
    length = 4 * ((count + 4 * SHORTLIST - 1) // (4 * SHORTLIST))  # of a block: a multiple of four
    for start in range(0, count, length):
        low, best = math.inf, start
        for j in range(start, min(start + length, count)):
            a = 0.0
            for k in range(d):
                q = points[j, k] - x[k]
                a += q * q
            if a < low:
                low, best = a, j
            most = max(most, a)
        if low < least:
            least, at = low, best
        work.shortlist[listed] = best
        listed += 1
    work.passes += 1
    return at, least, most, listed


@kernel
def price(points, count, d, x, work):
    """Put the lowest point of each block in the direction `toward` on the shortlist; return the least value of all."""
    least, listed = math.inf, 0
    length = 4 * ((count + 4 * SHORTLIST - 1) // (4 * SHORTLIST))  # of a block: a multiple of four
    for start in range(0, count, length):
        j, low = lowest(points, start, min(start + length, count), d, x, work.toward)
        work.shortlist[listed] = j
        listed += 1
        least = min(least, low)
    work.passes += 1
    return least, listed


@kernel
def choose(points, d, x, listed, work):
    """Return the shortlist entry of the lowest point in the direction `toward` after the barred ones, and its value."""
    least, entry = math.inf, -1
    for i in range(work.barred, listed):
        j, value = work.shortlist[i], 0.0
        for k in range(d):
            value += work.toward[k] * (points[j, k] - x[k])
        if value < least:
            least, entry = value, i
    return entry, least


@kernel
def straighten(d, work):
    """Remove from `column` its part in the span of the corral; `shares` receives the coefficient of each basis vector."""
    column, shares, basis = work.column, work.shares, work.basis
    for i in range(work.active):
        share = 0.0
        for k in range(d + 1):
            share += basis[i, k] * column[k]
        shares[i] = share
    for i in range(work.active):
        share = shares[i]
        for k in range(d + 1):
            column[k] -= share * basis[i, k]


@kernel
def enter(points, d, x, j, work):
    """Add point j to the corral as a column of the factorisation; return False, without a change, when it would add nothing."""
    size = work.active
    if size > d:
        return False
    column, basis = work.column, work.basis
    whole = work.lift * work.lift
    for k in range(d):
        column[k] = points[j, k] - x[k]
        whole += column[k] * column[k]
    column[d] = work.lift
    for i in range(size):
        work.tri[i, size] = 0.0
    for _ in range(2):  # one pass leaves a nearly dependent column visibly oblique; two passes suffice
        straighten(d, work)
        for i in range(size):
            work.tri[i, size] += work.shares[i]
    rest = 0.0
    for k in range(d + 1):
        rest += column[k] * column[k]
    # its coefficient would be column[d] * lift / rest: if that is not positive, the violation was rounding
    if not rest > DEPENDENT * DEPENDENT * whole or not column[d] > 0.0:
        return False
    length = math.sqrt(rest)
    for k in range(d + 1):
        basis[size, k] = column[k] / length
    work.tri[size, size] = length
    work.corral[size] = j
    work.weights[size] = 0.0
    work.active = size + 1
    return True


@kernel
def leave(d, c, work):
    """Remove the c-th point from the corral and rotate the factorisation back into triangular form."""
    size, tri, basis = work.active, work.tri, work.basis
    for j in range(c + 1, size):
        for i in range(j + 1):
            tri[i, j - 1] = tri[i, j]
        work.corral[j - 1] = work.corral[j]
        work.weights[j - 1] = work.weights[j]
    for i in range(c, size - 1):
        a, b = tri[i, i], tri[i + 1, i]
        r = math.sqrt(a * a + b * b)
        if r > 0.0:
            cosine, sine = a / r, b / r
            tri[i, i] = r
            for j in range(i + 1, size - 1):
                a, b = tri[i, j], tri[i + 1, j]
                tri[i, j] = cosine * a + sine * b
                tri[i + 1, j] = cosine * b - sine * a
            for k in range(d + 1):
                a, b = basis[i, k], basis[i + 1, k]
                basis[i, k] = cosine * a + sine * b
                basis[i + 1, k] = cosine * b - sine * a
    work.active = size - 1


@kernel
def settle(d, work):
    """Fit the corral, dropping the points whose weight would become negative."""
    weights, trial, tri = work.weights, work.trial, work.tri
    for _ in range(d + 2):
        size, step, first = work.active, 1.0, -1
        for i in range(size - 1, -1, -1):
            value = work.lift * work.basis[i, d]
            for j in range(i + 1, size):
                value -= tri[i, j] * trial[j]
            if tri[i, i] > 0.0:
                value /= tri[i, i]
            trial[i] = value
            if value <= 0.0:
                width = weights[i] - value
                share = weights[i] / width if width > 0.0 else 0.0
                if first < 0 or share < step:
                    step, first = share, i
        if first < 0:
            for i in range(size):
                weights[i] = trial[i]
            return
        for i in range(size):
            weights[i] += step * (trial[i] - weights[i])
        weights[first] = 0.0
        for i in range(size - 1, -1, -1):
            if weights[i] <= 0.0:
                leave(d, i, work)


@kernel
def locate(points, d, x, work):
    """Write y, the corral's point minus x, to `toward`; return its squared length."""
    total, squared, toward = 0.0, 0.0, work.toward
    for k in range(d):
        toward[k] = 0.0
    for i in range(work.active):
        j, weight = work.corral[i], work.weights[i]
        total += weight
        for k in range(d):
            toward[k] += weight * (points[j, k] - x[k])
    work.total = total
    if not total > 0.0:
        return math.inf
    for k in range(d):
        toward[k] /= total
        squared += toward[k] * toward[k]
    if squared < BLUNT * BLUNT * work.lift * work.lift and work.active <= d:
        # the sum has cancelled, so the direction of y is inexact; the residual of the fit is normal to the corral to the last digit
        squared = 0.0
        for k in range(d):
            work.column[k] = 0.0
        work.column[d] = work.lift
        for _ in range(3):  # repeated orthogonalisation removes rounding errors
            straighten(d, work)
        for k in range(d):
            toward[k] = -work.column[k] / total
            squared += toward[k] * toward[k]
    return squared


@kernel
def improve(points, d, x, listed, goal, bound, squared, work):
    """Bring y closer with points of the shortlist until their gap is at most `goal`; return the new squared length of y."""
    work.barred = 0
    for _ in range(ENTRIES):
        entry, least = choose(points, d, x, listed, work)
        if entry < 0 or not squared - least > goal:
            break
        j = work.shortlist[entry]
        if not enter(points, d, x, j, work):  # barred until y moves: swapped in front of the entries that are examined
            work.shortlist[entry], work.shortlist[work.barred] = work.shortlist[work.barred], j
            work.barred += 1
            continue
        settle(d, work)
        before = squared
        squared = locate(points, d, x, work)
        work.barred = 0
        work.patience -= 0 if squared < before else 1  # in exact arithmetic every entry brings y closer
        if work.patience == 0 or (bound >= 0.0 and squared <= bound * bound):
            break
    return squared


@register_jitable(
    forceinline=False, **FROM_KERNELS
)  # verbs force inlining on all their callees; for this much code that only costs compile time
def search(points, count, d, x, limit, work):
    """Return 1 if x is farther than `limit` from the hull of points[:count], else 0; `limit` < 0 computes the distance.

    Ties, and distances that rounding cannot tell from ties, are within. Beyond that, no answer depends on remembered directions.
    """
    work.active = work.passes = 0
    work.lower, work.upper = 0.0, math.inf
    if count == 0:
        work.lower = math.inf
        return 1
    bound = limit + RESOLUTION * max(1.0, limit) if limit >= 0.0 else -1.0
    if bound >= 0.0 and separated(points, count, d, x, bound, work):
        return 1
    nearest, squared, most, listed = survey(points, count, d, x, work)
    work.upper = math.sqrt(squared)
    if work.upper <= bound:
        return 0
    work.lift = math.sqrt(most) if most > 0.0 else 1.0
    work.patience = PATIENCE
    if not enter(points, d, x, nearest, work):
        return 1  # not a number: no bound holds, and a false alarm is the safe answer
    work.weights[0] = work.total = work.lift * work.basis[0, d] / work.tri[0, 0]
    for k in range(d):
        work.toward[k] = points[nearest, k] - x[k]
    goal = HASTE * squared
    for turn in range(TURNS * (d + 2)):
        before = squared
        squared = improve(points, d, x, listed, goal, bound, squared, work)
        length = math.sqrt(squared)
        work.upper = min(work.upper, length)
        if work.upper <= bound or not length > FLOOR * work.lift:
            break
        least, listed = price(points, count, d, x, work)
        work.lower = max(work.lower, least / length)
        if bound >= 0.0 and work.lower > bound:
            remember(count, d, x, length, least, work)
            return 1
        gap = squared - least
        rounding = TOLERANCE * length * work.lift
        if not gap > rounding or work.patience == 0 or (turn > 0 and squared == before):  # done, or no point could enter
            break
        goal = max(HASTE * gap, rounding)
    for i in range(work.active):
        work.weights[i] /= work.total
    # if the bounds differ by more than rounding here, the search gave up: an alarm is the safe answer
    return 0 if work.upper <= limit + SURE * max(1.0, limit) else 1


@Entry
def _measure(points, x, table):
    search(points, points.shape[0], points.shape[1], x, -1.0, table[0])
    return table[0].upper


def distance(points: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """Return the Euclidean distance from `x` to the convex hull of the rows of `points`, exact to rounding; infinite without rows.

    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> distance(square, np.array([0.5, 0.25])) < 1e-12
    True
    >>> round(distance(square, np.array([1.3, 1.4])), 12)
    0.5
    """
    points, x = np.ascontiguousarray(points, np.float64), np.ascontiguousarray(x, np.float64)
    if points.ndim != 2 or x.shape != points.shape[1:]:
        raise ValueError(f"points {points.shape} and x {x.shape} do not fit: expected (n, d) and (d,)")
    if not (np.isfinite(points).all() and np.isfinite(x).all()):
        raise ValueError("points and x must be finite numbers")
    features = max(WIDEST, 1 << max(points.shape[1] - 1, 0).bit_length())
    return float(_measure.bind()(points, x, np.zeros(1, record_dtype(work_layout(features)))))
