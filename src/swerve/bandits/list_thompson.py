"""Thompson sampling on every slot of a page, with a known click model."""

from __future__ import annotations

from typing import Annotated

from swerve.bandits.counts import count_evict
from swerve.bandits.listing import by_score, clicked_at, drop, finish, open_layout, opening
from swerve.bandits.thompson import Thompson, clicks_of, rescale, skips_of
from swerve.core.contract import begin, evict, layout, restart
from swerve.core.examination import CLICKS, EXAMINATION, SLOTS
from swerve.core.pages import order
from swerve.core.rng import at, beta, unit
from swerve.core.spec import Choice
from swerve.core.tables import capacity
from swerve.core.verbs import kernel


@opening
class ListThompson(Thompson):
    """Draw an attractiveness for each arm from its posterior and show the arms in the order of the draws.

    Every slot of a page is evidence, by the examination table of the click model `clicks`. A click is a play and a click. A skip in
    a slot that people look at with probability γ, given the last click above it, is a play with probability γ(1 − â)/(1 − γâ), the
    probability that they looked at it although they did not click; â is the posterior mean. The play is drawn from a hash of the
    query, the page's number and the slot, so that counts stay whole. One slot alone is plain Thompson sampling.

    The table is the true one of `Pages` (for `dcm`, without what the skips since the last click tell). With `Oracle` around it this
    policy is the yardstick for pages, `oracle-list`.

    Source: Thompson sampling in the position-based model is that of Lagrée, Vernade and Cappé (NeurIPS 2016), with the table of the
    user browsing model (Dupret and Piwowarski, SIGIR 2008) in place of the curve.

    >>> from swerve import Pages, simulate
    >>> found = simulate(ListThompson(), Pages(queries=2, impressions=2000, events_low=0, events_high=0), runs=1, points=2)
    >>> bool(found.curves[0, 1] < 1.5 * found.curves[0, 0])
    True
    """

    clicks: Annotated[str, Choice(CLICKS)] = "ubm"


@layout.register(ListThompson)
def _(spec, arms, features):
    inside = layout.implementations[Thompson](spec, arms, features)
    return [*inside, *open_layout(), ("key", "u8"), ("scores", "f8", capacity("arms", arms))]


@begin.register(ListThompson)
def _(spec, row, word):
    row.rng = word
    row.key = word
    restart(spec, row)


@evict.register(ListThompson)
def _(spec, row, arm):
    count_evict(spec, row, arm)
    rescale(spec, row, arm)
    drop(row, arm)


@kernel
def sample(spec, row, given):
    """Draw an attractiveness for each of the arms into `row.scores`."""
    word = row.rng
    for arm in given:
        row.scores[arm], word = beta(
            word, clicks_of(spec, row, arm), skips_of(spec, row, arm), row.click_scale[arm], row.skip_scale[arm]
        )
    row.rng = word


@order.register(ListThompson)
def _(spec, row, pool, given, page, now):
    sample(spec, row, given)
    return by_score(row.scores, given, page)


@kernel
def looked(spec, row, arm, seen, number, slot):
    """Return whether a skipped slot counts as looked at: a draw keyed by the page and the slot."""
    clicks = clicks_of(spec, row, arm)
    mean = clicks / (clicks + skips_of(spec, row, arm))
    return unit(at(row.key, number * SLOTS + slot)) * (1.0 - seen * mean) < seen * (1.0 - mean)


@finish.register(ListThompson)
def _(spec, row, page, clicks, number):
    row.t += 1
    last = 0
    for slot in range(len(page)):
        arm = page[slot]
        clicked = clicked_at(clicks, slot)
        if arm >= 0 and (clicked or looked(spec, row, arm, EXAMINATION[spec.clicks, slot, last], number, slot)):
            row.plays[arm] += 1
            row.total[arm] += float(clicked)
            rescale(spec, row, arm)
        if clicked:
            last = slot + 1
