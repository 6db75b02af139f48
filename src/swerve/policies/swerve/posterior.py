"""Was there an event, and which arms did it change? A spike and slab per arm, and what to do about it.

Per arm there are two records: `old`, from before a suspected change, and `new`, since. With E = "there was an event":

- given E, arm a has changed with probability `given_a`, independently, and at least one arm has (unless one is known to have);
- given not E, arm a's old record is stale all the same with probability `anyway_a`: a suspicion from an earlier test that
  nobody could settle;
- a changed arm's new clicks come from a slab, a Beta(a, s)-Bernoulli that is fresh; an unchanged arm's go on as in its old
  record. The Bayes factor of the two is kept up to date play by play, with one division.

The leader, the best arm before, can only fall, so its slab has half its click probability as mean; any other changed arm overtakes
it with probability `overtake_probability`. Both slabs follow the level of the clicks: nothing here is tuned to a click-through rate.

The kernels work on a row with the fields of `change_layout`; tests compare them with an enumeration of all sets of changed arms.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from swerve.core.rng import gamma_scale
from swerve.core.spec import Gap, Positive, Range, Spec
from swerve.core.tables import bit
from swerve.core.verbs import kernel
from swerve.detectors.split import log_bayes

MOST = 1e8  # Bayes factors are kept within [1/MOST, MOST]: beyond, nothing more is decided by them
TOP = 1e200  # and products of them below this
HALFWAY = 0.5 * math.log(MOST)  # the log of one that a test begins with at most: at MOST, what comes after could not add to it
SURE = 1e6  # odds within [1/SURE, SURE]
FEW = 40  # plays up to which the tail of a Beta is summed exactly
LEAST = 1e-5  # a suspicion below this is not carried over
CERTAIN = 2
CAUGHT = 0.95  # how likely the arm that the net has caught has changed, if anything has


class ChangeTest(Spec):
    """What is expected of an event, and when an arm is decided about.

    Beta(a, b) is the prior of an arm's click probability (`overtake_probability` is exact for a = 1). Given an event, each arm but the leader
    has changed with probability `other_change_probability`; a changed leader has a mean of `fall_factor` times what it had, and a changed other arm is
    better than the leader was with probability `overtake_probability`. An arm is decided to have changed when P(changed) > `decision_confidence` and its own
    clicks say so by a Bayes factor of `min_bayes_factor`, and to be unchanged when P(changed | event) < 1 − `decision_confidence`.
    """

    a: Positive = 1.0
    b: Positive = 1.0
    other_change_probability: Gap = 0.5
    fall_factor: Gap = 0.5
    overtake_probability: Gap = 0.25
    decision_confidence: Annotated[float, Range(0.5, 1.0, open_low=True, open_high=True)] = 0.95
    min_bayes_factor: Positive = 5.0


def change_layout(arms: int) -> list[tuple[Any, ...]]:
    """Two records per arm, how they compare, and what is believed about the event."""
    return [
        ("odds", "f8"),  # prior odds of E, with the evidence of the arms that have been decided about
        ("prior", "f8"),  # what they were when the test began
        ("leader", "i8"),  # the arm that was best before
        ("top", "f8"),  # and its click probability
        ("fall", "f8"),  # slabs: a changed leader is a Beta(a, fall), any other changed arm a Beta(a, rise)
        ("rise", "f8"),
        ("found", "i8"),  # 1 when an arm is known to have changed, CERTAIN when that proves an event
        ("moved", "i8"),  # the arms decided to have changed (mask)
        ("stayed", "i8"),  # and those decided not to have
        ("old_plays", "i8", arms),
        ("old_total", "f8", arms),
        ("new_plays", "i8", arms),
        ("new_total", "f8", arms),
        ("factor", "f8", arms),  # Bayes factor of "changed" from the new record
        ("given", "f8", arms),
        ("anyway", "f8", arms),
        ("click_scale", "f8", arms),  # the samplers' scales for both records together (see `Thompson`)
        ("skip_scale", "f8", arms),
    ]


# ---------------------------------------------------------------- records


@kernel
def clipped(value, most):
    """`value` within [1/most, most]."""
    return min(max(value, 1.0 / most), most)


@kernel
def plays_in(row, arm):
    """Plays in both records."""
    return row.old_plays[arm] + row.new_plays[arm]


@kernel
def total_in(row, arm):
    """What the plays of both records have earned."""
    return row.old_total[arm] + row.new_total[arm]


@kernel
def rescale(spec, row, arm):
    """Keep what the sampler needs of both records together."""
    clicks = spec.a + total_in(row, arm)
    row.click_scale[arm] = gamma_scale(clicks)
    row.skip_scale[arm] = gamma_scale(spec.a + spec.b + plays_in(row, arm) - clicks)


@kernel
def empty(row, arm):
    """Nothing new, and no suspicion."""
    row.new_plays[arm] = 0
    row.new_total[arm] = 0.0
    row.factor[arm] = 1.0
    row.given[arm] = 0.0
    row.anyway[arm] = 0.0


@kernel
def forget(spec, row, arm):
    """Both records are void."""
    row.old_plays[arm] = 0
    row.old_total[arm] = 0.0
    empty(row, arm)
    rescale(spec, row, arm)


@kernel
def join(row, arm):
    """The new record goes on where the old one ended."""
    row.old_plays[arm] = plays_in(row, arm)
    row.old_total[arm] = total_in(row, arm)
    empty(row, arm)


@kernel
def drop(spec, row, arm):
    """The old record is void."""
    row.old_plays[arm] = row.new_plays[arm]
    row.old_total[arm] = row.new_total[arm]
    empty(row, arm)
    rescale(spec, row, arm)


@kernel
def slab(row, arm):
    """The second parameter of the Beta that a changed arm's click probability comes from."""
    return row.fall if arm == row.leader else row.rise


