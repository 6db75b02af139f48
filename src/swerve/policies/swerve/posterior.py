"""The posterior of an event and of the arms that it changed: a spike and slab per arm, and the decisions drawn from it.

Each arm has two records: `old`, from before a suspected change, and `new`, since then. With E = "there was an event":

- given E, arm a has changed with probability `given_a`, independently of the others, and at least one arm has changed (unless one
  is known to have changed);
- given not E, the old record of arm a is stale with probability `anyway_a`, because of a suspicion that an earlier test could not
  settle;
- the new clicks of a changed arm come from a slab, a Beta(a, s)-Bernoulli without history; an unchanged arm continues its old
  record. The Bayes factor of the two is updated with every play, by one division.

The leader, the best arm before, can only fall, so the mean of its slab is `fall_factor` times its click probability. Any other
changed arm overtakes it with probability `overtake_probability`. Both slabs scale with the level of the clicks: nothing here is
tuned to a click-through rate.

The kernels work on a row with the fields of `change_layout`; tests compare them with an enumeration of all sets of changed arms.
"""

from __future__ import annotations

from typing import Annotated, Any

from swerve.core.elementary import exp, log, log1p, power
from swerve.core.rng import gamma_scale
from swerve.core.spec import Gap, Positive, Range, Spec
from swerve.core.tables import bit
from swerve.core.verbs import kernel
from swerve.detectors.split import log_bayes

MOST = 1e8  # Bayes factors are kept within [1/MOST, MOST]: more extreme ones would not change any decision
TOP = 1e200  # products of Bayes factors are kept below this
HALFWAY = 0.5 * log(MOST)  # the largest log Bayes factor at the start of a test: at log(MOST) later clicks could not add
SURE = 1e6  # odds are kept within [1/SURE, SURE]
FEW = 40  # up to this many plays the tail of a Beta is summed exactly
LEAST = 1e-5  # a suspicion below this is not carried over
FALLING = 2.5  # from this Bayes factor on a leader's own clicks speak for a fall
CLEAR = 0.01  # an arm is decided to be unchanged only if its suspicion from earlier tests is below this
NEARLY_ONE = 1.0 - 1e-9  # a probability from here on counts as 1
NEARLY_NONE = 1e-9  # the smallest probability that odds are divided by
CERTAIN = 2  # the value of `found` when a changed arm proves an event
CAUGHT = 0.95  # the probability that the arm caught by the net has changed, given an event


class ChangeTest(Spec):
    """Prior beliefs about an event, and the thresholds for deciding about an arm.

    Beta(a, b) is the prior of an arm's click probability (`overtake_probability` is exact for a = 1). Given an event, each arm but
    the leader has changed with probability `other_change_probability`. The mean of a changed leader is `fall_factor` times its
    former mean. Another changed arm is better than the leader was with probability `overtake_probability`. An arm is decided to
    have changed when P(changed) > `decision_confidence` and the Bayes factor of its own clicks exceeds `min_bayes_factor`. It is
    decided to be unchanged when P(changed | event) < 1 − `decision_confidence`. When another test takes the place of one that has
    found a changed arm, an undecided arm loses its old record if P(it is stale) > `stale_from`.
    """

    a: Positive = 1.0
    b: Positive = 1.0
    other_change_probability: Gap = 0.5
    fall_factor: Gap = 0.5
    overtake_probability: Gap = 0.25
    decision_confidence: Annotated[float, Range(0.5, 1.0, open_low=True, open_high=True)] = 0.95
    min_bayes_factor: Positive = 5.0
    stale_from: Gap = 0.5


def change_layout(arms: int) -> list[tuple[Any, ...]]:
    """Return the fields: two records per arm, their comparison, and the belief about the event."""
    return [
        ("odds", "f8"),  # prior odds of E, including the evidence of the arms that were decided
        ("prior", "f8"),  # the odds at the start of the test
        ("leader", "i8"),  # the best arm before
        ("top", "f8"),  # its click probability
        ("fall", "f8"),  # slabs: a changed leader is a Beta(a, fall), any other changed arm a Beta(a, rise)
        ("rise", "f8"),
        ("found", "i8"),  # 1 when an arm is known to have changed, CERTAIN when that proves an event
        ("moved", "i8"),  # mask of the arms decided to have changed
        ("stayed", "i8"),  # mask of the arms decided to be unchanged
        ("old_plays", "i8", arms),
        ("old_total", "f8", arms),
        ("new_plays", "i8", arms),
        ("new_total", "f8", arms),
        ("factor", "f8", arms),  # Bayes factor of "changed" from the new record
        ("given", "f8", arms),
        ("anyway", "f8", arms),
        ("click_scale", "f8", arms),  # the scales of the samplers for both records together (see `Thompson`)
        ("skip_scale", "f8", arms),
    ]


# ---------------------------------------------------------------- records


@kernel
def clipped(value, most):
    """Return `value` clipped to [1/most, most]."""
    return min(max(value, 1.0 / most), most)


