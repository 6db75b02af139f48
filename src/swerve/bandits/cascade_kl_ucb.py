"""CascadeKL-UCB: a page of the arms with the highest KL-UCB bounds, for people who stop at their first click."""

from __future__ import annotations

from swerve.bandits.counts import count_evict
from swerve.bandits.kl_ucb import KLUCB, refresh, upper_bound
from swerve.bandits.listing import by_score, count_read, depth_of, drop, finish, open_layout, opening, restart_open, to_first_click
from swerve.core.contract import evict, layout, mean_of, restart
from swerve.core.elementary import log
from swerve.core.pages import order
from swerve.core.spec import NonNegative
from swerve.core.tables import capacity

UNPLAYED = 2.0  # above every bound: arms without a play come first


@opening
class CascadeKLUCB(KLUCB):
    """Show the arms with the highest KL-UCB bounds, in that order; learn from the slots down to the first click.

    A page without a click counts as read to its end. The bound of an arm with n plays is that of `KLUCB`, with t the number of
    pages since the start; arms without a play come first, in the given order. One slot alone is `KLUCB`.

    Source: Kveton, Szepesvári, Wen and Ashkan, "Cascading bandits: learning to rank in the cascade model" (ICML 2015); c = 3 is
    theirs.

    >>> from swerve import Pages, simulate
    >>> quiet = Pages(queries=1, impressions=4000, results=8, slots=3, clicks="cascade", events_low=0, events_high=0)
    >>> found = simulate(CascadeKLUCB(), quiet, runs=1, points=2)
    >>> bool(found.curves[0, 1] < 1.6 * found.curves[0, 0])
    True
    """

    c: NonNegative = 3.0


@layout.register(CascadeKLUCB)
def _(spec, arms, features):
    inside = layout.implementations[KLUCB](spec, arms, features)
    return [*inside, *open_layout(), ("scores", "f8", capacity("arms", arms))]


restart.register(CascadeKLUCB)(restart_open)


@evict.register(CascadeKLUCB)
def _(spec, row, arm):
    count_evict(spec, row, arm)
    row.share[arm] = 0.0
    drop(row, arm)


@order.register(CascadeKLUCB)
def _(spec, row, pool, given, page, now):
    log_t = log(row.t + 1.0)
    level = log_t + (spec.c * log(log_t) if spec.c > 0.0 and log_t > 1.0 else 0.0)
    for arm in given:
        if row.plays[arm] == 0:
            row.scores[arm] = UNPLAYED
        else:
            row.scores[arm] = upper_bound(mean_of(spec, row, arm), row.share[arm], level / row.plays[arm])
    return by_score(row.scores, given, page)


@finish.register(CascadeKLUCB)
def _(spec, row, page, clicks, number):
    count_read(spec, row, page, clicks)
    for arm in page:
        if arm >= 0:
            refresh(spec, row, arm)


depth_of.register(CascadeKLUCB)(to_first_click)
