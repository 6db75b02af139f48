"""The safe classifier for axis-parallel rectangles: the smallest box around the contexts known to be harmless."""

from __future__ import annotations

import math

from swerve.classifiers.joining import exchanged_by_joining
from swerve.core.contract import all_missing, begin_pool, blame, clear, domain, joins, learn, merge, pool_layout, predict
from swerve.core.spec import Positive, Spec

ROUNDING = 1.0 + 1e-9  # a context on the surface of the ball is inside it, despite rounding


@exchanged_by_joining
class Rectangle(Spec):
    """SafeCl on APR(d, δ): negative iff closer than δ to the smallest rectangle around the false-labelled contexts.

    negative ⇔ L∞(x, R(N)) < δ;  with N empty everything is positive.

    A concept of the class is +1 at distance δ or more, so distance exactly δ must be positive (the paper's box uses ≤ δ, which
    would miss it). R(N) only grows: the state is a join semilattice, `merge` is commutative, associative and idempotent, and a
    stale copy is positive wherever an up-to-date one is.

    A missing feature (NaN) is silent. A context is positive only if a feature that is present makes it so, whatever the missing
    ones were. A false-labelled context grows R(N) in the features that are present. A feature that was missing in all of N has an
    empty range: any value of it is positive.

    Paper: APR(d, δ).

    >>> from swerve.classifiers import Learner
    >>> box = Learner(Rectangle(margin=0.1), d=2)
    >>> box.predict([0.5, 0.5]), box.learn([0.5, 0.5]), box.predict([0.55, 0.5]), box.predict([0.7, 0.5])
    (True, None, False, True)
    """

    margin: Positive = 0.1
    radius: Positive = 1.0  # contexts outside the L∞ ball of this radius around the origin are refused


@pool_layout.register(Rectangle)
def _(spec, features):
    return [("d", "i8"), ("known", "i8"), ("low", "f8", features), ("high", "f8", features)]


@begin_pool.register(Rectangle)
def _(spec, pool, d):
    pool.d = d
    pool.known = 0
    return 0


@predict.register(Rectangle)
def _(spec, pool, delta, x, told):
    if pool.known == 0:
        return not all_missing(x)
    far = False
    for j in range(pool.d):  # no early exit: quiet contexts need every feature anyway, and a loop without branches is faster
        # comparisons with NaN are false: a missing feature is silent
        far |= (x[j] - pool.high[j] >= spec.margin) | (pool.low[j] - x[j] >= spec.margin)
    return far


@blame.register(Rectangle)
def _(spec, pool, x):
    worst, which = -math.inf, 0
    for j in range(pool.d):
        excess = max(x[j] - pool.high[j], pool.low[j] - x[j]) if pool.known != 0 else x[j]
        if excess > worst:
            worst, which = excess, j
    return which


@learn.register(Rectangle)
def _(spec, delta, x):
    if all_missing(x):
        return 0
    for j in range(delta.d):
        if delta.known == 0:  # an empty range
            delta.low[j] = math.inf
            delta.high[j] = -math.inf
        if not math.isnan(x[j]):
            value = x[j] + 0.0  # turns −0 into 0, so that equal boxes have equal bytes
            delta.low[j] = min(delta.low[j], value)
            delta.high[j] = max(delta.high[j], value)
    delta.known = 1  # a flag, not a count: with a count, merging twice would count twice
    return 0


@merge.register(Rectangle)
def _(spec, pool, delta):
    if delta.known > 0:
        for j in range(pool.d):
            pool.low[j] = delta.low[j] if pool.known == 0 else min(pool.low[j], delta.low[j])
            pool.high[j] = delta.high[j] if pool.known == 0 else max(pool.high[j], delta.high[j])
        pool.known = 1
    return 0


@joins.register(Rectangle)
def _(spec):
    return True


@clear.register(Rectangle)
def _(spec, delta):
    delta.known = 0
    return 0


@domain.register(Rectangle)
def _(spec, pool, x):
    inside = True
    for j in range(len(x)):
        inside &= not abs(x[j]) > spec.radius * ROUNDING  # true for NaN
    return inside
