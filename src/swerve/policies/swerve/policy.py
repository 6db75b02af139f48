"""Swerve: an alarm is evidence, not proof. A test keeps the old record, and play follows the posterior."""

from __future__ import annotations

import math

import numpy as np

from swerve.classifiers.quantile import QuantileBox
from swerve.core.contract import (
    ALARM,
    CONSULTED,
    LEARNT,
    RESTARTED,
    absorb,
    begin,
    begin_pool,
    blame,
    clear,
    domain,
    evict,
    evidence,
    heed,
    intake,
    layout,
    merge,
    observe,
    onset,
    plays_of,
    pool_layout,
    predict,
    reads_context,
    restart,
    reward,
    select,
    settle,
    show,
    starts,
    testing,
)
from swerve.core.elementary import exp, log1p
from swerve.core.rng import at
from swerve.core.spec import Gap, Natural, NonNegative, Positive, Probability, Spec
from swerve.core.tables import bit, has, nested
from swerve.core.verbs import kernel
from swerve.detectors.split import Split
from swerve.policies.swerve.draws import begin_draws, draw_chance, draw_changed, is_behind, lead
from swerve.policies.swerve.lifecycle import QUIET, WAITING, conclude, follow_up, give_label, lose, note_rise, open_test
from swerve.policies.swerve.posterior import (
    ChangeTest,
    change_layout,
    count_click,
    count_old_click,
    count_play,
    decide_changed,
    decide_unchanged,
    forget,
    plays_in,
    rescale,
    split_off,
    verdict,
)
from swerve.policies.swerve.trust import (
    Trust,
    clear_trust,
    forget_trust,
    merge_trust,
    plain_rates,
    rates,
    trust_layout,
    trust_pool_layout,
)

EIGHTH = np.uint64(61)  # a random word shifted right by this is 0 one time in eight
HIGHEST = 10.0  # the net's log evidence is capped here: e^10 are odds of 22,000 to 1


class Swerve(Spec):
    """Thompson sampling that treats an alarm as evidence, and explores as much as past alarms justify.

    A positive context opens a *test* (`ChangeTest`): the old record is kept beside a new one. `Trust` supplies the prior for this
    signal and query, and the clicks decide whether there was an event and which arms changed. While an event is the likelier case,
    play is Thompson sampling over that posterior. While it is not, play goes on with the joined records: mostly the leader, whose
    clicks reveal its fall. Another arm is tried once the probability that it has overtaken reaches `look_threshold`. A passive
    detector, the net, always watches; after an alarm it needs less evidence, in proportion to how often changes have followed
    alarms with a delay. The verdict is given `verdict_after` rounds after the alarm and may be revised up to `revise_until` rounds
    after it. A suspicion that a test could not settle is kept.

    Without alarms and without a net (`net=Blind()`) this is `Thompson`, draw for draw. With a safe classifier (`Rectangle`)
    contexts are fed back only when the clicks spoke against an event, as in the paper's BWC.

    Source: this library; docs/beyond.md derives it. Paper: Future Work, the questions left open.

    >>> from swerve import Fleet
    >>> fleet = Fleet(Swerve(), queries=1, arms=3, features=2, seed=7)
    >>> [fleet.select(0, x=[0.1, 0.2]).arm for _ in range(6)]
    [2, 1, 2, 0, 2, 2]
    """

    classifier: Spec = QuantileBox()
    net: Spec = Split()
    test: Spec = ChangeTest()
    trust: Spec = Trust()
    verdict_after: Natural = 200  # rounds from an alarm to its verdict
    revise_until: Natural = 1000  # rounds after an alarm within which the verdict may be revised
    min_test_rounds: Natural = 20  # rounds before another alarm may open the next test;
    unlikely_alarm_delay: NonNegative = 0.05  # longer by the factor 1 + this / P(the new alarm is true)
    found_event_delay: NonNegative = 0.0  # and of a test that has found a changed arm, by this · the odds against the new alarm
    prompt_fall_rounds: Natural = 40  # a fall found within this many rounds is prompt; if most are, alarms are acted on at once
    true_from: Gap = 0.9  # P(event) from which an alarm counts as true
    look_threshold: Probability = 0.0075  # P(an arm has overtaken unseen) from which it is tried
    look_probability: Probability = 0.5  # the least probability per round of trying it
    suspicion_odds: Positive = 0.3  # odds of an event when the net raises a suspicion
    unannounced_rate: Gap = 1e-6  # changes per round without an alarm
    sample_spread: Probability = 1.0  # distance of a sample from its mean, as a share of that of a posterior sample
    late_caution: NonNegative = 0.0  # how much less rises are believed where falls come late; 0: as much as elsewhere
    leave_out_from: NonNegative = 0.0  # squared distance from the leader, in variances, from which an arm is left out; 0: never

    def check(self) -> None:
        if not predict.knows(self.classifier):
            self.refuse("classifier", "a classifier, such as QuantileBox()")
        if not evidence.knows(self.net):
            self.refuse("net", "a detector with the verbs evidence and onset: Split() or Blind()")
        if not isinstance(self.test, ChangeTest):
            self.refuse("test", "a ChangeTest()")
        if not isinstance(self.trust, Trust):
            self.refuse("trust", "a Trust()")
        if self.verdict_after > self.revise_until:
            self.refuse("verdict_after", f"≤ revise_until = {self.revise_until}")


