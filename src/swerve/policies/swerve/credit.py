"""What a page teaches: plays and clicks for its slots, the examination of slots, the worth of positions, and mixed intents.

The kernels work on a row of `Listed` (`swerve.policies.swerve.listed`). Tests: tests/policies/test_listed.py,
tests/policies/test_patient_pages.py, tests/policies/test_late.py, tests/serving/test_pages.py, tests/serving/test_one_rule.py.
"""

from __future__ import annotations

import numpy as np

from swerve.core.elementary import exp
from swerve.core.examination import NO_GRADE, SLOTS
from swerve.core.pages import NOT_LEARNT
from swerve.core.tables import bit, has, lowest
from swerve.core.verbs import kernel
from swerve.detectors.split import log_bayes, log_bayes_bound
from swerve.policies.swerve.examination import LOOKED, MEANS, MEASURED, RATED, counts_as_seen, looks_at, pair_of
from swerve.policies.swerve.policy import add_click, add_play, count_earned, count_shown
from swerve.policies.swerve.posterior import event_odds, plays_in, rescale, slab, suspicion, total_in

UNKNOWN = 255  # a given position that is not known
LEAST_EVIDENCE = -1.0  # one result's evidence that intents are not mixed, at most: many results that say nothing must not add up
LEAST_ODDS = 7.389  # below e², for `LEAST_EVIDENCE`
MOST_ODDS = 1e4  # keeps the product over all results finite
MOST_GAIN = 300.0  # so that its exponential is finite
MARGIN = 1e-6  # more than the rounding errors of any sum of evidence
LEAST_SHARE, MOST_SHARE = 0.01, 0.99  # the share of changed results that a test assumes stays within these


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
def seen_slots(spec, row, pool, page, clicks, number, ordered):
    """Return the slots of a page that count as seen: those that were clicked, and a draw for the others.

    `ordered`: `order` has just filled the page, and has left the posterior means in `spare`.
    """
    odds = 0.0
    if row.bandit.open != 0 and not ordered:
        odds, _ = event_odds(row.bandit.test)
    seen = 0
    last = -1
    for slot in range(min(len(page), SLOTS)):
        arm = page[slot]
        clicked = has(clicks, slot)
        if 0 <= arm < row.rank.shape[0]:
            look = looks_at(spec.examination_plays, pool.pages, slot, last)
            chance = row.spare[arm] if ordered else mean_chance(spec, row, arm, odds)
            # no branch: nobody could predict it
            counts = clicked | (look >= 1.0) | counts_as_seen(look, chance, np.uint64(number), slot)
            seen |= np.int64(counts) << slot
        last = slot if clicked else last
    return seen


@kernel
def note_page(row, page, clicks, number):
    """Begin a round with this page, and note what is needed to take it back."""
    state = row.bandit
    row.filled = min(len(page), SLOTS)
    row.number = np.uint64(number)
    for slot in range(row.filled):
        row.page[slot] = page[slot]
        row.spare[page[slot]] = state.test.factor[page[slot]]
    state.t += 1
    state.last = page[0]
    state.earned = 1.0 if clicks & 1 else 0.0


@kernel
def credit_page(spec, row, pool, clicks, now, again):
    """Count the plays and clicks of the last page; return the slots that count as seen. `again` is that of `count_slots`."""
    seen = seen_slots(spec, row, pool, row.page[: row.filled], clicks, row.number, False)
    count_slots(spec, row, seen, clicks, now, again)
    return seen


@kernel
def count_slots(spec, row, seen, clicks, now, again):
    """Count the plays and clicks of the last page, of which these slots count as seen.

    `again`: the same page was counted before, and `uncredit_page` has just taken it back. Then most slots count as they did, and
    the scales of their samplers, which are slow to compute, still hold.
    """
    inner, state = spec.bandit, row.bandit
    due = (row.seen ^ seen) | ((row.clicks ^ clicks) & seen) if again else seen
    left = seen
    while left != 0:
        slot = lowest(left)
        left &= left - 1
        add_play(inner, state, row.page[slot])
        if has(clicks, slot):
            add_click(inner, state, row.page[slot], 1.0, now)
    while due != 0:
        slot = lowest(due)
        due &= due - 1
        rescale(inner.test, state.test, row.page[slot])
    row.seen = seen
    row.clicks = clicks


@kernel
def uncredit_page(spec, row, again):
    """Take back the plays and clicks of the last page. `again`: it is counted again at once, which updates the samplers' scales."""
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
            if not again:
                rescale(spec.bandit.test, test, arm)


@kernel
def same_page(page, final):
    """Return whether two pages have the same results in the same slots."""
    if len(page) != len(final):
        return False
    for slot in range(len(page)):
        if page[slot] != final[slot]:
            return False
    return True


@kernel
def slot_of(page, arm):
    """Return the slot of an arm in a page, −1 if it is not there."""
    for slot in range(min(len(page), SLOTS)):
        if page[slot] == arm:
            return slot
    return -1


@kernel
def late_play(spec, state, arm, shown, more):
    """Add a play to an arm's record, or take one back, after other pages were learnt from; return whether that was possible."""
    test = state.test
    if state.open != 0 and shown >= state.opened:
        if not more:
            return False  # a test weighs plays as they come: none can be taken back
        count_shown(spec.bandit, state, arm)
    elif more:
        test.old_plays[arm] += 1
    else:
        if test.old_plays[arm] - 1 < test.old_total[arm]:
            return False
        test.old_plays[arm] -= 1
    rescale(spec.bandit.test, test, arm)
    return True


