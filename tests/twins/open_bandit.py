"""Estimators as the Open Bandit Pipeline (obp, Saito et al., 2021) defines them, written from its formulas with NumPy alone.

obp has rounds with an action, its position, a reward and the propensity `pscore` of the action at its position; the evaluation
policy is `action_dist`, of the shape (rounds, actions, positions). `q_hat`, of the same shape, is the reward model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def weights(action: Ints, position: Ints, pscore: Floats, action_dist: Floats) -> Floats:
    """The importance weight of each round."""
    return action_dist[np.arange(len(action)), action, position] / pscore


def replay(reward: Floats, action: Ints, position: Ints, action_dist: Floats) -> float:
    """`ReplayMethod`: the mean reward of the rounds in which a deterministic policy takes the logged action; 0 without any."""
    match = action_dist[np.arange(len(action)), action, position] == 1.0
    return float((reward * match).sum() / match.sum()) if match.any() else 0.0


def ipw(reward: Floats, action: Ints, position: Ints, pscore: Floats, action_dist: Floats) -> float:
    """`InverseProbabilityWeighting`."""
    return float((reward * weights(action, position, pscore, action_dist)).mean())


def snipw(reward: Floats, action: Ints, position: Ints, pscore: Floats, action_dist: Floats) -> float:
    """`SelfNormalizedInverseProbabilityWeighting`."""
    w = weights(action, position, pscore, action_dist)
    return float((reward * w).mean() / w.mean())


def dr(reward: Floats, action: Ints, position: Ints, pscore: Floats, action_dist: Floats, q_hat: Floats) -> float:
    """`DoublyRobust`."""
    rounds = np.arange(len(action))
    model, policy = q_hat[rounds, :, position], action_dist[rounds, :, position]
    baseline = np.average(model, weights=policy, axis=1)
    w = weights(action, position, pscore, action_dist)
    return float((baseline + w * (reward - model[rounds, action])).mean())
