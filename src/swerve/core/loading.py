"""A user's own file of classes: imported once, so that policies, environments and workloads can be named by text."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from swerve.core.errors import SwerveError
from swerve.core.verbs import MARKERS

#: Tables in which a file registers names. What a file that fails has put there is taken out again.
#: A table that comes during a load is none of that file.
REGISTRIES: list[dict[str, Any]] = [MARKERS]

#: What the names of the modules of such files begin with.
MODULES = "swerve_loaded_"

#: The files that are loaded: a digest of the content, the classes that the file defines, and its other names by table.
_LOADED: dict[Path, tuple[bytes, list[type], list[set[str]]]] = {}


def load_file(path: Path, what: str) -> list[type]:
    """Import one file under a name that no installed module has; return the spec classes that it defines.

    The same content is imported once: a class that is defined again is another one. On an error everything that the file has
    registered is removed; `what` begins the message.
    """
    place = path.resolve()
    try:
        digest = hashlib.sha256(place.read_bytes()).digest()
    except OSError as error:
        raise SwerveError(f"{what} {path} cannot be read: {error.strerror or error}") from None
    if place in _LOADED:
        known, classes, registered = _LOADED[place]
        if known == digest:
            return classes
        for table, names in zip(REGISTRIES[1:], registered, strict=False):
            for name in names:
                table.pop(name, None)
    module_name = f"{MODULES}{path.stem}"
    found = importlib.util.spec_from_file_location(module_name, place)
    if found is None or found.loader is None:
        raise SwerveError(f"{what} {path} is not allowed; it must be a Python file, its name ending in .py")
    module = importlib.util.module_from_spec(found)
    before = [set(table) for table in REGISTRIES]
    taken = {cls.__name__: cls for cls in MARKERS.values() if cls.__module__ != module_name}
    sys.modules[module_name] = module
    try:
        found.loader.exec_module(module)
        new = [MARKERS[marker] for marker in MARKERS if marker not in before[0]]
        own = [cls for cls in new if cls.__module__ == module_name]
        for cls in new:
            if cls.__name__ in taken and not cls.__module__.startswith("swerve."):
                raise SwerveError(
                    f"{what} {path}: the class {cls.__name__} needs another name; {taken[cls.__name__].__module__} has one already"
                )
    except BaseException as error:
        for table, names in zip(REGISTRIES, before, strict=False):
            for name in set(table) - names:
                del table[name]
        del sys.modules[module_name]
        _LOADED.pop(place, None)
        if isinstance(error, SwerveError) and str(error).startswith(what):
            raise
        if isinstance(error, Exception | SystemExit):
            reason = " ".join(str(error).split())
            raise SwerveError(f"{what} {line_of(error, path)}: {type(error).__name__}: {reason}") from error
        raise
    added = [set(table) - names for table, names in zip(REGISTRIES[1:], before[1:], strict=False)]
    _LOADED[place] = (digest, own, added)
    return own


def files() -> list[Path]:
    """Return the files that are loaded, in the order in which they were."""
    return list(_LOADED)


def sources() -> list[tuple[str, bytes]]:
    """Return the names and the content of all loaded files, in the order in which they were loaded, for another machine."""
    out = []
    for place, (digest, *_) in _LOADED.items():
        try:
            content = place.read_bytes()
        except OSError as error:
            raise SwerveError(f"{place} cannot be read any more: {error.strerror or error}") from None
        if hashlib.sha256(content).digest() != digest:
            raise SwerveError(f"{place} has changed since it was loaded; start again")
        out.append((place.name, content))
    return out


def line_of(error: BaseException, path: Path) -> str:
    """Return `file:line` of an error: the line in `path` if the traceback passes through it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{path}:{error.lineno}"
    place = path.resolve()
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == place]
    return f"{path}:{lines[-1]}" if lines else str(path)
