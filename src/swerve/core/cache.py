"""Compiled code kept on disk between processes, and never served stale.

Numba keys its cache by the file of the function that is compiled, and does not notice a change in another file. All our kernels are
inlined into a few entry points, so each is kept in a folder named by the `fingerprint` of all code that went into it.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.bytecode import FunctionIdentity

log = logging.getLogger("swerve.cache")

#: Folders that nobody has used for so long belong to code that is gone.
STALE_AFTER = 60 * 86_400.0

config: Any = numba.config
_decorating = threading.Lock()


def own_names() -> None:
    """Let compiled functions get names here that they get in no other process.

    Numba makes these names of numbers that it gives to functions and record types as a process meets them. Code that two processes
    compiled can so hold two functions of one name; a process that loads both of them from the cache runs one in place of the other,
    and reads and writes at the offsets of another layout.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(6)) << 16)


own_names()
os.register_at_fork(after_in_child=own_names)


#: How kernels are compiled. They allocate nothing, so they do without Numba's runtime (`_nrt`), which would count references to
#: arrays by atomic instructions: on a Xeon this took half of a round of BWC with ten features.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


@functools.cache
def cache_root() -> Path | None:
    """Where compiled code is kept: `SWERVE_CACHE_DIR`, else the user's cache folder; None, said once, when it cannot be written."""
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


def sweep(root: Path, now: float) -> None:
    """Remove folders that were not used for a long time. Whoever loses one compiles again."""
    for folder in root.iterdir():
        try:
            if folder.is_dir() and now - folder.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another process was faster
            continue


def compiled(function: Callable[..., Any], digest: str | None) -> Any:
    """`function` compiled by Numba, its code kept in the folder of this digest; without one, in memory only."""
    root = cache_root()
    if root is None or digest is None:
        return numba.njit(**OPTIONS)(function)
    folder = root / digest
    if folder.exists():
        os.utime(folder)
    else:
        sweep(root, time.time())
    with _decorating:  # Numba reads the folder while it decorates; other packages keep theirs
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            return numba.njit(cache=True, **OPTIONS)(function)
        finally:
            config.CACHE_DIR = before