@layout.register(Swerve)
def _(spec, arms, features):
    return [
        ("t", "i8"),  # rounds since the start
        ("rng", "u8"),
        ("starts", "i8"),
        ("open", "i8"),  # whether a test is open
        ("since", "i8"),  # the round it began in
        ("opened", "f8"),  # its start time
        ("split", "i8"),  # the arm whose record the net has split, −1 for none
        ("label", "i8"),
        ("signal", "i8"),  # the feature that raised the alarm
        ("alert", "i8"),  # until this round the net needs less evidence
        ("bonus", "f8"),  # how much less
        ("hasty", "i8"),  # whether to act on the alarm before the leader's clicks confirm it
        ("fell", "i8"),  # the round in which the leader was found to have changed, 0 before
        ("rose", "i8"),  # whether a rise was counted in this test
        ("caught", "i8"),  # whether the net detected a change after the alarm
        ("last", "i8"),  # the arm shown in the last round, −1 after it was settled
        ("earned", "f8"),
        ("alarm", "f8", features),  # the context that opened the test
        ("kept", "f8", arms),  # the start time of each arm's record
        ("test", nested(change_layout(arms))),
        ("trust", nested(trust_layout())),
        ("net", nested(layout(spec.net, arms, features))),
    ]


@pool_layout.register(Swerve)
def _(spec, features):
    return [("classifier", nested(pool_layout(spec.classifier, features))), ("trust", nested(trust_pool_layout(features)))]


@begin_pool.register(Swerve)
def _(spec, pool, d):
    begin_pool(spec.classifier, pool.classifier, d)
    return 0


@merge.register(Swerve)
def _(spec, pool, delta):
    merge(spec.classifier, pool.classifier, delta.classifier)
    merge_trust(spec.trust, pool.trust, delta.trust)
    return 0


@clear.register(Swerve)
def _(spec, delta):
    clear(spec.classifier, delta.classifier)
    clear_trust(delta.trust)
    return 0


@begin.register(Swerve)
def _(spec, row, word):
    row.rng = word
    row.starts = 0
    forget_trust(row.trust)
    restart(spec, row)


@restart.register(Swerve)
def _(spec, row):
    row.starts += 1
    row.t = 0
    row.open = 0
    row.opened = -math.inf
    row.split = -1
    row.label = QUIET
    row.alert = 0
    row.rose = 0
    row.caught = 0
    row.last = -1
    row.test.leader = 0
    row.test.moved = 0
    row.test.stayed = 0
    for arm in range(row.test.given.shape[0]):
        evict(spec, row, arm)


@evict.register(Swerve)
def _(spec, row, arm):
    evict(spec.net, row.net, arm)
    forget(spec.test, row.test, arm)
    row.kept[arm] = -math.inf
    row.test.moved &= ~bit(arm)
    row.test.stayed &= ~bit(arm)
    if row.last == arm:
        row.last = -1
    if row.split == arm:
        row.split = -1


@kernel
def settle_play(spec, row, pool, delta, arm, earned, follow, paged, now):
    """Judge one play whose reward is known: the arm's verdict in an open test, then the net. `follow`: do what else is due.

    `paged`: the play is one of a page, where an event changes many results. The first one found is the event, and is reported; the
    verdicts on the others belong to it.
    """
    report = 0
    if row.open != 0:
        found = verdict(spec.test, row.test, arm)
        if found > 0:
            first = row.test.moved == 0
            plays, total = onset(spec.net, row.net, arm)
            decide_changed(spec.test, row.test, arm, plays, total)
            lose(row, arm)
            evict(spec.net, row.net, arm)
            if not paged or first:
                report |= RESTARTED
            if arm == row.test.leader:
                row.fell = row.t
            else:
                report |= note_rise(row, delta)
            if row.caught != 0:
                row.caught = 0
                delta.trust.afters += 1.0
                delta.trust.fresh = 1
                report |= LEARNT
        elif found < 0:
            decide_unchanged(row.test, arm)
        if follow:
            report |= follow_up(spec, row, delta)
    intake(spec.net, row.net, arm, earned)
    score, plays, total = evidence(spec.net, row.net, arm, row.bonus if row.t < row.alert else 0.0)
    # if an open test began near the change that the net suspects, the test covers that suspicion already
    if score > 0.0 and (row.open == 0 or row.test.given[arm] == 0.0 or 2 * plays < row.test.new_plays[arm]):
        since, called = row.since, row.label != QUIET  # the next alarm must not wait anew, even if the last is concluded now
        report |= conclude(spec, row, delta)
        open_test(spec, row, pool, 0.5, 0.0, now, arm)
        split_off(spec.test, row.test, arm, plays, total, spec.suspicion_odds * exp(min(score, HIGHEST)))
        row.hasty = 1
        row.since = since if called else row.t
        row.caught = 1 if row.t < row.alert else 0
        report |= RESTARTED
    return report


