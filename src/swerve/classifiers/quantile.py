"""A classifier without labels: a context is an event when a feature lies far outside its usual range."""

from __future__ import annotations

import math
from typing import Annotated

from swerve.core.contract import absorb, all_missing, begin_pool, blame, clear, domain, heed, merge, pool_layout, predict
from swerve.core.elementary import power
from swerve.core.spec import Natural, NonNegative, Probability, Range, Spec
from swerve.core.verbs import kernel

STEP = 8.0  # step of the search for a quantile, in mean absolute deviations, divided by (contexts seen)^DECAY
DECAY = 0.9  # the power of the contexts seen by which steps shrink
LONG = 2048.0  # contexts after which steps stop shrinking and averages forget, so that the box can drift
LONG_STEP = STEP / LONG
SETTLED = 1e4  # values after which the step is certainly LONG_STEP, as from 4,715 on: saves the power
ROOT_STEP = math.sqrt(LONG_STEP)
# While steps are long, the quantiles are uncertain by about the square root of the step, and the sides lie further out by this many
# times as much: enough that a uniform feature raises no alarm right after the warm-up, and too little to hide signals.
EARLY = 2.0
HEADSTART = 64.0  # shortens the first steps: a long first step outwards takes thousands of contexts to undo
FIRST = 16.0  # the search starts at the average of this many contexts
LARGEST = 1e100  # larger features are refused: their deviations could overflow, and a box that is not a number stays so
TINY = 1e-200  # replaces the spread of a feature that has never varied
# A value counts as at most this many mean deviations away. It is below 100, or 1 % of far values would let the deviation grow
# without end, and above 1 / outer_tail, or the deviation of a feature that rarely differs from 0 would shrink to nothing.
FAR = 64.0
JITTER = 2.0 * LONG_STEP  # a settled quantile moves by less than this, in mean deviations, around a value that repeats
CODES = 8  # repeating values that are remembered per feature: one that makes up a ninth of all values beyond the sides is found
CODE_MEMORY = 16384.0  # contexts over which they are counted; at a share of 1 %, the count is within 25 % of its mean for certain
NOTE_FROM = 64.0  # values of a feature after which its sides are good enough to look for codes
FEW = 2.0  # a code was seen at least twice


