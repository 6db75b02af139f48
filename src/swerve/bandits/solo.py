"""One slot for bandits that know pages only: it is a page with one slot."""

from __future__ import annotations

from typing import Any

from swerve.bandits.listing import close
from swerve.core.contract import reward, select, show
from swerve.core.pages import order
from swerve.core.tables import has
from swerve.core.verbs import kernel


def solo_layout(arms: int) -> list[tuple[Any, ...]]:
    """Return scratch space: the arms on offer as a list, and a page of one slot."""
    return [("offered", "i8", arms), ("solo", "i8", 1)]


@kernel
def solo_select(spec, row, pool, available, now):
    count = 0
    for arm in range(row.offered.shape[0]):
        if has(available, arm):
            row.offered[count] = arm
            count += 1
    if order(spec, row, pool, row.offered[:count], row.solo, now) == 0:
        return -1
    return row.solo[0]


@kernel
def solo_show(spec, row, arm, now):
    close(row)
    row.open[0] = arm
    row.filled = 1


@kernel
def solo_reward(spec, row, arm, value, shown, now):
    if row.filled == 0 or row.open[0] != arm:
        return False
    if value > 0.0:
        row.clicks |= 1
    return True


def alone(cls: type) -> type:
    """Register `select`, `show` and `reward` for a class with an open page (`listing`) and the fields of `solo_layout`."""
    select.register(cls)(solo_select)
    show.register(cls)(solo_show)
    reward.register(cls)(solo_reward)
    return cls