@settle.register(Swerve)
def _(spec, row, pool, delta, now):
    arm = row.last
    if arm < 0:
        return 0
    row.last = -1
    return settle_play(spec, row, pool, delta, arm, row.earned, True, False, now)


@observe.register(Swerve)
def _(spec, row, pool, delta, x, told, now):
    report = CONSULTED
    positive = predict(spec.classifier, pool.classifier, delta.classifier, x, told)
    if positive:
        signal = blame(spec.classifier, pool.classifier, x)
        falls, rises = rates(spec.trust, row.trust, pool.trust, signal)
        # an alarm that is rarely true must not cut short the test of one that often is, or was
        chance = falls + rises
        delay = spec.found_event_delay * (1.0 - chance) if row.test.found != 0 else 0.0
        if row.open == 0 or row.t - row.since >= spec.min_test_rounds * (1.0 + (spec.unlikely_alarm_delay + delay) / chance):
            report |= ALARM
            report |= give_label(spec, row, delta, False) if row.label == WAITING else conclude(spec, row, delta)
            row.trust.plain_fall, row.trust.plain_rise = plain_rates(spec.trust, pool.trust, signal)
            open_test(spec, row, pool, falls, rises, now)
            later = (spec.trust.prior_delayed_changes + pool.trust.afters) / (1.0 + pool.trust.tests)
            row.bonus = log1p(later / (spec.revise_until * spec.unannounced_rate))
            row.alert = row.t + spec.revise_until
            row.label = WAITING
            row.trust.unseen += 1.0
            row.signal = signal
            row.caught = 0
            for j in range(min(len(x), row.alarm.shape[0])):
                row.alarm[j] = x[j]
    # a random eighth of the contexts suffices; taking every eighth in turn would favour some hours of the day
    if at(row.rng, row.t) >> EIGHTH == 0:
        if absorb(spec.classifier, pool.classifier, delta.classifier, x):
            report |= LEARNT
    elif positive and heed(spec.classifier, pool.classifier, delta.classifier, x):
        report |= LEARNT
    return report


@select.register(Swerve)
def _(spec, row, pool, available, now):
    test, tested = row.test, row.open != 0
    odds, none, rise, event, bold, word = begin_draws(row, row.rng)
    top, most, word = lead(spec, test, pool.trust, available, word)
    best, chosen = -1.0, -1
    for arm in range(test.given.shape[0]):
        changed = False
        if tested:
            changed, none, word = draw_changed(spec, test, arm, odds, none, rise, event, bold, True, word)
        if has(available, arm) and (changed or not is_behind(spec, test, arm, top, most)):
            theta, word = draw_chance(spec, test, arm, changed, word)
            if theta > best:
                best, chosen = theta, arm
    row.rng = word
    return chosen


@kernel
def add_play(spec, row, arm):
    """Count a play with reward 0; the scales of the samplers are left as they are."""
    if row.open != 0:
        count_play(spec.test, row.test, arm)
    else:
        row.test.old_plays[arm] += 1


@kernel
def count_shown(spec, row, arm):
    """Count a play with reward 0."""
    add_play(spec, row, arm)
    rescale(spec.test, row.test, arm)


@show.register(Swerve)
def _(spec, row, arm, now):
    row.t += 1
    row.last = arm
    row.earned = 0.0
    count_shown(spec, row, arm)


@kernel
def add_click(spec, row, arm, value, shown):
    """Add `value` to a play that was shown at `shown`; the scales of the samplers are left as they are."""
    if row.open != 0 and (shown >= row.opened or arm == row.split):
        count_click(spec.test, row.test, arm, value)
    else:  # a click is evidence about the time of its show: before the test, that is the old record
        count_old_click(row.test, arm, value)


@kernel
def count_earned(spec, row, arm, value, shown):
    """Add `value` to a play that was shown at `shown`."""
    add_click(spec, row, arm, value, shown)
    rescale(spec.test, row.test, arm)


@reward.register(Swerve)
def _(spec, row, arm, value, shown, now):
    if shown < row.kept[arm]:
        return False  # its play was dropped with the old record
    if row.last == arm:
        row.earned = min(row.earned + value, 1.0)
    count_earned(spec, row, arm, value, shown)
    return True


@starts.register(Swerve)
def _(spec, row):
    return row.starts


@plays_of.register(Swerve)
def _(spec, row, arm):
    return plays_in(row.test, arm)


@blame.register(Swerve)
def _(spec, pool, x):
    return blame(spec.classifier, pool.classifier, x)


@reads_context.register(Swerve)
def _(spec):
    return True


@testing.register(Swerve)
def _(spec, row):
    return row.open


@domain.register(Swerve)
def _(spec, pool, x):
    return domain(spec.classifier, pool.classifier, x)
