"""Verbs: functions that choose their code by the spec they are given, in Python and in compiled code alike.

A verb is called as ``select(spec, ...)``. Which function runs is decided by the class of ``spec``: at call time in Python, at
compile time under Numba. The spec arrives either as the object the user wrote (``UCB1(alpha=2)``) or as the packed record
that the compiled code reads (see `swerve.core.spec`); both answer the same attribute names, so one source serves both.

    >>> from swerve.core.spec import Spec
    >>> @verb
    ... def times(spec, factor):
    ...     "So many times whatever the spec holds."
    >>> class Number(Spec):
    ...     value: float = 2.0
    >>> @times.register(Number)
    ... def _(spec, factor):
    ...     return factor * spec.value
    >>> times(Number(21.0), 2)
    42.0

A verb knows its signature, and refuses an implementation that does not fit it. Each implementation gets the name of its class and
verb, ``Number.times``, so that ``def _`` is enough, and tracebacks and profiles say whose code it is.

A class that wraps another (see `swerve.core.wrapping`) answers every verb that it has not registered with the answer of what is
inside. That is worked out here, from the verb's signature, for every verb there is or will be.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any, TypeVar, overload

from numba.core import errors, types
from numba.extending import overload as overloading
from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., Any])

#: Marker field → spec class, filled by `swerve.core.spec` as classes are defined.
MARKERS: dict[str, type] = {}

#: Every verb there is, for whoever must know all code behind a class.
VERBS: list[Verb] = []

#: Classes that wrap a bandit → the verbs that they do not pass on to it.
WRAPPING: dict[type, Collection[Verb]] = {}

#: The field that holds what is wrapped, and the arguments that have a part of this name for it.
INSIDE = "bandit"
PARTED = ("spec", "row", "pool", "delta")


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


def named(function: F, owner: str, name: str) -> F:
    """A copy of a function that is called `owner.name` wherever a name is shown; what is no plain function stays as it is."""
    if not isinstance(function, FunctionType):
        return function
    shown = f"{owner}.{name}"
    code = function.__code__.replace(co_name=shown, co_qualname=shown)  # a traceback shows the one, a profile the other
    copy: Any = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__module__, copy.__doc__ = function.__kwdefaults__, function.__module__, function.__doc__
    copy.__qualname__ = shown
    vars(copy).update(vars(function))
    return copy  # type: ignore[no-any-return]


class Verb:
    """A function with one implementation per spec class, and perhaps a default. Made by `verb`."""

    def __init__(self, declared: Callable[..., Any], default: Callable[..., Any] | None = None) -> None:
        self.__name__: str = declared.__name__
        self.__doc__ = declared.__doc__
        self.__signature__ = inspect.signature(declared)
        self.parameters = tuple(self.__signature__.parameters)
        self.default = default if default is None else named(self.fitting(default, "default"), "default", self.__name__)
        self.implementations: dict[type, Callable[..., Any]] = {}
        self.passing = self._passing()
        self._passed: dict[type, Callable[..., Any]] = {}
        chosen = self

        def choose(spec: Any, *args: Any) -> Callable[..., Any] | None:
            if not isinstance(spec, types.Record):
                return None
            found = chosen.lookup(class_of(spec))
            if found is None:
                raise errors.TypingError(chosen.missing(class_of(spec)))
            return found

        overloading(self, strict=False, jit_options={"forceinline": True})(choose)
        VERBS.append(self)

    def register(self, cls: type) -> Callable[[F], F]:
        """Give `cls` its implementation of this verb."""

        def keep(function: F) -> F:
            self.implementations[cls] = named(self.fitting(function, cls.__name__), cls.__qualname__, self.__name__)
            return function

        return keep

    def fitting(self, function: F, owner: str) -> F:
        """The function, if it can be called as the verb is: as many arguments, none of a name that stands at another place."""
        plain = getattr(function, "py_func", function)  # what was compiled by hand
        given = inspect.signature(plain)
        try:
            given.bind(*self.parameters)
            fits = all(
                name not in self.parameters or self.parameters.index(name) == place for place, name in enumerate(given.parameters)
            )
        except TypeError:
            fits = False
        if not fits:
            raise TypeError(f"{owner}.{self.__name__} takes {given}; it is called as {self}")
        return function

    def lookup(self, cls: type) -> Callable[..., Any] | None:
        """The implementation for `cls`, inherited, passed on or default ones included; None when there is none."""
        for base in cls.__mro__:
            if base in self.implementations:
                return self.implementations[base]
            if base in WRAPPING:
                if self in WRAPPING[base]:
                    break
                if base not in self._passed:
                    self._passed.setdefault(base, named(self.passing, base.__qualname__, self.__name__))
                return self._passed[base]
        return self.default

    def knows(self, spec: Any) -> bool:
        """Whether this verb has an implementation, no default, for the spec's class or for what it wraps."""
        for base in class_of(spec).__mro__:
            if base in self.implementations:
                return True
            if base in WRAPPING:
                return self not in WRAPPING[base] and self.knows(getattr(spec, INSIDE))
        return False

    def missing(self, cls: type) -> str:
        """What to say when a class has no implementation."""
        return f"{self.__name__}: {cls.__name__} has no such verb"

    def __call__(self, spec: Any, *args: Any, **named: Any) -> Any:
        found = self.lookup(class_of(spec))
        if found is None:
            raise TypeError(self.missing(class_of(spec)))
        return found(spec, *args, **named)

    def __repr__(self) -> str:
        return f"<verb {self}>"

    def __str__(self) -> str:
        return f"{self.__name__}({', '.join(self.parameters)})"

    def _passing(self) -> Callable[..., Any]:
        """This verb, asked of what is inside a wrapper: a function of its own signature, as compiled code needs it."""
        asked = ", ".join(f"{name}.{INSIDE}" if name in PARTED else name for name in self.parameters)
        source = f"def {self}:\n    return {self.__name__}({asked})\n"
        where = f"<{self.__name__}, passed on to the {INSIDE} inside>"
        around: dict[str, Any] = {"__name__": __name__}
        exec(compile(source, where, "exec"), around)
        made: Callable[..., Any] = around[self.__name__]
        around[self.__name__] = self
        linecache.cache[where] = (len(source), None, source.splitlines(keepends=True), where)  # for tracebacks
        return made


@overload
def verb(declared: Callable[..., Any], /) -> Verb: ...
@overload
def verb(*, default: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Verb]: ...
def verb(declared: Any = None, /, *, default: Any = None) -> Any:
    """Make a verb of a declaration: its name, its arguments and what it is for; it has no body.

    `default` answers where nothing is registered.
    """
    return Verb(declared, default) if declared is not None else lambda function: Verb(function, default)
