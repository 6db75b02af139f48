"""Fields and verbs shared by bandits that keep a play count and a total per arm."""

from __future__ import annotations

from typing import Any

from swerve.core.contract import begin, evict, layout, mean_of, played, plays_of, restart, reward, room, show
from swerve.core.verbs import kernel


@kernel
def count_restart(spec, row):
    row.t = 0
    for arm in range(row.plays.shape[0]):
        evict(spec, row, arm)


@kernel
def count_show(spec, row, arm, now):
    row.t += 1
    row.plays[arm] += 1


@kernel
def count_reward(spec, row, arm, value, shown, now):
    row.total[arm] = min(row.total[arm] + value, float(row.plays[arm]))  # a play earns at most 1, even if it is rewarded twice
    return True


@kernel
def count_evict(spec, row, arm):
    row.plays[arm] = 0
    row.total[arm] = 0.0


@kernel
def count_begin(spec, row, word):
    row.rng = word
    restart(spec, row)


def count_layout(spec: Any, arms: int, features: int) -> list[tuple[Any, ...]]:
    """Return the fields: rounds since the start, plays and total reward per arm, and the random stream."""
    return [("t", "i8"), ("rng", "u8"), ("plays", "u4", arms), ("total", "f8", arms)]


@kernel
def count_room(spec, row):
    return row.plays.shape[0]


@kernel
def count_played(spec, row):
    return row.t


@kernel
def count_plays_of(spec, row, arm):
    return row.plays[arm]


@kernel
def count_mean_of(spec, row, arm):
    return row.total[arm] / row.plays[arm] if row.plays[arm] > 0 else 0.0


def counting(cls: type) -> type:
    """Register the counting verbs for `cls`. A class that has a better version of a verb registers it afterwards."""
    layout.register(cls)(count_layout)
    for verb, function in (
        (begin, count_begin),
        (restart, count_restart),
        (show, count_show),
        (reward, count_reward),
        (evict, count_evict),
        (room, count_room),
        (played, count_played),
        (plays_of, count_plays_of),
        (mean_of, count_mean_of),
    ):
        verb.register(cls)(function)
    return cls
