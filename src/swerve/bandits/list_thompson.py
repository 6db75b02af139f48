"""Thompson sampling on every slot of a page, with a known click model."""

from __future__ import annotations

from typing import Annotated

from swerve.bandits.counts import count_evict
from swerve.bandits.listing import by_score, clicked_at, drop, finish, open_layout, opening, restart_open
from swerve.bandits.thompson import Thompson, clicks_of, rescale, skips_of
from swerve.core.contract import begin, evict, layout, restart
from swerve.core.examination import AFTER_CLICK, AFTER_SKIP, CLICKS, DCM, EXAMINATION, SLOTS
from swerve.core.pages import order
from swerve.core.rng import at, beta, unit
from swerve.core.spec import Choice
from swerve.core.tables import capacity
from swerve.core.verbs import kernel


@opening
class ListThompson(Thompson):
    """Draw an attractiveness for each arm from its posterior and show the arms in the order of the draws.

    Every slot of a page is evidence, by the true click model `clicks`. A click is a play and a click. A skip is a play with the
    probability that people looked at it although they did not click, drawn from a hash of the query, the page's number and the
    slot, so that counts stay whole. Where people look at a slot with a probability γ that depends on the last click above (`ubm`,
    `pbm`), that probability is γ(1 − â)/(1 − γâ), â being the posterior mean. Where people leave (`dcm`, `cascade`), they looked at
    everything above a click, and below the last one Bayes' rule says how far they went. One slot alone is plain Thompson sampling.

    With `Oracle` around it this policy is the yardstick for pages, `oracle-list`.

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
    return [*inside, *open_layout(), ("key", "u8"), ("seen", "f8", SLOTS), ("scores", "f8", capacity("arms", arms))]


@begin.register(ListThompson)
def _(spec, row, word):
    row.rng = word
    row.key = word
    restart(spec, row)


restart.register(ListThompson)(restart_open)


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
def mean_of_posterior(spec, row, arm):
    """Return â of an arm; a forgotten arm tells nothing about people who leave, as one that nobody clicks."""
    if arm < 0:
        return 0.0
    clicks = clicks_of(spec, row, arm)
    return clicks / (clicks + skips_of(spec, row, arm))


@kernel
def chances_of_leaving_readers(spec, row, page, clicks):
    """Write the probability that each slot was looked at into `row.seen`, given all clicks, for people who may leave."""
    first = 0  # the first slot below the last click
    for slot in range(len(page)):
        row.seen[slot] = 1.0
        if clicked_at(clicks, slot):
            first = slot + 1
    reach = AFTER_CLICK[spec.clicks] if first > 0 else 1.0  # the probability of looking at the first of them
    on = AFTER_SKIP[spec.clicks]
    silent = 1.0  # the probability of no click from a slot on, for people who look at it
    for slot in range(len(page) - 1, first - 1, -1):
        silent = (1.0 - mean_of_posterior(spec, row, page[slot])) * (1.0 - on + on * silent)
        row.seen[slot] = silent
    silent = 1.0 - reach + reach * silent
    for slot in range(first, len(page)):
        row.seen[slot] *= reach / silent
        reach *= (1.0 - mean_of_posterior(spec, row, page[slot])) * on


@kernel
def chances_of_steady_readers(spec, row, page, clicks):
    """Write the probability that each skipped slot was looked at into `row.seen`, for people who do not leave."""
    last = 0
    for slot in range(len(page)):
        seen = EXAMINATION[spec.clicks, slot, last]
        mean = mean_of_posterior(spec, row, page[slot])
        row.seen[slot] = seen * (1.0 - mean) / (1.0 - seen * mean)
        if clicked_at(clicks, slot):
            last = slot + 1


@finish.register(ListThompson)
def _(spec, row, page, clicks, number):
    row.t += 1
    if spec.clicks >= DCM:
        chances_of_leaving_readers(spec, row, page, clicks)
    else:
        chances_of_steady_readers(spec, row, page, clicks)
    for slot in range(len(page)):
        arm = page[slot]
        clicked = clicked_at(clicks, slot)
        if arm >= 0 and (clicked or unit(at(row.key, number * SLOTS + slot)) < row.seen[slot]):
            row.plays[arm] += 1
            row.total[arm] += float(clicked)
            rescale(spec, row, arm)
