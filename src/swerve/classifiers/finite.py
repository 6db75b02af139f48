"""The safe classifier for a finite concept class, given as a matrix or as predicates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from swerve.classifiers.joining import exchanged_by_joining
from swerve.core.contract import begin_pool, clear, domain, learn, merge, pool_layout, predict
from swerve.core.errors import SpecError
from swerve.core.spec import Spec
from swerve.core.verbs import kernel, verb


@verb
def concepts(spec):
    """Return the number of concepts of a class (called from Python, to size the state)."""


@verb
def value(spec, i, x):
    """Return the value of concept i for a context: +1, −1, or 0 where it is undefined (null)."""


@kernel
def _all_present(spec, x):
    for j in range(len(x)):
        if math.isnan(x[j]):
            return False
    return True


@verb(default=_all_present)
def legible(spec, x):
    """Return whether every feature that the class reads is present; by default, whether no feature is missing."""


@exchanged_by_joining
class Finite(Spec):
    """SafeCl for any class: negative iff no concept consistent with all false labels calls the context an event.

    negative ⇔ there is no f ∈ F with f(x) = +1 and f(x') = −1 for each false-labelled x'.

    The class is a spec with two verbs, `concepts` and `value`: `Matrix` below, or your own. The state is the set of concepts that
    are ruled out. It only grows, so `merge` is a union: commutative, associative and idempotent, and a stale copy never misses an
    event.

    A context in which a feature is missing that the class reads (verb `legible`) is negative and teaches nothing.

    Paper: Safe Classifier, SafeCl.

    >>> from swerve.classifiers import Learner, Matrix
    >>> safe = Learner(Finite(Matrix(((1, -1, -1), (-1, 1, -1)))), d=1)
    >>> safe.predict([0]), safe.predict([2]), safe.learn([0]), safe.predict([0]), safe.predict([1])
    (True, False, None, False, True)
    """

    family: Spec

    def check(self) -> None:
        if not value.knows(self.family):
            self.refuse("family", "a concept class: a spec with the verbs `concepts` and `value`, such as Matrix")


class Matrix(Spec):
    """A concept class over numbered contexts: `table[i][j]` is the value of concept i for context j (+1, −1, or 0 for null).

    The context number is the first feature. `Matrix.tabulate(predicates, contexts)` makes one from Python predicates.
    """

    table: tuple[tuple[int, ...], ...]

    def check(self) -> None:
        table = tuple(tuple(int(entry) for entry in line) for line in self.table)
        if not table or not table[0] or any(len(line) != len(table[0]) for line in table):
            raise SpecError("Matrix", "table", self.table, "a rectangular table, one line per concept")
        if any(entry not in (-1, 0, 1) for line in table for entry in line):
            raise SpecError("Matrix", "table", self.table, "made of +1, −1 and 0 (null)")
        object.__setattr__(self, "table", table)

    @classmethod
    def tabulate(cls, predicates: Sequence[Callable[[Any], int | None]], contexts: Sequence[Any]) -> Matrix:
        """Return the class of these predicates on these contexts. A predicate returns +1, −1, or None where it is undefined.

        >>> Matrix.tabulate([lambda x: 1 if x > 0.5 else -1], [0.2, 0.9]).table
        ((-1, 1),)
        """
        return cls(tuple(tuple(int(predicate(x) or 0) for x in contexts) for predicate in predicates))


@concepts.register(Matrix)
def _(spec):
    return len(spec.table)


@value.register(Matrix)
def _(spec, i, x):
    return spec.table[i, np.int64(x[0])]


@legible.register(Matrix)
def _(spec, x):
    return not math.isnan(x[0])


@domain.register(Matrix)
def _(spec, pool, x):
    usable = len(x) > 0
    for j in range(len(x)):
        usable &= abs(x[j]) != math.inf
    if not usable or math.isnan(x[0]):  # math.floor takes no NaN
        return usable
    return 0.0 <= x[0] < spec.table.shape[1] and x[0] == math.floor(x[0])


@pool_layout.register(Finite)
def _(spec, features):
    return [("d", "i8"), ("ruled_out", "u1", concepts(spec.family))]


@begin_pool.register(Finite)
def _(spec, pool, d):
    pool.d = d
    clear(spec, pool)
    return 0


@predict.register(Finite)
def _(spec, pool, delta, x, told):
    if not legible(spec.family, x):
        return False
    for i in range(pool.ruled_out.shape[0]):
        if pool.ruled_out[i] == 0 and value(spec.family, i, x) == 1:
            return True
    return False


@learn.register(Finite)
def _(spec, delta, x):
    if not legible(spec.family, x):
        return 0
    for i in range(delta.ruled_out.shape[0]):
        if value(spec.family, i, x) != -1:
            delta.ruled_out[i] = 1
    return 0


@merge.register(Finite)
def _(spec, pool, delta):
    for i in range(pool.ruled_out.shape[0]):
        pool.ruled_out[i] |= delta.ruled_out[i]
    return 0


@clear.register(Finite)
def _(spec, delta):
    for i in range(delta.ruled_out.shape[0]):
        delta.ruled_out[i] = 0
    return 0


@domain.register(Finite)
def _(spec, pool, x):
    return domain(spec.family, pool, x)
