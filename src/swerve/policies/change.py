"""The posterior of a change: was there an event, and which arms did it change? A spike and slab per arm.

Per arm there are two records: `old`, from before the suspected change, and `new`, since. With E = "there was an event":

- given E, arm a has changed with probability c1_a, independently, and at least one arm has (unless one is known to have);
- given not E, arm a's old record is stale anyway with probability c0_a (from an earlier event that nobody could confirm);
- a changed arm's new clicks come from a fresh Beta(a, b)-Bernoulli, an unchanged arm's go on as in its old record. The Bayes
  factor of the two is kept up to date play by play, by one division.

Everything here is a kernel on a row with the fields of `change_layout`. The random sets drawn by `draw_event` and `draw_changed` have
exactly the posterior's distribution.
"""

from __future__ import annotations

from typing import Any

from swerve.core.verbs import kernel

MOST = 1e8  # Bayes factors are kept within [1/MOST, MOST]: beyond, nothing more is decided by them
TOP = 1e200  # and products of them below this
SURE = 1e6  # and odds within [1/SURE, SURE]


def change_layout(arms: int) -> list[tuple[Any, ...]]:
    """Two records per arm, how they compare, and what is believed about the event."""
    return [
        ("odds", "f8"),  # prior odds of E, with the evidence of arms that have been decided about
        ("found", "i8"),  # whether an arm is known to have changed
        ("old_plays", "i8", arms),
        ("old_total", "f8", arms),
        ("new_plays", "i8", arms),
        ("new_total", "f8", arms),
        ("factor", "f8", arms),  # Bayes factor of "changed" from the new record
        ("given", "f8", arms),  # c1
        ("anyway", "f8", arms),  # c0
    ]


@kernel
def clipped(value, most):
    return min(max(value, 1.0 / most), most)


@kernel
def count_play(spec, row, arm):
    """A play that earned nothing (yet)."""
    fresh_skips, fresh = spec.b + row.new_plays[arm] - row.new_total[arm], spec.a + spec.b + row.new_plays[arm]
    old = row.old_plays[arm]
    skips, plays = fresh_skips + old - row.old_total[arm], fresh + old
    row.factor[arm] = clipped(row.factor[arm] * (fresh_skips * plays) / (fresh * skips), MOST)
    row.new_plays[arm] += 1


@kernel
def count_click(spec, row, arm, value):
    """A play that was counted as a skip earned `value` after all."""
    if row.new_total[arm] + value > row.new_plays[arm]:  # a late click for a play before the change
        row.old_total[arm] = min(row.old_total[arm] + value, float(row.old_plays[arm]))
        return
    clicks, skips = spec.a + row.new_total[arm], spec.b + row.new_plays[arm] - row.new_total[arm] - value
    stale_clicks, stale_skips = clicks + row.old_total[arm], skips + row.old_plays[arm] - row.old_total[arm]
    ratio = (clicks * stale_skips) / (skips * stale_clicks)
    row.factor[arm] = clipped(row.factor[arm] * (1.0 + value * (ratio - 1.0) if value < 1.0 else ratio), MOST)
    row.new_total[arm] += value


@kernel
def likelihood(row, arm, prior):
    """What the arm's new record says when it has changed with probability `prior`, relative to "unchanged"."""
    return 1.0 + prior * (row.factor[arm] - 1.0)


@kernel
def event_odds(row):
    """Posterior odds of E, and the probability under E that no arm has changed (0 when one is known to have)."""
    with_event, without, none, prior_none = 1.0, 1.0, 1.0, 1.0
    for arm in range(row.given.shape[0]):
        if row.given[arm] > 0.0 or row.anyway[arm] > 0.0:
            with_event = min(with_event * likelihood(row, arm, row.given[arm]), TOP)
            without = min(without * likelihood(row, arm, row.anyway[arm]), TOP)
            prior_none *= 1.0 - row.given[arm]
    if row.found != 0:
        return clipped(row.odds * with_event / without, SURE), 0.0
    none = prior_none / with_event
    if none >= 1.0 - 1e-9:
        return 0.0, 0.0
    return min(row.odds * (with_event / without) * ((1.0 - none) / (1.0 - prior_none)), SURE), none


@kernel
def share_changed(row, arm, prior):
    """P(arm has changed | its new record), when it was `prior` before."""
    return prior * row.factor[arm] / likelihood(row, arm, prior)


@kernel
def suspicion(row, arm, odds):
    """P(the arm's old record is stale), whether by this event or an earlier one."""
    p = odds / (1.0 + odds)
    return p * share_changed(row, arm, row.given[arm]) + (1.0 - p) * share_changed(row, arm, row.anyway[arm])
