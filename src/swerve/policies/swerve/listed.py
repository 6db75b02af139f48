"""Swerve for whole pages: it starts from the given order, learns from every click, and explores one result a page."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from swerve.core.contract import (
    LEARNT,
    begin,
    begin_pool,
    clear,
    evict,
    layout,
    merge,
    pool_layout,
    restart,
    settle,
)
from swerve.core.examination import NO_GRADE, SLOTS
from swerve.core.pages import PARTS, grade, looks, mask_of, order, present, present_and_respond, redraw, respond
from swerve.core.spec import Natural, Positive, Probability, Range, Spec
from swerve.core.tables import bit, has, lowest, nested
from swerve.core.verbs import kernel
from swerve.core.wrapping import inner_layout, inner_pool_layout, wrapping
from swerve.policies.swerve.credit import (
    UNKNOWN,
    after_verdicts,
    correct_late,
    count_slots,
    credit_page,
    forget_below,
    judge_diversity,
    mean_chance,
    note_page,
    same_page,
    seen_slots,
    teach,
    uncredit_page,
)
from swerve.policies.swerve.draws import begin_draws
from swerve.policies.swerve.examination import (
    MEASURED,
    clear_examination,
    click_level,
    examination_layout,
    graded_mean,
    merge_examination,
    order_tells,
    rank_of,
)
from swerve.policies.swerve.placing import draw_move, move_up, page_value, sort_page
from swerve.policies.swerve.policy import Swerve, settle_play
from swerve.policies.swerve.posterior import ChangeTest, plays_in, rescale
from swerve.policies.swerve.trust import Trust

QUANTUM = 4096.0  # the prior's clicks are a multiple of 1/4096: adding a click and taking it back leaves the same bits
MOST_PRIOR = 255  # plays of a prior, which a byte holds
RENEW_MASK = 7  # priors are renewed every 8 rounds
FIRST = 200  # impressions of a query in which exploration has a budget
DIVERSITY_MASK = 15  # whether intents are mixed is computed every 16 rounds: it takes many logarithms
STUDIED = -1  # the last page is held by another policy: it is not counted in the record

#: On a page the results that did not change are seen too: a smaller share of them is expected to have changed. The next alarm is
#: often false and finds results undecided that nobody has seen since the event: they keep records that are not clearly stale.
PAGE_TEST = ChangeTest(other_change_probability=0.4, stale_from=0.9)
#: Two or three true alarms of a query do not prove that its next one is true: with the weight that suits one slot (0.1), one false
#: alarm in five on noisy pages was called true.
PAGE_TRUST = Trust(query_prior_events=3.0)
#: Most results of a page are seen without being explored: less of it is enough, and looks are cheaper than with one slot. A test
#: that has found its event still has many results to decide, which matters on a page: unlikely alarms leave it more time.
PAGE_BANDIT = Swerve(test=PAGE_TEST, trust=PAGE_TRUST, look_threshold=0.003, sample_spread=0.7, found_event_delay=3.0)


@wrapping
class Listed(Spec):
    """`Swerve` for pages of results.

    The given order is the prior: each result starts with a record of up to `prior_plays` plays at the click rate of its position in
    the given order or, if the engine's scores are sent, of results with such a score at that position, where the position alone has
    the weight of `score_results` results. All are learnt over all queries, from a first guess that weighs `order_results` results
    at each position for the rates and `trust_results` for the number of plays: the less the order tells, the fewer plays it weighs,
    and the rarer clicks are, the more. The page is sorted by posterior means. One result a page is explored: the winner of a
    posterior sample goes on top; if it is there already, the result with the highest sample among those whose sample beats the
    result above moves to where its sample puts it. In a query's first 200 impressions such moves may lose at most the share
    `loss_share` of the value that the sorted pages had so far, by the posterior means; a move that costs more is not made. A click
    counts as a play and a click. A skipped slot counts as a play with the probability that it was seen (see `examination.py`), a
    table learnt over all queries with `examination_plays` plays of prior weight, from results with at least `known_plays` plays
    beyond the prior. Tests, alarms, net and trust are those of `Swerve`, on every play that counts. In a test, the share of changed
    results is learnt as they are decided, with the weight of `share_results` results.

    If results below a click do not earn what they earn elsewhere, users have different intents: then only plays without a click
    above are used for the order, so that the second slot serves those whom the first one does not.

    With one slot, `prior_plays=0` and `bandit=Swerve()` this is `Swerve`, draw for draw.

    Source: this library. Credit by the chance of being seen: Lagrée, Vernade and Cappé (NIPS 2016) for known examination; the table
    is that of Dupret and Piwowarski (SIGIR 2008). Starting from the given order in small steps: Li et al., BubbleRank (UAI 2019);
    a budget for exploration: Wu et al., Conservative bandits (ICML 2016).
    """

    bandit: Spec = PAGE_BANDIT
    prior_plays: Annotated[int, Range(0, MOST_PRIOR)] = 50
    order_results: Positive = 40.0
    trust_results: Positive = 10.0
    examination_plays: Positive = 10.0
    known_plays: Natural = 3
    share_results: Positive = 5.0
    loss_share: Probability = 0.01
    score_results: Positive = 10.0

    def check(self) -> None:
        if not isinstance(self.bandit, Swerve):
            self.refuse("bandit", "a Swerve()")
        if self.bandit.leave_out_from > 0.0:
            self.refuse("bandit", "a Swerve() with leave_out_from=0: on a page most results are seen without being explored")


@layout.register(Listed)
def _(spec, arms, features):
    return [
        *inner_layout(spec, arms, features),
        # the last page; when pages are held, one of them, from which the examination of slots is learnt
        ("filled", "i8"),  # its slots, 0 once it is settled
        ("clicks", "i8"),  # its clicks, as a mask of slots
        ("seen", "i8"),  # its slots that count as seen; STUDIED for a page that is held
        ("studied", "f8"),  # when that was shown
        ("number", "u8"),  # its decision
        ("mixed", "i8"),  # whether the query has users of different intents
        ("slack", "f8"),  # value that exploration may still lose in the query's first impressions
        ("tells", "f8"),  # how much the given order tells, from 0 to 1
        ("page", "u1", SLOTS),
        ("rank", "u1", arms),  # each arm's position in the given order, at its last offer
        ("grade", "u1", arms),  # and the grade of the engine's score
        ("spot", "u1", arms),  # scratch: each arm's position by posterior means
        ("spare", "f8", arms),  # scratch of `order`: posterior means; until the page is settled: Bayes factors before it was shown
        ("prior_plays", "u1", arms),  # the part of the arm's record that is its prior, 0 once that was dropped
        ("prior_clicks", "f4", arms),
        ("measured", "u1", arms),  # plays of the arm since it began, up to `MEASURED`, and their clicks
        ("measured_clicks", "u1", arms),
        ("below_plays", "f4", arms),  # plays below a click, and their clicks
        ("below_clicks", "f4", arms),
        ("held_pages", "u2", PARTS),  # held pages, and their plays below a click, by part
        ("held_plays", "u2", (arms, PARTS)),
        ("held_clicks", "u2", (arms, PARTS)),
    ]


@pool_layout.register(Listed)
def _(spec, features):
    return [*inner_pool_layout(spec, features), ("pages", nested(examination_layout()))]


@begin_pool.register(Listed)
def _(spec, pool, d):
    begin_pool(spec.bandit, pool.bandit, d)
    return 0


@merge.register(Listed)
def _(spec, pool, delta):
    merge(spec.bandit, pool.bandit, delta.bandit)
    merge_examination(pool.pages, delta.pages)
    return 0


@clear.register(Listed)
def _(spec, delta):
    clear(spec.bandit, delta.bandit)
    clear_examination(delta.pages)
    return 0


@begin.register(Listed)
def _(spec, row, word):
    begin(spec.bandit, row.bandit, word)
    forget_pages(row)


@kernel
def forget_pages(row):
    """Forget the last page and everything that is known of slots."""
    row.filled = 0
    row.clicks = 0
    row.seen = 0
    row.mixed = 0
    row.slack = 0.0
    for arm in range(row.rank.shape[0]):
        row.rank[arm] = UNKNOWN
        row.grade[arm] = NO_GRADE
        row.measured[arm] = MEASURED  # nothing is measured before the given order is known
        row.prior_plays[arm] = 0
        forget_below(row, arm)


@restart.register(Listed)
def _(spec, row):
    restart(spec.bandit, row.bandit)
    forget_pages(row)


@evict.register(Listed)
def _(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)
    row.rank[arm] = UNKNOWN
    row.grade[arm] = NO_GRADE
    row.measured[arm] = MEASURED
    forget_below(row, arm)
    for slot in range(row.filled):
        if row.page[slot] == arm:
            row.page[slot] = UNKNOWN
            if row.seen != STUDIED:
                row.seen &= ~bit(slot)
    for part in range(PARTS):
        row.held_plays[arm, part] = 0
        row.held_clicks[arm, part] = 0


# ---------------------------------------------------------------- ordering


@grade.register(Listed)
def _(spec, row, given, grades):
    for position in range(len(grades)):
        row.grade[given[position]] = grades[position]


@kernel
def set_prior(spec, row, pool, arm, rank, whole):
    """Replace the prior in the arm's record by `whole` plays at the click rate of its given position, as known today."""
    test, a, b = row.bandit.test, spec.bandit.test.a, spec.bandit.test.b
    mean = graded_mean(spec.order_results, spec.score_results, pool.pages, rank, row.grade[arm])
    # with the Beta prior of every record, the mean is that of the position
    clicks = (whole + a + b) * mean - a
    clicks = float(int(min(max(clicks, 0.0), float(whole)) * QUANTUM)) / QUANTUM
    test.old_plays[arm] += whole - np.int64(row.prior_plays[arm])
    test.old_total[arm] = min(max(test.old_total[arm] + clicks - row.prior_clicks[arm], 0.0), float(test.old_plays[arm]))
    row.prior_plays[arm] = whole
    row.prior_clicks[arm] = clicks
    rescale(spec.bandit.test, test, arm)


