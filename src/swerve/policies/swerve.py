"""Swerve."""

from __future__ import annotations

import math

from swerve.bandits.thompson import Thompson
from swerve.classifiers.quantile import QuantileBox
from swerve.core.contract import (
    ALARM, CONSULTED, LABEL_FALSE, LABEL_TRUE, LEARNT, RESTARTED, absorb, begin, begin_pool, blame, clear, domain, evict, evidence, layout, learn,
    merge, observe, phase, played, plays_of, mean_of, pool_layout, predict, reads_context, restart, reward, select, settle, show, slots, testing, watch,
)
from swerve.core.rng import GOLDEN, beta, gamma_scale, mix, unit, wrap_add
from swerve.core.spec import Gap, Natural, NonNegative, Positive, Probability, Spec
from swerve.core.tables import bit, has, nested
from swerve.core.verbs import kernel
from swerve.detectors.split import Split, log_bayes
from swerve.policies.change import (
    MOST, SURE, change_layout, clipped, count_click, count_play, event_odds, likelihood, share_changed, suspicion,
)


class Swerve(Spec):
    """Swerve."""

    classifier: Spec = QuantileBox()
    net: Spec = Split()
    a: Positive = 1.0
    b: Positive = 1.0
    wait: Natural = 1000
    apart: Natural = 20
    per_query: Positive = 8.0
    per_signal: Positive = 8.0
    keep: Natural = 8
    trigger: Positive = 1.0
    bonus: NonNegative = 3.0
    lead_most: Probability = 0.95
    sure: Probability = 0.95


@layout.register(Swerve)
def _(spec, arms, features):
    return [
        ("t", "i8"),
        ("rng", "u8"),
        ("phase", "i8"),
        ("open", "i8"),
        ("waiting", "i8"),  # an alarm whose label is open
        ("signal", "i8"),
        ("since", "i8"),
        ("leader", "i8"),
        ("moved", "i8"),  # arms decided to have changed in this test (mask)
        ("stayed", "i8"),
        ("last", "i8"),
        ("earned", "f8"),
        ("trues", "f8"),
        ("alarms", "f8"),
        *change_layout(arms),
        ("click_scale", "f8", arms),
        ("skip_scale", "f8", arms),
        ("alarm", "f8", features),
        ("net", nested(layout(spec.net, arms, features))),
    ]


@pool_layout.register(Swerve)
def _(spec, features):
    return [
        ("classifier", nested(pool_layout(spec.classifier, features))),
        ("trues", "f8"), ("alarms", "f8"),
        ("lead_moved", "f8"), ("other_moved", "f8"), ("events", "f8"), ("other_events", "f8"),
        ("trues_of", "f8", features), ("alarms_of", "f8", features),
    ]


@begin_pool.register(Swerve)
def _(spec, pool, d):
    begin_pool(spec.classifier, pool.classifier, d)
    return 0


@merge.register(Swerve)
def _(spec, pool, delta):
    merge(spec.classifier, pool.classifier, delta.classifier)
    if delta.alarms > 0.0:
        pool.trues += delta.trues
        pool.alarms += delta.alarms
        pool.lead_moved += delta.lead_moved
        pool.other_moved += delta.other_moved
        pool.events += delta.events
        pool.other_events += delta.other_events
        for j in range(pool.trues_of.shape[0]):
            pool.trues_of[j] += delta.trues_of[j]
            pool.alarms_of[j] += delta.alarms_of[j]
    return 0


@clear.register(Swerve)
def _(spec, delta):
    clear(spec.classifier, delta.classifier)
    if delta.alarms > 0.0:
        delta.trues = 0.0
        delta.alarms = 0.0
        delta.lead_moved = 0.0
        delta.other_moved = 0.0
        delta.events = 0.0
        delta.other_events = 0.0
        for j in range(delta.trues_of.shape[0]):
            delta.trues_of[j] = 0.0
            delta.alarms_of[j] = 0.0
    return 0


