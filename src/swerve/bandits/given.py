"""The given order: a policy that changes nothing."""

from __future__ import annotations

from swerve.bandits.counts import counting
from swerve.core.contract import select
from swerve.core.pages import order
from swerve.core.spec import Spec
from swerve.core.tables import has


@counting
class Given(Spec):
    """Show the results in the given order, whatever is clicked. One slot alone shows the first arm on offer.

    Source: the control group of every experiment on ranking.

    >>> from swerve import Fleet
    >>> [Fleet(Given(), queries=1, arms=3).select(0, available=0b110).arm]
    [1]
    """


@select.register(Given)
def _(spec, row, pool, available, now):
    for arm in range(row.plays.shape[0]):
        if has(available, arm):
            return arm
    return -1


@order.register(Given)
def _(spec, row, pool, given, page, now):
    filled = min(len(given), len(page))
    for slot in range(filled):
        page[slot] = given[slot]
    return filled
