"""Diameters of concept classes: the number of false positives that `SafeCl` can be forced to make.

The diameter d_F is the length of the longest sequence x_1, …, x_m such that for each t some concept is +1 on x_t and −1
on every earlier x_s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.core.errors import SpecError
from swerve.core.spec import Natural, Positive, coerced

NEAR = 1e-12  # 2/δ this close (relatively) to a whole number counts as that number: 0.1 and 2/11 are not exact in binary
BAND = 1e-9  # a distance within this of 2δ counts as 2δ, hence as negative
STATES = 100_000  # the most states that a search stores: some seconds, some tens of megabytes
DEEPEST = 300  # the longest possible sequence that the recursion below can follow
MOST_POINTS, MOST_FEATURES = 24, 3  # the exact search for hyperplanes tabulates all simplices of up to d + 1 points

Moves = Callable[[int], list[tuple[int, int]]]


def rectangle_diameter(d: int, margin: float) -> int:
    """Return the exact diameter of axis-parallel rectangles with margin δ on the L∞ unit ball.

    d_F = 1 + d·⌊2/δ⌋

    The first context is always possible. Every later one is at L∞ distance ≥ δ from the rectangle around the earlier ones, so it
    widens some interval by at least δ; an interval inside [−1, 1] can be widened ⌊2/δ⌋ times. `staircase` attains the diameter. A
    step of exactly δ counts (negative iff distance < δ). 2/δ within 10⁻¹² of a whole number counts as that number.

    Paper: APR(d, δ)

    >>> rectangle_diameter(10, 0.1), rectangle_diameter(1, 2 / 11), rectangle_diameter(3, 2.5)
    (201, 12, 1)
    """
    d = coerced("rectangle_diameter", "d", Natural, d)
    return 1 + d * steps(coerced("rectangle_diameter", "margin", Positive, margin))


def steps(margin: float) -> int:
    """Return ⌊2/δ⌋, the number of steps of δ from −1 to 1."""
    ratio = 2 / margin
    near = round(ratio)
    return near if abs(ratio - near) <= NEAR * ratio else math.floor(ratio)


def hyperplane_bound(d: int, margin: float) -> float:
    """Return an upper bound on the diameter of hyperplanes with margin δ on the L2 unit ball.

    d_F ≤ (1 + 1/δ)^d: balls of radius δ around the contexts do not overlap and lie in a ball of radius 1 + δ.

    Paper: HYP(d, δ)

    >>> hyperplane_bound(2, 0.25)
    25.0
    """
    d = coerced("hyperplane_bound", "d", Natural, d)
    margin = coerced("hyperplane_bound", "margin", Positive, margin)
    try:
        return float((1 + 1 / margin) ** d)
    except OverflowError:
        return math.inf


def line_diameter(margin: float) -> int:
    """Return the exact diameter of hyperplanes with margin δ in one dimension.

    d_F = ⌈1/δ⌉

    The hull of the earlier contexts is an interval in [−1, 1]. Every context after the first lies further than 2δ from it and
    lengthens it by as much, so (m − 1)·2δ < 2; equal steps from −1 to 1 attain the largest such m. 1/δ within 10⁻¹² of a whole
    number counts as that number.

    Paper: HYP(1, δ)

    >>> line_diameter(0.1), line_diameter(0.3), line_diameter(1.0)
    (10, 4, 1)
    """
    margin = coerced("line_diameter", "margin", Positive, margin)
    ratio = 1 / margin
    near = round(ratio)
    return max(near if abs(ratio - near) <= NEAR * ratio else math.ceil(ratio), 1)


def finite_diameter(matrix: ArrayLike, states: int = STATES) -> int:
    """Return the exact diameter of a finite class: one row per concept, one column per context, entries −1, +1, 0 = null.

    The future of a sequence depends only on its version space V, the concepts that are −1 on all of it: x may follow iff some f in
    V has f(x) = +1, and leaves the members of V with f(x) = −1. The diameter is the longest path over version spaces, as bit masks.

    A class with more than `states` version spaces is refused, because the search is exponential in the worst case.

    Paper: Definition 3, for any concept class

    >>> finite_diameter([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    3
    >>> finite_diameter([[1, 1, 1], [-1, 1, 1], [-1, -1, 1]]), finite_diameter([[-1, -1]]), finite_diameter([[1, 0], [0, 1]])
    (3, 0, 1)
    """
    table = np.asarray(matrix)
    states = coerced("finite_diameter", "states", Natural, states)
    if table.ndim != 2 or not np.isin(table, (-1, 0, 1)).all():
        raise SpecError("finite_diameter", "matrix", matrix, "a table of concepts × contexts with entries −1, +1 and 0 (null)")
    table = np.unique(np.unique(table, axis=0), axis=1) if table.size else table
    if min(table.shape) > DEEPEST:
        raise SpecError("finite_diameter", "matrix", f"{table.shape} distinct", f"at most {DEEPEST} concepts or contexts")
    positive = [_mask(column == 1) for column in table.T]
    negative = [_mask(column == -1) for column in table.T]
    contexts = list(zip(positive, negative, strict=True))

    def bound(space: int) -> int:
        return min(space.bit_count(), sum(1 for plus in positive if space & plus))

    def moves(space: int) -> list[tuple[int, int]]:
        return [(bound(space & minus), space & minus) for plus, minus in contexts if space & plus]

    return _longest((1 << table.shape[0]) - 1, moves, states, "finite_diameter", "matrix")


def hyperplane_diameter(points: ArrayLike, margin: float, states: int = STATES) -> int:
    """Return the exact diameter of hyperplanes with margin δ on these contexts alone: up to 24 points, d ≤ 3.

    x_t must lie further than 2δ (L2) from Co({x_1, …, x_{t−1}}). The point of a hull that is nearest to x lies in a simplex of at
    most d + 1 of its points (Carathéodory). One table therefore lists the points that each such simplex excludes, and the search
    works on bit masks: a state is the set of all points inside the hull, which does not depend on the order of the sequence.

    Distances within 10⁻⁹ of 2δ count as 2δ. More than `states` different hulls are refused.

    Paper: HYP(d, δ)

    >>> square = [[0.7, 0.7], [0.7, -0.7], [-0.7, 0.7], [-0.7, -0.7]]
    >>> hyperplane_diameter(square, 0.4), hyperplane_diameter(square, 0.6), hyperplane_diameter(square, 0.8)
    (4, 3, 2)
    """
    table = np.asarray(points, dtype=np.float64)
    margin = coerced("hyperplane_diameter", "margin", Positive, margin)
    states = coerced("hyperplane_diameter", "states", Natural, states)
    if table.ndim != 2 or not 1 <= table.shape[0] <= MOST_POINTS or not 1 <= table.shape[1] <= MOST_FEATURES:
        allowed = f"1 to {MOST_POINTS} points with 1 to {MOST_FEATURES} features each"
        raise SpecError("hyperplane_diameter", "points", f"shape {table.shape}", allowed)
    if not (np.linalg.norm(table, axis=1) <= 1 + BAND).all():
        raise SpecError("hyperplane_diameter", "points", points, "inside the L2 unit ball")
    corners, distances = _simplices(table)
    inside = _masks(distances <= BAND)
    excluded = _masks(distances <= 2 * margin + BAND)
    close = [int(row) for row in excluded[: len(table)]]  # single points come first
    everything = (1 << len(table)) - 1
    hulls: dict[int, tuple[int, int]] = {}

    def hull(chosen: int) -> tuple[int, int]:
        """Return the points inside the hull of `chosen`, and the points that may still follow."""
        known = hulls.get(chosen)
        if known is None:
            faces = (corners & ~np.int64(chosen)) == 0
            closed = int(np.bitwise_or.reduce(inside[faces]))
            known = hulls[chosen] = closed, everything & ~int(np.bitwise_or.reduce(excluded[faces]))
        return known

    def moves(closed: int) -> list[tuple[int, int]]:
        alive = hull(closed)[1] if closed else everything
        nexts = {hull(closed | 1 << j) for j in range(len(table)) if alive >> j & 1}
        return [(_cliques(left, close), after) for after, left in nexts]

    return _longest(0, moves, states, "hyperplane_diameter", "points")


def _longest(start: int, moves: Moves, states: int, owner: str, field: str) -> int:
    """Return the length of the longest path from `start`; `moves` gives (upper bound on the rest, state) for each step."""
    memo: dict[int, int] = {}

    def visit(state: int) -> int:
        if state in memo:
            return memo[state]
        best = 0
        for bound, after in sorted(moves(state), reverse=True):
            if bound + 1 <= best:  # sorted: neither this step nor a later one can do better
                break
            best = max(best, 1 + visit(after))
        if len(memo) >= states:
            raise SpecError(owner, field, f"a search of over {states} states", "smaller, or `states` larger")
        memo[state] = best
        return best

    return visit(start)


def _cliques(alive: int, close: list[int]) -> int:
    """Return how many groups of mutually close points cover `alive`: a sequence can use at most one point of each group."""
    count = 0
    while alive:
        group = alive
        while group:
            first = group & -group
            alive ^= first
            group &= close[first.bit_length() - 1] & ~first
        count += 1
    return count


def _simplices(points: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return every simplex of at most d + 1 of the points: its corners as a bit mask, and distances[simplex, point].

    A distance is to the projection on the simplex's affine hull if that falls inside the simplex, else infinite: a face of the
    simplex, which is in the list too, is nearer. A degenerate simplex does no harm: the points that it reports are in the hull too.
    """
    count, d = points.shape
    masks: list[NDArray[np.int64]] = []
    distances: list[NDArray[np.float64]] = []
    for size in range(1, min(d + 1, count) + 1):
        chosen = np.array(list(combinations(range(count), size)))
        origin = points[chosen[:, 0]]
        edges = points[chosen[:, 1:]] - origin[:, None]
        offsets = points[None] - origin[:, None]
        weights = offsets @ np.linalg.pinv(edges, rcond=BAND) if size > 1 else np.zeros((len(chosen), count, 0))
        gaps = np.linalg.norm(offsets - weights @ edges, axis=2)
        outside = (weights < -BAND).any(axis=2) | (weights.sum(axis=2) > 1 + BAND)
        masks.append((np.int64(1) << chosen).sum(axis=1))
        distances.append(np.where(outside, np.inf, gaps))
    return np.concatenate(masks), np.concatenate(distances)


def _mask(flags: NDArray[Any]) -> int:
    return sum(1 << int(i) for i in np.flatnonzero(flags))


def _masks(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    return flags.astype(np.int64) @ (np.int64(1) << np.arange(flags.shape[1]))