@kernel
def rescale(spec, row, arm):
    clicks = spec.a + row.old_total[arm] + row.new_total[arm]
    row.click_scale[arm] = gamma_scale(clicks)
    row.skip_scale[arm] = gamma_scale(spec.a + spec.b + row.old_plays[arm] + row.new_plays[arm] - clicks)


@begin.register(Swerve)
def _(spec, row, word):
    row.rng = word
    row.phase = 0
    row.trues = 0.0
    row.alarms = 0.0
    restart(spec, row)


@restart.register(Swerve)
def _(spec, row):
    row.phase += 1
    row.t = 0
    row.open = 0
    row.waiting = 0
    row.last = -1
    row.found = 0
    row.odds = 0.0
    for arm in range(row.old_plays.shape[0]):
        evict(spec, row, arm)


@evict.register(Swerve)
def _(spec, row, arm):
    evict(spec.net, row.net, arm)
    row.old_plays[arm] = 0
    row.old_total[arm] = 0.0
    reopen(row, arm, 0.0, 0.0)
    if row.last == arm:
        row.last = -1
    rescale(spec, row, arm)


@kernel
def reopen(row, arm, given, anyway):
    """An empty new record."""
    row.new_plays[arm] = 0
    row.new_total[arm] = 0.0
    row.factor[arm] = 1.0
    row.given[arm] = given
    row.anyway[arm] = anyway


@kernel
def join(row, arm):
    """The new record belongs to the old one."""
    row.old_plays[arm] += row.new_plays[arm]
    row.old_total[arm] += row.new_total[arm]
    reopen(row, arm, 0.0, 0.0)


@kernel
def drop(spec, row, arm):
    """The old record is void."""
    row.old_plays[arm] = row.new_plays[arm]
    row.old_total[arm] = row.new_total[arm]
    reopen(row, arm, 0.0, 0.0)
    evict(spec.net, row.net, arm)
    rescale(spec, row, arm)


@kernel
def prior_none_of(row):
    none = 1.0
    for arm in range(row.given.shape[0]):
        none *= 1.0 - row.given[arm]
    return none


@kernel
def decide_changed(spec, row, arm):
    if row.anyway[arm] > 0.0:
        some = 1.0 if row.found != 0 else 1.0 - prior_none_of(row)
        row.odds = clipped(row.odds * row.given[arm] / row.anyway[arm] / some, SURE)
    else:
        row.odds = SURE
    row.found = 1
    row.moved |= bit(arm)
    drop(spec, row, arm)


@kernel
def decide_unchanged(row, arm):
    if row.found == 0:
        before = 1.0 - prior_none_of(row)
        given = row.given[arm]
        row.given[arm] = 0.0
        after = 1.0 - prior_none_of(row)
        row.given[arm] = given
        row.odds *= after / before
    row.odds = clipped(row.odds * (1.0 - row.given[arm]) / (1.0 - row.anyway[arm]), SURE)
    row.stayed |= bit(arm)
    join(row, arm)


@kernel
def share_lead(spec, pool):
    return min((1.0 + pool.lead_moved) / (2.0 + pool.events), spec.lead_most)


@kernel
def share_other(spec, pool):
    return min((1.0 + pool.other_moved) / (2.0 + pool.other_events), spec.lead_most)


@kernel
def truth(spec, row, pool, signal):
    """How likely an alarm of this signal on this query is true."""
    overall = (1.0 + pool.trues) / (2.0 + pool.alarms)
    by_signal = (spec.per_signal * overall + pool.trues_of[signal]) / (spec.per_signal + pool.alarms_of[signal])
    return (spec.per_query * by_signal + row.trues) / (spec.per_query + row.alarms)


