"""KL-UCB: the upper confidence bound that is exact for clicks."""

from __future__ import annotations

import math

from swerve.bandits.counts import counting
from swerve.core.contract import mean_of, select
from swerve.core.spec import NonNegative, Spec
from swerve.core.tables import has
from swerve.core.verbs import kernel

EDGE = 1e-15
HALVINGS = 60


@counting
class KLUCB(Spec):
    """The arm whose average is still plausible at the highest value, plausible in Bernoulli divergence.

    I_t(u) = max{q : n_t(u) · kl(μ_t(u), q) ≤ ln t + c · ln ln t}, an arm never played first.

    Source: Garivier and Cappé (2011). They prove c = 3 and recommend c = 0, the default here.

    >>> from swerve import Fleet
    >>> fleet = Fleet(KLUCB(), queries=1, arms=3)
    >>> [fleet.select(0).arm for _ in range(4)]
    [0, 1, 2, 0]
    """

    c: NonNegative = 0.0


@kernel
def divergence(p, q):
    """kl(p, q) of two Bernoulli distributions."""
    p = min(max(p, EDGE), 1.0 - EDGE)
    q = min(max(q, EDGE), 1.0 - EDGE)
    return p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q))


@kernel
def upper_bound(mu, level):
    """max{q ≥ mu : kl(mu, q) ≤ level}.

    Newton's steps on kl(mu, q) − level, which is convex and increasing in q, from the right of the root: they never
    cross it. Where a step would leave the interval, halve it.
    """
    low, high = mu, min(1.0, mu + math.sqrt(0.5 * level))  # Pinsker: the root lies in here
    q = high
    if q >= 1.0:
        q = 0.5 * (low + 1.0)
    for _ in range(HALVINGS):
        excess = divergence(mu, q) - level
        if excess > 0.0:
            high = q
        else:
            low = q
        slope = (q - mu) / max(q * (1.0 - q), EDGE)
        ahead = q - excess / slope if slope > 0.0 else low
        if not low < ahead < high:
            ahead = 0.5 * (low + high)
        if abs(ahead - q) < 1e-10:
            return ahead
        q = ahead
    return q


@select.register(KLUCB)
def _(spec, row, pool, available, now):
    log_t = math.log(row.t + 1.0)
    level = log_t + (spec.c * math.log(log_t) if spec.c > 0.0 and log_t > 1.0 else 0.0)
    best, chosen = -1.0, -1
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            if row.plays[arm] == 0:
                return arm
            mu = mean_of(spec, row, arm)
            # an arm whose divergence to the best bound so far is too dear cannot have a higher one: one evaluation, no search
            if mu >= best or row.plays[arm] * divergence(mu, best) < level:
                bound = upper_bound(mu, level / row.plays[arm])
                if bound > best:
                    best, chosen = bound, arm
    return chosen
