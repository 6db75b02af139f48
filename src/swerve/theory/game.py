"""The online prediction game that defines FP-complexity, and adversaries for it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.core.errors import SpecError
from swerve.core.spec import Count, Natural, Positive, coerced
from swerve.theory.diameters import steps

Context = NDArray[np.float64]
Concept = Callable[[Context], int | None]


class Classifier(Protocol):
    """The interface of a classifier in the game: predict, and learn a context that was no event."""

    def predict(self, x: Context, /) -> bool: ...

    def learn(self, x: Context, /) -> object: ...


C = TypeVar("C", bound=Classifier)


class Score(NamedTuple):
    """The result of a game; `misses` is 0 for a safe classifier."""

    false_positives: int
    misses: int
    true_positives: int


def quiet(x: Context) -> int:
    """Return −1: the oracle without events.

    It is the rectangle that contains the whole ball. No hyperplane of the class is −1 on the whole ball (|u| ≤ 1 leaves a cap of
    height δ), so use a concept of the class against `Hull` instead.

    >>> quiet(np.zeros(2))
    -1
    """
    return -1


def play(classifier: Classifier, contexts: Iterable[ArrayLike], concept: Concept) -> Score:
    """Play the game: one context per round, a prediction, and the correct label iff the prediction is a false positive.

    `concept` maps a context to −1 (no event), +1 (event) or None (null: the concept never emits it, so it is refused).
    `contexts` is read one by one, so a generator that inspects the classifier is an adaptive adversary.

    Paper: Definition 2

    >>> class Threshold:
    ...     high = -np.inf
    ...     def predict(self, x): return x[0] - self.high >= 0.5
    ...     def learn(self, x): self.high = max(self.high, x[0])
    >>> play(Threshold(), [[0.0], [0.4], [0.5], [2.0]], lambda x: 1 if x[0] >= 1 else -1)
    Score(false_positives=2, misses=0, true_positives=1)
    """
    false_positives = misses = true_positives = 0
    for context in contexts:
        x = np.asarray(context, dtype=np.float64)
        truth = concept(x)
        if truth is None:
            raise SpecError("play", "contexts", x.tolist(), "feasible: the concept is null there, and never emits it")
        if truth not in (-1, 1):
            raise SpecError("play", "concept", truth, "a function with values −1, +1 and None")
        if not classifier.predict(x):
            misses += truth == 1
        elif truth == 1:
            true_positives += 1
        else:
            false_positives += 1
            classifier.learn(x)
    return Score(false_positives, misses, true_positives)


def staircase(d: int, margin: float) -> Iterator[Context]:
    """Yield the optimal adversary against rectangles: from the corner (−1, …, −1), each coordinate upward in steps of δ.

    1 + d·⌊2/δ⌋ contexts, every one a false positive of `SafeCl` on APR(d, δ) when the truth is `quiet`.

    A step is the smallest float that is ≥ δ above the last one both as x − high ≥ δ and as x ≥ high + δ. Where 2/δ is whole but δ
    is not exact in binary (0.1), the last steps exceed 1 by rounding, by less than 10⁻¹⁵ each.

    Paper: APR(d, δ)

    >>> [x.tolist() for x in staircase(1, 0.5)]
    [[-1.0], [-0.5], [0.0], [0.5], [1.0]]
    >>> len(list(staircase(10, 0.1)))
    201
    """
    d = coerced("staircase", "d", Natural, d)
    margin = coerced("staircase", "margin", Positive, margin)
    return _climb(d, margin)


def _climb(d: int, margin: float) -> Iterator[Context]:
    corner = np.full(d, -1.0)
    yield corner
    for i in range(d):
        high = -1.0
        for _ in range(steps(margin)):
            x = high + margin
            if x - high < margin:  # the sum was rounded down, by less than one unit in the last place
                x = float(np.nextafter(x, np.inf))
            high = x
            context = corner.copy()
            context[i] = high
            yield context


def greedy(classifier: Classifier, pool: ArrayLike, concept: Concept = quiet, tries: int = 16, seed: int = 0) -> Iterator[Context]:
    """Yield an adaptive adversary for any classifier: the context that is called positive and teaches the least.

    Each round draws up to `tries` contexts of the pool that are called positive, lets a copy of the classifier learn each, and
    emits the one after which most of the pool is still called positive. Contexts where the concept is not −1 are omitted; each
    context is emitted at most once. The sequence ends when nothing in the pool is called positive.

    Paper: Definition 2 (its maximum is over all sequences, so a greedy one gives a lower bound)

    >>> class Threshold:
    ...     high = -np.inf
    ...     def predict(self, x): return x[0] - self.high >= 0.5
    ...     def learn(self, x): self.high = max(self.high, x[0])
    >>> one = Threshold()
    >>> play(one, greedy(one, np.linspace(-1, 1, 21)[:, None], tries=21), quiet).false_positives
    5
    """
    table = np.asarray(pool, dtype=np.float64)
    if table.ndim != 2:
        raise SpecError("greedy", "pool", f"shape {table.shape}", "a table with one context per row")
    tries = coerced("greedy", "tries", Natural, tries)
    generator = np.random.default_rng(coerced("greedy", "seed", Count, seed))
    return _least(classifier, [x for x in table if concept(x) == -1], tries, generator)


def _least(classifier: Classifier, pool: list[Context], tries: int, generator: np.random.Generator) -> Iterator[Context]:
    while True:
        # A safe classifier only ever turns contexts negative, so negative contexts need not be asked again.
        pool = [x for x in pool if classifier.predict(x)]
        if not pool:
            return
        left: list[tuple[int, int]] = []
        for j in generator.permutation(len(pool))[:tries]:
            taught = copy.deepcopy(classifier)
            taught.learn(pool[j])
            left.append((sum(bool(taught.predict(x)) for x in pool), int(j)))
        yield pool.pop(max(left)[1])


def sphere(d: int, count: int, seed: int = 0) -> Context:
    """Return `count` random contexts on the L2 unit sphere: in convex position, where a hull learns least from each.

    >>> sphere(3, 100).shape
    (100, 3)
    """
    d, count, seed = _shape("sphere", d, count, seed)
    normal = np.random.default_rng(seed).normal(size=(count, d))
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def cube(d: int, count: int, seed: int = 0) -> Context:
    """Return `count` random contexts, uniform in the L∞ unit ball.

    >>> bool((abs(cube(3, 100)) <= 1).all())
    True
    """
    d, count, seed = _shape("cube", d, count, seed)
    return np.random.default_rng(seed).uniform(-1, 1, (count, d))


def fp_complexity(
    factory: Callable[[], C], adversaries: Iterable[Callable[[C], Iterable[ArrayLike]]], concept: Concept = quiet
) -> int:
    """Return the most false positives that any adversary forces from a new classifier: a lower bound on FP-complexity.

    An adversary takes the classifier and returns the contexts; one that does not adapt ignores it. For `SafeCl` the result is at
    most the diameter of the class. It can be lower, because all false positives must be −1 under one concept.

    Paper: Definition 2

    >>> class Threshold:
    ...     high = -np.inf
    ...     def predict(self, x): return x[0] - self.high >= 0.5
    ...     def learn(self, x): self.high = max(self.high, x[0])
    >>> fp_complexity(Threshold, [lambda _: staircase(1, 0.5), lambda one: greedy(one, cube(1, 50))])
    5
    """
    worst = 0
    for adversary in adversaries:
        classifier = factory()
        worst = max(worst, play(classifier, adversary(classifier), concept).false_positives)
    return worst


def _shape(owner: str, d: int, count: int, seed: int) -> tuple[int, int, int]:
    return coerced(owner, "d", Natural, d), coerced(owner, "count", Natural, count), coerced(owner, "seed", Count, seed)
