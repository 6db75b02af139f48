"""Thompson sampling for clicks: play each arm with the probability that it is the best."""

from __future__ import annotations

from swerve.bandits.counts import count_evict, count_layout, count_reward, count_show, counting
from swerve.core.contract import evict, layout, reward, select, show
from swerve.core.rng import beta, gamma_scale
from swerve.core.spec import Positive, Spec
from swerve.core.tables import has
from swerve.core.verbs import kernel


@counting
class Thompson(Spec):
    """Draw a click probability for each arm from its posterior and play the arm with the highest draw.

    θ_u ~ Beta(a + clicks_u, b + plays_u − clicks_u), rewards in [0, 1].

    Source: Thompson (1933); Agrawal and Goyal (2012). The prior Beta(1, 1) is theirs.

    >>> from swerve import Fleet
    >>> fleet = Fleet(Thompson(), queries=1, arms=3, seed=7)
    >>> [fleet.select(0).arm for _ in range(6)]
    [2, 1, 2, 0, 2, 2]
    """

    a: Positive = 1.0
    b: Positive = 1.0


@layout.register(Thompson)
def _(spec, arms, features):
    # the scales of the samplers are stored because computing them for every arm in every round doubles the cost of a round
    return [*count_layout(spec, arms, features), ("click_scale", "f8", arms), ("skip_scale", "f8", arms)]


@kernel
def clicks_of(spec, row, arm):
    return spec.a + row.total[arm]


@kernel
def skips_of(spec, row, arm):
    return spec.b + (row.plays[arm] - row.total[arm])


@kernel
def rescale(spec, row, arm):
    row.click_scale[arm] = gamma_scale(clicks_of(spec, row, arm))
    row.skip_scale[arm] = gamma_scale(skips_of(spec, row, arm))


@select.register(Thompson)
def _(spec, row, pool, available, now):
    best, chosen = -1.0, -1
    word = row.rng
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            theta, word = beta(word, clicks_of(spec, row, arm), skips_of(spec, row, arm), row.click_scale[arm], row.skip_scale[arm])
            if theta > best:
                best, chosen = theta, arm
    row.rng = word
    return chosen


@show.register(Thompson)
def _(spec, row, arm, now):
    count_show(spec, row, arm, now)
    rescale(spec, row, arm)


@reward.register(Thompson)
def _(spec, row, arm, value, shown, now):
    count_reward(spec, row, arm, value, shown, now)
    rescale(spec, row, arm)
    return True


@evict.register(Thompson)
def _(spec, row, arm):
    count_evict(spec, row, arm)
    rescale(spec, row, arm)
