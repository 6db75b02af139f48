"""Where runs are played: on the processor's cores, on a GPU, or on the nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from swerve.core.contract import joins
from swerve.core.errors import SwerveError
from swerve.core.spec import Spec
from swerve.core.tables import pool_dtype, pools_nothing
from swerve.environments.worlds import World, world
from swerve.simulate import cluster
from swerve.simulate.results import Plan, Run
from swerve.simulate.worlds import Worlds

if TYPE_CHECKING:
    from swerve.simulate.instances import Instances

Played = TypeVar("Played")

CPU, CUDA = "cpu", "cuda"
DEVICES = (CPU, CUDA, cluster.RAY, f"{cluster.RAY}:ADDRESS")
#: The share of the GPU's free memory that the runs of all batches may take that are played at the same time.
SHARE = 0.8
#: A core of the processor plays as fast as about so many threads of a GPU.
WORTH = 40
#: Bytes of a shared record up to which a thread may play a whole run. It is in local memory, which is fast only while it is small.
LIGHT = 2048
#: Batches that are played on a GPU at the same time: as many as fill it with this many threads. One with few threads waits for the
#: memory most of the time. On a cluster there are as many as are allowed. Of batches of few threads it plays 128.
MOST_AT_ONCE, LEAST_AT_ONCE, FILLED, MOST_NARROW = 40, 4, 1 << 18, 120


def check_device(device: str) -> None:
    """Refuse a device that is unknown, or that cannot be here. Nothing is started on it yet."""
    if device not in (CPU, CUDA) and not cluster.is_ray(device):
        raise SwerveError(f"device = {device!r} is not allowed; device must be one of {', '.join(DEVICES)}")
    if device == CUDA:
        need_gpu('device="cuda"', start=False)
    if cluster.is_ray(device):
        cluster.need_ray(f'device="{device}"')


def need_gpu(asked: str, start: bool = True) -> None:
    """Refuse what was asked for if there is no GPU, or no compiler for one. Without `start` nothing is started on it yet."""
    needs = f"{asked} needs a GPU of NVIDIA with its driver, and Swerve with its extra `gpu`"
    if importlib.util.find_spec("numba_cuda") is None:
        raise SwerveError(f"{needs}; the package numba-cuda is missing")
    from swerve.simulate import gpu

    reason = gpu.missing() if start else gpu.absent()
    if reason is not None:
        raise SwerveError(f"{needs}; here: {reason}")


def has_queues() -> bool:
    """Return whether a GPU can play several things at once: a simulator cannot, and without a compiler nothing is played."""
    if importlib.util.find_spec("numba_cuda") is None:
        return False
    from swerve.simulate import gpu

    return not gpu.SIMULATED


class Job(NamedTuple, Generic[Played]):
    """What one policy plays in one environment: a function of the device on which it is to be played, and how much that is."""

    play: Callable[[str], Played]
    policy: Spec
    environment: Spec
    runs: int


def pool_of(job: Job[Any]) -> np.dtype[Any]:
    """Return the record that the queries of a job share."""
    return pool_dtype(job.policy, int(getattr(job.environment, "features", 1)))


def learns_together(job: Job[Any]) -> bool:
    """Return whether the queries of a run have to be played on one thread of a GPU."""
    if pools_nothing(pool_of(job)) or getattr(job.environment, "queries", 1) == 1:
        return False
    return not (joins(job.policy) and getattr(job.environment, "order", None) == "sequential")


def threads_of(job: Job[Any]) -> tuple[int, int]:
    """Return how many threads of a GPU a job keeps busy, and how many rounds each of them plays."""
    queries = int(getattr(job.environment, "queries", 1))
    rounds = int(getattr(job.environment, "impressions", 0) or getattr(job.environment, "rounds_per_query", 1))
    return (job.runs, rounds) if learns_together(job) else (job.runs * queries, max(1, rounds // queries))


def left_to_cores(jobs: Sequence[Job[Any]], cores: int) -> tuple[set[int], set[int]]:
    """Return the numbers of the jobs that keep few threads of a GPU busy, and of those that the processor's cores play sooner.

    A GPU plays all jobs of few threads at once, as long as its slowest thread takes. A thread that plays a whole run with a large
    record is slower than any core.
    """
    sizes = [threads_of(job) for job in jobs]
    heavy = {number for number, job in enumerate(jobs) if learns_together(job) and pool_of(job).itemsize > LIGHT}
    few = {number for number, (threads, _) in enumerate(sizes) if threads < WORTH * cores} - heavy
    rounds = sum(sizes[number][0] * sizes[number][1] for number in few)
    longest = max((sizes[number][1] for number in few), default=1)
    return few, heavy | (few if rounds < WORTH * cores * longest else set())


def at_once(jobs: Sequence[Job[Played]], device: str, stop: threading.Event) -> list[Played]:
    """Do jobs on a device: one after the other on the processor, which each of them fills, and at once elsewhere.

    Jobs that are too small for a GPU are left to the processor, which plays them in the meantime: the bytes are the same. An error
    in one job sets `stop`, so that the others end soon.
    """
    if cluster.is_ray(device):
        cluster.join(device)
        executor = ThreadPoolExecutor(max(1, min(MOST_AT_ONCE, len(jobs))))
        return together([(functools.partial(job.play, device), executor) for job in jobs], stop)
    if device == CPU or not has_queues():
        return [job.play(device) for job in jobs]
    count = os.cpu_count() or 1
    few, left = left_to_cores(jobs, count)
    pooled = {number for number, job in enumerate(jobs) if not pools_nothing(pool_of(job))} - few - left
    most = max(FILLED // max((threads_of(job)[0] for job in jobs), default=1), LEAST_AT_ONCE)
    if pooled:  # their waves take longest: few others are prepared while the first waves play
        most = min(most, len(pooled) + LEAST_AT_ONCE)
    wide, narrow = ThreadPoolExecutor(min(most, MOST_AT_ONCE)), ThreadPoolExecutor(MOST_NARROW)
    cores = ThreadPoolExecutor(max(1, 2 * count // max((jobs[number].runs for number in left), default=1)))  # few runs fill few
    parts = {}
    for number in sorted(range(len(jobs)), key=lambda number: number not in pooled):
        where, executor = (CPU, cores) if number in left else (device, narrow if number in few else wide)
        parts[number] = functools.partial(jobs[number].play, where), executor
    from swerve.simulate import gpu

    with gpu.playing(len(few - left)):  # the first of them must leave room for the others
        played = dict(zip(parts, together(list(parts.values()), stop), strict=True))
    return [played[number] for number in range(len(jobs))]


def together(jobs: Sequence[tuple[Callable[[], Played], ThreadPoolExecutor]], stop: threading.Event) -> list[Played]:
    """Do each job on its executor, which ends with them; set `stop` at the first error of one of them, and raise it."""
    executors = {executor for _, executor in jobs}
    with contextlib.ExitStack() as stack:
        for executor in executors:
            stack.enter_context(executor)
        waiting = [executor.submit(job) for job, executor in jobs]
        try:
            for each in wait(waiting, return_when=FIRST_EXCEPTION).done:
                each.result()
            return [each.result() for each in waiting]
        except BaseException:
            stop.set()
            for executor in executors:
                executor.shutdown(cancel_futures=True)
            raise


class Memory:
    """The GPU's memory, shared by the batches that are played at the same time. Who needs more than is left waits."""

    def __init__(self, size: int) -> None:
        self.size, self.left, self._changed = size, size, threading.Condition()

    @contextlib.contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Take so many bytes inside the block, or all if there are fewer."""
        size = min(size, self.size)
        with self._changed:
            self._changed.wait_for(lambda: self.left >= size)
            self.left -= size
        try:
            yield
        finally:
            with self._changed:
                self.left += size
                self._changed.notify_all()


@functools.cache
def memory() -> Memory:
    """Return the memory of the GPU."""
    from swerve.simulate import gpu

    return Memory(int(SHARE * gpu.room()))


def instances_of(plan: Plan, seeds: tuple[int, ...], worlds: Worlds) -> Instances:
    """Return the instances of these seeds in the GPU's memory, those of the last call if they are the same."""
    from swerve.simulate.spread import instances_for

    with worlds.uploading:
        kept = worlds.on_gpu
        if kept is None or kept[0] != seeds:
            head = worlds[seeds[0]]  # drawn already; the others are not kept on this side

            def draw(run: int) -> World:
                return head if run == 0 else world(worlds.environment, seeds[run])

            kept = worlds.on_gpu = (seeds, instances_for(plan, draw, len(seeds)))
    found: Instances = kept[1]
    return found


def play_on_gpu(
    plan: Plan, seeds: list[int], worlds: Worlds, stop: threading.Event, rounds_of: Callable[[int], NDArray[np.int64]]
) -> Iterator[Run]:
    """Play the runs of a plan on a GPU, as many at a time as its memory holds; yield them in the order of their seeds.

    `rounds_of` gives the checkpoints of a horizon.
    """
    from swerve.simulate import gpu, spread

    need_gpu('device="cuda"')
    each = spread.bytes_of(plan, worlds[seeds[0]])
    most = max(1, memory().size // each)
    for begun in range(0, len(seeds), most):
        if stop.is_set():
            return
        some = tuple(seeds[begun : begun + most])
        with memory().taken(each * len(some)):
            instances = instances_of(plan, some, worlds)
            batch = spread.Batch(plan, instances, rounds_of(instances.horizon))
            with gpu.playing():
                batch.play()
                results = batch.results()
            del batch
        yield from results
