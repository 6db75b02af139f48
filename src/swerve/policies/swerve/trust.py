"""The rates at which alarms come true, learnt over all queries, per signal and per query.

An event is a *fall* of the leader, which shows in its own clicks, or a *rise* of another arm, which shows only if that arm is
played. Falls and rises have separate rates, and a test counts as a trial only to the extent that it could have detected the event.
A test that did not play the other arms says nothing about rises and must not lower their rate. Otherwise low rates would reinforce
themselves.

Where alarms are mostly false, other arms are tried once in several alarms. Such a try tells of all of them: what an alarm leaves
unseen is kept for the query, in alarms, and counted when a later test sees it. A rise that is found by then came with one of them.
"""

from __future__ import annotations

from typing import Any

from swerve.core.elementary import power
from swerve.core.spec import Gap, Positive, Spec
from swerve.core.verbs import kernel

HIGHEST = 0.999  # the largest probability of an event: the odds stay finite


class Trust(Spec):
    """Prior beliefs about alarms, and how fast evidence replaces them.

    fall rate = (prior_falls + falls seen) / (prior_trials + trials seen); rises have the same formula. The rate is multiplied by
    how much more often the alarms of this signal are true (the average over all signals has the weight of `signal_prior_alarms`
    alarms), and by (m + events of the query) / (m + events expected of it), m = `query_prior_events`: a Gamma-Poisson frailty,
    because queries differ. Each trial multiplies the weight of earlier counts by `retention_per_trial`. The leader's share of
    events is at most `max_leader_share`, so that rises are never ruled out.
    """

    prior_falls: Positive = 0.5
    prior_rises: Positive = 0.25
    prior_trials: Positive = 5.0
    signal_prior_alarms: Positive = 8.0
    query_prior_events: Positive = 0.1
    retention_per_trial: Gap = 0.999
    max_leader_share: Gap = 0.995
    prior_delayed_changes: Positive = 0.2  # changes per alarm that come some time after it, before any was seen

    def check(self) -> None:
        if self.prior_falls + self.prior_rises >= self.prior_trials:
            self.refuse(
                "prior_trials",
                f"> prior_falls + prior_rises = {self.prior_falls + self.prior_rises:g}: these are the trials that were true",
            )


def trust_layout() -> list[tuple[Any, ...]]:
    """Return the fields: a query's own events, and the probability of an event at its last alarm."""
    return [
        ("falls", "f8"),
        ("rises", "f8"),
        ("fall_trials", "f8"),  # expected falls
        ("rise_trials", "f8"),
        ("plain_fall", "f8"),
        ("plain_rise", "f8"),
        ("unseen", "f8"),  # alarms whose rise, if they had one, has not been looked for yet
    ]


def trust_pool_layout(features: int) -> list[tuple[Any, ...]]:
    """Return the fields: the counts over all queries."""
    return [
        ("fresh", "i8"),  # in a delta: whether there is anything to fold
        ("falls", "f8"),
        ("rises", "f8"),
        ("fall_trials", "f8"),
        ("rise_trials", "f8"),
        ("tests", "f8"),
        ("afters", "f8"),  # changes that the net detected some time after an alarm
        ("swift", "f8"),  # falls found soon after their alarm, and falls found later
        ("slow", "f8"),
        ("trues_of", "f8", features),
        ("alarms_of", "f8", features),
    ]


def trust_contribution_layout(features: int) -> list[tuple[Any, ...]]:
    """Return the fields: the sums of all deltas, which no trial has reduced."""
    return [field for field in trust_pool_layout(features) if field[0] != "fresh"]


@kernel
def forget_trust(row):
    """Reset the counts of a query."""
    row.falls = 0.0
    row.rises = 0.0
    row.fall_trials = 0.0
    row.rise_trials = 0.0
    row.plain_fall = 0.0
    row.plain_rise = 0.0
    row.unseen = 0.0


@kernel
def plain_rates(spec, pool, signal):
    """Return the probabilities that an alarm of this signal is a fall, and a rise, on an average query."""
    falls = (spec.prior_falls + pool.falls) / (spec.prior_trials + pool.fall_trials)
    rises = (spec.prior_rises + pool.rises) / (spec.prior_trials + pool.rise_trials)
    overall = falls + rises
    own = (
        (spec.signal_prior_alarms * overall + pool.trues_of[signal]) / (spec.signal_prior_alarms + pool.alarms_of[signal]) / overall
    )
    return min(falls * own, 1.0), min(rises * own, 1.0)


@kernel
def rates(spec, row, pool, signal):
    """Return the probabilities that an alarm of this signal is a fall, and a rise, on this query."""
    falls, rises = plain_rates(spec, pool, signal)
    falls *= (spec.query_prior_events + row.falls) / (spec.query_prior_events + row.fall_trials)
    rises *= (spec.query_prior_events + row.rises) / (spec.query_prior_events + row.rise_trials)
    scale = min(1.0, HIGHEST / (falls + rises))
    return falls * scale, rises * scale


@kernel
def came_true(row, delta, signal, fall):
    """Count a true alarm, and a fall of the leader if it was one."""
    delta.fresh = 1
    delta.trues_of[signal] += 1.0
    row.falls += fall
    delta.falls += fall
    row.unseen = 0.0  # after an event nobody can tell what earlier alarms have left unseen


@kernel
def found_rise(row, delta):
    """Count a rise, and the alarms that it may have come with as trials."""
    delta.fresh = 1
    row.rises += 1.0
    row.rise_trials += row.unseen * row.plain_rise
    delta.rises += 1.0
    delta.rise_trials += row.unseen
    row.unseen = 0.0