@kernel
def correct_late(spec, row, pool, page, seen, before, final, after, number, shown):
    """Replace what a page has taught, after other pages were learnt from: only the differences are counted.

    Return the slots of `final` that count as seen, or `NOT_LEARNT`. A click in the record stays: it is a fact.
    """
    state = row.bandit
    now_seen = seen_slots(spec, row, pool, final, after, number, False)
    learnt = after == before
    for slot in range(min(len(page), SLOTS)):  # results that were not shown, or not seen, after all
        arm = page[slot]
        if arm >= 0 and has(seen & ~before, slot) and shown >= state.kept[arm]:
            other = slot_of(final, arm)
            if other < 0 or not has(now_seen, other):
                if late_play(spec, state, arm, shown, False):
                    learnt = True
                elif other >= 0:
                    now_seen |= bit(other)
    for slot in range(min(len(final), SLOTS)):
        arm = final[slot]
        if arm < 0 or not has(now_seen, slot) or shown < state.kept[arm]:
            continue
        other = slot_of(page, arm)
        if other < 0 or not has(seen, other):
            learnt |= late_play(spec, state, arm, shown, True)
        if has(after, slot) and (other < 0 or not has(before, other)) and plays_in(state.test, arm) > 0:
            count_earned(spec.bandit, state, arm, 1.0, shown)
            learnt = True
    return now_seen if learnt else NOT_LEARNT


@kernel
def measure(row, pages, arm, clicked):
    """Count one of a result's first plays; after the last of them its click rate enters the distribution of its position."""
    row.measured[arm] += np.uint8(1)
    row.measured_clicks[arm] += np.uint8(1 if clicked else 0)
    if row.rank[arm] == UNKNOWN:
        return
    pages.fresh |= LOOKED
    pages.level_clicks += 1.0 if clicked else 0.0
    pages.level_expected += MEANS[row.rank[arm]]
    if row.measured[arm] == MEASURED:
        pages.fresh |= RATED
        rate = row.measured_clicks[arm] / MEASURED
        pages.results[row.rank[arm]] += 1.0
        pages.rates[row.rank[arm]] += rate
        pages.squares[row.rank[arm]] += rate * rate
        if row.grade[arm] != NO_GRADE:
            pages.graded[row.rank[arm], row.grade[arm]] += 1.0
            pages.graded_rates[row.rank[arm], row.grade[arm]] += rate


@kernel
def teach_looks(spec, row, pages, page, clicks):
    """Add a page to the examination of slots that all queries know, from results whose click probability is known well."""
    test, prior = row.bandit.test, spec.bandit.test
    if row.bandit.open != 0:
        return
    last = 0 if has(clicks, 0) else -1
    for slot in range(1, min(len(page), SLOTS)):
        arm = page[slot]
        clicked = has(clicks, slot)
        if 0 <= arm < row.rank.shape[0]:
            known = plays_in(test, arm)
            if known - np.int64(row.prior_plays[arm]) >= spec.known_plays:
                k = pair_of(slot, last)
                pages.clicks[k] += 1.0 if clicked else 0.0
                pages.expected[k] += (prior.a + total_in(test, arm)) / (prior.a + prior.b + known)
                pages.fresh |= LOOKED
        last = slot if clicked else last


@kernel
def teach(spec, row, delta):
    """Learn from the last page: the examination of its slots, the worth of given positions, and plays below a click."""
    pages = delta.pages
    teach_looks(spec, row, pages, row.page[: row.filled], row.clicks)
    left, clicks = row.seen & (bit(row.filled) - 1), row.clicks
    while left != 0:
        slot = lowest(left)
        left &= left - 1
        arm = row.page[slot]
        clicked = has(clicks, slot)
        if row.measured[arm] < MEASURED:
            measure(row, pages, arm, clicked)
        if clicks & (bit(slot) - 1) != 0:
            row.below_plays[arm] += np.float32(1.0)
            row.below_clicks[arm] += np.float32(1.0 if clicked else 0.0)


@kernel
def surely_one_intent(row):
    """Return whether `judge_diversity` certainly finds that intents are not mixed: nearly always, and without its logarithms.

    The evidence of a result is at most g − ln(k) / 2, and counts as `LEAST_EVIDENCE` at least: k counts as e^(2 + 2g) at most,
    which is above e² (1 + 2g + 2g²).
    """
    test = row.bandit.test
    gain, odds = 0.0, 1.0
    for arm in range(row.rank.shape[0]):
        below, clicks = below_of(row, arm)
        if below > 0.0:
            g, k = log_bayes_bound(float(plays_in(test, arm)), total_in(test, arm), below, clicks)
            gain += g
            odds *= min(k, min(LEAST_ODDS * (1.0 + 2.0 * g * (1.0 + g)), MOST_ODDS))
    return odds > exp(2.0 * min(gain, MOST_GAIN) + MARGIN)


@kernel
def judge_diversity(spec, row):
    """Decide whether results earn below a click what they earn elsewhere; if not, users have different intents."""
    if surely_one_intent(row):
        row.mixed = 0
        return
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
    share = min(max(share, LEAST_SHARE), MOST_SHARE)
    for arm in range(test.given.shape[0]):
        if arm != test.leader and test.given[arm] > 0.0 and arm != row.bandit.split:
            test.given[arm] = 1.0 - (1.0 - share) * (1.0 - test.anyway[arm])


@kernel
def after_verdicts(spec, row, before, tested):
    """Drop what verdicts have made stale, and learn from them how many results a test finds changed.

    `before` has the results that were decided before, `tested` says whether a test was open then.
    """
    state = row.bandit
    moved = state.test.moved & ~before
    while moved != 0:
        arm = lowest(moved)
        moved &= moved - 1
        row.prior_plays[arm] = 0
        forget_below(row, arm)
    if state.open != 0 and tested and state.test.moved | state.test.stayed != before:
        learn_share(spec, row)
