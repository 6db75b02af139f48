"""A fingerprint of all code that a compiled function consists of, wherever it was defined.

Numba's cache and Swerve's stored results are only as good as their keys. Files are no good key: a file may have been edited after
it was imported, and code may come from no file at all. The fingerprint therefore walks the functions: their byte code and
constants, the values of the globals they name, the functions they call, and the implementations that the spec classes give to the
verbs they call.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np

from swerve.core import cache, compiling, verbs
from swerve.core.spec import Spec, walk

#: The versions that compiled code depends on. The first number is the version of our cache format.
VERSIONS = f"2 {numba.__version__} {np.__version__} {platform.python_version()} {platform.machine()}"
#: Packages whose version stands for their code, besides the standard library.
FIXED = {"numba", "numpy", "llvmlite"}
#: Hexadecimal digits of a fingerprint: 64 bits, so that two of a few thousand folders never collide.
DIGITS = 16


def fingerprint(function: Callable[..., Any], specs: Iterable[Spec] = ()) -> str:
    """Return a digest of `function` and of all code that it can reach with these specs.

    >>> from swerve import KLUCB, UCB1
    >>> from swerve.core.engine import select_one
    >>> fingerprint(select_one.plain, [UCB1()]) == fingerprint(select_one.plain, [UCB1(alpha=2)])
    True
    >>> fingerprint(select_one.plain, [UCB1()]) == fingerprint(select_one.plain, [KLUCB()])
    False
    """
    return _fingerprint(function, classes_of(specs))[0]


def from_modules(function: Callable[..., Any], specs: Iterable[Spec] = ()) -> bool:
    """Return whether all of that code is in modules that another process can import (not from a prompt, a doctest or an `exec`)."""
    return _fingerprint(function, classes_of(specs))[1]


def classes_of(specs: Iterable[Spec]) -> frozenset[type]:
    """Return the classes of the specs and of every spec inside them."""
    return frozenset(type(part) for spec in specs for part in walk(spec))


@functools.cache
def _fingerprint(function: Callable[..., Any], classes: frozenset[type]) -> tuple[str, bool]:
    todo: list[Any] = [function, *classes, verbs.Verb, verbs.kernel, verbs.inlined, cache.compiled]
    todo += [compiling.Part, compiling.KernelCompiler]
    # only the classes' own implementations: VERBS depends on the imported modules, so defaults count where a verb is called
    bases = [base for cls in classes for base in cls.__mro__]
    todo.extend(verb.implementations[base] for verb in verbs.VERBS for base in bases if base in verb.implementations)
    wrapping = {base: sorted(verb.__name__ for verb in verbs.WRAPPING[base]) for base in bases if base in verbs.WRAPPING}
    seen: set[int] = set()
    parts = [f"{base.__module__}.{base.__qualname__} passes on all but {kept}" for base, kept in wrapping.items()]
    parts.append(f"compiled with {cache.OPTIONS}, kernels with {verbs.FROM_KERNELS}")
    importable = True
    while todo:
        item = todo.pop()
        item = getattr(item, "py_func", item)  # for a compiled function, its source function
        if id(item) in seen or is_fixed(getattr(item, "__module__", None)):
            continue
        seen.add(id(item))
        if isinstance(item, FunctionType):
            name, options = f"{item.__module__}.{item.__qualname__}", sorted(vars(item).items(), key=str)
            parts.append(f"{name}:{text_of(item.__code__)}:{text_of(item.__defaults__)}:{text_of(options)}")
            todo.extend(reached(item, parts, passing=bool(wrapping)))
            importable &= str(item.__module__).startswith("swerve.") or inspect.getmodule(item) is not None
        elif isinstance(item, type):
            parts.append(f"{item.__module__}.{item.__qualname__}:{[base.__qualname__ for base in item.__mro__]}")
            for name, value in vars(item).items():
                value = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(value, FunctionType):
                    todo.append(value)
                elif not name.startswith("_") and name != "marker" and (shown := text_of(value)) is not None:
                    parts.append(f"{item.__qualname__}.{name}={shown}")
    return hashlib.sha256("\n".join([VERSIONS, *sorted(parts)]).encode()).hexdigest()[:DIGITS], importable


def reached(function: FunctionType, parts: list[str], passing: bool) -> Iterator[Any]:
    """Yield the callables that a function's code can reach; append the values of its globals to `parts`."""
    names = sorted({name for code in codes(function.__code__) for name in code.co_names})
    bound = {name: function.__globals__[name] for name in names if name in function.__globals__}
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    bound.update({f"cell {name}": cell.cell_contents for name, cell in cells.items()})
    bound.update(vars(function))  # attributes of the function, such as its form for compiled code
    for module in [value for value in bound.values() if isinstance(value, ModuleType)]:
        bound.update(used_of(module, names))
    for name, value in bound.items():
        if isinstance(value, ModuleType) or value is verbs.VERBS:
            continue  # the members of a module were added one by one; the list of all verbs is not code
        if isinstance(value, verbs.Verb):  # implementations are followed through the classes
            parts.append(str(value))
            if value.default is not None:
                yield value.default
            if passing:
                yield value.passing
        elif callable(value):
            yield value
        elif (shown := text_of(value)) is not None:
            parts.append(f"{function.__qualname__}: {name}={shown}")


def used_of(module: ModuleType, names: list[str]) -> dict[str, Any]:
    """Return the members of a module that code with these names may use, including those of modules inside it."""
    out: dict[str, Any] = {}
    if is_fixed(module.__name__):
        return out
    for name in names:
        value = getattr(module, name, None)
        if isinstance(value, ModuleType) and value is not module and value.__name__.startswith(module.__name__):
            out.update(used_of(value, names))
        elif value is not None:
            out[f"{module.__name__}.{name}"] = value
    return out


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def text_of(value: Any) -> str | None:
    """Return a value as text that is the same in every process; None for anything but plain data."""
    if isinstance(value, CodeType):
        inside = [text_of(constant) for constant in value.co_consts]
        return f"{value.co_code.hex()}{value.co_names}{value.co_varnames}{inside}{value.co_exceptiontable.hex()}"
    if isinstance(value, bool | int | float | complex | str | bytes | None | np.generic):
        return repr(value)
    if isinstance(value, tuple | list):
        return str([text_of(item) for item in value])
    if isinstance(value, set | frozenset):
        return str(sorted(str(text_of(item)) for item in value))
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    return None


def is_fixed(module: Any) -> bool:
    """Return whether a version number stands for the code of a module."""
    if not isinstance(module, str):
        return False
    top = module.partition(".")[0]
    return top in FIXED or (top in sys.stdlib_module_names and top != "__main__")