@kernel
def set_priors(spec, row, pool, given):
    """Note the given positions; give results without a record the prior of theirs, and renew it from time to time."""
    state = row.bandit
    whole = np.int64(0)
    if spec.prior_plays > 0 and state.t & RENEW_MASK == 0:
        # where clicks are rarer, it takes more plays to know as much
        row.tells = order_tells(spec.trust_results, pool.pages) / min(click_level(pool.pages), 1.0)
    if spec.prior_plays > 0:
        whole = min(max(np.int64(spec.prior_plays * row.tells + 0.5), np.int64(1)), np.int64(MOST_PRIOR))
    for position in range(len(given)):
        arm = given[position]
        rank = rank_of(position)
        if spec.prior_plays > 0:
            # a record of the policy for one slot has plays, and no given position yet: it goes on with the prior added
            if plays_in(state.test, arm) == 0 or row.rank[arm] == UNKNOWN:
                row.prior_plays[arm] = 0
                row.prior_clicks[arm] = 0.0
                row.measured[arm] = 0
                row.measured_clicks[arm] = 0
                set_prior(spec, row, pool, arm, rank, whole)
            elif row.prior_plays[arm] > 0 and state.open == 0 and (state.t & RENEW_MASK == 0 or row.rank[arm] != rank):
                if state.kept[arm] > -math.inf:
                    row.prior_plays[arm] = 0  # the record that held it was dropped
                else:
                    set_prior(spec, row, pool, arm, rank, whole)
        row.rank[arm] = rank