@kernel
def looked(row, unseen):
    """Return how many alarms' rises a test has looked for and not found; `unseen` is the likelihood of its records under a rise."""
    alarms = row.unseen * (1.0 - unseen)
    row.unseen *= unseen
    return alarms


@kernel
def tried(row, delta, signal, saw_fall, saw_rise, saw):
    """Count a finished test that could have detected a fall or any event with these weights, and the rises of `saw_rise` alarms."""
    delta.fresh = 1
    delta.tests += 1.0
    delta.alarms_of[signal] += saw
    row.fall_trials += saw_fall * row.plain_fall
    row.rise_trials += saw_rise * row.plain_rise
    delta.fall_trials += saw_fall
    delta.rise_trials += saw_rise


@kernel
def merge_trust(spec, pool, delta):
    """Merge a delta into the pool, after reducing the weight of the earlier counts."""
    if delta.fresh == 0:
        return
    fade = power(spec.retention_per_trial, float(delta.tests))
    pool.tests = fade * pool.tests + delta.tests
    pool.afters = fade * pool.afters + delta.afters
    fade = power(spec.retention_per_trial, float(delta.swift + delta.slow))
    pool.swift = fade * pool.swift + delta.swift
    pool.slow = fade * pool.slow + delta.slow
    fade = power(spec.retention_per_trial, float(delta.fall_trials))
    pool.falls = fade * pool.falls + delta.falls
    pool.fall_trials = fade * pool.fall_trials + delta.fall_trials
    fade = power(spec.retention_per_trial, float(delta.rise_trials))
    pool.rises = fade * pool.rises + delta.rises
    pool.rise_trials = fade * pool.rise_trials + delta.rise_trials
    for j in range(pool.trues_of.shape[0]):
        fade = power(spec.retention_per_trial, float(delta.alarms_of[j]))
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


@kernel
def contribute_trust(own, delta):
    """Add a delta to this worker's contribution."""
    if delta.fresh == 0:
        return
    own.falls += delta.falls
    own.rises += delta.rises
    own.fall_trials += delta.fall_trials
    own.rise_trials += delta.rise_trials
    own.tests += delta.tests
    own.afters += delta.afters
    own.swift += delta.swift
    own.slow += delta.slow
    for j in range(own.trues_of.shape[0]):
        own.trues_of[j] += delta.trues_of[j]
        own.alarms_of[j] += delta.alarms_of[j]


@kernel
def novel_trust(theirs, known):
    """Reduce another worker's contribution to what is not known of it; return whether there is anything."""
    theirs.falls = max(theirs.falls - known.falls, 0.0)
    theirs.rises = max(theirs.rises - known.rises, 0.0)
    theirs.fall_trials = max(theirs.fall_trials - known.fall_trials, 0.0)
    theirs.rise_trials = max(theirs.rise_trials - known.rise_trials, 0.0)
    theirs.tests = max(theirs.tests - known.tests, 0.0)
    theirs.afters = max(theirs.afters - known.afters, 0.0)
    theirs.swift = max(theirs.swift - known.swift, 0.0)
    theirs.slow = max(theirs.slow - known.slow, 0.0)
    total = theirs.falls + theirs.rises + theirs.fall_trials + theirs.rise_trials
    total += theirs.tests + theirs.afters + theirs.swift + theirs.slow
    for j in range(theirs.trues_of.shape[0]):
        theirs.trues_of[j] = max(theirs.trues_of[j] - known.trues_of[j], 0.0)
        theirs.alarms_of[j] = max(theirs.alarms_of[j] - known.alarms_of[j], 0.0)
        total += theirs.trues_of[j] + theirs.alarms_of[j]
    return total > 0.0


@kernel
def evenly(retention, trials):
    """Return the weight that earlier counts keep after so many trials, and that of counts that came evenly with these trials."""
    fade = power(retention, trials)
    return fade, (1.0 - fade) / (trials * (1.0 - retention)) if trials > 1.0 else 1.0


@kernel
def take_up_trust(spec, pool, theirs, known):
    """Fold what is new of a contribution into the pool, as if it had come evenly, trial by trial."""
    fade, weight = evenly(spec.retention_per_trial, theirs.tests)
    pool.tests = fade * pool.tests + weight * theirs.tests
    pool.afters = fade * pool.afters + weight * theirs.afters
    fade, weight = evenly(spec.retention_per_trial, theirs.swift + theirs.slow)
    pool.swift = fade * pool.swift + weight * theirs.swift
    pool.slow = fade * pool.slow + weight * theirs.slow
    fade, weight = evenly(spec.retention_per_trial, theirs.fall_trials)
    pool.falls = fade * pool.falls + weight * theirs.falls
    pool.fall_trials = fade * pool.fall_trials + weight * theirs.fall_trials
    fade, weight = evenly(spec.retention_per_trial, theirs.rise_trials)
    pool.rises = fade * pool.rises + weight * theirs.rises
    pool.rise_trials = fade * pool.rise_trials + weight * theirs.rise_trials
    known.falls += theirs.falls
    known.rises += theirs.rises
    known.fall_trials += theirs.fall_trials
    known.rise_trials += theirs.rise_trials
    known.tests += theirs.tests
    known.afters += theirs.afters
    known.swift += theirs.swift
    known.slow += theirs.slow
    for j in range(pool.trues_of.shape[0]):
        fade, weight = evenly(spec.retention_per_trial, theirs.alarms_of[j])
        pool.trues_of[j] = fade * pool.trues_of[j] + weight * theirs.trues_of[j]
        pool.alarms_of[j] = fade * pool.alarms_of[j] + weight * theirs.alarms_of[j]
        known.trues_of[j] += theirs.trues_of[j]
        known.alarms_of[j] += theirs.alarms_of[j]
