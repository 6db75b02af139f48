"""Ranked bandits: a bandit of its own for every slot of a page."""

from __future__ import annotations

from swerve.bandits.listing import clicked_at, close, drop, finish, open_layout, opening
from swerve.bandits.solo import alone, solo_layout
from swerve.core.contract import begin, evict, layout, restart, room
from swerve.core.examination import SLOTS
from swerve.core.pages import order
from swerve.core.rng import beta, draw, gamma_scale
from swerve.core.spec import Positive, Spec
from swerve.core.verbs import kernel


@alone
@opening
class RankedThompson(Spec):
    """Let a Thompson sampling bandit choose the result of each slot, from the top.

    The bandit of a slot plays the arm with the highest draw from its own posteriors. If that arm is on the page already, the slot
    shows a random one of the others and the bandit's choice earns nothing. A bandit's choice earns 1 if it is shown in its slot and
    clicked.

    Source: Radlinski, Kleinberg and Joachims, "Learning diverse rankings with multi-armed bandits" (ICML 2008), with Thompson
    sampling for the bandits. Their people click at most once; here every click counts, which has less regret if there are several.

    >>> from swerve import Pages, simulate
    >>> quiet = Pages(queries=1, impressions=4000, results=6, slots=2, clicks="cascade", events_low=0, events_high=0)
    >>> found = simulate(RankedThompson(), quiet, runs=1, points=2)
    >>> bool(found.curves[0, 1] < 1.6 * found.curves[0, 0])
    True
    """

    a: Positive = 1.0
    b: Positive = 1.0


@layout.register(RankedThompson)
def _(spec, arms, features):
    return [
        ("t", "i8"),
        ("rng", "u8"),
        *open_layout(),
        *solo_layout(arms),
        ("plays", "u4", (SLOTS, arms)),
        ("total", "f8", (SLOTS, arms)),
        ("wish", "i8", SLOTS),  # the arm that each slot's bandit has chosen for the open page
    ]


@begin.register(RankedThompson)
def _(spec, row, word):
    row.rng = word
    restart(spec, row)


@restart.register(RankedThompson)
def _(spec, row):
    close(row)
    for arm in range(row.plays.shape[1]):
        evict(spec, row, arm)
    row.t = 0


@evict.register(RankedThompson)
def _(spec, row, arm):
    drop(row, arm)
    for slot in range(SLOTS):
        row.plays[slot, arm] = 0
        row.total[slot, arm] = 0.0
        if row.wish[slot] == arm:
            row.wish[slot] = -1


@room.register(RankedThompson)
def _(spec, row):
    return row.plays.shape[1]


@kernel
def choose(spec, row, slot, given):
    """Return the arm of the highest draw of a slot's bandit."""
    best, chosen = -1.0, -1
    word = row.rng
    for arm in given:
        clicks, skips = spec.a + row.total[slot, arm], spec.b + row.plays[slot, arm] - row.total[slot, arm]
        theta, word = beta(word, clicks, skips, gamma_scale(clicks), gamma_scale(skips))
        if theta > best:
            best, chosen = theta, arm
    row.rng = word
    return chosen


@kernel
def shown_above(page, slot, arm):
    """Return whether an arm has a slot above this one."""
    for other in range(slot):
        if page[other] == arm:
            return True
    return False


@order.register(RankedThompson)
def _(spec, row, pool, given, page, now):
    filled = min(len(given), len(page))
    for slot in range(filled):
        arm = choose(spec, row, slot, given)
        row.wish[slot] = arm
        if shown_above(page, slot, arm):
            turn = int(draw(row) * (len(given) - slot))  # one of the arms that are not on the page
            for other in given:
                if not shown_above(page, slot, other):
                    if turn == 0:
                        arm = other
                        break
                    turn -= 1
        page[slot] = arm
    return filled


@finish.register(RankedThompson)
def _(spec, row, page, clicks, number):
    for slot in range(len(page)):
        wish = row.wish[slot]
        if wish >= 0 and page[slot] >= 0:
            row.plays[slot, wish] += 1
            if clicked_at(clicks, slot) and page[slot] == wish:
                row.total[slot, wish] += 1.0
    row.t += 1
