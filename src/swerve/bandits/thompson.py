"""Thompson sampling for clicks: play each arm with the probability that it is the best."""

from __future__ import annotations

from swerve.bandits.counts import counting
from swerve.core.contract import select
from swerve.core.rng import beta
from swerve.core.spec import Positive, Spec
from swerve.core.tables import has


@counting
class Thompson(Spec):
    """Draw a click probability for each arm from its posterior, play the arm with the highest draw.

    θ_u ~ Beta(a + clicks_u, b + plays_u − clicks_u), rewards in [0, 1].

    Source: Thompson (1933); Agrawal and Goyal (2012). The prior Beta(1, 1) is theirs.

    >>> from swerve import Fleet
    >>> fleet = Fleet(Thompson(), queries=1, arms=3, seed=7)
    >>> [fleet.select(0).arm for _ in range(6)]
    [2, 2, 1, 1, 0, 0]
    """

    a: Positive = 1.0
    b: Positive = 1.0


@select.register(Thompson)
def _(spec, row, pool, available, now):
    best, chosen = -1.0, -1
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            clicks = row.total[arm]
            theta = beta(row, spec.a + clicks, spec.b + (row.plays[arm] - clicks))
            if theta > best:
                best, chosen = theta, arm
    return chosen