@kernel
def is_bound(spec, row, slots):
    """Return whether exploration has a budget: a rare query hardly profits from it, and its given order must not suffer."""
    return spec.prior_plays > 0 and slots > 1 and row.bandit.t < FIRST


@order.register(Listed)
def _(spec, row, pool, given, page, now):
    state = row.bandit
    slots = min(len(page), min(len(given), SLOTS))
    if slots == 0:
        return 0
    set_priors(spec, row, pool, given)
    drawn = begin_draws(state, state.rng)
    available = np.int64(0)
    for position in range(len(given)):
        arm = given[position]
        row.spare[arm] = mean_chance(spec, row, arm, drawn[0])
        row.spot[arm] = position
        available |= bit(arm)
    sort_page(row, given, available, page, slots)
    slack = math.inf
    if is_bound(spec, row, slots):
        row.slack += spec.loss_share * page_value(row, page, slots)
        slack = row.slack
    arm, slot, cost, state.rng = draw_move(spec, row, available, page, slots, slack, drawn)
    if arm >= 0:
        move_up(row, page, slots, arm, slot)
        if slack < math.inf:
            row.slack -= cost
    return slots


@redraw.register(Listed)
def _(spec, row, given, page, other, word):
    slots = min(len(page), min(len(given), SLOTS))
    for arm in given:
        if row.spot[arm] < slots:
            other[row.spot[arm]] = arm  # the page as it was sorted
    slack = math.inf
    if is_bound(spec, row, slots):  # as before the move was paid for
        slack = row.slack + page_value(row, other, slots) - page_value(row, page, slots)
    arm, slot, _, _ = draw_move(spec, row, mask_of(given), other, slots, slack, begin_draws(row.bandit, word))
    if arm >= 0:
        move_up(row, other, slots, arm, slot)
    return slots


