"""Swerve for whole pages: it starts from the given order, learns from every click, and explores one result a page."""

from __future__ import annotations

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
from swerve.core.examination import SLOTS
from swerve.core.pages import mask_of, order, present, respond
from swerve.core.spec import Count, Natural, Positive, Spec
from swerve.core.tables import bit, has, nested
from swerve.core.verbs import kernel
from swerve.core.wrapping import inner_layout, inner_pool_layout, wrapping
from swerve.detectors.split import log_bayes
from swerve.policies.swerve.draws import begin_draws, draw_chance, draw_changed
from swerve.policies.swerve.examination import (
    clear_examination,
    counts_as_seen,
    examination_layout,
    looks_at,
    merge_examination,
    pair_of,
    rank_of,
    rank_worth,
)
from swerve.policies.swerve.policy import Swerve, count_earned, count_shown, settle_play
from swerve.policies.swerve.posterior import ChangeTest, event_odds, plays_in, rescale, slab, suspicion, total_in

QUANTUM = 4096.0  # the prior's clicks are a multiple of 1/4096: adding a click and taking it back leaves the same bits
UNKNOWN = 255  # a given position that is not known
DIVERSITY_MASK = 15  # whether intents are mixed is computed every 16 rounds: it takes many logarithms
LEAST_EVIDENCE = -1.0  # one result's evidence that intents are not mixed, at most: many results that say nothing must not add up


@wrapping
class Listed(Spec):
    """`Swerve` for pages of results.

    The given order is the prior: each result starts with a record of `prior_plays` plays at the click rate of its position in the
    given order, learnt over all queries. The page is sorted by posterior means. One result a page is explored: the winner of a
    posterior sample goes on top; if it is there already, the result with the highest sample among those whose sample beats the
    result above moves to where its sample puts it. A click counts as a play and a click. A skipped slot counts as a play with the
    probability that it was seen (`swerve.policies.swerve.examination`), a table learnt over all queries with `examination_plays`
    plays of prior weight, from results with at least `known_plays` plays. Tests, alarms, net and trust are those of `Swerve`, on
    every play that counts. In a test, the share of changed results is learnt as they are decided, with the weight of
    `share_results` results.

    If results below a click do not earn what they earn elsewhere, users have different intents: then only plays without a click
    above are used for the order, so that the second slot serves those whom the first one does not.

    With one slot, `prior_plays=0` and its default test, this is `Swerve`, draw for draw.
    """

    bandit: Spec = Swerve(test=ChangeTest(other_change_probability=0.2))
    prior_plays: Count = 20
    examination_plays: Positive = 50.0
    known_plays: Natural = 30
    share_results: Positive = 2.0

    def check(self) -> None:
        if not isinstance(self.bandit, Swerve):
            self.refuse("bandit", "a Swerve()")


