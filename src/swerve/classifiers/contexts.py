"""The exchange of a `QuantileBox`: a worker sends the contexts that it has absorbed last, and others absorb them too.

So every worker's box follows the contexts of all, each with steps of its own: boxes that differ come together, and no number of
workers or of contexts between two messages makes the steps too long. A worker sends its last `RECENT` contexts; of more of them
others absorb these, which is a sample.
"""

from __future__ import annotations

import math

from swerve.classifiers.quantile import CODES, QuantileBox
from swerve.core.contract import absorb, begin_contribution, clear, contribute, contribution_layout, heed, merge, novel, take_up
from swerve.core.verbs import kernel

RECENT = 128  # contexts that a message has: `Swerve` absorbs as many in a second with a thousand requests


@contribution_layout.register(QuantileBox)
def _(spec, features):
    return [
        ("d", "i8"),
        ("count", "i8"),  # contexts so far
        ("contexts", "f8", (RECENT, features)),  # the last of them: context n is in line n % RECENT
        ("heeded", "u1", RECENT),  # which of them were heeded, not absorbed
    ]


@begin_contribution.register(QuantileBox)
def _(spec, own, d):
    own.d = d
    return 0


@kernel
def noted_value(delta, j):
    """Return the value of feature j that a delta of one context has noted as a possible code; NaN if it has none."""
    for i in range(CODES):
        if delta.often[j, i] > 0.0:
            return delta.code[j, i]
    return math.nan


@contribute.register(QuantileBox)
def _(spec, own, delta):
    absorbed = delta.seen == 1.0
    if not absorbed and (delta.seen != 0.0 or delta.noted == 0.0):  # a delta of several contexts has lost them
        return 0
    line = own.count % RECENT
    for j in range(own.d):
        value = noted_value(delta, j) if delta.noted > 0.0 else math.nan
        if math.isnan(value) and absorbed and delta.missed[j] == 0.0:
            value = delta.middle[j]  # as far away as it counts
        own.contexts[line, j] = value
    own.heeded[line] = 0 if absorbed else 1
    own.count += 1
    return 0


@kernel
def first_new(theirs, known):
    """Return the number of the first context that is not known, and is still there."""
    return max(known.count, theirs.count - RECENT, 0)


@novel.register(QuantileBox)
def _(spec, theirs, known):
    first, count = first_new(theirs, known), 0
    for line in range(RECENT):
        number = theirs.count - 1 - (theirs.count - 1 - line) % RECENT  # of the context in this line
        if number >= first:
            count += 1
            continue
        theirs.heeded[line] = 0
        for j in range(theirs.contexts.shape[1]):
            theirs.contexts[line, j] = 0.0
    return 1 if count > 0 else 0


@take_up.register(QuantileBox)
def _(spec, pool, delta, theirs, known):
    for number in range(first_new(theirs, known), theirs.count):
        line = number % RECENT
        x = theirs.contexts[line, : pool.d]
        if theirs.heeded[line]:
            heed(spec, pool, delta, x)
        else:
            absorb(spec, pool, delta, x)
        merge(spec, pool, delta)
        clear(spec, delta)
    known.count = max(known.count, theirs.count)
    return 0