# ---------------------------------------------------------------- credit


@present.register(Listed)
def _(spec, row, pool, page, number, now):
    note_page(row, page, 0, number)
    return credit_page(spec, row, pool, 0, now, False)


@present_and_respond.register(Listed)
def _(spec, row, pool, page, clicks, number, now):
    seen = seen_slots(spec, row, pool, page, clicks, number, True)
    note_page(row, page, clicks, number)
    count_slots(spec, row, seen, clicks, now, False)
    return seen


@kernel
def is_last(row, page, number):
    """Return whether the page is the last one that was shown, and counted in the record."""
    return row.seen != STUDIED and row.filled == min(len(page), SLOTS) and row.number == np.uint64(number)


@respond.register(Listed)
def _(spec, row, pool, page, seen, before, final, after, number, shown, now):
    state = row.bandit
    if not is_last(row, page, number):
        return correct_late(spec, row, pool, page, seen, before, final, after, number, shown)
    again = same_page(page, final)
    uncredit_page(spec, row, again)
    filled, row.filled = row.filled, min(len(final), SLOTS)
    for slot in range(row.filled):
        if slot >= filled or final[slot] != page[slot]:  # else the arm may have been forgotten since
            row.page[slot] = final[slot] if final[slot] >= 0 else UNKNOWN
        if row.page[slot] != UNKNOWN:
            row.spare[row.page[slot]] = state.test.factor[row.page[slot]]
    state.last = final[0] if row.filled > 0 else -1
    state.earned = 1.0 if after & 1 else 0.0
    return credit_page(spec, row, pool, after, shown, again)


@looks.register(Listed)
def _(spec, row, pool, page, clicks, number):
    return seen_slots(spec, row, pool, page, clicks, number, False)


# ---------------------------------------------------------------- settling


@settle.register(Listed)
def _(spec, row, pool, delta, now):
    state = row.bandit
    if row.filled == 0:
        return settle(spec.bandit, state, pool.bandit, delta.bandit, now)
    before = state.test.moved | state.test.stayed
    tested = state.open != 0
    teach(spec, row, delta)
    report, top, paged, state.last = LEARNT, state.last, row.filled > 1, -1
    if top >= 0:
        report |= settle_play(spec.bandit, state, pool.bandit, delta.bandit, top, state.earned, True, paged, now)
    below = row.seen & (bit(row.filled) - 2)  # the seen slots but the top
    while below != 0:
        slot = lowest(below)
        below &= below - 1
        earned = 1.0 if has(row.clicks, slot) else 0.0
        report |= settle_play(spec.bandit, state, pool.bandit, delta.bandit, row.page[slot], earned, False, paged, now)
    if row.filled > 1:
        after_verdicts(spec, row, before, tested)
        if state.t & DIVERSITY_MASK == 0:
            judge_diversity(spec, row)
    row.filled = 0
    return report
