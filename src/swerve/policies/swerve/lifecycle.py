"""The life of one of Swerve's tests: it opens, its alarm gets a verdict, which may be revised, and it ends."""

from __future__ import annotations

from swerve.core.contract import LABEL_FALSE, LABEL_TRUE, LEARNT, REVISED, evict, learn
from swerve.core.tables import has
from swerve.core.verbs import kernel
from swerve.policies.swerve.posterior import begin_change, event_odds, join, share_changed, unseen_rise
from swerve.policies.swerve.trust import came_true, tried

QUIET, WAITING, CALLED_FALSE = 0, 1, 2  # an alarm's label: none is due; to be given; false, but it may still come true
LATELY = 8  # plays of the leader since an alarm that show it is still what it was
LONG = 50  # and before it, for there to be anything to compare with
NOTHING = 1e-3  # a test without a waiting alarm is closed when its odds are below


@kernel
def lose(row, arm):
    """The arm's old record is dropped: clicks for plays of before the test have nowhere to go.

    Where the net had split the record, when the plays that are left were shown is not known, and clicks are taken as they come.
    """
    if arm != row.split:
        row.kept[arm] = row.opened


@kernel
def open_test(spec, row, pool, falls, rises, now, caught=-1):
    """Suspect an event in this round; the arm `caught`, if there is one, is the one that the net suspects."""
    odds = 0.0
    if row.open != 0:
        odds, _ = event_odds(row.test)
    dropped = begin_change(spec.test, row.test, row.open != 0, odds, falls, rises, spec.trust.max_leader_share, caught)
    for arm in range(row.test.given.shape[0]):
        if has(dropped, arm):
            lose(row, arm)
            evict(spec.net, row.net, arm)
    row.open = 1
    row.opened = now
    row.split = caught
    row.since = row.t
    row.fell = 0
    row.hasty = 1 if 1.0 + pool.trust.swift >= pool.trust.slow else 0


@kernel
def close_test(row):
    """There was nothing: the records go on."""
    row.open = 0
    for arm in range(row.test.given.shape[0]):
        join(row.test, arm)


@kernel
def kind(test):
    """(1, 0) for a fall of the leader, (0, 1) for a rise of another arm, (0, 0) when nobody can say."""
    lead = test.leader
    stayed = has(test.stayed, lead)
    if has(test.moved, lead) or (not stayed and share_changed(test, lead, test.given[lead]) > 0.5):
        return 1.0, 0.0
    if stayed or (test.new_plays[lead] >= LATELY and test.factor[lead] < 0.5 and test.old_plays[lead] >= LONG):
        return 0.0, 1.0
    return 0.0, 0.0


@kernel
def give_label(spec, row, delta):
    """The verdict on the alarm that is waiting for one."""
    test, lead = row.test, row.test.leader
    odds, _ = event_odds(test)
    if odds >= spec.true_from * (1.0 + odds):
        row.label = QUIET
        fall, rise = kind(test)
        came_true(row.trust, delta.trust, row.signal, fall, rise)
        tried(row.trust, delta.trust, row.signal, 1.0, rise, 1.0)
        if fall > 0.0:
            quick = row.fell > 0 and row.fell - row.since <= spec.prompt_fall_rounds
            delta.trust.swift += 1.0 if quick else 0.0
            delta.trust.slow += 0.0 if quick else 1.0
        return LABEL_TRUE | LEARNT
    row.label = CALLED_FALSE
    saw = min(max(1.0 - odds / test.prior, 0.0), 1.0)
    saw_fall = 1.0 if has(test.stayed, lead) else 1.0 - min(test.factor[lead], 1.0)
    tried(row.trust, delta.trust, row.signal, saw_fall, 1.0 - unseen_rise(spec.test, test), saw)
    if saw > 0.5:  # the clicks spoke against it, not only its low odds: it may be taught
        learn(spec.classifier, delta.classifier, row.alarm)
    return LABEL_FALSE | LEARNT


@kernel
def follow_up(spec, row, delta):
    """What is due in an open test: the verdict, its revision, the end."""
    if row.label == WAITING:
        return give_label(spec, row, delta) if row.t - row.since >= spec.verdict_after else 0
    if row.label == CALLED_FALSE and row.t & 31 == 0:
        odds, _ = event_odds(row.test)
        if odds > spec.true_from * (1.0 + odds):
            row.label = QUIET
            fall, rise = kind(row.test)
            came_true(row.trust, delta.trust, row.signal, fall, rise)
            return LEARNT | REVISED
        if row.t - row.since >= spec.revise_until:
            row.label = QUIET
    if row.label == QUIET and row.t & 63 == 0:
        odds, _ = event_odds(row.test)
        if odds < NOTHING:
            close_test(row)
    return 0
