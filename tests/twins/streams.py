"""Clicks of one arm, and a comparison of a detector with its twin on them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray


def stream(seed: int, *pieces: tuple[int, float]) -> NDArray[np.float64]:
    """Return clicks of an arm: pieces of so many plays with this click probability."""
    dice = np.random.default_rng(seed)
    return np.concatenate([(dice.random(plays) < chance).astype(float) for plays, chance in pieces])


def check_watch(watcher: Any, twin: Any, plays: int, seed: int, fractions: bool = False) -> int:
    """Show both the same plays of several arms, whose click probabilities change now and then; returns the number of alarms.

    `fractions`: rewards are multiples of 1/255 instead of clicks.
    """
    dice = random.Random(seed)
    arms = watcher.arms
    chances = [dice.random() for _ in range(arms)]
    alarms = 0
    for t in range(plays):
        if dice.random() < 0.02:
            chances = [dice.random() for _ in range(arms)]
        arm = dice.randrange(arms)
        value = round(255 * chances[arm] * (1 - dice.random() / 4)) / 255 if fractions else float(dice.random() < chances[arm])
        expected = twin.watch(arm, value)
        assert watcher.watch(value, arm) == expected, f"play {t} of arm {arm}"
        if expected:
            alarms += 1
            twin.evict(arm)
    return alarms
