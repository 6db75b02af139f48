"""The compiled round loop: a policy in an environment, round after round, with its counters."""

from __future__ import annotations

import numpy as np

from swerve.core.contract import ALARM, CONSULTED, LABEL_FALSE, LABEL_TRUE, RESTARTED, reward, testing
from swerve.core.engine import NOWHERE, Entry, admissible, decide
from swerve.core.spec import record_dtype
from swerve.core.verbs import inlined, kernel
from swerve.environments.worlds import advance, best, chance, click, context

#: The counters of one query. They are summed in the order of the queries, so that a run has the same totals whether its queries are
#: played one after the other or all at once. An alarm is true when its own round is an event. A miss is an event whose context was
#: called negative. An unseen event fell into a test, where the classifier is not asked (for a policy without a classifier: every
#: event).
TALLY = record_dtype(
    [
        ("regret", "f8"),
        ("clicks", "f8"),
        ("events", "i8"),
        ("consulted", "i8"),
        ("true_alarms", "i8"),
        ("false_alarms", "i8"),
        ("misses", "i8"),
        ("unseen", "i8"),
        ("false_labels", "i8"),
        ("true_labels", "i8"),
        ("wrong_false_labels", "i8"),
        ("wrong_true_labels", "i8"),
        ("restarts", "i8"),
        ("by_cause", "f8", 5),
    ]
)

#: What the loop remembers about a query: whether its last alarm was true, and the cause of its bandit's current regret.
NOTE = record_dtype([("true_alarm", "i8"), ("cause", "i8")])

#: The causes of regret, by the history of the bandit that is playing. Every round's regret has exactly one cause.
CAUSES = (
    "learning",  # a new segment (the query's start, or a true alarm): the best arm must be found
    "testing",  # the same, inside a test, whose knowledge is discarded
    "false_alarm",  # the bandit started with a false alarm, or after the test of one
    "unseen",  # an event occurred while the classifier was not asked (inside a test; always without a classifier)
    "missed",  # an event occurred that the classifier called negative
)
LEARNING, TESTING, FALSE_ALARM, UNSEEN, MISSED = range(5)


@kernel
def count(tally, note, event, report):
    """Count a round with an event or a report. A label belongs to the alarm before this round's, so it is counted first."""
    if report & LABEL_FALSE:
        tally.false_labels += 1
        tally.wrong_false_labels += note.true_alarm
    if report & LABEL_TRUE:
        tally.true_labels += 1
        tally.wrong_true_labels += 1 - note.true_alarm
    if report & RESTARTED:
        tally.restarts += 1
    if report & CONSULTED:
        tally.consulted += 1
    tally.events += event
    if report & ALARM:
        tally.true_alarms += event
        tally.false_alarms += 1 - event
        note.true_alarm = event
    elif report & CONSULTED:
        tally.misses += event
    else:
        tally.unseen += event


@kernel
def cause_after(cause, event, report):
    """Return the cause of this round's regret, given the cause in the round before."""
    if report & ALARM:
        return LEARNING if event != 0 else FALSE_ALARM
    if event != 0:
        return MISSED if report & CONSULTED else UNSEEN
    if report & RESTARTED and cause != FALSE_ALARM:
        return LEARNING
    return cause


@inlined
def play_round(
    spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, available, tally, note, journal=NOWHERE, owns=None
):  # fmt: skip
    """Play round `t`; return False, with nothing decided, when its context cannot be used.

    `see` says whether contexts are drawn: a policy that reads none does not pay for them.
    """
    event = advance(env, facts, segments, cursor)
    if see:
        context(env, facts, cursor, event, x)
        if admissible(spec, pools[group], x) != 0:
            return False
    arm, report = decide(spec, row, pools, group, writer, x, event, available, float(t), journal, owns)
    if click(env, facts, segments, cursor, arm):
        reward(spec, row, arm, 1.0, float(t), float(t))
        tally.clicks += 1.0
    if event != 0 or report > CONSULTED:
        count(tally, note, event, report)
        note.cause = cause_after(note.cause, event, report)
    elif report == CONSULTED:
        tally.consulted += 1
    lost = best(env, facts, segments, cursor) - chance(env, facts, segments, cursor, arm)
    tally.regret += lost
    cause = note.cause
    tally.by_cause[TESTING if cause == LEARNING and testing(spec, row) else cause] += lost
    return True


@Entry
def play(
    params, table, pools, groups, writer, env_params, scene, segments, cursors, schedule, start, stop, see, x, available, tallies,
    notes,
):  # fmt: skip
    """Play rounds `start` to `stop`; return the round reached, which is below `stop` when a context cannot be used."""
    for t in range(start, stop):
        query = np.uint64(schedule[t])  # unsigned: a signed index may count from the end, which costs a comparison at every use
        if not play_round(
            params[0], table[query], pools, groups[query], writer, env_params[0], scene[0], segments, cursors[query], t, see, x,
            available, tallies[query], notes[query],
        ):  # fmt: skip
            return t
    return stop