@kernel
def count_play(spec, row, arm):
    """A new play that earned nothing (yet): the Bayes factor gains the ratio of the two predictions of a skip."""
    skips = row.new_plays[arm] - row.new_total[arm]
    b = slab(row, arm)
    fresh = (b + skips) / (spec.a + b + row.new_plays[arm])
    stale_skips = spec.b + skips + row.old_plays[arm] - row.old_total[arm]
    row.factor[arm] = clipped(row.factor[arm] * fresh * (spec.a + spec.b + plays_in(row, arm)) / stale_skips, MOST)
    row.new_plays[arm] += 1


@kernel
def count_old_click(row, arm, value):
    """A play of before the suspected change, which was counted as a skip, earned `value` after all."""
    row.old_total[arm] = min(row.old_total[arm] + value, float(row.old_plays[arm]))


@kernel
def count_click(spec, row, arm, value):
    """A play that was counted as a skip earned `value` after all."""
    if row.new_total[arm] + value > row.new_plays[arm]:  # there is no new play left that can have earned it
        count_old_click(row, arm, value)
        return
    clicks, skips = spec.a + row.new_total[arm], row.new_plays[arm] - row.new_total[arm] - value
    stale_skips = spec.b + skips + row.old_plays[arm] - row.old_total[arm]
    ratio = clicks * stale_skips / ((slab(row, arm) + skips) * (clicks + row.old_total[arm]))
    row.factor[arm] = clipped(row.factor[arm] * (1.0 + value * (ratio - 1.0)), MOST)
    row.new_total[arm] += value


# ---------------------------------------------------------------- the posterior


@kernel
def likelihood(row, arm, prior):
    """How likely the arm's new record is when it has changed with probability `prior`, relative to "unchanged"."""
    return 1.0 + prior * (row.factor[arm] - 1.0)


@kernel
def share_changed(row, arm, prior):
    """P(the arm has changed | its new record), when that was `prior` before."""
    return prior * row.factor[arm] / likelihood(row, arm, prior)


@kernel
def event_odds(row):
    """Posterior odds of E; and P(no arm has changed | the records) if arms changed independently (0 when one is known to have)."""
    with_event, without, prior_none = 1.0, 1.0, 1.0
    for arm in range(row.given.shape[0]):
        if row.given[arm] > 0.0 or row.anyway[arm] > 0.0:
            with_event = min(with_event * likelihood(row, arm, row.given[arm]), TOP)
            without = min(without * likelihood(row, arm, row.anyway[arm]), TOP)
            prior_none *= 1.0 - row.given[arm]
    if row.found == CERTAIN:
        return SURE, 0.0
    if row.found != 0:
        return clipped(row.odds * with_event / without, SURE), 0.0
    none = prior_none / with_event
    if none >= 1.0 - 1e-9:
        return 0.0, 0.0
    return min(row.odds * (with_event / without) * ((1.0 - none) / (1.0 - prior_none)), SURE), none


@kernel
def suspicion(row, arm, odds):
    """P(the arm's old record is stale), by this event or an earlier one."""
    p = odds / (1.0 + odds)
    return p * share_changed(row, arm, row.given[arm]) + (1.0 - p) * share_changed(row, arm, row.anyway[arm])


@kernel
def still_better(spec, row, arm):
    """P(a fresh arm with this new record is better than the leader was), relative to one without: what is left of a suspicion."""
    n, s = row.new_plays[arm], row.new_total[arm]
    if n == 0:
        return 1.0
    if n > FEW:
        return 1.0 if s > row.top * n else 0.0
    # the tail of a Beta(1 + s, 1 + n − s) is that of a binomial; a whole exponent would round differently when compiled
    term = (1.0 - row.top) ** float(n + 1)
    tail = term
    for i in range(int(s)):
        term *= (n + 1 - i) / (i + 1.0) * row.top / (1.0 - row.top)
        tail += term
    return min(1.0, tail / (1.0 - row.top))


@kernel
def unseen_rise(spec, row):
    """How likely the records are if some arm but the leader has changed, relative to no event: near 1 when nobody looked."""
    some, none = 1.0, 1.0
    for arm in range(row.given.shape[0]):
        if arm != row.leader and plays_in(row, arm) > 0:
            if (row.stayed >> arm) & 1 != 0:
                some *= 1.0 - spec.other_change_probability
                none *= 1.0 - spec.other_change_probability
            else:
                some = min(some * likelihood(row, arm, row.given[arm]), TOP)
                none *= 1.0 - row.given[arm]
    return min(max((some - none) / (1.0 - none), 0.0), 1.0) if none < 1.0 else 1.0


