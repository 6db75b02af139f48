"""A classifier on its own, from Python: predict, teach, absorb unlabelled contexts, merge."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.core import engine
from swerve.core.contract import LEARNT, absorb, blame, predict
from swerve.core.errors import SwerveError
from swerve.core.spec import Spec, pack
from swerve.core.tables import Table, pool_dtype


@engine.Entry
def absorb_one(params, pools, group, writer, x):
    """Absorb an unlabelled context and fold it at once; return 0, or a negative reason."""
    bad = engine.admissible(params[0], pools[group], x)
    if bad == 0 and absorb(params[0], pools[group], pools[writer], x):
        engine.fold(params[0], pools, group, writer, LEARNT)
    return bad


@engine.Entry
def blame_one(params, pools, group, x):
    """Return the feature that makes a context positive, or a negative reason."""
    bad = engine.admissible(params[0], pools[group], x)
    return bad if bad != 0 else blame(params[0], pools[group], x)


class Learner:
    """One classifier and its state.

    >>> from swerve import Rectangle
    >>> box = Learner(Rectangle(margin=0.1), d=1)
    >>> box.predict([0.3])  # nothing is known to be harmless yet
    True
    >>> box.learn([0.3])
    >>> box.predict([0.3])
    False
    """

    def __init__(self, classifier: Spec, d: int) -> None:
        if not isinstance(classifier, Spec) or not predict.knows(classifier):
            raise SwerveError(f"classifier = {classifier!r} is not allowed; it must be able to predict, such as Rectangle()")
        if d < 1:
            raise SwerveError(f"d = {d} is not allowed; d must be ≥ 1")
        self.classifier, self.d = classifier, d
        self.params = pack(classifier)
        self.pools: Table = np.zeros(2, pool_dtype(classifier, d))  # the classifier's state, and the delta
        engine.begin_pools.fitting(2, classifier)(self.params, self.pools, d)
        self._predict_one = engine.predict_one.bind(classifier)
        self._learn_one = engine.learn_one.bind(classifier)
        self._absorb_one = absorb_one.bind(classifier)

    def predict(self, x: ArrayLike) -> bool:
        """Return whether `x` may be an event (True is positive)."""
        return bool(self._accepted(self._predict_one(self.params, self.pools, 0, 1, self._context(x)), x))

    def learn(self, x: ArrayLike) -> None:
        """Learn that `x` was no event."""
        self._accepted(self._learn_one(self.params, self.pools, 0, 1, self._context(x)), x)

    def absorb(self, x: ArrayLike) -> None:
        """Learn from `x` without a label. Classifiers that learn from labels alone ignore it."""
        self._accepted(self._absorb_one(self.params, self.pools, 0, 1, self._context(x)), x)

    def blame(self, x: ArrayLike) -> int:
        """Return the feature that makes `x` positive; 0 where the classifier cannot say."""
        return int(self._accepted(blame_one.bind(self.classifier)(self.params, self.pools, 0, self._context(x)), x))

    def merge(self, other: Learner) -> None:
        """Merge the knowledge of `other` into this one."""
        if absorb.knows(self.classifier):
            raise SwerveError(f"{self.classifier!r} cannot be merged with another: its state is not a set of contexts")
        if other.classifier != self.classifier or other.d != self.d:
            raise SwerveError(f"only equal classifiers can be merged, not {self.classifier!r} and {other.classifier!r}")
        both = np.concatenate([self.pools[:1], other.pools[:1]])
        engine.merge_one.bind(self.classifier)(self.params, both, 0, 1)
        self.pools[0] = both[0]

    def copy(self) -> Learner:
        """Return an independent copy."""
        out = Learner(self.classifier, self.d)
        out.pools = self.pools.copy()
        return out

    def _context(self, x: ArrayLike) -> NDArray[np.float64]:
        context = np.ascontiguousarray(x, dtype=np.float64)
        if context.shape != (self.d,):
            raise SwerveError(f"x has shape {context.shape}; this classifier reads contexts of {self.d} features")
        return context

    def _accepted(self, code: int, x: ArrayLike) -> int:
        if code == engine.NOT_FINITE:
            raise SwerveError(
                f"x = {np.asarray(x).tolist()} is not allowed; every feature must be a finite number, or NaN where it is missing"
            )
        if code == engine.OUTSIDE:
            raise SwerveError(f"x = {np.asarray(x).tolist()} is not allowed; it lies outside the domain of {self.classifier!r}")
        return code
