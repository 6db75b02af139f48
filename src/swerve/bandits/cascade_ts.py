"""CascadeTS: Thompson sampling on a page, for people who stop at their first click."""

from __future__ import annotations

from swerve.bandits.counts import count_evict
from swerve.bandits.list_thompson import sample
from swerve.bandits.listing import by_score, count_read, depth_of, drop, finish, open_layout, opening, restart_open, to_first_click
from swerve.bandits.thompson import Thompson, rescale
from swerve.core.contract import evict, layout, restart
from swerve.core.pages import order
from swerve.core.tables import capacity


@opening
class CascadeThompson(Thompson):
    """Draw an attractiveness for each arm, show the arms in the order of the draws, and learn down to the first click.

    A page without a click counts as read to its end. One slot alone is `Thompson`.

    Source: Zhong, Cheung and Tan, "Thompson sampling algorithms for cascading bandits" (JMLR 22, 2021), the form with Beta
    posteriors.

    >>> from swerve import Pages, simulate
    >>> quiet = Pages(queries=1, impressions=4000, results=8, slots=3, clicks="cascade", events_low=0, events_high=0)
    >>> found = simulate(CascadeThompson(), quiet, runs=1, points=2)
    >>> bool(found.curves[0, 1] < 1.6 * found.curves[0, 0])
    True
    """


@layout.register(CascadeThompson)
def _(spec, arms, features):
    inside = layout.implementations[Thompson](spec, arms, features)
    return [*inside, *open_layout(), ("scores", "f8", capacity("arms", arms))]


restart.register(CascadeThompson)(restart_open)


@evict.register(CascadeThompson)
def _(spec, row, arm):
    count_evict(spec, row, arm)
    rescale(spec, row, arm)
    drop(row, arm)


@order.register(CascadeThompson)
def _(spec, row, pool, given, page, now):
    sample(spec, row, given)
    return by_score(row.scores, given, page)


@finish.register(CascadeThompson)
def _(spec, row, page, clicks, number):
    count_read(spec, row, page, clicks)
    for arm in page:
        if arm >= 0:
            rescale(spec, row, arm)


depth_of.register(CascadeThompson)(to_first_click)
