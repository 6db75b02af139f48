"""Hull predictions beside SciPy's `nnls`: stored quiet contexts, and questions from inside, near and far outside their hull."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from swerve.bench.timing import Contender, Pairs, interleave
from swerve.classifiers import Learner
from swerve.core.contract import predict
from swerve.core.engine import Entry

D, N, MARGIN = 10, 300, 0.1  # features, stored points and δ, as the rows' names say
RADIUS = 0.9  # stored points fill this ball, which leaves room inside the unit ball for contexts outside their hull
CLEARANCE = 0.02  # questions keep this share of 2δ away from the boundary, where either answer is correct
FARTHEST = 2.5  # times 2δ: the largest distance of a question from the hull
KINDS = 3  # of questions: inside, up to 2δ outside, beyond
CORNERS = D + 2  # points that a question inside is a mixture of: one more than a simplex needs
CONCENTRATION = 0.5  # of the mixtures' weights: below 1, so that questions lie near faces as well as in the middle


class Questions(NamedTuple):
    """Stored points, contexts to ask about in mixed order, and the correct answers (True: beyond 2δ)."""

    points: NDArray[np.float64]
    contexts: NDArray[np.float64]
    positive: NDArray[np.bool_]


@Entry
def predict_each(params: Any, pools: Any, xs: Any, out: Any) -> None:
    """Predict for each context, as a policy in a compiled loop does."""
    for k in range(len(xs)):
        out[k] = predict(params[0], pools[0], pools[1], xs[k], 0)


def nearest(points: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the point of the hull nearest to x, computed by SciPy."""
    from scipy.optimize import nnls  # an extra: only this measurement needs it

    columns = np.vstack([(points - x).T, np.ones(len(points))])
    weights, _ = nnls(columns, np.append(np.zeros(points.shape[1]), 1.0))
    found: NDArray[np.float64] = points.T @ (weights / weights.sum())
    return found


def questions(count: int, seed: int = 0) -> Questions:
    """Return `count` contexts: a third inside the hull of N points, a third up to 2δ outside it, a third up to 5δ."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((N, D))
    points *= RADIUS * rng.random((N, 1)) ** (1.0 / D) / np.linalg.norm(points, axis=1, keepdims=True)
    contexts, positive = np.zeros((count, D)), np.arange(count) % KINDS == KINDS - 1
    for k in range(count):
        if k % KINDS == 0:
            few = rng.choice(N, CORNERS, replace=False)
            contexts[k] = rng.dirichlet(np.full(CORNERS, CONCENTRATION)) @ points[few]
            continue
        low, high = (1.0 + CLEARANCE, FARTHEST) if positive[k] else (CLEARANCE, 1.0 - CLEARANCE)
        while True:  # take a point outside and move it along the line to its nearest point of the hull to the wanted distance
            away = rng.standard_normal(D)
            away /= np.linalg.norm(away)
            foot = nearest(points, away)
            contexts[k] = foot + (away - foot) / np.linalg.norm(away - foot) * 2.0 * MARGIN * rng.uniform(low, high)
            if np.linalg.norm(contexts[k]) < 1.0:
                break
    order = rng.permutation(count)
    return Questions(points, contexts[order], positive[order])


def measure(batches: int, size: int, repeats: int, tick: Callable[[int], None] | None = None) -> tuple[Pairs, list[bool]]:
    """Return the seconds per prediction of nnls and ours, in turn by batch, and whether each of our answers is correct."""
    from swerve.classifiers.hull import Hull

    asked = questions(batches * size)
    hull = Hull(margin=MARGIN, max_points=N)
    learner = Learner(hull, D)
    for point in asked.points:
        learner.learn(point)
    compiled = predict_each.bind(hull)
    answers = np.zeros(batches * size, np.int64)
    pairs = Pairs([], [])
    for batch in range(batches):
        part = slice(batch * size, (batch + 1) * size)
        xs = np.ascontiguousarray(asked.contexts[part])

        def by_scipy(xs: NDArray[np.float64] = xs) -> None:
            for x in xs:
                nearest(asked.points, x)

        def by_us(xs: NDArray[np.float64] = xs, part: slice = part) -> None:
            compiled(learner.params, learner.pools, xs, answers[part])

        turn = interleave(
            Contender("nnls", size, lambda run=by_scipy: run),  # type: ignore[misc]
            [Contender("hull", size, lambda run=by_us: run)],  # type: ignore[misc]
            repeats,
        )["hull"]
        pairs.reference.extend(turn.reference)
        pairs.own.extend(turn.own)
        if tick is not None:
            tick(batch + 1)
    return pairs, (answers.astype(bool) == asked.positive).tolist()
