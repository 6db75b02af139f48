"""The exchange of what is a join: a worker sends all that it has learnt, and others merge it as often as they like."""

from __future__ import annotations

from typing import TypeVar

from swerve.core.contract import begin_contribution, begin_pool, contribute, contribution_layout, merge, novel, pool_layout, take_up

C = TypeVar("C", bound=type)


def _layout(spec, features):
    return pool_layout(spec, features)


def _begin(spec, own, d):
    begin_pool(spec, own, d)
    return 0


def _merged(spec, own, delta):
    merge(spec, own, delta)
    return 0


def _whole(spec, theirs, known):
    return 1


def _joined(spec, pool, delta, theirs, known):
    merge(spec, pool, theirs)
    return 0


def exchanged_by_joining(cls: C) -> C:
    """Register the exchange of a class whose `merge` is commutative, associative and idempotent."""
    contribution_layout.register(cls)(_layout)
    begin_contribution.register(cls)(_begin)
    contribute.register(cls)(_merged)
    novel.register(cls)(_whole)
    take_up.register(cls)(_joined)
    return cls
