"""The life of one of Swerve's tests: it opens, its alarm gets a verdict, the verdict may be revised, and the test closes."""

from __future__ import annotations

from swerve.core.contract import LABEL_FALSE, LABEL_TRUE, LEARNT, REVISED, evict, learn
from swerve.core.elementary import power
from swerve.core.tables import has
from swerve.core.verbs import kernel
from swerve.policies.swerve.posterior import begin_change, event_odds, join, share_changed, unseen_rise
from swerve.policies.swerve.trust import came_true, found_rise, looked, tried

QUIET, WAITING, CALLED_FALSE = 0, 1, 2  # an alarm's label: none is due; due; false, but it may still be revised
LATELY = 8  # plays of the leader since an alarm that suffice to show that it is unchanged
LONG = 50  # plays of the leader before the alarm that are needed for the comparison
NOTHING = 1e-3  # a test without a pending label closes when its odds are below this
PROMPT = 10.0  # falls that are taken to have come with their alarms, before any was found: a few late ones must not hide rises
REVISE_MASK, CLOSE_MASK = 31, 63  # revisions are checked every 32 rounds and closing every 64, because the odds are slow to compute


@kernel
def lose(row, arm):
    """Note that the arm's old record was dropped: clicks for plays from before the test are no longer learnt.

    If the net had split the record, the times of the remaining plays are unknown, and all clicks are accepted.
    """
    if arm != row.split:
        row.kept[arm] = row.opened


@kernel
def open_test(spec, row, pool, falls, rises, now, caught=-1):
    """Open a test for an event in this round; `caught` is the arm that the net suspects, or −1.

    Where falls come long after their alarms, an unchanged leader may tell that the event is still to come, not that another arm has
    risen: with `late_caution` rises are believed less, and fewer arms are tried for them.
    """
    odds = 0.0
    if row.open != 0:
        odds, _ = event_odds(row.test)
    swift, slow = pool.trust.swift, pool.trust.slow
    hasty = 1.0 + swift >= slow
    most = spec.trust.max_leader_share
    if not hasty and caught < 0 and spec.late_caution > 0.0:
        prompt = power((PROMPT + swift) / (PROMPT + swift + slow), spec.late_caution)
        rises *= prompt
        most = 1.0 - (1.0 - most) * prompt
    dropped = begin_change(spec.test, row.test, row.open != 0, odds, falls, rises, most, caught)
    for arm in range(row.test.given.shape[0]):
        if has(dropped, arm):
            lose(row, arm)
            evict(spec.net, row.net, arm)
    row.open = 1
    row.opened = now
    row.split = caught
    row.since = row.t
    row.fell = 0
    row.rose = 0
    row.hasty = 1 if hasty else 0


@kernel
def close_test(row):
    """Close the test: nothing changed, and the new records are appended to the old ones."""
    row.open = 0
    for arm in range(row.test.given.shape[0]):
        join(row.test, arm)


@kernel
def kind(test):
    """Return (1, 0) for a fall of the leader, (0, 1) for a rise of another arm, (0, 0) when the kind is unknown."""
    lead = test.leader
    stayed = has(test.stayed, lead)
    if has(test.moved, lead) or (not stayed and share_changed(test, lead, test.given[lead]) > 0.5):
        return 1.0, 0.0
    if stayed or (test.new_plays[lead] >= LATELY and test.factor[lead] < 0.5 and test.old_plays[lead] >= LONG):
        return 0.0, 1.0
    return 0.0, 0.0


@kernel
def note_rise(row, delta):
    """Count a rise that the open test has found, once, if alarms can have announced it: its own, or earlier ones of the query.

    A rise found by a try that many alarms together have justified proves none of them, but it must count, as they count as trials.
    """
    if row.rose == 0 and row.trust.unseen > 0.0:
        _, rise = kind(row.test)
        if rise > 0.0:
            row.rose = 1
            found_rise(row.trust, delta.trust)
            return LEARNT
    return 0


@kernel
def give_label(spec, row, delta, over):
    """Give the verdict on the pending alarm. `over`: the test goes no further, so what it saw of rises counts even after a fall."""
    test, lead = row.test, row.test.leader
    odds, _ = event_odds(test)
    if odds >= spec.true_from * (1.0 + odds):
        row.label = QUIET
        note_rise(row, delta)
        fall, _ = kind(test)
        came_true(row.trust, delta.trust, row.signal, fall)
        saw_rise = 1.0 - unseen_rise(spec.test, test) if over and row.rose == 0 else 0.0
        tried(row.trust, delta.trust, row.signal, 1.0, saw_rise, 1.0)
        if fall > 0.0:
            quick = row.fell > 0 and row.fell - row.since <= spec.prompt_fall_rounds
            delta.trust.swift += 1.0 if quick else 0.0
            delta.trust.slow += 0.0 if quick else 1.0
        return LABEL_TRUE | LEARNT
    row.label = CALLED_FALSE
    saw = min(max(1.0 - odds / test.prior, 0.0), 1.0)
    saw_fall = 1.0 if has(test.stayed, lead) else 1.0 - min(test.factor[lead], 1.0)
    tried(row.trust, delta.trust, row.signal, saw_fall, looked(row.trust, unseen_rise(spec.test, test)), saw)
    if saw > 0.5:  # the clicks spoke against an event, not only the low prior odds: teach the classifier
        learn(spec.classifier, delta.classifier, row.alarm)
    return LABEL_FALSE | LEARNT


@kernel
def revise(row, delta):
    """Count the alarm that was called false as true."""
    row.label = QUIET
    note_rise(row, delta)
    fall, _ = kind(row.test)
    came_true(row.trust, delta.trust, row.signal, fall)
    return LEARNT | REVISED


@kernel
def conclude(spec, row, delta):
    """Give or revise the verdict on the alarm if its test has proved an event: another test is about to take its place."""
    if row.open == 0 or row.label == QUIET:
        return 0
    odds, _ = event_odds(row.test)
    if odds < spec.true_from * (1.0 + odds):
        return 0
    return give_label(spec, row, delta, True) if row.label == WAITING else revise(row, delta)


@kernel
def follow_up(spec, row, delta):
    """Do what is due in an open test: give the verdict, revise it, or close the test."""
    if row.label == WAITING:
        return give_label(spec, row, delta, False) if row.t - row.since >= spec.verdict_after else 0
    if row.label == CALLED_FALSE and row.t & REVISE_MASK == 0:
        odds, _ = event_odds(row.test)
        if odds > spec.true_from * (1.0 + odds):
            return revise(row, delta)
        if row.t - row.since >= spec.revise_until:
            row.label = QUIET
    if row.label == QUIET and row.t & CLOSE_MASK == 0:
        odds, _ = event_odds(row.test)
        if odds < NOTHING:
            close_test(row)
    return 0
