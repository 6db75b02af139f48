"""What every combinator over a bandit does the same way: pass each verb on to the bandit inside.

`@wrapping` registers all of them for a spec with a field `bandit`, its row, pool and delta each with a part `bandit`. The
combinator then registers anew what it does itself, so that nothing a bandit can do is lost on the way.
"""

from __future__ import annotations

from typing import Any, TypeVar

from swerve.core import contract
from swerve.core.contract import (
    begin,
    begin_pool,
    clear,
    domain,
    evict,
    layout,
    merge,
    observe,
    phase,
    plays_of,
    pool_layout,
    reads_context,
    restart,
    reward,
    select,
    settle,
    show,
    testing,
)
from swerve.core.tables import nested
from swerve.core.verbs import kernel

C = TypeVar("C", bound=type)


def inner_layout(spec: Any, arms: int, features: int) -> list[tuple[Any, ...]]:
    """The bandit's part of a row."""
    return [("bandit", nested(layout(spec.bandit, arms, features)))]


def inner_pool_layout(spec: Any, features: int) -> list[tuple[Any, ...]]:
    """The bandit's part of a pool."""
    return [("bandit", nested(pool_layout(spec.bandit, features)))]


@kernel
def inner_begin_pool(spec, pool, d):
    return begin_pool(spec.bandit, pool.bandit, d)


@kernel
def inner_begin(spec, row, word):
    begin(spec.bandit, row.bandit, word)


@kernel
def inner_restart(spec, row):
    restart(spec.bandit, row.bandit)


@kernel
def inner_settle(spec, row, pool, delta, now):
    return settle(spec.bandit, row.bandit, pool.bandit, delta.bandit, now)


@kernel
def inner_observe(spec, row, pool, delta, x, told, now):
    return observe(spec.bandit, row.bandit, pool.bandit, delta.bandit, x, told, now)


@kernel
def inner_select(spec, row, pool, available, now):
    return select(spec.bandit, row.bandit, pool.bandit, available, now)


@kernel
def inner_show(spec, row, arm, now):
    show(spec.bandit, row.bandit, arm, now)


@kernel
def inner_reward(spec, row, arm, value, now):
    reward(spec.bandit, row.bandit, arm, value, now)


@kernel
def inner_evict(spec, row, arm):
    evict(spec.bandit, row.bandit, arm)


@kernel
def inner_phase(spec, row):
    return phase(spec.bandit, row.bandit)


@kernel
def inner_testing(spec, row):
    return testing(spec.bandit, row.bandit)


@kernel
def inner_plays_of(spec, row, arm):
    return plays_of(spec.bandit, row.bandit, arm)


@kernel
def inner_merge(spec, pool, delta):
    return merge(spec.bandit, pool.bandit, delta.bandit)


@kernel
def inner_clear(spec, delta):
    return clear(spec.bandit, delta.bandit)


@kernel
def inner_domain(spec, pool, x):
    return domain(spec.bandit, pool.bandit, x)


def inner_reads_context(spec: Any) -> Any:
    """Whether the bandit looks at contexts."""
    return reads_context(spec.bandit)


FORWARDED = {name.removeprefix("inner_"): function for name, function in list(globals().items()) if name.startswith("inner_")}


def wrapping(cls: C) -> C:
    """Register every verb of a bandit for `cls`, passed on to its field `bandit`."""
    for name, function in FORWARDED.items():
        getattr(contract, name).register(cls)(function)
    return cls
