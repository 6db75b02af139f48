"""What every combinator over a bandit does the same way: pass each verb on to the bandit inside.

`@wrapping` is for a spec with a field `bandit`, its row, pool and delta each with a part `bandit`. Whatever verb the
combinator does not register itself is passed on, with the parts, to the bandit: every verb there is, also those of other
modules, also those that come later, so that nothing a bandit can do is lost on the way. What must not be passed on is said:

    @wrapping(without=(guess, mean_of))
    class Mine(Spec): ...

A verb that is passed on is known (`Verb.knows`) to whom the bandit inside knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar, overload

from swerve.core.contract import layout, pool_layout, select
from swerve.core.tables import nested
from swerve.core.verbs import WRAPPING, Verb

C = TypeVar("C", bound=type)


def inner_layout(spec: Any, arms: int, features: int) -> list[tuple[Any, ...]]:
    """The bandit's part of a row."""
    return [("bandit", nested(layout(spec.bandit, arms, features)))]


def inner_pool_layout(spec: Any, features: int) -> list[tuple[Any, ...]]:
    """The bandit's part of a pool."""
    return [("bandit", nested(pool_layout(spec.bandit, features)))]


@overload
def wrapping(cls: C, /) -> C: ...
@overload
def wrapping(*, without: Collection[Verb]) -> Callable[[C], C]: ...
def wrapping(cls: Any = None, /, *, without: Collection[Verb] = ()) -> Any:
    """Let `cls` pass every verb on to its field `bandit`, but those in `without`."""

    def wrap(cls: C) -> C:
        WRAPPING[cls] = frozenset(without)
        layout.register(cls)(inner_layout)
        pool_layout.register(cls)(inner_pool_layout)
        select.register(cls)(select.passing)  # by name: it is what makes a class a bandit to those who list them
        return cls

    return wrap(cls) if cls is not None else wrap
