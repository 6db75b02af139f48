"""A GPU: compiling kernels for it, launching them, and its memory. This is the only module that names `numba.cuda`.

The results have the bytes of the processor's: products and sums are not contracted into one rounding. Tables of constants lie in
global memory, where threads of a warp may read different places at once; in constant memory such reads wait for each other.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from swerve.core.cache import cache_root, one_at_a_time
from swerve.core.digest import fingerprint, from_modules
from swerve.core.spec import Spec

if not hasattr(np, "row_stack"):  # NumPy 2.5 dropped the name, and numba-cuda still asks for it
    np.row_stack = np.vstack

#: Queues between which the GPU chooses; the driver reads it once. Threads that share one may wait for each other.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
cuda: Any = importlib.import_module("numba.cuda")
#: Whether Numba's simulator takes the place of a GPU. It plays one thing at a time.
SIMULATED = bool(cuda.config.ENABLE_CUDASIM)
#: Arrays that wait to be freed. Freeing waits for everything that runs, of other threads too.
cuda.config.CUDA_DEALLOCS_COUNT = 4096
#: A batch of few runs is small; the warning about it would be one for each launch.
cuda.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

_own = threading.local()
_switching, _starting = threading.Lock(), threading.RLock()
_crowd: list[None] = []  # an entry for each batch that is being played


#: Threads of a block. A thread needs many registers, and small blocks leave room for more of them.
BLOCK = 64
#: Threads of a warp take their branches in turn. As long as no more threads than this run, fewer of each warp are used. More would
#: wait: their registers and those of the idle ones have to be free.
SPREAD = 1 << 16
WARP = 32


def absent() -> str | None:
    """Return why there is no GPU here, or None. Nothing is started on it yet."""
    if SIMULATED:
        return None
    try:
        with _starting:  # who asks while another thread starts the driver would be told that there is no GPU
            return None if len(cuda.gpus) > 0 else "there is none"
    except Exception as error:
        return " ".join(str(error).split()).rstrip(":. ") or type(error).__name__


def missing() -> str | None:
    """Return why nothing can be played on a GPU here, or None."""
    with _starting:
        reason = absent()
        if reason is not None or SIMULATED:
            return reason
        try:
            cuda.current_context()
        except Exception as error:
            return " ".join(str(error).split()).rstrip(":. ") or type(error).__name__
    return None


class Exact:
    """Compile inside the block without contraction (a · b + c in one rounding), and with tables of constants in global memory.

    Numba has no switch for either. Blocks of several threads may overlap: the first one switches, the last one switches back.
    """

    def __init__(self) -> None:
        self.inside, self.switches = 0, contextlib.ExitStack()

    def __enter__(self) -> None:
        with _switching:
            self.inside += 1
            if self.inside > 1 or SIMULATED:
                return
            nvvm = importlib.import_module("numba.cuda.cudadrv.nvvm")
            plain = nvvm.compile_ir
            contracting = mock.patch.object(nvvm, "compile_ir", lambda code, **options: plain(code, **{**options, "fma": False}))
            self.switches.enter_context(contracting)
            self.switches.enter_context(mock.patch.object(nvvm, "ADDRSPACE_CONSTANT", nvvm.ADDRSPACE_GLOBAL))

    def __exit__(self, *_: object) -> None:
        with _switching:
            self.inside -= 1
            if self.inside == 0:
                self.switches.close()


exact = Exact()


@functools.cache
def version() -> str:
    """Return the version of the compiler for GPUs."""
    return importlib.metadata.version("numba-cuda")


def digest_of(function: Callable[..., None], specs: Sequence[Spec]) -> str:
    """Return the name of the cache folder for a kernel's code: a fingerprint of all code that it reaches."""
    parts = [fingerprint(function, specs), fingerprint(Exact.__enter__), version()]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


