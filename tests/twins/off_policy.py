"""Off-policy estimators, from their definitions, on whole arrays: lists × slots, with a NaN propensity where a slot is absent."""

from __future__ import annotations

import numpy as np


def ips(R, P, W):
    """Return the value of every list, whose mean is the estimate."""
    return np.array([sum(W[i, k] / P[i, k] * R[i, k] for k in range(R.shape[1]) if not np.isnan(P[i, k])) for i in range(len(R))])


def doubly_robust(R, P, W, Q, D):
    out = []
    for i in range(len(R)):
        out.append(sum(D[i, k] + W[i, k] / P[i, k] * (R[i, k] - Q[i, k]) for k in range(R.shape[1]) if not np.isnan(P[i, k])))
    return np.array(out)


def snips(R, w, there):
    """Return the estimate and the influence of every list on it, for any weights."""
    value, influence = 0.0, np.zeros(len(R))
    for k in range(R.shape[1]):
        if w[:, k].sum() == 0:
            continue
        rate = (w[:, k] * R[:, k]).sum() / w[:, k].sum()
        share = there[:, k].mean()
        value += share * rate
        influence += share * w[:, k] * (R[:, k] - rate) / w[:, k].mean() + rate * (there[:, k] - share)
    return value, influence


def effective(w, there):
    return w.sum() ** 2 / (w**2).sum() / there.sum(axis=1).mean()
