"""Wrappers around a bandit: every verb that a wrapper does not implement is passed on to the bandit inside.

`@wrapping` is for a spec with a field `bandit` whose row, pool and delta each have a part `bandit`. A verb that the wrapper does
not register is called on the bandit with those parts. This holds for every verb, including verbs of other modules and verbs
defined later, so that a wrapper never hides an ability of its bandit. Exceptions are listed explicitly:

    @wrapping(without=(guess, mean_of))
    class Mine(Spec): ...

`Verb.knows` of a passed-on verb gives the answer for the bandit inside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar, overload

from swerve.core.contract import contribution_layout, layout, pool_layout, select
from swerve.core.pages import HOLDING, order, present, present_and_respond, redraw, respond
from swerve.core.tables import nested
from swerve.core.verbs import WRAPPING, Verb

C = TypeVar("C", bound=type)


def inner_layout(spec: Any, arms: int, features: int) -> list[tuple[Any, ...]]:
    """Return the bandit's part of a row."""
    return [("bandit", nested(layout(spec.bandit, arms, features)))]


def inner_pool_layout(spec: Any, features: int) -> list[tuple[Any, ...]]:
    """Return the bandit's part of a pool."""
    return [("bandit", nested(pool_layout(spec.bandit, features)))]


def inner_contribution_layout(spec: Any, features: int) -> list[tuple[Any, ...]]:
    """Return the bandit's part of a contribution."""
    return [("bandit", nested(contribution_layout(spec.bandit, features)))]


@overload
def wrapping(cls: C, /) -> C: ...
@overload
def wrapping(*, without: Collection[Verb]) -> Callable[[C], C]: ...
def wrapping(cls: Any = None, /, *, without: Collection[Verb] = ()) -> Any:
    """Make `cls` pass every verb on to its field `bandit`, except those in `without`."""

    def wrap(cls: C) -> C:
        WRAPPING[cls] = frozenset(without)
        layout.register(cls)(inner_layout)
        pool_layout.register(cls)(inner_pool_layout)
        contribution_layout.register(cls)(inner_contribution_layout)
        # in terms of the wrapper's own select, show, reward and settle
        for verb in (order, redraw, present, respond, present_and_respond, *HOLDING):
            assert verb.default is not None, "every policy can show a page"
            verb.register(cls)(verb.default)
        select.register(cls)(select.passing)  # explicitly: the catalogue lists classes that implement `select`
        return cls

    return wrap(cls) if cls is not None else wrap
