"""Delayed learning for late clicks: a policy learns of a play only after its click has had time to arrive."""

from __future__ import annotations

import math

import numpy as np

from swerve.core.contract import (
    ALARM,
    RESTARTED,
    begin,
    evict,
    guess,
    layout,
    mean_of,
    observe,
    played,
    plays_of,
    restart,
    reward,
    room,
    select,
    settle,
    show,
    test_length,
)
from swerve.core.examination import SLOTS
from swerve.core.pages import (
    NOT_LEARNT,
    PARTS,
    drop_held,
    hand,
    hold,
    hold_final,
    hold_page,
    looks,
    move_held,
    order,
    present,
    redraw,
    respond,
    study,
    turn,
)
from swerve.core.spec import NonNegative, Spec
from swerve.core.tables import has
from swerve.core.verbs import kernel
from swerve.core.wrapping import inner_layout, wrapping
from swerve.policies.swerve.policy import Swerve

MOST = 65535  # the most plays of one arm that a 16-bit part can hold


@wrapping(without=(guess, test_length, room, played, mean_of))  # not testable: waiting plays are missing from the bandit's counts
class Patient(Spec):
    """Hold every play back for `click_wait`, then pass it to the bandit with its reward, as if it had been shown at that moment.

    Without it a play counts as a skip until its click arrives. After a restart, when a test opens, or with many rounds in a few
    seconds, a policy that looks for changes mistakes those skips for a fall, starts over, and thereby causes the next ones.

    Plays wait in four parts by time; a part holds per arm the number of plays and their reward. A play is held back for between
    `click_wait` and 4/3 of it. Within a part the clicks of an arm are spread evenly over its plays. An alarm or a restart discards
    all waiting plays and their clicks, because half of their clicks have not arrived yet. A click after `click_wait` goes to the
    bandit at once, with the time of its show, also after an alarm, because the bandit has its play. After two alarms with plays
    handed over in between, such a click is ignored: the plays that were waiting at the first alarm are no longer known.

    Pages wait in the same way, as plays of the slots that count as seen: any order or splitting of a waiting page's clicks ends in
    the same bytes. One page at a time waits as a whole, so that the bandit learns from it how users look at slots.

    Make it the outermost policy, around one that draws at random. A deterministic policy (UCB1) plays the same arm until it learns
    the result, and does better without `Patient`. With `click_wait` = 0 and clicks without delay this is the bandit, round for
    round.

    Source: this library; docs/policies.md has the measurements. Joulani, György and Szepesvári, "Online learning under delayed
    feedback" (ICML 2013), pass delayed feedback to any bandit in the same way.

    >>> from swerve import Fleet, Thompson
    >>> fleet = Fleet(Patient(Thompson(), click_wait=5.0), queries=1, arms=3)
    >>> for t in range(12):
    ...     decision = fleet.select(0, now=t)
    >>> int(fleet.table[0].bandit.plays.sum()), int(fleet.table[0].plays.sum())
    (4, 8)
    """

    bandit: Spec = Swerve()
    click_wait: NonNegative = 10.0  # in the unit of `now`: seconds, in a service

    def check(self) -> None:
        if not select.knows(self.bandit):
            self.refuse("bandit", "a policy, such as Swerve()")


@layout.register(Patient)
def _(spec, arms, features):
    return [
        *inner_layout(spec, arms, features),
        ("newest", "f8"),  # the time of the latest show
        ("known", "f8"),  # plays shown before this: unknown whether they were handed over or discarded,
        ("handed", "f8"),  # from then until this: handed over,
        ("void", "f8"),  # from then until this: discarded. Later plays are waiting or handed over
        ("opened", "f8", PARTS),  # the start time of each part, the latest first
        ("earned", "f4", (arms, PARTS)),
        ("plays", "u2", (arms, PARTS)),
    ]


@kernel
def drop_arm(row, arm):
    """Discard everything that waits for this arm."""
    for part in range(PARTS):
        row.plays[arm, part] = 0
        row.earned[arm, part] = 0.0


