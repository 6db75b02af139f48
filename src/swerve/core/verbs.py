"""Verbs: functions that choose their code by the spec they are given, in Python and in compiled code alike.

A verb is called as ``select(spec, ...)``. Which function runs is decided by the class of ``spec``: at call time in Python, at
compile time under Numba. The spec arrives either as the object the user wrote (``UCB1(alpha=2)``) or as the packed record
that the compiled code reads (see `swerve.core.spec`); both answer the same attribute names, so one source serves both.

    >>> from swerve.core.spec import Spec
    >>> twice = Verb("twice", "Double whatever the spec holds.")
    >>> class Number(Spec):
    ...     value: float = 2.0
    >>> @twice.register(Number)
    ... def _(spec):
    ...     return 2 * spec.value
    >>> twice(Number(21.0))
    42.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba.core import types
from numba.extending import overload, register_jitable

F = TypeVar("F", bound=Callable[..., Any])

#: Marker field → spec class, filled by `swerve.core.spec` as classes are defined.
MARKERS: dict[str, type] = {}

#: Every verb there is, for whoever must know all code behind a class.
VERBS: list[Verb] = []


def kernel(function: F) -> F:
    """Mark a plain helper as callable from compiled code; called from Python it stays plain Python."""
    marked: F = register_jitable(function)
    return marked


def inlined(function: F) -> F:
    """A `kernel` whose call is always inlined: for the few places where the call itself was measured to cost."""
    function.inlined = True  # type: ignore[attr-defined]  # read by the fingerprint: the same code, compiled another way
    marked: F = register_jitable(forceinline=True)(function)
    return marked


def class_of(spec: Any) -> type:
    """The spec class behind a spec object, a packed record or the Numba type of one."""
    if isinstance(spec, types.Record):
        names = list(spec.fields)
    elif hasattr(spec, "dtype") and spec.dtype.names:
        names = list(spec.dtype.names)
    else:
        return type(spec)
    for name in reversed(names):
        if name in MARKERS:
            return MARKERS[name]
    raise TypeError(f"not a packed spec: fields {names}")


class Verb:
    """A function with one implementation per spec class, and perhaps a default."""

    def __init__(self, name: str, doc: str, default: Callable[..., Any] | None = None) -> None:
        self.__name__ = name
        self.__doc__ = doc
        self.default = default
        self.implementations: dict[type, Callable[..., Any]] = {}
        verb = self

        def choose(spec: Any, *args: Any) -> Callable[..., Any] | None:
            return verb.lookup(class_of(spec)) if isinstance(spec, types.Record) else None

        overload(self, strict=False, jit_options={"forceinline": True})(choose)
        VERBS.append(self)

    def register(self, cls: type) -> Callable[[F], F]:
        """Give `cls` its implementation of this verb."""

        def keep(function: F) -> F:
            self.implementations[cls] = function
            return function

        return keep

    def lookup(self, cls: type) -> Callable[..., Any] | None:
        """The implementation for `cls`, inherited or default ones included; None when there is none."""
        for base in cls.__mro__:
            if base in self.implementations:
                return self.implementations[base]
        return self.default

    def knows(self, spec: Any) -> bool:
        """Whether this verb has an implementation of its own, no default, for the spec's class."""
        return any(base in self.implementations for base in class_of(spec).__mro__)

    def __call__(self, spec: Any, *args: Any, **named: Any) -> Any:
        found = self.lookup(class_of(spec))
        if found is None:
            raise TypeError(f"{self.__name__}: {class_of(spec).__name__} has no such verb")
        return found(spec, *args, **named)

    def __repr__(self) -> str:
        return f"<verb {self.__name__}>"