@layout.register(Listed)
def _(spec, arms, features):
    return [
        *inner_layout(spec, arms, features),
        ("filled", "i8"),  # slots of the last page, 0 once it is settled
        ("clicks", "i8"),  # its clicks, as a mask of slots
        ("seen", "i8"),  # its slots that count as seen
        ("number", "u8"),  # its decision
        ("mixed", "i8"),  # whether the query has users of different intents
        ("page", "u1", SLOTS),
        ("rank", "u1", arms),  # each arm's position in the given order, at its last offer
        ("spot", "u1", arms),  # scratch: each arm's position by posterior means
        ("spare", "f8", arms),  # scratch of `order`: posterior means; until the page is settled: Bayes factors before it was shown
        ("below_plays", "f4", arms),  # plays below a click, and their clicks
        ("below_clicks", "f4", arms),
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


@kernel
def forget_below(row, arm):
    """Forget what the arm earned below a click."""
    row.below_plays[arm] = 0.0
    row.below_clicks[arm] = 0.0


@kernel
def below_of(row, arm):
    """Return the plays and clicks below a click that the arm's record still holds: it may have been cut since."""
    plays, total = float(plays_in(row.bandit.test, arm)), total_in(row.bandit.test, arm)
    below = min(float(row.below_plays[arm]), plays)
    return below, max(min(min(float(row.below_clicks[arm]), total), below), total - (plays - below))


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
    for arm in range(row.rank.shape[0]):
        row.rank[arm] = UNKNOWN
        forget_below(row, arm)


@restart.register(Listed)
def _(spec, row):
    restart(spec.bandit, row.bandit)
    forget_pages(row)


@evict.register(Listed)
def _(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)
    row.rank[arm] = UNKNOWN
    forget_below(row, arm)
    for slot in range(row.filled):
        if row.page[slot] == arm:
            row.seen &= ~bit(slot)
            row.clicks &= ~bit(slot)


# ---------------------------------------------------------------- ordering


@kernel
def set_priors(spec, row, pool, given):
    """Note the given positions, and give results without a record the prior of theirs."""
    test = row.bandit.test
    for position in range(len(given)):
        arm = given[position]
        rank = rank_of(position)
        if row.rank[arm] == rank:
            continue
        row.rank[arm] = rank
        if spec.prior_plays > 0 and plays_in(test, arm) == 0:
            test.old_plays[arm] = spec.prior_plays
            test.old_total[arm] = np.floor(spec.prior_plays * rank_worth(pool.pages, rank) * QUANTUM) / QUANTUM
            rescale(spec.bandit.test, test, arm)


@kernel
def mean_chance(spec, row, arm, odds):
    """Return the posterior mean of an arm's click probability; without plays below a click where intents are mixed."""
    test, prior = row.bandit.test, spec.bandit.test
    clicks, plays = prior.a + total_in(test, arm), prior.a + prior.b + plays_in(test, arm)
    if row.mixed != 0:
        less, clicked = below_of(row, arm)
        clicks -= clicked
        plays -= less
    mean = clicks / plays
    if row.bandit.open != 0:
        q = suspicion(test, arm, odds)
        if q > 0.0:
            fresh = (prior.a + test.new_total[arm]) / (prior.a + slab(test, arm) + test.new_plays[arm])
            mean += q * (fresh - mean)
    return mean


@kernel
def sort_page(row, given, page, slots):
    """Put the arms with the highest means into the page, the given order first among equals."""
    filled = 0
    for arm in given:
        row.spot[arm] = slots
        at = filled
        while at > 0 and row.spare[arm] > row.spare[page[at - 1]]:
            at -= 1
        if at >= slots:
            continue
        for slot in range(min(filled, slots - 1), at, -1):
            page[slot] = page[slot - 1]
        page[at] = arm
        filled = min(filled + 1, slots)
    for arm in given:
        row.spot[arm] = slots
    for slot in range(filled):
        row.spot[page[slot]] = slot


@kernel
def move_up(row, page, slots, arm, slot):
    """Put an arm into a higher slot; the arms from there on move down."""
    for other in range(min(row.spot[arm], slots - 1), slot, -1):
        page[other] = page[other - 1]
    page[slot] = arm


@order.register(Listed)
def _(spec, row, pool, given, page, now):
    inner, state = spec.bandit, row.bandit
    test, tested = state.test, state.open != 0
    slots = min(len(page), min(len(given), SLOTS))
    if slots == 0:
        return 0
    set_priors(spec, row, pool, given)
    odds, none, rise, event, bold, word = begin_draws(state, state.rng)
    for arm in given:
        row.spare[arm] = mean_chance(spec, row, arm, odds)
    sort_page(row, given, page, slots)
    available = mask_of(given)
    best, winner = -1.0, -1
    highest, mover = -1.0, -1
    for arm in range(test.given.shape[0]):
        changed = False
        if tested:
            # a result below the top is seen anyway: only results outside the page, and the top one, are worth a look
            inside = has(available, arm) and 0 < row.spot[arm] < slots
            changed, none, word = draw_changed(inner, test, arm, odds, none, rise, event, bold, not inside, word)
        if has(available, arm):
            theta, word = draw_chance(inner, test, arm, changed, word)
            if theta > best:
                best, winner = theta, arm
            spot = row.spot[arm]
            if spot > 0 and theta > highest and theta > row.spare[page[spot - 1]]:
                highest, mover = theta, arm
    state.rng = word
    if winner != page[0]:
        move_up(row, page, slots, winner, 0)
    elif mover >= 0:
        slot = 1
        while slot < slots and highest <= row.spare[page[slot]]:
            slot += 1
        if slot < slots:
            move_up(row, page, slots, mover, slot)
    return slots


# ---------------------------------------------------------------- credit


@kernel
def credit_page(spec, row, pool, clicks, now):
    """Count the plays and clicks of the last page; return the slots that count as seen."""
    inner, state = spec.bandit, row.bandit
    odds = 0.0
    if state.open != 0:
        odds, _ = event_odds(state.test)
    chances = row.number  # the stream of the draws
    seen = 0
    last = -1
    for slot in range(row.filled):
        arm = row.page[slot]
        clicked = has(clicks, slot)
        look = looks_at(spec.examination_plays, pool.pages, slot, last)
        if clicked or look >= 1.0 or counts_as_seen(look, mean_chance(spec, row, arm, odds), chances, slot):
            seen |= bit(slot)
            count_shown(inner, state, arm)
            if clicked:
                count_earned(inner, state, arm, 1.0, now)
        if clicked:
            last = slot
    row.seen = seen
    row.clicks = clicks
    return seen


@kernel
def uncredit_page(spec, row):
    """Take back the plays and clicks of the last page."""
    state = row.bandit
    test = state.test
    for slot in range(row.filled):
        arm = row.page[slot]
        if has(row.seen, slot):
            earned = 1.0 if has(row.clicks, slot) else 0.0
            if state.open != 0:
                test.new_plays[arm] -= 1
                test.new_total[arm] -= earned
            else:
                test.old_plays[arm] -= 1
                test.old_total[arm] -= earned
            test.factor[arm] = row.spare[arm]
            rescale(spec.bandit.test, test, arm)


@present.register(Listed)
def _(spec, row, pool, page, number, now):
    state = row.bandit
    row.filled = min(len(page), SLOTS)
    row.number = np.uint64(number)
    for slot in range(row.filled):
        row.page[slot] = page[slot]
        row.spare[page[slot]] = state.test.factor[page[slot]]
    state.t += 1
    state.last = page[0]
    state.earned = 0.0
    return credit_page(spec, row, pool, 0, now)


@kernel
def is_last(row, page, number):
    """Return whether the page is the last one that was shown."""
    return row.filled == min(len(page), SLOTS) and row.number == np.uint64(number)


@respond.register(Listed)
def _(spec, row, pool, page, seen, before, after, number, shown, now):
    state = row.bandit
    if is_last(row, page, number):
        uncredit_page(spec, row)
        credit_page(spec, row, pool, after, shown)
        state.earned = 1.0 if after & 1 else 0.0
        return True
    # another page was shown since: the clicks count, and what was skipped stays as it was counted
    learnt = False
    for slot in range(min(len(page), SLOTS)):
        if has(after & ~before, slot) and shown >= state.kept[page[slot]]:
            arm = page[slot]
            if not has(seen, slot):
                if state.open != 0 and shown >= state.opened:
                    count_shown(spec.bandit, state, arm)
                else:
                    state.test.old_plays[arm] += 1
            if plays_in(state.test, arm) > 0:
                count_earned(spec.bandit, state, arm, 1.0, shown)
                learnt = True
    return learnt


# ---------------------------------------------------------------- settling


@kernel
def teach(spec, row, delta):
    """Add the last page to what all queries know: the examination of its slots and the worth of given positions."""
    state, pages = row.bandit, delta.pages
    pages.fresh = 1
    last = -1
    for slot in range(row.filled):
        arm = row.page[slot]
        clicked = has(row.clicks, slot)
        known = plays_in(state.test, arm) - spec.prior_plays
        if slot > 0 and state.open == 0 and known >= spec.known_plays:
            k = pair_of(slot, last)
            pages.clicks[k] += 1.0 if clicked else 0.0
            pages.expected[k] += (spec.bandit.test.a + total_in(state.test, arm)) / (
                spec.bandit.test.a + spec.bandit.test.b + plays_in(state.test, arm)
            )
        if has(row.seen, slot) and row.rank[arm] != UNKNOWN:
            pages.rank_plays[row.rank[arm]] += 1.0
            pages.rank_clicks[row.rank[arm]] += 1.0 if clicked else 0.0
        if last >= 0 and has(row.seen, slot):
            row.below_plays[arm] += np.float32(1.0)
            row.below_clicks[arm] += np.float32(1.0 if clicked else 0.0)
        if clicked:
            last = slot


@kernel
def judge_diversity(spec, row):
    """Decide whether results earn below a click what they earn elsewhere; if not, users have different intents."""
    test = row.bandit.test
    log_odds = 0.0
    for arm in range(row.rank.shape[0]):
        below, clicks = below_of(row, arm)
        if below > 0.0:
            log_odds += max(log_bayes(float(plays_in(test, arm)), total_in(test, arm), below, clicks), LEAST_EVIDENCE)
    row.mixed = 1 if log_odds > 0.0 else 0


@kernel
def learn_share(spec, row):
    """Set the probability that an undecided result has changed to the share among those that were decided."""
    test = row.bandit.test
    moved, decided = 0, 0
    for arm in range(test.given.shape[0]):
        if arm != test.leader:
            moved += 1 if has(test.moved, arm) else 0
            decided += 1 if has(test.moved | test.stayed, arm) else 0
    share = (spec.share_results * spec.bandit.test.other_change_probability + moved) / (spec.share_results + decided)
    share = min(max(share, 0.01), 0.99)
    for arm in range(test.given.shape[0]):
        if arm != test.leader and test.given[arm] > 0.0 and arm != row.bandit.split:
            test.given[arm] = 1.0 - (1.0 - share) * (1.0 - test.anyway[arm])


@settle.register(Listed)
def _(spec, row, pool, delta, now):
    state = row.bandit
    if row.filled == 0:
        return settle(spec.bandit, state, pool.bandit, delta.bandit, now)
    before = state.test.moved | state.test.stayed
    kept = state.open
    teach(spec, row, delta)
    report = settle(spec.bandit, state, pool.bandit, delta.bandit, now) | LEARNT
    for slot in range(1, row.filled):
        if has(row.seen, slot):
            earned = 1.0 if has(row.clicks, slot) else 0.0
            report |= settle_play(spec.bandit, state, pool.bandit, delta.bandit, row.page[slot], earned, False, now)
    if row.filled > 1:
        for arm in range(row.rank.shape[0]):
            if has(state.test.moved & ~before, arm):
                forget_below(row, arm)
        if state.open != 0 and kept != 0 and state.test.moved | state.test.stayed != before:
            learn_share(spec, row)
        if state.t & DIVERSITY_MASK == 0:
            judge_diversity(spec, row)
    row.filled = 0
    return report
