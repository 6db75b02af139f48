"""Compiled code cached on disk between processes, and never served stale.

Numba keys its cache by the file of the compiled function and does not notice changes in other files. Our kernels are inlined into a
few entry points, so each entry point is cached in a folder named by the `fingerprint` of all code it contains.
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

#: Folders unused for this many seconds (60 days) belong to code that no longer exists.
STALE_AFTER = 60 * 86_400.0

#: A process numbers its functions from a random multiple of 2^16 of up to 64 bits.
RANDOM_BYTES, COUNTER_BITS = 6, 16

config: Any = numba.config
_decorating = threading.Lock()


def own_names() -> None:
    """Give compiled functions names that are unique across processes.

    Numba builds these names from counters that start at zero in each process. Code compiled by two processes can therefore contain
    two functions with one name. A process that loads both from the cache runs one in place of the other, and then reads and writes
    at the offsets of the wrong layout.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(RANDOM_BYTES)) << COUNTER_BITS)


own_names()
os.register_at_fork(after_in_child=own_names)


#: How kernels are compiled. They allocate nothing, so they do without Numba's runtime (`_nrt`), which would count references to
#: arrays by atomic instructions: on a Xeon this took half of a round of BWC with ten features.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


@functools.cache
def cache_root() -> Path | None:
    """Return the cache folder, `SWERVE_CACHE_DIR` or the user's; None, with one warning, when it cannot be written."""
    try:
        chosen = os.environ.get("SWERVE_CACHE_DIR")
        base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swerve"
        base.mkdir(parents=True, exist_ok=True)
        probe = base / f".probe-{os.getpid()}-{threading.get_ident()}"
        probe.touch()
        probe.unlink()
    except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
        log.warning("compiled code is not cached, every start compiles again: %s", error)
        return None
    return base


def sweep(root: Path, now: float) -> None:
    """Remove folders that were not used for a long time. A process that needs a removed one compiles again."""
    for folder in root.iterdir():
        try:
            if folder.is_dir() and now - folder.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another process removed it first
            continue


def compiled(function: Callable[..., Any], digest: str | None) -> Any:
    """Compile `function` with Numba and cache its code in the folder of this digest; without a digest, in memory only."""
    root = cache_root()
    if root is None or digest is None:
        return numba.njit(**OPTIONS)(function)
    folder = root / digest
    if folder.exists():
        os.utime(folder)
    else:
        sweep(root, time.time())
    with _decorating:  # Numba reads CACHE_DIR while it decorates; restore it for other packages
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            return numba.njit(cache=True, **OPTIONS)(function)
        finally:
            config.CACHE_DIR = before
