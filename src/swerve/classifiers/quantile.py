"""A classifier without labels: a context is an event when a feature lies far outside its usual range."""

from __future__ import annotations

from typing import Annotated

from swerve.core.contract import absorb, begin_pool, blame, clear, domain, merge, pool_layout, predict
from swerve.core.spec import Natural, NonNegative, Range, Spec

STEP = 8.0  # step of the search for a quantile, in mean absolute deviations, divided by (contexts seen)^DECAY
DECAY = 0.9  # the power of the contexts seen by which steps shrink
LONG = 2048.0  # contexts after which steps stop shrinking and averages forget, so that the box can drift
LONG_STEP = STEP / LONG
SETTLED = 1e6  # contexts after which the step is certainly LONG_STEP: saves the power
HEADSTART = 64.0  # shortens the first steps: a long first step outwards takes thousands of contexts to undo
FIRST = 16.0  # the search starts at the average of this many contexts
LARGEST = 1e100  # larger features are refused: their deviations could overflow, and a box that is not a number stays so
TINY = 1e-200  # replaces the spread of a feature that has never varied


class QuantileBox(Spec):
    """Positive iff a feature lies clearly outside its usual range, by a margin learnt from the shape of its own tail.

    With Q(τ) the τ-quantile of feature j over all contexts,
    positive ⇔ x_j > Q(1 − outer_tail) + m⁺ or x_j < Q(outer_tail) − m⁻ for some j, where
    m⁺ = max(min_margin, tail_factor · (Q(1 − outer_tail) − Q(1 − inner_tail))), and m⁻ is its mirror image.

    Each quantile q is tracked by q ← q ± γ_n · s · (1[x_j beyond q] − τ), where s is the feature's mean absolute deviation and γ_n
    = max(8 / n^0.9, 8 / 2048) after n contexts. The state has constant size and follows slow drift. No label is needed, and
    features may have different scales. Once the box has settled, a share of the contexts below `outer_tail` cannot move it far,
    wherever those contexts lie (up to about a hundred ranges away: s is an average). All contexts are negative until
    `warmup_contexts` were seen.

    The classifier is not safe in the paper's sense: a context is negative because many similar ones were seen, not because one of
    them was harmless. Its state is not a join semilattice either: deltas count contexts, so each must be folded exactly once; their
    order matters little.

    Source: Robbins and Monro, "A stochastic approximation method" (Annals of Mathematical Statistics 22, 1951), for the quantiles;
    the margin is our own.

    >>> from swerve.classifiers import Learner
    >>> box = Learner(QuantileBox(warmup_contexts=50), d=1)
    >>> for i in range(1000):
    ...     box.absorb([0.5 + 0.01 * (i % 11)])
    >>> box.predict([0.55]), box.predict([0.7]), box.predict([0.3])
    (False, True, True)
    """

    outer_tail: Annotated[float, Range(0.0, 0.25, open_low=True)] = 0.02
    inner_tail: Annotated[float, Range(0.0, 0.5, open_low=True)] = 0.10
    tail_factor: NonNegative = 1.5
    min_margin: NonNegative = 0.0
    warmup_contexts: Natural = 200

    def check(self) -> None:
        if self.inner_tail <= self.outer_tail:
            self.refuse("inner_tail", f"> outer_tail = {self.outer_tail:g}")


@pool_layout.register(QuantileBox)
def _(spec, features):
    each = ("f8", features)
    return [
        ("d", "i8"),
        ("seen", "f8"),  # contexts
        ("low", *each),  # where alarms begin
        ("high", *each),
        ("middle", *each),  # average, and mean absolute deviation (in a delta: sums)
        ("spread", *each),
        ("low_outer", *each),  # the four quantiles (in a delta: how many contexts lay beyond them)
        ("low_inner", *each),
        ("high_inner", *each),
        ("high_outer", *each),
    ]


@begin_pool.register(QuantileBox)
def _(spec, pool, d):
    pool.d = d
    clear(spec, pool)
    return 0


