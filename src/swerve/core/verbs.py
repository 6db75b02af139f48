"""Verbs: functions that dispatch on the class of their spec, in Python and in compiled code.

A verb is called as ``select(spec, ...)``. The class of ``spec`` decides which function runs: at call time in Python, at compile
time under Numba. The spec is either the object that the user made (``UCB1(alpha=2)``) or the packed record that compiled code
reads (see `swerve.core.spec`). Both have the same attribute names, so that one source serves both.

    >>> from swerve.core.spec import Spec
    >>> @verb
    ... def times(spec, factor):
    ...     "Return `factor` times the value of the spec."
    >>> class Number(Spec):
    ...     value: float = 2.0
    >>> @times.register(Number)
    ... def _(spec, factor):
    ...     return factor * spec.value
    >>> times(Number(21.0), 2)
    42.0

A verb knows its signature and refuses an implementation that does not fit it. Each implementation is renamed to its class and verb,
``Number.times``, so that ``def _`` is enough, and tracebacks and profiles show which code runs.

A class that wraps another (see `swerve.core.wrapping`) passes every verb that it has not registered on to the spec inside. `Verb`
derives the passing function from the verb's signature, for every verb, including those defined later.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any, TypeVar, overload

from numba.core import errors, types
from numba.extending import overload as overloading, register_jitable

from swerve.core.compiling import KernelCompiler

F = TypeVar("F", bound=Callable[..., Any])

#: Marker field → spec class, filled by `swerve.core.spec` as classes are defined.
MARKERS: dict[str, type] = {}

#: Every verb. The fingerprint of code uses it to find all implementations of a class.
VERBS: list[Verb] = []

#: Wrapper classes → the verbs that they do not pass on to the bandit inside.
WRAPPING: dict[type, Collection[Verb]] = {}

#: The field that holds the wrapped spec, and the arguments that have a part of this name.
INSIDE = "bandit"
PARTED = ("spec", "row", "pool", "delta", "own", "theirs", "known")


#: Kernels are called from compiled code only: they need no wrapper for callers in C, and no machine code of their own.
FROM_KERNELS: Any = {"no_cfunc_wrapper": True, "pipeline_class": KernelCompiler}


def kernel(function: F) -> F:
    """Mark a helper as callable from compiled code. Called from Python it stays plain Python."""
    marked: F = register_jitable(**FROM_KERNELS)(function)
    return marked


def inlined(function: F) -> F:
    """Mark a helper as a `kernel` that is always inlined, for the few calls whose cost was measured to matter."""
    function.inlined = True  # type: ignore[attr-defined]  # read by the fingerprint: inlining changes the compiled code
    marked: F = register_jitable(forceinline=True, **FROM_KERNELS)(function)
    return marked


def compiled_as(form: F, *, inline: bool = False) -> Callable[[F], F]:
    """Mark a helper that is another function in compiled code. Both return the same; what Python runs is fast in Python."""

    def mark(function: F) -> F:
        function.compiled = form  # type: ignore[attr-defined]  # for the fingerprint
        options: Any = {"forceinline": True, **FROM_KERNELS} if inline else FROM_KERNELS
        function.compiled_with = sorted(options)  # type: ignore[attr-defined]
        overloading(function, jit_options=options, strict=False)(lambda *_: form)
        return function

    return mark


def class_of(spec: Any) -> type:
    """Return the spec class of a spec object, of a packed record, or of the Numba type of one."""
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
    """Return a copy of a function that tracebacks show as `owner.name`. Anything but a plain function is returned unchanged."""
    if not isinstance(function, FunctionType):
        return function
    shown = f"{owner}.{name}"
    code = function.__code__.replace(co_name=shown, co_qualname=shown)  # tracebacks show the first, profiles the second
    copy: Any = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__module__, copy.__doc__ = function.__kwdefaults__, function.__module__, function.__doc__
    copy.__qualname__ = shown
    vars(copy).update(vars(function))
    return copy  # type: ignore[no-any-return]


class Verb:
    """A function with one implementation per spec class, and optionally a default. Made by `verb`."""

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

        options: Any = {"forceinline": True, **FROM_KERNELS}
        overloading(self, strict=False, jit_options=options)(choose)
        VERBS.append(self)

    def register(self, cls: type) -> Callable[[F], F]:
        """Register the decorated function as the implementation for `cls`."""

        def keep(function: F) -> F:
            self.implementations[cls] = named(self.fitting(function, cls.__name__), cls.__qualname__, self.__name__)
            return function

        return keep

    def fitting(self, function: F, owner: str) -> F:
        """Return the function if it fits the verb: the same number of arguments, none with the name of an argument elsewhere."""
        plain = getattr(function, "py_func", function)  # the source of a function that was compiled by hand
        given = inspect.signature(plain)
        try:
            given.bind(*self.parameters)
            fits = all(
                name not in self.parameters or self.parameters.index(name) == index for index, name in enumerate(given.parameters)
            )
        except TypeError:
            fits = False
        if not fits:
            raise TypeError(f"{owner}.{self.__name__} takes {given}; it is called as {self}")
        return function

    def lookup(self, cls: type) -> Callable[..., Any] | None:
        """Return the implementation for `cls`: its own, inherited, passed on or the default; None when there is none."""
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
        """Return whether the spec's class, or the spec it wraps, has an implementation. A default does not count."""
        for base in class_of(spec).__mro__:
            if base in self.implementations:
                return True
            if base in WRAPPING:
                return self not in WRAPPING[base] and self.knows(getattr(spec, INSIDE))
        return False

    def missing(self, cls: type) -> str:
        """Return the error message for a class without an implementation."""
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
        """Return a function that calls this verb on the spec inside a wrapper, with this verb's own signature for Numba."""
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
    """Make a verb from a declaration: its name, arguments and docstring. The body is ignored.

    `default` runs for classes without an implementation.
    """
    return Verb(declared, default) if declared is not None else lambda function: Verb(function, default)
