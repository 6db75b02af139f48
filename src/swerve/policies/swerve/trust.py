"""How often alarms come true: learnt over all queries, per signal, and for each query how it differs from the others.

An event is a *fall* of the leader, which shows by itself, or a *rise* of another arm, which shows only to those who look. The
two have rates of their own, and a test counts as a trial only as far as it could have seen the event: a test in which nobody
looked at the other arms says nothing about rises, and must not teach that there are none. That is what keeps the rates from
talking themselves down.
"""

from __future__ import annotations

from typing import Any

from swerve.core.spec import Gap, Positive, Spec
from swerve.core.verbs import kernel


class Trust(Spec):
    """What is believed of alarms at first, and how fast that gives way.

    fall rate = (falls + falls seen) / (trials + trials seen), and the same for rises; times how much oftener this signal's alarms
    are true (the average signal weighs `signal_prior_alarms` alarms); times (m + the query's events) / (m + the events expected of it),
    m = `query_prior_events`, a Gamma-Poisson frailty: queries differ. After each trial what was counted before weighs `retention_per_trial` times as
    much. The leader's share of events is at most `max_leader_share`: rises are never ruled out.
    """

    prior_falls: Positive = 0.5
    prior_rises: Positive = 0.25
    prior_trials: Positive = 5.0
    signal_prior_alarms: Positive = 8.0
    query_prior_events: Positive = 0.1
    retention_per_trial: Gap = 0.999
    max_leader_share: Gap = 0.995
    prior_delayed_changes: Positive = 0.2  # changes that come only some time after their alarm, per alarm, before any was seen

    def check(self) -> None:
        if self.prior_falls + self.prior_rises >= self.prior_trials:
            self.refuse(
                "prior_trials",
                f"> falls + rises = {self.prior_falls + self.prior_rises:g}: they are how many of the trials were true",
            )


def trust_layout() -> list[tuple[Any, ...]]:
    """What a query knows of its own events, and how likely one was thought when its last alarm came."""
    return [
        ("falls", "f8"),
        ("rises", "f8"),
        ("fall_trials", "f8"),  # expected falls
        ("rise_trials", "f8"),
        ("plain_fall", "f8"),
        ("plain_rise", "f8"),
    ]


def trust_pool_layout(features: int) -> list[tuple[Any, ...]]:
    """What all queries together know."""
    return [
        ("fresh", "i8"),  # in a delta: whether there is anything to fold in
        ("falls", "f8"),
        ("rises", "f8"),
        ("fall_trials", "f8"),
        ("rise_trials", "f8"),
        ("tests", "f8"),
        ("afters", "f8"),  # changes that the net found some time after an alarm
        ("swift", "f8"),  # falls that showed at once, and those that took their time
        ("slow", "f8"),
        ("trues_of", "f8", features),
        ("alarms_of", "f8", features),
    ]


@kernel
def forget_trust(row):
    """A query of which nothing is known."""
    row.falls = 0.0
    row.rises = 0.0
    row.fall_trials = 0.0
    row.rise_trials = 0.0
    row.plain_fall = 0.0
    row.plain_rise = 0.0


@kernel
def plain_rates(spec, pool, signal):
    """How likely an alarm of this signal is a fall, and a rise, on any query."""
    falls = (spec.prior_falls + pool.falls) / (spec.prior_trials + pool.fall_trials)
    rises = (spec.prior_rises + pool.rises) / (spec.prior_trials + pool.rise_trials)
    overall = falls + rises
    own = (
        (spec.signal_prior_alarms * overall + pool.trues_of[signal]) / (spec.signal_prior_alarms + pool.alarms_of[signal]) / overall
    )
    return min(falls * own, 1.0), min(rises * own, 1.0)


@kernel
def rates(spec, row, pool, signal):
    """The same on this query."""
    falls, rises = plain_rates(spec, pool, signal)
    falls *= (spec.query_prior_events + row.falls) / (spec.query_prior_events + row.fall_trials)
    rises *= (spec.query_prior_events + row.rises) / (spec.query_prior_events + row.rise_trials)
    scale = min(1.0, 0.999 / (falls + rises))
    return falls * scale, rises * scale


@kernel
def came_true(row, delta, signal, fall, rise):
    """An alarm was true: a fall, a rise, or nobody can say which."""
    delta.fresh = 1
    delta.trues_of[signal] += 1.0
    row.falls += fall
    row.rises += rise
    delta.falls += fall
    delta.rises += rise


@kernel
def tried(row, delta, signal, saw_fall, saw_rise, saw):
    """A test is over that could have seen a fall, a rise, any event with these weights."""
    delta.fresh = 1
    delta.tests += 1.0
    delta.alarms_of[signal] += saw
    row.fall_trials += saw_fall * row.plain_fall
    row.rise_trials += saw_rise * row.plain_rise
    delta.fall_trials += saw_fall
    delta.rise_trials += saw_rise


@kernel
def merge_trust(spec, pool, delta):
    """Fold in what was learnt, after the rest has faded a little."""
    if delta.fresh == 0:
        return
    fade = spec.retention_per_trial**delta.tests
    pool.tests = fade * pool.tests + delta.tests
    pool.afters = fade * pool.afters + delta.afters
    fade = spec.retention_per_trial ** (delta.swift + delta.slow)
    pool.swift = fade * pool.swift + delta.swift
    pool.slow = fade * pool.slow + delta.slow
    fade = spec.retention_per_trial**delta.fall_trials
    pool.falls = fade * pool.falls + delta.falls
    pool.fall_trials = fade * pool.fall_trials + delta.fall_trials
    fade = spec.retention_per_trial**delta.rise_trials
    pool.rises = fade * pool.rises + delta.rises
    pool.rise_trials = fade * pool.rise_trials + delta.rise_trials
    for j in range(pool.trues_of.shape[0]):
        fade = spec.retention_per_trial ** delta.alarms_of[j]
        pool.trues_of[j] = fade * pool.trues_of[j] + delta.trues_of[j]
        pool.alarms_of[j] = fade * pool.alarms_of[j] + delta.alarms_of[j]


@kernel
def clear_trust(delta):
    """Empty a delta."""
    if delta.fresh == 0:
        return
    delta.fresh = 0
    delta.falls = 0.0
    delta.rises = 0.0
    delta.fall_trials = 0.0
    delta.rise_trials = 0.0
    delta.tests = 0.0
    delta.afters = 0.0
    delta.swift = 0.0
    delta.slow = 0.0
    for j in range(delta.trues_of.shape[0]):
        delta.trues_of[j] = 0.0
        delta.alarms_of[j] = 0.0
