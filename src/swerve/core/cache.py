"""Compiled code cached on disk between processes, and never served stale.

Numba keys its cache by the file of the compiled function and does not notice changes in other files. Our kernels are inlined into a
few entry points, so each entry point is cached in a folder named by the `fingerprint` of all code it contains.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib
import importlib.util
import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core.bytecode import FunctionIdentity

log = logging.getLogger("swerve.cache")

#: Folders unused for this many seconds (60 days) belong to code that no longer exists.
STALE_AFTER = 60 * 86_400.0

#: Seconds that a process waits for another one that compiles the same entry; then it compiles too. It looks every `TURN` seconds.
PATIENCE, TURN = 120.0, 0.05

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


@functools.cache
def without_scipy() -> None:
    """Let Numba see whether SciPy is installed without importing it, which takes as long as all else that a start imports.

    Numba imports it before it compiles or loads anything, only to know. Code with linear algebra imports it when it is compiled.
    """
    linalg: Any = importlib.import_module("numba.np.linalg")
    plain = linalg.ensure_blas

    def installed() -> None:
        if importlib.util.find_spec("scipy") is None:
            raise ImportError("scipy is required for linear algebra")

    linalg.ensure_blas = installed
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = plain


own_names()
os.register_at_fork(after_in_child=own_names)


#: How kernels are compiled. They allocate nothing, so they do without Numba's runtime (`_nrt`), which would count references to
#: arrays by atomic instructions: on a Xeon this took half of a round of BWC with ten features. Nobody calls them from C.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


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


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a cache folder inside the block, if it can be had: it saves work, and nothing depends on it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < until:
                    time.sleep(TURN)
                    continue
            except OSError:  # a file system without locks
                pass
            break
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # for copies of the file in forked processes too
        os.close(file)


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Pause the cyclic garbage collector inside the block: it takes a sixth of a compilation and finds little."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def one_at_a_time(dispatcher: Any, folder: Path) -> Any:
    """Let one process at a time compile into the folder: the next one finds the code on disk.

    Processes that compile for different types would also overwrite each other's cache index.
    """
    compile_or_load = dispatcher.compile

    def in_turn(signature: Any) -> Any:
        with alone(folder), without_collecting():
            return compile_or_load(signature)

    dispatcher.compile = in_turn
    return dispatcher


def compiled(function: Callable[..., Any], digest: str | None) -> Any:
    """Compile `function` with Numba and cache its code in the folder of this digest; without a digest, in memory only."""
    without_scipy()
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
            return one_at_a_time(numba.njit(cache=True, **OPTIONS)(function), folder)
        finally:
            config.CACHE_DIR = before
