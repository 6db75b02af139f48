"""The round loops on a GPU, from the same kernels. This is the only module that names `numba.cuda`.

A thread plays one query (`alone`) or all queries that learn together (`together`) of one run. The source of a round is that of the
processor's loops, and the results have the same bytes: products and sums are not contracted into one rounding, and everything a
thread touches in each round is in its local memory. Tables of constants lie in global memory, where threads of a warp may read
different places at once; in constant memory such reads wait for each other.
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
from typing import Any, TypeVar
from unittest import mock

import numpy as np

from swerve.core.cache import cache_root, one_at_a_time
from swerve.core.contract import begin, merge
from swerve.core.digest import fingerprint, from_modules
from swerve.core.engine import NOWHERE
from swerve.core.spec import Spec
from swerve.core.verbs import inlined
from swerve.simulate.loop import play_round
from swerve.simulate.pages import play_page

if not hasattr(np, "row_stack"):  # NumPy 2.5 dropped the name, and numba-cuda still asks for it
    np.row_stack = np.vstack

#: Queues between which the GPU chooses; the driver reads it once. Threads that share one may wait for each other.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
cuda: Any = importlib.import_module("numba.cuda")
#: Whether Numba's simulator takes the place of a GPU. It plays one thing at a time.
SIMULATED = bool(cuda.config.ENABLE_CUDASIM)
#: Arrays that wait to be freed. Freeing waits for everything that runs, of other threads too.
cuda.config.CUDA_DEALLOCS_COUNT = 4096

_own = threading.local()
_switching, _making, _starting = threading.Lock(), threading.Lock(), threading.RLock()
_crowd: list[None] = []  # an entry for each batch that is being played
Made = TypeVar("Made")


def made_once(make: Callable[..., Made]) -> Callable[..., Made]:
    """Return a function that makes each thing once, and gives it to all threads."""
    kept = functools.cache(make)

    def one(*arguments: Any, **named: Any) -> Made:
        with _making:
            return kept(*arguments, **named)

    return one


#: Threads of a block. A thread needs many registers, and small blocks leave room for more of them.
BLOCK = 64
#: Threads of a warp take their branches in turn. As long as no more threads than this run, fewer of each warp are used. More would
#: wait: their registers and those of the idle ones have to be free.
SPREAD = 1 << 16
WARP = 32
#: The last round of all: later than any.
NEVER = np.iinfo(np.int64).max

# rows of a thread's own pools: what its group knows, what it has learnt since the last fold, and all that it has learnt
POOL, DELTA, JOURNAL = range(3)


@inlined
def single_turn(
    spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, available, given, grades, page, tally, note,
    recovered, journal,
):  # fmt: skip
    """Play a round with one slot, by the arguments of a round with a page."""
    return play_round(
        spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, available, tally, note, journal
    )  # fmt: skip


@inlined
def page_turn(
    spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, available, given, grades, page, tally, note,
    recovered, journal,
):  # fmt: skip
    """Play a round with a page."""
    return play_page(
        spec, row, pools, group, writer, env, facts, segments, cursor, t, see, x, given, grades, page, tally, note, recovered,
        journal,
    )  # fmt: skip


@made_once
def alone(turn: Callable[..., bool], features: int, arms: int, slots: int, see: bool, journal: int) -> Callable[..., None]:
    """Return the kernel in which a thread plays one query of one run. Lengths are constants, so that loops are unrolled."""

    def play_alone(
        stride, tasks, queries, params, envs, which, scenes, segments, bounds, cursors, words, known, fresh, blank_row, blank_tally,
        blank_note, order, shuffled, first, count, marks, available, recovered, table, ends, pools_out, journals, tallies, notes,
        regret, clicks, refused,
    ):  # fmt: skip
        thread = cuda.grid(1)
        if thread % stride != 0 or thread // stride >= len(tasks):
            return
        task = tasks[thread // stride]
        run = task // queries
        row = cuda.local.array(1, table.dtype)
        cursor = cuda.local.array(1, cursors.dtype)
        pools = cuda.local.array(3, fresh.dtype)
        tally = cuda.local.array(1, tallies.dtype)
        note = cuda.local.array(1, notes.dtype)
        x = cuda.local.array(features, np.float64)
        given = cuda.local.array(arms, np.int64)
        grades = cuda.local.array(arms, np.uint8)
        page = cuda.local.array(slots, np.int64)
        row[0], cursor[0], tally[0], note[0] = blank_row[0], cursors[task], blank_tally[0], blank_note[0]
        pools[POOL], pools[DELTA], pools[JOURNAL] = known[task], fresh[0], fresh[0]
        for j in range(features):
            x[j] = 0.0
        spec, env, facts = params[0], envs[which[run]], scenes[run]
        own, back = segments[bounds[run] : bounds[run + 1]], recovered[bounds[run] : bounds[run + 1]]
        begin(spec, row[0], words[task])
        mark, turning = 0, marks[0]
        refused[task] = 0
        for k in range(count[task]):
            t = first[task] + k
            if shuffled:
                t = np.int64(order[t])
            while t >= turning:
                regret[mark, task], clicks[mark, task] = tally[0].regret, tally[0].clicks
                mark += 1
                turning = marks[mark]
            if not turn(
                spec, row[0], pools, POOL, DELTA, env, facts, own, cursor[0], t, see, x, available, given, grades, page, tally[0],
                note[0], back, journal,
            ):  # fmt: skip
                refused[task] = 1
                break
        while mark < len(marks) - 1:
            regret[mark, task], clicks[mark, task] = tally[0].regret, tally[0].clicks
            mark += 1
        table[task], ends[task], tallies[task], notes[task] = row[0], cursor[0], tally[0], note[0]
        pools_out[task], journals[task] = pools[POOL], pools[JOURNAL]

    return play_alone


@made_once
def together(turn: Callable[..., bool], features: int, arms: int, slots: int, see: bool) -> Callable[..., None]:
    """Return the kernel in which a thread plays all queries of one run that learn together. Their rows are in global memory."""

    def play_together(
        stride, tasks, queries, parts, groups, params, envs, which, scenes, segments, bounds, words, fresh, schedule, horizon,
        order, shuffled, first, count, marks, available, recovered, table, ends, pools_out, tallies, notes, regret, clicks, refused,
    ):  # fmt: skip
        thread = cuda.grid(1)
        if thread % stride != 0 or thread // stride >= len(tasks):
            return
        task = tasks[thread // stride]
        run, part = task // parts, task % parts
        base = run * queries
        pools = cuda.local.array(2, fresh.dtype)
        x = cuda.local.array(features, np.float64)
        given = cuda.local.array(arms, np.int64)
        grades = cuda.local.array(arms, np.uint8)
        page = cuda.local.array(slots, np.int64)
        pools[POOL], pools[DELTA] = fresh[0], fresh[0]
        for j in range(features):
            x[j] = 0.0
        spec, env, facts = params[0], envs[which[run]], scenes[run]
        own, back = segments[bounds[run] : bounds[run + 1]], recovered[bounds[run] : bounds[run + 1]]
        for query in range(queries):
            if groups[query] == part:
                begin(spec, table[base + query], words[base + query])
        mark, turning = 0, marks[0]
        refused[task] = 0
        for k in range(count[task]):
            t = first[task] + k
            if shuffled:
                t = np.int64(order[t])
            while t >= turning:
                for query in range(queries):
                    if groups[query] == part:
                        regret[mark, base + query] = tallies[base + query].regret
                        clicks[mark, base + query] = tallies[base + query].clicks
                mark += 1
                turning = marks[mark]
            at = base + schedule[run * horizon + t]
            if not turn(
                spec, table[at], pools, POOL, DELTA, env, facts, own, ends[at], t, see, x, available, given, grades, page,
                tallies[at], notes[at], back, NOWHERE,
            ):  # fmt: skip
                refused[task] = 1
                break
        while mark < len(marks) - 1:
            for query in range(queries):
                if groups[query] == part:
                    regret[mark, base + query] = tallies[base + query].regret
                    clicks[mark, base + query] = tallies[base + query].clicks
            mark += 1
        pools_out[task] = pools[POOL]

    return play_together


def relay(params, groups, parts, fresh, carries, carried, journals, guesses, guessed, wrong):
    """Join what the queries of a run have learnt in their order; correct the guesses of their starts, and mark those that change.

    `carries` becomes what each group knows in the end. `carried` and `guessed` are the words of `carries` and `guesses`.
    """
    run = cuda.grid(1)
    queries, words = len(groups), carried.shape[0] // carries.shape[0]
    if run * queries >= len(wrong):
        return
    for part in range(parts):
        carries[run * parts + part] = fresh[0]
    for query in range(queries):
        known, task = run * parts + groups[query], run * queries + query
        changed = False
        for i in range(words):
            changed |= carried[known * words + i] != guessed[task * words + i]
        if changed:
            guesses[task] = carries[known]
        wrong[task] = changed
        merge(params[0], carries[known], journals[task])


def sum_queries(columns, queries, out):
    """Add the numbers of a run's queries in their order, for each checkpoint."""
    thread = cuda.grid(1)
    runs = out.shape[1]
    if thread >= out.size:
        return
    mark, run = thread // runs, thread % runs
    total = 0.0
    for query in range(queries):
        total += columns[mark, run * queries + query]
    out[mark, run] = total


# ---------------------------------------------------------------- compiling and launching


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