@kernel
def label(spec, row, delta, p, odds):
    """The alarm that is waiting for its verdict gets it."""
    row.waiting = 0
    row.trues += p
    row.alarms += 1.0
    delta.trues += p
    delta.alarms += 1.0
    delta.trues_of[row.signal] += p
    delta.alarms_of[row.signal] += 1.0
    delta.events += p
    for arm in range(row.given.shape[0]):
        if row.old_plays[arm] + row.new_plays[arm] == 0:
            continue
        moved = share_changed(row, arm, row.given[arm])
        if has(row.moved, arm):
            moved = 1.0
        elif has(row.stayed, arm):
            moved = 0.0
        if arm == row.leader:
            delta.lead_moved += p * moved
        else:
            delta.other_moved += p * moved
            delta.other_events += p
    if p < 0.5:
        learn(spec.classifier, delta.classifier, row.alarm)
        return LABEL_FALSE | LEARNT
    return LABEL_TRUE | LEARNT


@kernel
def best_arm(spec, row):
    top, which = -1.0, 0
    for arm in range(row.given.shape[0]):
        n = row.old_plays[arm] + row.new_plays[arm]
        mean = (row.old_total[arm] + row.new_total[arm]) / n if n > 0 else 0.0
        if mean > top:
            top, which = mean, arm
    return which


@kernel
def open_test(spec, row, pool, rho):
    """A new suspected change, now. What is known of an earlier one is carried over."""
    odds = 0.0
    if row.open != 0:
        odds, _ = event_odds(row)
    p = odds / (1.0 + odds)
    row.leader = best_arm(spec, row)
    for arm in range(row.given.shape[0]):
        given = share_lead(spec, pool) if arm == row.leader else share_other(spec, pool)
        anyway = 0.0
        if row.open != 0:
            q = suspicion(row, arm, odds)
            if q > 0.5:
                drop(spec, row, arm)
            else:
                join(row, arm)
                anyway = q if q > 1e-4 else 0.0
        if row.old_plays[arm] + row.new_plays[arm] == 0:
            given, anyway = 0.0, 0.0
        row.given[arm] = 1.0 - (1.0 - given) * (1.0 - anyway)
        row.anyway[arm] = anyway
    row.odds = clipped(rho / max(1.0 - rho, 1e-9), SURE)
    row.found = 0
    row.open = 1
    row.moved = 0
    row.stayed = 0
    row.since = row.t


@kernel
def close_test(spec, row):
    row.open = 0
    for arm in range(row.given.shape[0]):
        join(row, arm)


@settle.register(Swerve)
def _(spec, row, pool, delta, now):
    report = 0
    arm = row.last
    if arm < 0:
        return report
    row.last = -1
    if row.open != 0:
        conditional = share_changed(row, arm, row.given[arm])
        if conditional > spec.sure and row.given[arm] > 0.0:
            odds, _ = event_odds(row)
            if suspicion(row, arm, odds) > spec.sure:
                decide_changed(spec, row, arm)
                report |= RESTARTED
        elif conditional < 1.0 - spec.sure and row.given[arm] > 0.0 and row.anyway[arm] < 0.01:
            decide_unchanged(row, arm)
    if row.waiting != 0 and row.t - row.since >= spec.wait:
        odds, _ = event_odds(row)
        report |= label(spec, row, delta, odds / (1.0 + odds), odds)
    if row.open != 0 and row.waiting == 0 and row.t & 63 == 0:
        odds, _ = event_odds(row)
        if odds < 1e-3:
            close_test(spec, row)
    bonus = spec.bonus if row.waiting != 0 else 0.0
    watch(spec.net, row.net, arm, row.earned)
    score, plays, total = evidence(spec.net, row.net, arm, bonus)
    if score > 0.0 and (row.open == 0 or row.given[arm] == 0.0 or 2 * plays < row.new_plays[arm]):
        caught(spec, row, pool, arm, score, plays, total)
        report |= RESTARTED
    return report


