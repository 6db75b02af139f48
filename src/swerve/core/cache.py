"""Compiled code kept on disk between processes, and never served stale.

Numba keys its cache by the file of the function that is compiled, and does not notice a change in another file. All our kernels
are inlined into a few entry points, so each entry point's folder is named by a digest of every kernel source in the package, the versions
of Numba, NumPy and Python, and the sources behind any class that is not ours.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np

from swerve.core import verbs
from swerve.core.spec import Spec, walk

log = logging.getLogger("swerve.cache")

PACKAGE = Path(__file__).parent.parent
KERNELS = ("core", "bandits", "classifiers", "detectors", "policies", "environments", "simulate", "signals")
_decorating = threading.Lock()


@functools.cache
def kernel_digest() -> str:
    """A digest of every kernel source of the package and of what compiles it."""
    digest = hashlib.sha256()
    for version in (numba.__version__, np.__version__, platform.python_version(), platform.machine()):
        digest.update(version.encode())
    for part in KERNELS:
        for path in sorted((PACKAGE / part).rglob("*.py")):
            digest.update(str(path.relative_to(PACKAGE)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def cache_root() -> Path | None:
    """Where compiled code is kept: `SWERVE_CACHE_DIR`, else the user's cache folder; None (said once) when neither can be written."""
    try:
        chosen = os.environ.get("SWERVE_CACHE_DIR")
        base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swerve"
        base.mkdir(parents=True, exist_ok=True)
        probe = base / f".probe-{os.getpid()}-{threading.get_ident()}"
        probe.touch()
        probe.unlink()
    except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
        log.warning("compiled code is not cached, every start compiles anew: %s", error)
        return None
    return base


def foreign_modules(classes: Iterable[type]) -> list[str]:
    """The modules outside the package that the classes' kernels come from, helpers they call included."""
    found: set[str] = set()
    todo: list[Any] = []
    for cls in classes:
        todo.append(cls)
        for verb in list(verbs.VERBS):
            implementation = verb.lookup(cls)
            if implementation is not None:
                todo.append(implementation)
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        item = getattr(item, "py_func", item)
        if id(item) in seen or isinstance(item, ModuleType):
            continue
        seen.add(id(item))
        name = getattr(item, "__module__", None)
        if not isinstance(name, str) or _is_ours_or_installed(name):
            continue
        found.add(name)
        if isinstance(item, FunctionType):
            named = {n for code in _codes(item.__code__) for n in code.co_names}
            todo.extend(value for key, value in item.__globals__.items() if key in named and callable(value))
            todo.extend(cell.cell_contents for cell in item.__closure__ or ())
    return sorted(found)


def _codes(code: CodeType) -> Iterable[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_ours_or_installed(name: str) -> bool:
    top = name.partition(".")[0]
    if top == "swerve":
        module = sys.modules.get(name)
        return module is not None and PACKAGE in Path(getattr(module, "__file__", None) or "").parents
    return top in {"numba", "numpy", "math", "builtins"} or top in sys.stdlib_module_names


def digest_for(specs: Iterable[Spec]) -> str | None:
    """The name of the folder for these specs' compiled code; None when the source of a class cannot be read."""
    classes = {type(part) for spec in specs for part in walk(spec)}
    digest = hashlib.sha256(kernel_digest().encode())
    foreign = foreign_modules(classes)
    for name in foreign:
        try:
            source = inspect.getsource(sys.modules[name])
        except (OSError, TypeError, KeyError):
            log.info("compiled code of %s is not cached: its source cannot be read", name)
            return None
        digest.update(name.encode())
        digest.update(source.encode())
    return kernel_digest() if not foreign else digest.hexdigest()[:16]


def compiled(function: Callable[..., Any], digest: str | None) -> Any:
    """`function` compiled by Numba, its code kept in the folder of this digest (in memory only when there is none)."""
    root = cache_root()
    if digest is None or root is None:
        return numba.njit(nogil=True)(function)
    with _decorating:  # Numba reads the folder while it decorates; other packages keep theirs
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(root / digest)
        try:
            return numba.njit(nogil=True, cache=True)(function)
        finally:
            numba.config.CACHE_DIR = before
