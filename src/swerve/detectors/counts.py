"""Fields and verbs shared by detectors that keep counts per arm."""

from __future__ import annotations

from typing import Any

from swerve.core.contract import evict, layout, restart
from swerve.core.verbs import kernel
from swerve.detectors.suffixes import forget, push, suffix_layout


@kernel
def restart_arms(spec, row):
    """Forget every arm."""
    for arm in range(row.plays.shape[0]):
        evict(spec, row, arm)


@kernel
def take_in(row, arm, value):
    """Count a play and update the suffixes; return the arm's plays and total."""
    push(row, arm, row.plays[arm], row.total[arm])
    row.plays[arm] += 1
    row.total[arm] += value
    return row.plays[arm], row.total[arm]


@kernel
def suffix_evict(spec, row, arm):
    row.plays[arm] = 0
    row.total[arm] = 0.0
    forget(row, arm)


def counts_and_suffixes(spec: Any, arms: int, features: int) -> list[tuple[Any, ...]]:
    """Return the fields: plays, total reward and geometric suffixes of each arm."""
    return [("plays", "i8", arms), ("total", "f8", arms), *suffix_layout(arms, spec.suffix_levels)]


def over_suffixes(cls: type) -> type:
    """Register all verbs but `watch` for a detector that uses geometric suffixes."""
    layout.register(cls)(counts_and_suffixes)
    restart.register(cls)(restart_arms)
    evict.register(cls)(suffix_evict)
    return cls
