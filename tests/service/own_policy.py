"""A file as a user writes it, for `swerve serve --load`: an ε-greedy bandit, and one that must be told of events."""

from swerve.bandits.counts import counting
from swerve.core.contract import mean_of, needs_events, select
from swerve.core.rng import draw
from swerve.core.spec import Probability, Spec
from swerve.core.tables import has


@counting
class OwnGreedy(Spec):
    """Play a random arm with probability `rate`, else the one with the highest average."""

    rate: Probability = 0.1


@select.register(OwnGreedy)
def _(spec, row, pool, available, now):
    explore = draw(row) < spec.rate
    best, chosen = -1.0, -1
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            score = draw(row) if explore else mean_of(spec, row, arm)
            if score > best:
                best, chosen = score, arm
    return chosen


class ToldGreedy(OwnGreedy):
    """Says that it must be told."""


@needs_events.register(ToldGreedy)
def _(spec):
    return 1