@kernel
def plays_in(row, arm):
    """Return the plays in both records."""
    return row.old_plays[arm] + row.new_plays[arm]


@kernel
def total_in(row, arm):
    """Return the total reward in both records."""
    return row.old_total[arm] + row.new_total[arm]


@kernel
def rescale(spec, row, arm):
    """Update the scales of the samplers for both records together."""
    clicks = spec.a + total_in(row, arm)
    row.click_scale[arm] = gamma_scale(clicks)
    row.skip_scale[arm] = gamma_scale(spec.a + spec.b + plays_in(row, arm) - clicks)


@kernel
def empty(row, arm):
    """Empty the new record and remove the suspicion."""
    row.new_plays[arm] = 0
    row.new_total[arm] = 0.0
    row.factor[arm] = 1.0
    row.given[arm] = 0.0
    row.anyway[arm] = 0.0


@kernel
def forget(spec, row, arm):
    """Empty both records."""
    row.old_plays[arm] = 0
    row.old_total[arm] = 0.0
    empty(row, arm)
    rescale(spec, row, arm)


@kernel
def join(row, arm):
    """Append the new record to the old one."""
    row.old_plays[arm] = plays_in(row, arm)
    row.old_total[arm] = total_in(row, arm)
    empty(row, arm)


@kernel
def drop(spec, row, arm):
    """Replace the old record by the new one."""
    row.old_plays[arm] = row.new_plays[arm]
    row.old_total[arm] = row.new_total[arm]
    empty(row, arm)
    rescale(spec, row, arm)


@kernel
def slab(row, arm):
    """Return the second parameter of the Beta prior of a changed arm."""
    return row.fall if arm == row.leader else row.rise


@kernel
def count_play(spec, row, arm):
    """Count a new play with reward 0: the Bayes factor gains the ratio of the two predictions of a skip."""
    skips = row.new_plays[arm] - row.new_total[arm]
    b = slab(row, arm)
    fresh = (b + skips) / (spec.a + b + row.new_plays[arm])
    stale_skips = spec.b + skips + row.old_plays[arm] - row.old_total[arm]
    row.factor[arm] = clipped(row.factor[arm] * fresh * (spec.a + spec.b + plays_in(row, arm)) / stale_skips, MOST)
    row.new_plays[arm] += 1


@kernel
def count_old_click(row, arm, value):
    """Add `value` to a play from before the suspected change, which was counted as a skip."""
    row.old_total[arm] = min(row.old_total[arm] + value, float(row.old_plays[arm]))


@kernel
def count_click(spec, row, arm, value):
    """Add `value` to a play that was counted as a skip."""
    if row.new_total[arm] + value > row.new_plays[arm]:  # no new play is left that can have earned it
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
    """Return the likelihood of the arm's new record if it has changed with probability `prior`, relative to "unchanged"."""
    return 1.0 + prior * (row.factor[arm] - 1.0)


@kernel
def share_changed(row, arm, prior):
    """Return P(the arm has changed | its new record) for the prior probability `prior`."""
    return prior * row.factor[arm] / likelihood(row, arm, prior)


@kernel
def event_odds(row):
    """Return the posterior odds of E, and P(no arm has changed | records) if arms are independent (0 if one is known to have)."""
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
    if none >= NEARLY_ONE:
        return 0.0, 0.0
    return min(row.odds * (with_event / without) * ((1.0 - none) / (1.0 - prior_none)), SURE), none


@kernel
def stale(row, arm, p):
    """Return P(the arm's old record is stale), because of this event, which has probability `p`, or an earlier one."""
    return p * share_changed(row, arm, row.given[arm]) + (1.0 - p) * share_changed(row, arm, row.anyway[arm])


@kernel
def suspicion(row, arm, odds):
    """Return P(the arm's old record is stale), because of this event or an earlier one."""
    return stale(row, arm, odds / (1.0 + odds))


@kernel
def hidden(row, odds):
    """Return P(an event that left the leader unchanged), without the condition that at least one arm has changed."""
    return odds / (1.0 + odds) * (1.0 - share_changed(row, row.leader, row.given[row.leader]))


@kernel
def still_better(spec, row, arm):
    """Return P(a changed arm with this new record is better than the leader was), relative to an arm without a new record."""
    n, s = row.new_plays[arm], row.new_total[arm]
    if n == 0:
        return 1.0
    if n > FEW:
        return 1.0 if s > row.top * n else 0.0
    # the tail of a Beta(1 + s, 1 + n − s) is that of a binomial; float(): a whole exponent would round differently when compiled
    term = power(1.0 - row.top, float(n + 1))
    tail = term
    for i in range(int(s)):
        term *= (n + 1 - i) / (i + 1.0) * row.top / (1.0 - row.top)
        tail += term
    return min(1.0, tail / (1.0 - row.top))