@kernel
def caught(spec, row, pool, arm, score, plays, total):
    """The net suspects a change of this arm, the given plays ago."""
    since = row.since
    open_test(spec, row, pool, 0.5)
    if row.waiting != 0:
        row.since = since
    n = row.old_plays[arm] + row.new_plays[arm]
    s = row.old_total[arm] + row.new_total[arm]
    plays = min(plays, n)
    total = min(total, s)
    row.old_plays[arm] = n - plays
    row.old_total[arm] = min(s - total, float(n - plays))
    row.new_plays[arm] = plays
    row.new_total[arm] = min(total, float(plays))
    row.factor[arm] = clipped(math.exp(min(log_bayes(n, s, plays, total), 18.0)), MOST)
    row.given[arm] = 0.95
    row.anyway[arm] = 0.0
    row.odds = clipped(spec.trigger * math.exp(min(score, 10.0)) / row.factor[arm], 1e12)


@observe.register(Swerve)
def _(spec, row, pool, delta, x, told, now):
    report = CONSULTED
    if predict(spec.classifier, pool.classifier, delta.classifier, x, told):
        if row.open == 0 or row.t - row.since >= spec.apart:
            report |= ALARM
            if row.waiting != 0:
                odds, _ = event_odds(row)
                report |= label(spec, row, delta, odds / (1.0 + odds), odds)
            row.signal = blame(spec.classifier, pool.classifier, x)
            open_test(spec, row, pool, truth(spec, row, pool, row.signal))
            row.waiting = 1
            for j in range(min(len(x), row.alarm.shape[0])):
                row.alarm[j] = x[j]
    if row.t & 7 == 0:
        if absorb(spec.classifier, pool.classifier, delta.classifier, x):
            report |= LEARNT
    return report


@select.register(Swerve)
def _(spec, row, pool, available, now):
    word = row.rng
    p, none = 0.0, 0.0
    event = False
    if row.open != 0:
        odds, none = event_odds(row)
        word = wrap_add(word, GOLDEN)
        event = unit(mix(word)) * (1.0 + odds) < odds
    best, chosen = -1.0, -1
    for arm in range(row.given.shape[0]):
        changed = False
        if row.open != 0:
            prior = row.given[arm] if event else row.anyway[arm]
            if prior > 0.0:
                share = share_changed(row, arm, prior)
                word = wrap_add(word, GOLDEN)
                if event and none > 0.0:  # at least one arm must have changed
                    changed = unit(mix(word)) * (1.0 - none) < share
                    none = 0.0 if changed else min(none / (1.0 - share), 1.0 - 1e-12)
                else:
                    changed = unit(mix(word)) < share
        if has(available, arm):
            clicks = spec.a + row.new_total[arm]
            skips = spec.b + row.new_plays[arm] - row.new_total[arm]
            if changed:
                theta, word = beta(word, clicks, skips, gamma_scale(clicks), gamma_scale(skips))
            else:
                clicks += row.old_total[arm]
                skips += row.old_plays[arm] - row.old_total[arm]
                theta, word = beta(word, clicks, skips, row.click_scale[arm], row.skip_scale[arm])
            if theta > best:
                best, chosen = theta, arm
    row.rng = word
    return chosen


@show.register(Swerve)
def _(spec, row, arm, now):
    row.t += 1
    row.last = arm
    row.earned = 0.0
    if row.open != 0:
        count_play(spec, row, arm)
    else:
        row.old_plays[arm] += 1
    rescale(spec, row, arm)


@reward.register(Swerve)
def _(spec, row, arm, value, now):
    if row.last == arm:
        row.earned = min(row.earned + value, 1.0)
    if row.open != 0:
        count_click(spec, row, arm, value)
    else:
        row.old_total[arm] = min(row.old_total[arm] + value, float(row.old_plays[arm]))
    rescale(spec, row, arm)


@phase.register(Swerve)
def _(spec, row):
    return row.phase


@plays_of.register(Swerve)
def _(spec, row, arm):
    return row.old_plays[arm] + row.new_plays[arm]


@reads_context.register(Swerve)
def _(spec):
    return True


@testing.register(Swerve)
def _(spec, row):
    return row.open


@domain.register(Swerve)
def _(spec, pool, x):
    return domain(spec.classifier, pool.classifier, x)