@kernel
def drop_all(spec, row, now):
    """Discard everything that waits."""
    drop_held(spec.bandit, row.bandit)
    for arm in range(row.plays.shape[0]):
        drop_arm(row, arm)
    if row.opened[PARTS - 1] > row.void:
        row.known = row.void
        row.handed = row.opened[PARTS - 1]
    # else nothing was handed over since the last discard: the discarded period continues
    for part in range(PARTS):
        row.opened[part] = now
    row.void = now


@begin.register(Patient)
def _(spec, row, word):
    begin(spec.bandit, row.bandit, word)
    row.newest = -math.inf
    row.known = -math.inf
    row.handed = -math.inf
    drop_all(spec, row, -math.inf)


@restart.register(Patient)
def _(spec, row):
    restart(spec.bandit, row.bandit)
    drop_all(spec, row, row.newest)


@evict.register(Patient)
def _(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)
    drop_arm(row, arm)


@kernel
def hand_over(spec, row, pool, delta, part, now):
    """Pass the plays of one part to the bandit, one round each."""
    report = 0
    for arm in range(row.plays.shape[0]):
        plays = np.int64(row.plays[arm, part])
        if plays == 0:
            continue
        clicks = np.int64(row.earned[arm, part])
        rest = float(row.earned[arm, part]) - float(clicks)  # a fraction of a click: one play gets it
        for i in range(plays):
            value = float((i + 1) * clicks // plays - i * clicks // plays)
            if value == 0.0 and rest > 0.0:
                value, rest = rest, 0.0
            report |= hand(spec.bandit, row.bandit, pool.bandit, delta.bandit, arm, value, now)
        row.plays[arm, part] = 0
        row.earned[arm, part] = 0.0
    return report | turn(spec.bandit, row.bandit, pool.bandit, delta.bandit, part, now)


@kernel
def move_on(spec, row, now):
    """Shift every part by one and begin a new one."""
    move_held(spec.bandit, row.bandit)
    for part in range(PARTS - 1, 0, -1):
        row.opened[part] = row.opened[part - 1]
        for arm in range(row.plays.shape[0]):
            row.plays[arm, part] = row.plays[arm, part - 1]
            row.earned[arm, part] = row.earned[arm, part - 1]
    row.opened[0] = now
    for arm in range(row.plays.shape[0]):
        row.plays[arm, 0] = 0
        row.earned[arm, 0] = 0.0


@settle.register(Patient)
def _(spec, row, pool, delta, now):
    report = 0
    if now < row.newest - spec.click_wait:  # the clock was set back: the age of the waiting plays is unknown
        drop_all(spec, row, now)
    report |= study(spec.bandit, row.bandit, delta.bandit, spec.click_wait, now)
    all_ripe = now >= row.newest + spec.click_wait
    if all_ripe or now >= row.opened[0] + spec.click_wait / (PARTS - 1):
        for part in range(PARTS - 1, -1 if all_ripe else PARTS - 2, -1):
            report |= hand_over(spec, row, pool, delta, part, now)
        move_on(spec, row, now)
    if all_ripe:
        row.opened[:] = now  # a click for an earlier play is a click for a play that was handed over
    if report & RESTARTED:
        drop_all(spec, row, now)
    return report


@observe.register(Patient)
def _(spec, row, pool, delta, x, told, now):
    report = observe(spec.bandit, row.bandit, pool.bandit, delta.bandit, x, told, now)
    if report & (ALARM | RESTARTED):
        drop_all(spec, row, now)
    return report


@show.register(Patient)
def _(spec, row, arm, now):
    row.newest = now
    if row.plays[arm, 0] < MOST:
        row.plays[arm, 0] += 1


@kernel
def part_of(row, shown):
    """Return the part in which plays shown at this time wait; PARTS when they were handed over, −1 when they were discarded."""
    if shown >= row.void:
        for part in range(PARTS):
            if shown >= row.opened[part]:
                return part
        return PARTS
    return -1 if shown >= row.handed or shown < row.known else PARTS


@reward.register(Patient)
def _(spec, row, arm, value, shown, now):
    part = part_of(row, shown)
    if part < 0:
        return False
    if part == PARTS:
        return plays_of(spec.bandit, row.bandit, arm) > 0 and reward(spec.bandit, row.bandit, arm, value, shown, now)
    earned = float(row.earned[arm, part]) + value
    if earned > float(row.plays[arm, part]):
        return False
    row.earned[arm, part] = earned
    return True


# ---------------------------------------------------------------- pages


@order.register(Patient)
def _(spec, row, pool, given, page, now):
    return order(spec.bandit, row.bandit, pool.bandit, given, page, now)


@redraw.register(Patient)
def _(spec, row, given, page, other, word):
    return redraw(spec.bandit, row.bandit, given, page, other, word)


@kernel
def count_page(spec, row, part, page, seen, clicks, sign):
    """Add the plays and clicks of a page to a part (`sign` 1), or take them back (−1)."""
    for slot in range(min(len(page), SLOTS)):
        arm = page[slot]
        if has(seen, slot) and arm >= 0:
            row.plays[arm, part] = np.int64(row.plays[arm, part]) + sign
            if has(clicks, slot):
                row.earned[arm, part] += np.float32(sign)
    hold(spec.bandit, row.bandit, part, page, seen, clicks, sign)


@kernel
def is_waiting(row, part, page, seen, clicks):
    """Return whether the part holds the plays and clicks of a page: a crash may have undone them."""
    for slot in range(min(len(page), SLOTS)):
        arm = page[slot]
        empty = row.plays[arm, part] == 0 or (has(clicks, slot) and row.earned[arm, part] < 1.0)
        if has(seen, slot) and arm >= 0 and empty:
            return False
    return True


@kernel
def is_possible(row, part, page):
    """Return whether no arm of the page has more clicks than plays in a part: a crash may have undone a play."""
    for slot in range(min(len(page), SLOTS)):
        if page[slot] >= 0 and row.earned[page[slot], part] > row.plays[page[slot], part]:
            return False
    return True


@kernel
def is_full(row, part, page):
    """Return whether an arm of the page has as many plays in a part as it can hold."""
    for slot in range(min(len(page), SLOTS)):
        if page[slot] >= 0 and row.plays[page[slot], part] >= MOST:
            return True
    return False


@present.register(Patient)
def _(spec, row, pool, page, number, now):
    row.newest = now
    seen = looks(spec.bandit, row.bandit, pool.bandit, page, 0, number)
    if is_full(row, 0, page):
        return 0
    count_page(spec, row, 0, page, seen, 0, 1)
    hold_page(spec.bandit, row.bandit, page, number, now)
    return seen


@respond.register(Patient)
def _(spec, row, pool, page, seen, before, final, after, number, shown, now):
    part = part_of(row, shown)
    if part < 0:
        return NOT_LEARNT
    if part == PARTS:
        return respond(spec.bandit, row.bandit, pool.bandit, page, seen, before, final, after, number, shown, now)
    if not is_waiting(row, part, page, seen, before) or is_full(row, part, final):
        return NOT_LEARNT
    count_page(spec, row, part, page, seen, before, -1)
    found = looks(spec.bandit, row.bandit, pool.bandit, final, after, number)
    count_page(spec, row, part, final, found, after, 1)
    if not is_possible(row, part, final):
        count_page(spec, row, part, final, found, after, -1)
        count_page(spec, row, part, page, seen, before, 1)
        return NOT_LEARNT
    hold_final(spec.bandit, row.bandit, final, after, number)
    return found


@plays_of.register(Patient)
def _(spec, row, arm):
    waiting = 0
    for part in range(PARTS):
        waiting += np.int64(row.plays[arm, part])
    return plays_of(spec.bandit, row.bandit, arm) + waiting
