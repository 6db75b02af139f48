"""The compiled round loop: a policy in an environment, round after round, and what is counted on the way."""

from __future__ import annotations

from swerve.core.contract import ALARM, CONSULTED, LABEL_FALSE, LABEL_TRUE, RESTARTED, reward
from swerve.core.engine import Entry, decide
from swerve.core.spec import record_dtype
from swerve.core.verbs import kernel
from swerve.environments.contract import advance, best, chance, click, context

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
    ]
)


@kernel
def count(tally, alarm_was_true, query, told, report):
    """What a round that was not plain quiet adds to the tally. A label speaks of the alarm before, so it comes first."""
    if report & LABEL_FALSE:
        tally.false_labels += 1
        tally.wrong_false_labels += alarm_was_true[query]
    if report & LABEL_TRUE:
        tally.true_labels += 1
        tally.wrong_true_labels += 1 - alarm_was_true[query]
    if report & RESTARTED:
        tally.restarts += 1
    if report & CONSULTED:
        tally.consulted += 1
    tally.events += told
    if report & ALARM:
        tally.true_alarms += told
        tally.false_alarms += 1 - told
        alarm_was_true[query] = told
    elif report & CONSULTED:
        tally.misses += told
    else:
        tally.unseen += told


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
    alarm_was_true,
):
    """Rounds `start` to `stop` of a run. `see` says whether contexts are drawn: a policy that reads none need not pay for them."""
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
        arm, report = decide(spec, table[query], pools, groups[query], writer, x, told, available, float(t))
        if click(env, facts, segments, place, arm):
            reward(spec, table[query], arm, 1.0, float(t))
            tally.clicks += 1.0
        tally.regret += best(env, facts, segments, place) - chance(env, facts, segments, place, arm)
        if told != 0 or report > CONSULTED:
            count(tally, alarm_was_true, query, told, report)
        elif report == CONSULTED:
            tally.consulted += 1
    tally.rounds += stop - start