class Kernel:
    """A kernel that is compiled when it is first launched, and cached on disk in a folder of its own code."""

    def __init__(self, function: Callable[..., None], specs: Sequence[Spec] = ()) -> None:
        self._turn = threading.Lock()  # the first launch loads the code, which the driver allows once
        if SIMULATED:
            self._dispatcher = cuda.jit(function)
            return
        root = cache_root() if from_modules(function, specs) else None
        if root is None:
            self._dispatcher = cuda.jit(function, lto=False)
            return
        folder = root / f"gpu-{digest_of(function, specs)}"
        with _switching:  # the folder is read while the function is decorated
            before = cuda.config.CACHE_DIR
            cuda.config.CACHE_DIR = str(folder)
            try:
                self._dispatcher = one_at_a_time(cuda.jit(function, lto=False, cache=True), folder)
            finally:
                cuda.config.CACHE_DIR = before

    def launch(self, threads: int, *arguments: Any) -> None:
        """Run this many threads."""
        with exact, self._turn:
            self._dispatcher[max(1, -(-threads // BLOCK)), BLOCK, stream()](*arguments)

    def play(self, tasks: int, *arguments: Any) -> None:
        """Run a thread for each task, every `stride`-th of the threads."""
        stride = stride_of(tasks)
        self.launch(tasks * stride, stride, *arguments)


@contextlib.contextmanager
def playing() -> Iterator[None]:
    """Count a batch inside the block as one of those that are played."""
    with _switching:
        _crowd.append(None)
    try:
        yield
    finally:
        with _switching:
            _crowd.pop()


def stride_of(tasks: int) -> int:
    """Return how many threads there are for each of which one plays: a power of two. Batches that are played at once share."""
    if SIMULATED:
        return 1
    stride = WARP
    while stride > 1 and tasks * stride * max(1, len(_crowd)) > SPREAD:
        stride //= 2
    return stride


def stream() -> Any:
    """Return this thread's queue of the GPU: what several threads launch runs at the same time."""
    if not hasattr(_own, "stream"):
        _own.stream = cuda.stream()
    return _own.stream


def on_device(array: np.ndarray[Any, Any]) -> Any:
    """Return a copy of an array in the GPU's memory, which is there for all threads."""
    out = cuda.to_device(np.ascontiguousarray(array), stream=stream())
    stream().synchronize()
    return out


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return an array in the GPU's memory, with whatever is in it."""
    return cuda.device_array(shape, np.dtype(dtype), stream=stream())


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a GPU's array."""
    out: np.ndarray[Any, Any] = array.copy_to_host(stream=stream())
    stream().synchronize()
    return out


def room() -> int:
    """Return the bytes that are free in the GPU's memory."""
    if SIMULATED:
        return 1 << 30
    return int(cuda.current_context().get_memory_info().free)


def name() -> str:
    """Return the name of the GPU."""
    if SIMULATED:
        return "simulator"
    text = cuda.get_current_device().name
    return text.decode() if isinstance(text, bytes) else str(text)


def wait() -> None:
    """Wait until everything that this thread has launched is done."""
    stream().synchronize()


def assembly(function: Callable[..., None], arguments: Sequence[Any], capability: tuple[int, int] = (9, 0)) -> str:
    """Return the PTX of a kernel for these arguments, compiled without a GPU."""
    from numba import typeof, types

    compiler, dispatcher = (importlib.import_module(f"numba.cuda.{name}") for name in ("compiler", "dispatcher"))
    asked = mock.Mock(return_value=mock.Mock(compute_capability=capability))
    with (
        exact,
        mock.patch.object(dispatcher, "get_current_device", asked),
        mock.patch.object(compiler, "get_current_device", asked),
    ):
        done = compiler.compile_cuda(
            function, types.void, tuple(typeof(argument) for argument in arguments), nvvm_options={"opt": 3}, cc=capability
        )
        kernel = done.library.get_function(done.fndesc.llvm_func_name)
        done.library._entry_name = done.fndesc.llvm_func_name
        compiler.kernel_fixup(kernel, False)
        text: str = done.library.get_asm_str(cc=capability)
    return text
