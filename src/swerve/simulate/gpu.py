"""A GPU: its memory, and kernels that are compiled once and launched. `core/gpu_driver.py` has the driver's calls.

In Numba's simulator (`NUMBA_ENABLE_CUDASIM=1`) arrays and kernels are Numba's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np

from swerve.core.cache import alone, cache_root, sweep
from swerve.core.digest import fingerprint, from_modules
from swerve.core.gpu_driver import DeviceArray, begin, started
from swerve.core.spec import Spec
from swerve.simulate import gpu_compiler
from swerve.simulate.gpu_compiler import Kind, machine_code, numba_cuda, version

#: Whether Numba's simulator takes the place of a GPU. It plays one thing at a time.
SIMULATED = bool(numba.config.ENABLE_CUDASIM)  # type: ignore[attr-defined]

_switching = threading.Lock()
_crowd: list[None] = []  # an entry for each batch that is being played

#: Threads of a block. A thread needs many registers, and small blocks leave room for more of them.
BLOCK = 64
#: Threads of a warp take their branches in turn. As long as no more threads than this run, fewer of each warp are used. More would
#: wait: their registers and those of the idle ones have to be free.
SPREAD = 1 << 16
WARP = 32
#: The file of a kernel's code: a line with the name of its entry, and the machine code.
CODE = "code"


def absent() -> str | None:
    """Return why there is no driver here, or None. It is started, but nobody waits for it."""
    if SIMULATED:
        return None
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return missing()
    begin()
    return None


def missing() -> str | None:
    """Return why nothing can be played on a GPU here, or None."""
    try:
        if not SIMULATED:
            started()
    except Exception as error:
        return " ".join(str(error).split()).rstrip(":. ") or type(error).__name__
    return None


@functools.cache
def compiling() -> str:
    """Return the fingerprint of how kernels are compiled."""
    return fingerprint(gpu_compiler.translated) + version()


def digest_of(function: Callable[..., None], specs: Sequence[Spec]) -> str:
    """Return the name of the cache folder for a kernel's code: a fingerprint of all code that it reaches."""
    return hashlib.sha256(f"{fingerprint(function, specs)}{compiling()}".encode()).hexdigest()[:16]


class Kernel:
    """A kernel that is compiled when it is first launched, and cached on disk in a folder of its own code."""

    def __init__(self, function: Callable[..., None], specs: Sequence[Spec] = ()) -> None:
        self.function, self.specs = function, specs
        self._turn = threading.Lock()
        self._loaded: dict[tuple[Kind, ...], ctypes.c_void_p] = {}
        self._simulated = numba_cuda().jit(function) if SIMULATED else None
        root = cache_root() if not SIMULATED and from_modules(function, specs) else None
        self._folder = None if root is None else root / f"gpu-{digest_of(function, specs)}"

    def launch(self, threads: int, *arguments: Any) -> None:
        """Run this many threads."""
        blocks = max(1, -(-threads // BLOCK))
        if self._simulated is not None:
            with self._turn:
                self._simulated[blocks, BLOCK](*arguments)
            return
        kinds = tuple(kind_of(argument) for argument in arguments)
        with self._turn:
            if kinds not in self._loaded:
                entry, code = self._code(kinds)
                self._loaded[kinds] = started().load(code, entry)
        started().launch(self._loaded[kinds], blocks, BLOCK, [each for argument in arguments for each in passed(argument)])

    def play(self, tasks: int, *arguments: Any) -> None:
        """Run a thread for each task, every `stride`-th of the threads."""
        stride = stride_of(tasks)
        self.launch(tasks * stride, stride, *arguments)

    def _code(self, kinds: tuple[Kind, ...]) -> tuple[str, bytes]:
        """Return the name of the entry and the machine code for arguments of these kinds, from the cache or compiled."""
        capability = started().capability
        if self._folder is None:
            return machine_code(self.function, self.specs, kinds, capability, apart=False)
        text = repr([kinds, capability])
        place = self._folder / hashlib.sha256(text.encode()).hexdigest()[:16]
        if not self._folder.exists():
            with contextlib.suppress(OSError):
                sweep(self._folder.parent, time.time())
        with alone(place):  # one process at a time: the next one finds the code
            found = read(place / CODE)
            if found is None:
                found = machine_code(self.function, self.specs, kinds, capability, apart=True)
                write(place / CODE, *found)
        return found


def read(path: Path) -> tuple[str, bytes] | None:
    """Return what `write` has written there, if it has."""
    try:
        os.utime(path.parent.parent)  # the folder is in use
        entry, _, code = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return entry.decode(), code


def write(path: Path, entry: str, code: bytes) -> None:
    """Write the name of an entry and its machine code at once, if the folder can be written."""
    part = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        part.write_bytes(entry.encode() + b"\n" + code)
        part.replace(path)


def kind_of(argument: Any) -> Kind:
    """Return the kind of a kernel's argument."""
    if isinstance(argument, DeviceArray):
        return argument.dtype, len(argument.shape)
    return bool if isinstance(argument, bool) else int


def passed(argument: Any) -> list[Any]:
    """Return a kernel's argument as the driver takes it."""
    if isinstance(argument, DeviceArray):
        return argument.arguments()
    return [ctypes.c_bool(argument) if isinstance(argument, bool) else ctypes.c_int64(int(argument))]


@contextlib.contextmanager
def playing(batches: int = 1) -> Iterator[None]:
    """Count batches as played inside the block: one that plays, or those that are going to."""
    with _switching:
        _crowd.extend([None] * batches)
    try:
        yield
    finally:
        with _switching:
            del _crowd[len(_crowd) - batches :]


def stride_of(tasks: int) -> int:
    """Return how many threads there are for each of which one plays: a power of two. Batches that are played at once share."""
    if SIMULATED:
        return 1
    stride = WARP
    while stride > 1 and tasks * stride * max(1, len(_crowd)) > SPREAD:
        stride //= 2
    return stride


def on_device(array: np.ndarray[Any, Any]) -> Any:
    """Return a copy of an array in the GPU's memory, which is there for all threads."""
    out = empty(array.shape, array.dtype)
    put(out, 0, array)
    return out


def put(out: Any, begin: int, array: np.ndarray[Any, Any]) -> None:
    """Copy an array to a GPU's array, from this item of its first axis on."""
    if SIMULATED:
        out[begin : begin + len(array)].copy_to_device(np.ascontiguousarray(array))
    elif array.nbytes:
        started().upload(out.part(begin, len(array)).address, np.ascontiguousarray(array))


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return an array in the GPU's memory, with whatever is in it."""
    return numba_cuda().device_array(shape, np.dtype(dtype)) if SIMULATED else DeviceArray(shape, dtype)


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a GPU's array."""
    out: np.ndarray[Any, Any]
    if SIMULATED:
        out = array.copy_to_host()
        return out
    wait()  # a copy would stand in the queue behind the kernel, and others behind the copy
    out = np.empty(array.shape, array.dtype)
    if array.nbytes:
        started().download(out, array.address)
    return out


def room() -> int:
    """Return the bytes that are free in the GPU's memory."""
    return 1 << 30 if SIMULATED else started().free


def name() -> str:
    """Return the name of the GPU."""
    return "simulator" if SIMULATED else started().name


def wait() -> None:
    """Wait until everything that this thread has launched is done."""
    if not SIMULATED:
        started().wait()
