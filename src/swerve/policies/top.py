"""A policy for one slot, on a page: it chooses the top and leaves the rest in the given order."""

from __future__ import annotations

from swerve.core.contract import select
from swerve.core.spec import Spec
from swerve.core.wrapping import wrapping


@wrapping
class Top(Spec):
    """Let any policy choose the top slot of a page. The other slots keep the given order, and clicks on them are not learnt.

    Every policy does that by default; `Top` makes a policy that orders whole pages do it too.

    Source: the page as Swerve 0.1 filled it.

    >>> from swerve import Thompson
    >>> Top(Thompson())
    Top(bandit=Thompson())
    """

    bandit: Spec

    def check(self) -> None:
        if not select.knows(self.bandit):
            self.refuse("bandit", "a bandit, such as UCB1()")