class QuantileBox(Spec):
    """Positive iff a feature lies clearly outside its usual range, by a margin learnt from the shape of its own tail.

    With Q(τ) the τ-quantile of feature j over all contexts,
    positive ⇔ x_j > Q(1 − outer_tail) + m⁺ or x_j < Q(outer_tail) − m⁻ for some j, where
    m⁺ = max(min_margin, tail_factor · (Q(1 − outer_tail) − Q(1 − inner_tail))), and m⁻ is its mirror image. As long as few contexts
    were seen, both are larger by 2 · (√γ_n − √γ_∞) · s, because quantiles of few values are uncertain.

    Each quantile q is tracked by q ← q ± γ_n · s · (1[x_j beyond q] − τ), where s is the feature's mean absolute deviation and γ_n
    = max(8 / n^0.9, 8 / 2048) after n contexts. The state has constant size and follows slow drift. No label is needed, and
    features may have different scales. Once the box has settled, a share of the contexts below `outer_tail` cannot move it far,
    wherever those contexts lie (s is an average, in which a value counts as at most 64 s away). All contexts are negative until
    `warmup_contexts` were seen.

    A value beyond the sides that repeats exactly in at least a share `code_share` of the contexts is a *code*, such as a limit at
    which values are cut off or a default of the sender, and no alarm. `code_share=1` switches this off.

    A missing feature (NaN) is silent, and its quantiles do not move. Each feature has its own warm-up, which counts its values.

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
    code_share: Probability = 0.005

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
        ("missed", *each),  # contexts in which the feature was missing
        ("noted", "f8"),  # values beyond the sides that were noted as possible codes
        ("code", "f8", (features, CODES)),
        ("often", "f8", (features, CODES)),  # how often each code was seen, 0 for none
    ]


@kernel
def known(pool, j):
    """Return how many values of the feature were seen."""
    return pool.seen - pool.missed[j]


@kernel
def note(record, j, value, times):
    """Count a value of feature j that may be a code (Misra and Gries 1982: a value that no slot has takes from every slot)."""
    free = -1
    for i in range(CODES):
        if record.often[j, i] <= 0.0:
            free = i
        elif record.code[j, i] == value:
            record.often[j, i] += times
            return
    if free >= 0:
        record.code[j, free] = value + 0.0  # turns −0 into 0
        record.often[j, free] = times
        return
    for i in range(CODES):
        record.often[j, i] -= times


@kernel
def fold_codes(pool, delta, n):
    """Add the values that the delta noted, after reducing the weight of the earlier ones."""
    keep = max(1.0 - n / CODE_MEMORY, 0.0)
    for j in range(pool.d):
        for i in range(CODES):
            pool.often[j, i] *= keep
        if delta.noted > 0.0:
            for i in range(CODES):
                if delta.often[j, i] > 0.0:
                    note(pool, j, delta.code[j, i], delta.often[j, i])
    pool.noted += delta.noted


@kernel
def is_code(spec, pool, j, value):
    """Return whether this value of feature j repeats too often to be a surprise."""
    if pool.noted > 0.0:
        for i in range(CODES):
            if pool.often[j, i] >= FEW and pool.code[j, i] == value:
                return pool.often[j, i] >= spec.code_share * min(known(pool, j), CODE_MEMORY)
    return False


@kernel
def speaks(spec, pool, j, value):
    """Return whether this value of feature j may raise an alarm: it is present, its usual range is known, and it is no code."""
    return not math.isnan(value) and known(pool, j) >= spec.warmup_contexts and not is_code(spec, pool, j, value)


@kernel
def plain_sides(spec, pool, j):
    """Return where alarms of feature j begin if its quantiles are certain."""
    least = max(spec.min_margin, JITTER * pool.spread[j])
    low = pool.low_outer[j] - max(least, spec.tail_factor * (pool.low_inner[j] - pool.low_outer[j]))
    high = pool.high_outer[j] + max(least, spec.tail_factor * (pool.high_outer[j] - pool.high_inner[j]))
    return low, high


@begin_pool.register(QuantileBox)
def _(spec, pool, d):
    pool.d = d
    clear(spec, pool)
    return 0


@clear.register(QuantileBox)
def _(spec, delta):
    delta.seen = 0.0
    for j in range(delta.d):
        delta.missed[j] = 0.0
        delta.middle[j] = 0.0
        delta.spread[j] = 0.0
        delta.low_outer[j] = 0.0
        delta.low_inner[j] = 0.0
        delta.high_inner[j] = 0.0
        delta.high_outer[j] = 0.0
    if delta.noted > 0.0:
        delta.noted = 0.0
        for j in range(delta.d):
            for i in range(CODES):
                delta.code[j, i] = 0.0
                delta.often[j, i] = 0.0
    return 0


@predict.register(QuantileBox)
def _(spec, pool, delta, x, told):
    if pool.seen < spec.warmup_contexts:
        return False
    far = False
    for j in range(pool.d):  # no early exit: quiet contexts need every feature anyway, and a loop without branches is faster
        far |= (x[j] > pool.high[j]) | (x[j] < pool.low[j])
    if not far:
        return False
    for j in range(pool.d):
        if (x[j] > pool.high[j] or x[j] < pool.low[j]) and speaks(spec, pool, j, x[j]):
            return True
    return False


@blame.register(QuantileBox)
def _(spec, pool, x):
    worst, which = -1.0, 0
    for j in range(pool.d):  # in mean deviations, to compare features on different scales
        excess = max(x[j] - pool.high[j], pool.low[j] - x[j]) / (pool.spread[j] + TINY)
        if excess > worst and speaks(spec, pool, j, x[j]):
            worst, which = excess, j
    return which


@absorb.register(QuantileBox)
def _(spec, pool, delta, x):
    if all_missing(x):
        return 0
    delta.seen += 1.0
    for j in range(pool.d):
        if math.isnan(x[j]):
            delta.missed[j] += 1.0
            continue
        if known(pool, j) == 0.0:  # there are no quantiles to compare with yet
            delta.middle[j] += x[j]
            continue
        value = x[j]
        if known(pool, j) >= FIRST and pool.spread[j] > 0.0:  # a few values must not make all steps too long
            reach = FAR * pool.spread[j]
            value = min(max(value, pool.middle[j] - reach), pool.middle[j] + reach)
        delta.middle[j] += value
        delta.spread[j] += abs(value - pool.middle[j])
        delta.low_outer[j] += 1.0 if x[j] < pool.low_outer[j] else 0.0
        delta.low_inner[j] += 1.0 if x[j] < pool.low_inner[j] else 0.0
        delta.high_inner[j] += 1.0 if x[j] > pool.high_inner[j] else 0.0
        delta.high_outer[j] += 1.0 if x[j] > pool.high_outer[j] else 0.0
        if (x[j] > pool.high_outer[j] or x[j] < pool.low_outer[j]) and known(pool, j) >= NOTE_FROM:
            low, high = plain_sides(spec, pool, j)
            if x[j] > high or x[j] < low:  # not the wider sides of early days: a code is known by the time it could be an alarm
                note(delta, j, x[j], 1.0)
                delta.noted += 1.0
    return 1


@heed.register(QuantileBox)
def _(spec, pool, delta, x):
    for j in range(pool.d):
        if (x[j] > pool.high[j] or x[j] < pool.low[j]) and speaks(spec, pool, j, x[j]):
            note(delta, j, x[j], 1.0)
            delta.noted += 1.0
    return 1


@kernel
def step_after(seen):
    """Return the step of the search after this many values, in mean deviations."""
    return max(LONG_STEP, STEP / power(seen + HEADSTART, DECAY)) if seen < SETTLED else LONG_STEP


@merge.register(QuantileBox)
def _(spec, pool, delta):
    if pool.noted > 0.0 or delta.noted > 0.0:
        fold_codes(pool, delta, delta.seen)
    if delta.seen == 0.0:
        return 0
    common = step_after(pool.seen + delta.seen)
    for j in range(pool.d):
        n, before = delta.seen - delta.missed[j], known(pool, j)
        if n == 0.0:
            continue
        if before == 0.0:
            first = delta.middle[j] / n
            pool.middle[j] = first
            pool.low[j] = first - spec.min_margin
            pool.high[j] = first + spec.min_margin
            pool.low_outer[j] = first
            pool.low_inner[j] = first
            pool.high_inner[j] = first
            pool.high_outer[j] = first
            continue
        seen = before + n
        weight = min(n / min(seen, LONG), 1.0)
        pool.middle[j] += (delta.middle[j] / n - pool.middle[j]) * weight
        pool.spread[j] += (delta.spread[j] / n - pool.spread[j]) * weight
        if seen <= FIRST:  # the deviation is not known yet
            pool.low_outer[j] = pool.middle[j]
            pool.low_inner[j] = pool.middle[j]
            pool.high_inner[j] = pool.middle[j]
            pool.high_outer[j] = pool.middle[j]
            continue
        share = common if seen == pool.seen + delta.seen else step_after(seen)
        step = share * pool.spread[j]
        pool.low_outer[j] -= step * (delta.low_outer[j] - spec.outer_tail * n)
        pool.low_inner[j] -= step * (delta.low_inner[j] - spec.inner_tail * n)
        pool.high_inner[j] += step * (delta.high_inner[j] - spec.inner_tail * n)
        pool.high_outer[j] += step * (delta.high_outer[j] - spec.outer_tail * n)
        low, high = plain_sides(spec, pool, j)
        early = EARLY * (math.sqrt(share) - ROOT_STEP) * pool.spread[j]  # exactly 0 once steps have stopped shrinking
        pool.low[j] = low - early
        pool.high[j] = high + early
    pool.seen += delta.seen
    for j in range(pool.d):
        pool.missed[j] += delta.missed[j]
    return 0


@domain.register(QuantileBox)
def _(spec, pool, x):
    inside = True
    for j in range(len(x)):
        inside &= not abs(x[j]) > LARGEST  # true for NaN
    return inside