# ---------------------------------------------------------------- beginning, deciding, ending


@kernel
def begin_change(spec, row, open_before, odds, falls, rises, most, caught=-1):
    """Suspect an event now: it lets the leader fall with probability `falls`, and another arm rise with probability `rises`.

    Of a test that was open (with posterior `odds`) arms more likely stale than not lose their old record; the others keep it,
    and the suspicion that is left. Returns the arms that lost it. The arm `caught`, if there is one, will be split off where the
    net says: it keeps all of its record, which is what proves the change.
    """
    dropped = 0
    if open_before:
        for arm in range(row.given.shape[0]):
            q = suspicion(row, arm, odds)
            if q > 0.5 and arm != caught:
                drop(spec, row, arm)
                dropped |= bit(arm)
                q = 0.0
            row.anyway[arm] = q
    best = -1.0
    for arm in range(row.given.shape[0]):
        mean = total_in(row, arm) / plays_in(row, arm) if plays_in(row, arm) > 0 else 0.0
        if mean > best:
            best, row.leader = mean, arm
    row.top = (total_in(row, row.leader) + spec.a) / (plays_in(row, row.leader) + spec.a + spec.b)
    row.fall = spec.a * (1.0 / (spec.fall_factor * row.top) - 1.0)
    row.rise = math.log(spec.overtake_probability) / math.log1p(-row.top)
    for arm in range(row.given.shape[0]):
        given = min(falls / (falls + rises), most) if arm == row.leader else spec.other_change_probability
        anyway = 0.0
        if open_before:
            anyway = row.anyway[arm] * still_better(spec, row, arm)
            anyway = anyway if anyway >= LEAST else 0.0
            join(row, arm)
        if plays_in(row, arm) == 0:
            given, anyway = 0.0, 0.0  # nothing is known that could have changed
        row.given[arm] = 1.0 - (1.0 - given) * (1.0 - anyway)
        row.anyway[arm] = anyway
    chance = falls + rises
    row.odds = clipped(chance / max(1.0 - chance, 1e-9), SURE)
    row.prior = row.odds
    row.found = 0
    row.moved = 0
    row.stayed = 0
    return dropped


@kernel
def split_off(spec, row, arm, plays, total, odds):
    """The last `plays` plays of the arm, which earned `total`, are suspected to be after a change, with posterior `odds`."""
    n, s = plays_in(row, arm), total_in(row, arm)
    plays, total = min(plays, n), min(total, s)
    row.old_plays[arm] = n - plays
    row.old_total[arm] = min(s - total, float(n - plays))
    row.new_plays[arm] = plays
    row.new_total[arm] = min(total, float(plays))
    row.factor[arm] = clipped(math.exp(min(log_bayes(n, s, plays, total), HALFWAY)), MOST)
    row.given[arm] = CAUGHT
    row.anyway[arm] = 0.0
    row.prior = 1.0
    row.odds = clipped(odds / row.factor[arm], MOST * SURE)


@kernel
def prior_none(row):
    """P(no arm has changed), before the new records."""
    none = 1.0
    for arm in range(row.given.shape[0]):
        none *= 1.0 - row.given[arm]
    return none


@kernel
def verdict(spec, row, arm):
    """1: the arm has changed; −1: it has not; 0: not decided, or decided before."""
    if row.given[arm] == 0.0:
        return 0
    share = share_changed(row, arm, row.given[arm])
    if share > spec.decision_confidence and row.factor[arm] > spec.min_bayes_factor:
        odds, _ = event_odds(row)
        return 1 if suspicion(row, arm, odds) > spec.decision_confidence else 0
    return -1 if share < 1.0 - spec.decision_confidence and row.anyway[arm] < 0.01 else 0


@kernel
def decide_changed(spec, row, arm, plays, total):
    """The arm has changed, and its last `plays` plays are after that; what this says about E stays in the odds."""
    if row.anyway[arm] > 0.0:
        some = 1.0 if row.found != 0 else 1.0 - prior_none(row)
        row.odds = clipped(row.odds * row.given[arm] / row.anyway[arm] / some, SURE)
        row.found = max(row.found, 1)
    else:  # only an event can have changed it: nothing that other arms do takes that back
        row.odds = SURE
        row.found = CERTAIN
    row.moved |= bit(arm)
    if 0 < plays < row.new_plays[arm]:  # it changed later than suspected
        row.new_plays[arm] = plays
        row.new_total[arm] = min(total, float(plays))
    drop(spec, row, arm)


@kernel
def decide_unchanged(row, arm):
    """The arm has not changed; what this says about E stays in the odds."""
    if row.found == 0:
        before = 1.0 - prior_none(row)
        given, row.given[arm] = row.given[arm], 0.0
        row.odds *= (1.0 - prior_none(row)) / before
        row.given[arm] = given
    row.odds = clipped(row.odds * (1.0 - row.given[arm]) / (1.0 - row.anyway[arm]), SURE)
    row.stayed |= bit(arm)
    join(row, arm)