@kernel
def unseen_rise(spec, row):
    """Return the likelihood of the records if an arm other than the leader has changed, relative to no event.

    It is near 1 when the other arms were not played.
    """
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
    """Start to suspect an event: the leader falls with probability `falls`, another arm rises with probability `rises`.

    If a test was open (with posterior `odds`), arms that are more likely stale than not (if it has found a changed arm: stale with
    more than `stale_from`) lose their old record; the others keep it and their remaining suspicion. Return the mask of the arms
    that lost it. The arm `caught`, if any, keeps its whole record, which is the evidence for its change; the caller splits the
    record where the net suspects the change.

    While an event is unlikely and the leader's clicks do not speak for a fall, other arms are suspected only of an event that left
    the leader unchanged. A leader as good as before can always have been replaced by one like it: that possibility never quite goes
    away, harms nobody, and over many false alarms it would add up to a suspicion of every other arm.
    """
    dropped = 0
    if open_before:
        stale_from = spec.stale_from if row.found != 0 else 0.5
        likely = odds >= 1.0 or row.found != 0 or row.factor[row.leader] >= FALLING
        whole = odds / (1.0 + odds)
        others = whole if likely else hidden(row, odds)
        for arm in range(row.given.shape[0]):
            q = stale(row, arm, whole if arm == row.leader else others)
            if q > stale_from and arm != caught:
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
    row.rise = log(spec.overtake_probability) / log1p(-row.top)
    for arm in range(row.given.shape[0]):
        given = min(falls / (falls + rises), most) if arm == row.leader else spec.other_change_probability
        anyway = 0.0
        if open_before:
            anyway = row.anyway[arm] * still_better(spec, row, arm)
            anyway = anyway if anyway >= LEAST else 0.0
            join(row, arm)
        if plays_in(row, arm) == 0:
            given, anyway = 0.0, 0.0  # an arm without a record has nothing that could be stale
        row.given[arm] = 1.0 - (1.0 - given) * (1.0 - anyway)
        row.anyway[arm] = anyway
    chance = falls + rises
    row.odds = clipped(chance / max(1.0 - chance, NEARLY_NONE), SURE)
    row.prior = row.odds
    row.found = 0
    row.moved = 0
    row.stayed = 0
    return dropped


@kernel
def split_off(spec, row, arm, plays, total, odds):
    """Treat the last `plays` plays of the arm, which earned `total`, as played after a suspected change with posterior `odds`."""
    n, s = plays_in(row, arm), total_in(row, arm)
    plays, total = min(plays, n), min(total, s)
    row.old_plays[arm] = n - plays
    row.old_total[arm] = min(s - total, float(n - plays))
    row.new_plays[arm] = plays
    row.new_total[arm] = min(total, float(plays))
    row.factor[arm] = clipped(exp(min(log_bayes(n, s, plays, total), HALFWAY)), MOST)
    row.given[arm] = CAUGHT
    row.anyway[arm] = 0.0
    row.prior = 1.0
    row.odds = clipped(odds / row.factor[arm], MOST * SURE)


@kernel
def prior_none(row):
    """Return P(no arm has changed), before the new records."""
    none = 1.0
    for arm in range(row.given.shape[0]):
        none *= 1.0 - row.given[arm]
    return none


@kernel
def verdict(spec, row, arm):
    """Return 1 if the arm has changed, −1 if it has not, 0 if that is undecided or was decided before."""
    if row.given[arm] == 0.0:
        return 0
    share = share_changed(row, arm, row.given[arm])
    if share > spec.decision_confidence and row.factor[arm] > spec.min_bayes_factor:
        odds, _ = event_odds(row)
        return 1 if suspicion(row, arm, odds) > spec.decision_confidence else 0
    return -1 if share < 1.0 - spec.decision_confidence and row.anyway[arm] < CLEAR else 0


@kernel
def decide_changed(spec, row, arm, plays, total):
    """Decide that the arm has changed `plays` plays ago; keep the evidence about E in the odds."""
    if row.anyway[arm] > 0.0:
        some = 1.0 if row.found != 0 else 1.0 - prior_none(row)
        row.odds = clipped(row.odds * row.given[arm] / row.anyway[arm] / some, SURE)
        row.found = max(row.found, 1)
    else:  # only an event can have changed it: evidence from other arms cannot undo that
        row.odds = SURE
        row.found = CERTAIN
    row.moved |= bit(arm)
    if 0 < plays < row.new_plays[arm]:  # it changed later than suspected
        row.new_plays[arm] = plays
        row.new_total[arm] = min(total, float(plays))
    drop(spec, row, arm)


@kernel
def decide_unchanged(row, arm):
    """Decide that the arm is unchanged; keep the evidence about E in the odds."""
    if row.found == 0:
        before = 1.0 - prior_none(row)
        given, row.given[arm] = row.given[arm], 0.0
        row.odds *= (1.0 - prior_none(row)) / before
        row.given[arm] = given
    row.odds = clipped(row.odds * (1.0 - row.given[arm]) / (1.0 - row.anyway[arm]), SURE)
    row.stayed |= bit(arm)
    join(row, arm)
