"""A compiled loop that shows contexts to a quantile box."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from swerve import Learner, QuantileBox
from swerve.core.contract import absorb, clear, merge, predict

#: By distribution: the limit of the upper side.
HIGH = {"uniform": 0.98 + 1.5 * 0.08, "normal": 2.0537 + 1.5 * (2.0537 - 1.2816), "exponential": math.log(50) + 1.5 * math.log(5)}

LONG = 100_000  # the first steps may move a side too far out, from where it returns slowly; it has settled by then


@njit
def take(params, pools, contexts, alarms):
    """Predict each context, then absorb it."""
    spec = params[0]
    for i in range(len(contexts)):
        alarms[i] = predict(spec, pools[0], pools[1], contexts[i], 0)
        if absorb(spec, pools[0], pools[1], contexts[i]):
            merge(spec, pools[0], pools[1])
            clear(spec, pools[1])


def shown(learner, contexts):
    """Return which contexts were positive; each is absorbed right after its prediction."""
    alarms = np.zeros(len(contexts), np.bool_)
    take(learner.params, learner.pools, np.ascontiguousarray(contexts, np.float64), alarms)
    return alarms


def settled(contexts, **named):
    learner = Learner(QuantileBox(**named), d=contexts.shape[1])
    shown(learner, contexts)
    return learner


def draws(kind, count, d=1, seed=0):
    dice = np.random.default_rng(seed)
    return getattr(dice, {"uniform": "random"}.get(kind, kind))(size=(count, d))
