"""Rare queries with result pages: what a policy loses to the given order, query by query, and over a whole tail."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve import Pages, policy
from swerve.environments import world
from swerve.simulate import Session
from swerve.simulate.pages import FIRST

COPIED = ("chance", "attraction", "given", "best", "ideal")


def expected_losses(kinds: int, copies: int, seed: int, **changes: Any) -> NDArray[np.float64]:
    """Return what `swerve` is expected to lose in each query's first 200 impressions, in % of the given order's value.

    Each of the `kinds` queries is played `copies` times, with clicks of its own, among all others.
    """
    count = kinds * copies
    spec = Pages(queries=count, impressions=count * FIRST, events_low=0, events_high=0, **changes)
    instance = world(spec, seed)
    lines = instance.cursors["segment"]
    for query in range(count):
        for name in COPIED:
            instance.segments[name][lines[query]] = instance.segments[name][lines[query % kinds]]
    session = Session(policy("swerve", arms=spec.results, horizon=FIRST, clicks=spec.clicks, slots=spec.slots), instance)
    session.play(len(instance.schedule))
    lost, usual = (session.notes[name].reshape(copies, kinds).sum(axis=0) for name in ("harm", "given_value"))
    out: NDArray[np.float64] = 100.0 * lost / usual
    return out
