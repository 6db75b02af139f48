"""Helper of the tests of `Shifts`: every round of a drawn instance, as arrays."""

from __future__ import annotations

import numba
import numpy as np

from swerve import Shifts
from swerve.core.spec import pack
from swerve.environments import world
from swerve.environments.worlds import advance, chance, context

#: Every query shifts, with 2,000 rounds each. All tests use 9–16 features and at most 8 results, so one compilation serves all.
SMALL = Shifts(queries=20, impressions=40_000, shifting_share=1.0)


@numba.njit
def walk(params, scene, segments, cursors, query, told, signal, chances, xs):
    """Yield the environment's part of every round of a query."""
    for t in range(len(told)):
        cursor = cursors[query]
        told[t] = advance(params[0], scene[0], segments, cursor)
        signal[t] = cursor.signal
        context(params[0], scene[0], cursor, told[t], xs[t])
        for arm in range(chances.shape[1]):
            chances[t, arm] = chance(params[0], scene[0], segments, cursor, arm)


class Rounds:
    """All rounds of a query: `told`, `signal`, `chances`, `xs`, round t at index t − 1; `at(flags)`: rounds with a flag."""

    def __init__(self, instance, query):
        rounds = int(instance.rounds[query])
        self.told, self.signal = np.zeros(rounds, np.int64), np.zeros(rounds, np.int64)
        self.chances, self.xs = np.zeros((rounds, instance.arms)), np.full((rounds, instance.features), np.nan)
        walk(
            pack(instance.spec), instance.scene, instance.segments, instance.cursors.copy(), query, self.told, self.signal,
            self.chances, self.xs,
        )  # fmt: skip

    @staticmethod
    def at(flags):
        return (np.flatnonzero(flags) + 1).tolist()


def rounds_of(spec, seed=0):
    """Return every query's rounds, and their instance."""
    instance = world(spec, seed)
    return [Rounds(instance, query) for query in range(instance.queries)], instance


#: All defects of signals at once.
EVERYTHING = {
    "silent_share": 0.3, "spurious_share": 0.05, "poison_share": 0.05, "poisoned_features": 2, "edge_drift": 0.1,
    "season_rounds": 700, "feature_correlation": 0.4, "signal_features": 4,
    "lead_rounds": 30, "lag_rounds": 30, "glide_rounds": 20, "bursting_share": 0.5, "shifting_share": 0.5, "burst_every": 100,
}  # fmt: skip
