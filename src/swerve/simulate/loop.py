"""The compiled round loop: a policy in an environment, round after round, and what is counted on the way."""

from __future__ import annotations

from swerve.core.contract import ALARM, CONSULTED, LABEL_FALSE, LABEL_TRUE, RESTARTED, reward, testing
from swerve.core.engine import Entry, admissible, decide
from swerve.core.spec import record_dtype
from swerve.core.verbs import kernel
from swerve.environments.worlds import advance, best, chance, click, context

#: What one run adds up to. An alarm is true when its very round is an event; a miss is an event whose context was called negative;
#: an unseen event fell into a test, where the classifier is not asked (for a policy without one: all of them).
TALLY = record_dtype(
    [
        ("regret", "f8"),
        ("clicks", "f8"),
        ("rounds", "i8"),
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

#: What the loop remembers of a query: whether its last alarm was true, and why its bandit may be wrong.
NOTE = record_dtype([("true_alarm", "i8"), ("cause", "i8")])

#: Where regret comes from: the history of the bandit that is playing. Every round's regret goes to exactly one of them.
CAUSES = (
    "learning",  # a fresh segment (the query's start, or a true alarm): somebody must look for the best arm
    "testing",  # the same, but inside the test, whose knowledge is thrown away
    "false_alarm",  # the bandit began with a false alarm, or after the test of one
    "unseen",  # it has lived through an event that nobody asked the classifier about (inside a test; always without a classifier)
    "missed",  # it has lived through an event that the classifier called negative
)
LEARNING, TESTING, FALSE_ALARM, UNSEEN, MISSED = range(5)


@kernel
def count(tally, note, told, report):
    """What a round that was not plain quiet adds to the tally. A label speaks of the alarm before, so it comes first."""
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
    tally.events += told
    if report & ALARM:
        tally.true_alarms += told
        tally.false_alarms += 1 - told
        note.true_alarm = told
    elif report & CONSULTED:
        tally.misses += told
    else:
        tally.unseen += told


@kernel
def cause_after(cause, told, report):
    """Why the bandit of this round may be wrong, given why it might have been in the round before."""
    if report & ALARM:
        return LEARNING if told != 0 else FALSE_ALARM
    if told != 0:
        return MISSED if report & CONSULTED else UNSEEN
    if report & RESTARTED and cause != FALSE_ALARM:
        return LEARNING
    return cause


@Entry
def play(
    params,
    table,
    pools,
    groups,
    writer,
    env_params,
    scene,
    segments,
    places,
    schedule,
    start,
    stop,
    see,
    x,
    available,
    tallies,
    notes,
):
    """Rounds `start` to `stop` of a run; returns where it got to: short of `stop` when a context cannot be used.

    `see` says whether contexts are drawn: a policy that reads none need not pay for them.
    """
    spec = params[0]
    env = env_params[0]
    facts = scene[0]
    tally = tallies[0]
    for t in range(start, stop):
        query = schedule[t]
        place = places[query]
        told = advance(env, facts, segments, place)
        if see:
            context(env, facts, place, told, x)
            if admissible(spec, pools[groups[query]], x) != 0:
                tally.rounds += t - start
                return t
        arm, report = decide(spec, table[query], pools, groups[query], writer, x, told, available, float(t))
        if click(env, facts, segments, place, arm):
            reward(spec, table[query], arm, 1.0, float(t), float(t))
            tally.clicks += 1.0
        if told != 0 or report > CONSULTED:
            count(tally, notes[query], told, report)
            notes[query].cause = cause_after(notes[query].cause, told, report)
        elif report == CONSULTED:
            tally.consulted += 1
        lost = best(env, facts, segments, place) - chance(env, facts, segments, place, arm)
        tally.regret += lost
        cause = notes[query].cause
        tally.by_cause[TESTING if cause == LEARNING and testing(spec, table[query]) else cause] += lost
    tally.rounds += stop - start
    return stop
