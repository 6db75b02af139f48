"""Thompson sampling over the posterior of a test: was there an event, which arms has it changed, how often are they clicked."""

from __future__ import annotations

import math

from swerve.core.elementary import log1p
from swerve.core.rng import GOLDEN, beta, gamma_scale, mix, unit, wrap_add
from swerve.core.tables import has
from swerve.core.verbs import kernel
from swerve.policies.swerve.posterior import event_odds, hidden, plays_in, share_changed, slab, still_better, total_in

NEARLY_ONE = 1.0 - 1e-12  # keeps the probability that no arm changed below 1: it is divided by 1 minus this

FIRST_PLAYS, GROWTH = 100.0, 0.3  # the distance from which an arm is left out grows with the logarithm of the leader's plays
FEW_RISES = 0.5  # rises at first, before any change was found: every arm stays in
RISES_WEIGHT = 4.0  # from half of the changes on, every arm stays in


@kernel
def worth_a_look(spec, test, arm, odds, rise):
    """Return the probability of treating an arm as changed, so that it is tried, while an event is unlikely."""
    if arm == test.leader:
        return 0.0  # the leader is played anyway
    if rise < spec.look_threshold and test.anyway[arm] == 0.0:
        return 0.0  # the same result as below, without divisions: nearly every arm in nearly every round
    q = rise * share_changed(test, arm, test.given[arm]) + share_changed(test, arm, test.anyway[arm]) / (1.0 + odds)
    if q < spec.look_threshold or q * still_better(spec.test, test, arm) < spec.look_threshold:
        return 0.0
    return max(q, spec.look_probability)


@kernel
def begin_draws(row, word):
    """Draw whether there was an event, if one is likely; return what the draws of the arms need, and the stream's word."""
    test = row.test
    odds, none, rise = 0.0, 0.0, 0.0
    event, bold = False, False
    if row.open != 0:
        odds, none = event_odds(test)
        bold = odds >= 1.0 and (row.hasty != 0 or test.found != 0)
        if bold:
            word = wrap_add(word, GOLDEN)
            event = unit(mix(word)) * (1.0 + odds) < odds
        else:  # P(an event that left the leader unchanged), to be multiplied by each arm's share
            rise = hidden(test, odds) / (1.0 - none)
    return odds, none, rise, event, bold, word


@kernel
def draw_changed(spec, test, arm, odds, none, rise, event, bold, look, word):
    """Draw whether an arm has changed, in an open test. `look`: it may be tried although an event is unlikely."""
    changed = False
    if test.given[arm] > 0.0 or test.anyway[arm] > 0.0:
        if bold:
            share = share_changed(test, arm, test.given[arm] if event else test.anyway[arm])
            word = wrap_add(word, GOLDEN)
            if event and none > 0.0:  # at least one arm must have changed
                changed = unit(mix(word)) * (1.0 - none) < share
                none = 0.0 if changed else min(none / (1.0 - share), NEARLY_ONE)
            else:
                changed = unit(mix(word)) < share
        elif look:
            share = worth_a_look(spec, test, arm, odds, rise)
            if share > 0.0:
                word = wrap_add(word, GOLDEN)
                changed = unit(mix(word)) < share
    return changed, none, word


@kernel
def nearer(spread, theta, clicks, skips):
    """Move a draw towards the mean of its distribution, so that it lies at `spread` times its distance."""
    if spread == 1.0:
        return theta
    mean = clicks / (clicks + skips)
    return mean + spread * (theta - mean)


@kernel
def draw_chance(spec, test, arm, changed, word):
    """Draw an arm's click probability from the posterior, given whether it has changed: nearer to the mean if not."""
    clicks, skips = spec.test.a + test.new_total[arm], test.new_plays[arm] - test.new_total[arm]
    if changed:
        skips += slab(test, arm)
        return beta(word, clicks, skips, gamma_scale(clicks), gamma_scale(skips))
    clicks += test.old_total[arm]
    skips += spec.test.b + test.old_plays[arm] - test.old_total[arm]
    theta, word = beta(word, clicks, skips, test.click_scale[arm], test.skip_scale[arm])
    return nearer(spec.sample_spread, theta, clicks, skips), word


@kernel
def mean_of(spec, test, arm):
    """Return the posterior mean of an arm that has not changed."""
    return (spec.test.a + total_in(test, arm)) / (spec.test.a + spec.test.b + plays_in(test, arm))


@kernel
def lead(spec, test, trust, available, word):
    """Return the highest mean, the distance from it that leaves an arm out (inf: none is left out), and the stream's word.

    An arm far behind the leader is drawn best too rarely to be worth its plays before the next change. It would also show its rise
    in no other way: the larger the share of rises among the changes of all queries, the more often every arm stays in.
    """
    if spec.leave_out_from == 0.0:
        return 0.0, math.inf, word
    share = (FEW_RISES + trust.rises) / (FEW_RISES + trust.rises + trust.falls)
    word = wrap_add(word, GOLDEN)
    if unit(mix(word)) < RISES_WEIGHT * share * share:
        return 0.0, math.inf, word
    top, plays = -1.0, 0.0
    for arm in range(test.given.shape[0]):
        if has(available, arm):
            mean = mean_of(spec, test, arm)
            if mean > top:
                top, plays = mean, float(plays_in(test, arm))
    return top, spec.leave_out_from * (1.0 + GROWTH * log1p(plays / FIRST_PLAYS)) * top * (1.0 - top), word


@kernel
def is_behind(spec, test, arm, top, most):
    """Return whether an arm is so far behind the leader, after so many plays, that it is left out."""
    if most == math.inf:
        return False
    gap = top - mean_of(spec, test, arm)
    return gap * gap * plays_in(test, arm) > most
