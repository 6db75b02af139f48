"""Helper of Swerve's tests: one query under a script of alarms and click probabilities, with kernels run by Python."""

from __future__ import annotations

import numpy as np

from swerve import Swerve, Told
from swerve.core.contract import begin, begin_pool, reward
from swerve.core.engine import decide
from swerve.core.rng import split
from swerve.core.tables import full_mask, pool_dtype, row_dtype

N, D = 3, 2
GOOD, BAD = [0.8, 0.2, 0.1], [0.1, 0.2, 0.7]  # the leader falls and the last arm rises
RISEN = [0.8, 0.2, 0.98]


class Query:
    """One query under a policy, with kernels run by Python. Clicks are spaced evenly, as often as their probabilities say."""

    def __init__(self, policy, arms=N, seed=1, features=D):
        self.policy, self.arms = policy, arms
        self.table, self.pools = np.zeros(1, row_dtype(policy, arms, features)), np.zeros(2, pool_dtype(policy, features))
        begin(policy, self.table[0], np.uint64(split(seed, "policy", 0)))
        for pool in self.pools:
            begin_pool(policy, pool, features)
        self.clicks_due = [0.5] * arms
        self.t, self.reports, self.played = 0, [], []

    @property
    def row(self):
        return self.table[0]

    @property
    def trust(self):
        return self.pools[0].trust

    def round(self, chances, alarm=False, offer=None, x=(0.5, 0.5)):
        self.t += 1
        mask = full_mask(self.arms) if offer is None else offer
        arm, report = decide(self.policy, self.row, self.pools, 0, 1, np.array(x), int(alarm), mask, float(self.t))
        self.clicks_due[arm] += chances[arm]
        if self.clicks_due[arm] >= 1.0:
            self.clicks_due[arm] -= 1.0
            reward(self.policy, self.row, arm, 1.0, float(self.t), float(self.t))
        self.reports.append(int(report))
        self.played.append(int(arm))
        return arm, report

    def rounds(self, count, chances, alarm=False):
        """Play this many rounds, with an alarm in the first if `alarm`; return the arms."""
        return [self.round(chances, alarm and i == 0)[0] for i in range(count)]

    def when(self, flag):
        """Return the rounds whose report has this bit."""
        return [t + 1 for t, report in enumerate(self.reports) if report & flag]


def assert_finite(record):
    """Check that every number is finite, except times of records, which may be −∞."""
    for name in record.dtype.names:
        if name in ("opened", "kept"):
            assert not np.isnan(record[name]).any() and (record[name] < np.inf).all(), name
            continue
        part = record[name]
        if getattr(part, "dtype", np.dtype(float)).names:
            assert_finite(part)
        else:
            assert np.isfinite(np.asarray(part, float)).all(), name


TOLD = Swerve(classifier=Told())


def warmed(policy=TOLD, rounds=600):
    query = Query(policy)
    query.rounds(rounds, GOOD)
    assert query.played[-50:].count(0) >= 45
    return query