@clear.register(QuantileBox)
def _(spec, delta):
    delta.seen = 0.0
    for j in range(delta.d):
        delta.middle[j] = 0.0
        delta.spread[j] = 0.0
        delta.low_outer[j] = 0.0
        delta.low_inner[j] = 0.0
        delta.high_inner[j] = 0.0
        delta.high_outer[j] = 0.0
    return 0


@predict.register(QuantileBox)
def _(spec, pool, delta, x, told):
    if pool.seen < spec.warmup_contexts:
        return False
    far = False
    for j in range(pool.d):  # no early exit: quiet contexts need every feature anyway, and a loop without branches is faster
        far |= (x[j] > pool.high[j]) | (x[j] < pool.low[j])
    return far


@blame.register(QuantileBox)
def _(spec, pool, x):
    worst, which = -1.0, 0
    for j in range(pool.d):  # in mean deviations, to compare features on different scales
        excess = max(x[j] - pool.high[j], pool.low[j] - x[j]) / (pool.spread[j] + TINY)
        if excess > worst:
            worst, which = excess, j
    return which


@absorb.register(QuantileBox)
def _(spec, pool, delta, x):
    delta.seen += 1.0
    if pool.seen == 0.0:  # there are no quantiles to compare with yet
        for j in range(pool.d):
            delta.middle[j] += x[j]
        return 1
    for j in range(pool.d):
        delta.middle[j] += x[j]
        delta.spread[j] += abs(x[j] - pool.middle[j])
        delta.low_outer[j] += 1.0 if x[j] < pool.low_outer[j] else 0.0
        delta.low_inner[j] += 1.0 if x[j] < pool.low_inner[j] else 0.0
        delta.high_inner[j] += 1.0 if x[j] > pool.high_inner[j] else 0.0
        delta.high_outer[j] += 1.0 if x[j] > pool.high_outer[j] else 0.0
    return 1


@merge.register(QuantileBox)
def _(spec, pool, delta):
    n = delta.seen
    if n == 0.0:
        return 0
    if pool.seen == 0.0:
        for j in range(pool.d):
            first = delta.middle[j] / n
            pool.middle[j] = first
            pool.low[j] = first - spec.min_margin
            pool.high[j] = first + spec.min_margin
            pool.low_outer[j] = first
            pool.low_inner[j] = first
            pool.high_inner[j] = first
            pool.high_outer[j] = first
        pool.seen = n
        return 0
    pool.seen += n
    weight = min(n / min(pool.seen, LONG), 1.0)
    steps = max(LONG_STEP, STEP / (pool.seen + HEADSTART) ** DECAY) if pool.seen < SETTLED else LONG_STEP
    for j in range(pool.d):
        pool.middle[j] += (delta.middle[j] / n - pool.middle[j]) * weight
        pool.spread[j] += (delta.spread[j] / n - pool.spread[j]) * weight
        if pool.seen <= FIRST:  # the deviation is not known yet
            pool.low_outer[j] = pool.middle[j]
            pool.low_inner[j] = pool.middle[j]
            pool.high_inner[j] = pool.middle[j]
            pool.high_outer[j] = pool.middle[j]
            continue
        step = steps * pool.spread[j]
        pool.low_outer[j] -= step * (delta.low_outer[j] - spec.outer_tail * n)
        pool.low_inner[j] -= step * (delta.low_inner[j] - spec.inner_tail * n)
        pool.high_inner[j] += step * (delta.high_inner[j] - spec.inner_tail * n)
        pool.high_outer[j] += step * (delta.high_outer[j] - spec.outer_tail * n)
        pool.low[j] = pool.low_outer[j] - max(spec.min_margin, spec.tail_factor * (pool.low_inner[j] - pool.low_outer[j]))
        pool.high[j] = pool.high_outer[j] + max(spec.min_margin, spec.tail_factor * (pool.high_outer[j] - pool.high_inner[j]))
    return 0


@domain.register(QuantileBox)
def _(spec, pool, x):
    inside = True
    for j in range(len(x)):
        inside &= abs(x[j]) <= LARGEST
    return inside
