"""Restarts on passive detection, for pages: a bandit that starts over when the clicks on any slot indicate a change."""

from __future__ import annotations

from swerve.bandits.listing import clicked_at, depth_of, finish
from swerve.core.contract import RESTARTED, restart, settle, watch
from swerve.core.pages import order, present, respond
from swerve.core.spec import Probability
from swerve.policies.restarting import Restarting, settle_restarting


class RestartingList(Restarting):
    """`Restarting` for a bandit that orders pages: the detector watches every slot that the bandit counts as looked at.

    When an arm seems to have changed, the bandit and the detector start over. With `exploration` p > 0, each of the n arms has the
    top slot once in every ⌊n/p⌋ pages, in turn, and the bandit fills the other slots.

    Source: Wang, Zhou, Li, Varshney and Zhao, "Nearly optimal algorithms for piecewise-stationary cascading bandits" (arXiv
    1909.05886, 2019): GLRT-CascadeKL-UCB is `RestartingList(CascadeKLUCB(), GLR())` with exploration. They test every split.

    >>> from swerve import GLR, Pages, simulate
    >>> from swerve.bandits import CascadeKLUCB
    >>> problem = Pages(queries=1, impressions=4000, results=8, slots=3, clicks="cascade", events_low=2, events_high=2)
    >>> found = simulate(RestartingList(CascadeKLUCB(), GLR()), problem, runs=1, points=1)
    >>> found.count("restarts").tolist()
    [2.0]
    """

    exploration: Probability = 0.0

    def check(self) -> None:
        super().check()
        if not finish.knows(self.bandit) or not depth_of.knows(self.bandit):
            self.refuse("bandit", "a bandit for pages, such as CascadeKLUCB()")
        if self.scope != "all":
            self.refuse("scope", "all")


@settle.register(RestartingList)
def _(spec, row, pool, delta, now):
    changed = False
    inside = row.bandit
    for slot in range(depth_of(spec.bandit, inside.clicks, inside.filled)):
        arm = inside.open[slot]
        if arm >= 0 and watch(spec.detector, row.detector, arm, float(clicked_at(inside.clicks, slot))):
            changed = True
    report = settle_restarting(spec, row, pool, delta, now)
    if changed:
        restart(spec, row)
        report |= RESTARTED
    return report


@order.register(RestartingList)
def _(spec, row, pool, given, page, now):
    filled = order(spec.bandit, row.bandit, pool.bandit, given, page, now)
    arms = len(given)
    if spec.exploration > 0.0 and filled > 0:
        turn = row.bandit.t % max(arms, int(arms / spec.exploration))
        if turn < arms:
            slot = 0
            while slot < filled - 1 and page[slot] != given[turn]:
                slot += 1
            for below in range(slot, 0, -1):
                page[below] = page[below - 1]
            page[0] = given[turn]
    return filled


for _verb in (present, respond):
    _verb.register(RestartingList)(_verb.passing)
