"""KL-UCB: upper confidence bounds from the Bernoulli divergence, which is exact for clicks."""

from __future__ import annotations

import math

from swerve.bandits.counts import count_evict, count_layout, count_reward, count_show, counting
from swerve.core.contract import evict, layout, mean_of, reward, select, show
from swerve.core.elementary import log
from swerve.core.spec import NonNegative, Spec
from swerve.core.tables import has
from swerve.core.verbs import kernel

EDGE = 1e-15  # averages and bounds are kept this far from 0 and 1, where the logarithms diverge
TOLERANCE = 1e-10  # Newton's method stops at steps below this
STEPS = 60  # more than bisection alone needs to reach the tolerance


@counting
class KLUCB(Spec):
    """Play the arm with the highest value that is still plausible for its average, measured by Bernoulli divergence.

    I_t(u) = max{q : n_t(u) · kl(μ_t(u), q) ≤ ln t + c · ln ln t}. Unplayed arms come first.

    Source: Garivier and Cappé (2011). Their proof needs c = 3; they recommend c = 0, the default here.

    >>> from swerve import Fleet
    >>> fleet = Fleet(KLUCB(), queries=1, arms=3)
    >>> [fleet.select(0).arm for _ in range(4)]
    [0, 1, 2, 0]
    """

    c: NonNegative = 0.0


@layout.register(KLUCB)
def _(spec, arms, features):
    # the part of the divergence that depends on the average alone: half of the logarithms, and it changes only with a play
    return [*count_layout(spec, arms, features), ("share", "f8", arms)]


@kernel
def own_share(p):
    """Return p ln p + (1 − p) ln(1 − p), the part of kl(p, q) that does not depend on q."""
    p = min(max(p, EDGE), 1.0 - EDGE)
    return p * log(p) + (1.0 - p) * log(1.0 - p)


@kernel
def divergence(p, share, q):
    """Return kl(p, q) of two Bernoulli distributions, where `share` is `own_share(p)`."""
    return share - p * log(q) - (1.0 - p) * log(1.0 - q)


@kernel
def upper_bound(mu, share, level):
    """Return max{q ≥ mu : kl(mu, q) ≤ level}, by Newton's method from a second-order guess, with bisection as a fallback.

    kl(mu, ·) − level is convex and increasing beyond mu, so no step from the right of the root crosses it. The start depends only
    on mu and level. The last bound would be a better start, but arms with equal records must get equal bounds, bit for bit.
    """
    low, high = max(mu, EDGE), min(1.0 - EDGE, mu + math.sqrt(0.5 * level))  # Pinsker: this interval contains the root
    if high <= low:
        return low
    start = mu + math.sqrt(2.0 * mu * (1.0 - mu) * level) + (1.0 - 2.0 * mu) * level * 2.0 / 3.0
    q = start if low < start < high else 0.5 * (low + high)
    for _ in range(STEPS):
        excess = divergence(mu, share, q) - level
        if excess > 0.0:
            high = q
        else:
            low = q
        slope = (q - mu) / (q * (1.0 - q))
        ahead = q - excess / slope if slope > 0.0 else low
        if abs(ahead - q) < TOLERANCE:
            return ahead
        q = ahead if low < ahead < high else 0.5 * (low + high)
    return q


@kernel
def refresh(spec, row, arm):
    """Update the stored part of the arm's divergence."""
    row.share[arm] = own_share(mean_of(spec, row, arm))


@select.register(KLUCB)
def _(spec, row, pool, available, now):
    log_t = log(row.t + 1.0)
    level = log_t + (spec.c * log(log_t) if spec.c > 0.0 and log_t > 1.0 else 0.0)
    best, chosen = -1.0, -1
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            if row.plays[arm] == 0:
                return arm
            mu = mean_of(spec, row, arm)
            # if the divergence from this arm to the best bound exceeds the level, its bound is lower: no search needed
            if mu >= best or best >= 1.0 - EDGE or row.plays[arm] * divergence(mu, row.share[arm], best) < level:
                bound = upper_bound(mu, row.share[arm], level / row.plays[arm])
                if bound > best:
                    best, chosen = bound, arm
    return chosen


@show.register(KLUCB)
def _(spec, row, arm, now):
    count_show(spec, row, arm, now)
    refresh(spec, row, arm)


@reward.register(KLUCB)
def _(spec, row, arm, value, shown, now):
    count_reward(spec, row, arm, value, shown, now)
    refresh(spec, row, arm)
    return True


@evict.register(KLUCB)
def _(spec, row, arm):
    count_evict(spec, row, arm)
    row.share[arm] = 0.0
