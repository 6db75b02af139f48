"""Where runs are played: on the processor's cores, on a GPU, or on the nodes of a Ray cluster."""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from swerve.core.errors import SwerveError
from swerve.simulate import cluster
from swerve.simulate.results import Plan, Run
from swerve.simulate.worlds import Worlds

if TYPE_CHECKING:
    from swerve.simulate.spread import Instances

Played = TypeVar("Played")

CPU, CUDA = "cpu", "cuda"
DEVICES = (CPU, CUDA, cluster.RAY, f"{cluster.RAY}:ADDRESS")
#: The share of the GPU's free memory that the runs of all batches may take that are played at the same time.
SHARE = 0.8
#: Batches that are played on a GPU at the same time: as many as fill it with this many threads. One with few threads waits for the
#: memory most of the time. On a cluster there are as many as are allowed.
MOST_AT_ONCE, LEAST_AT_ONCE, FILLED = 40, 4, 1 << 18

_own = threading.local()


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


def at_once(jobs: Sequence[Callable[[], Played]], device: str, stop: threading.Event, tasks: int) -> list[Played]:
    """Do jobs that play on a device: one after the other on the processor, which each of them fills, and at once elsewhere.

    `tasks` is how many threads of a GPU each of them keeps busy. An error in one of them sets `stop`, so that the others end soon.
    """
    on_ray = cluster.is_ray(device)
    if device == CPU or not (on_ray or has_queues()):
        return [job() for job in jobs]
    workers = max(1, min(MOST_AT_ONCE if on_ray else max(FILLED // max(1, tasks), LEAST_AT_ONCE), MOST_AT_ONCE, len(jobs)))
    if on_ray:
        cluster.join(device)
        return together(jobs, ThreadPoolExecutor(workers), stop)
    from swerve.simulate import gpu

    room = functools.cache(lambda: int(SHARE * gpu.room() / workers))

    def begin() -> None:
        _own.room = room

    executor = ThreadPoolExecutor(workers + 1, initializer=begin)
    executor.submit(gpu.missing)  # starts the GPU while the others draw instances
    return together(jobs, executor, stop)


def together(jobs: Sequence[Callable[[], Played]], executor: ThreadPoolExecutor, stop: threading.Event) -> list[Played]:
    """Do jobs on the threads of an executor, which ends with them; set `stop` at the first error of one of them, and raise it."""
    with executor:
        waiting = [executor.submit(job) for job in jobs]
        try:
            for each in wait(waiting, return_when=FIRST_EXCEPTION).done:
                each.result()
            return [each.result() for each in waiting]
        except BaseException:
            stop.set()
            executor.shutdown(cancel_futures=True)
            raise


def instances_of(seeds: tuple[int, ...], worlds: Worlds) -> Instances:
    """Return the instances of these seeds in the GPU's memory, those of the last call if they are the same."""
    from swerve.simulate.spread import Instances

    with worlds.uploading:
        kept = worlds.on_gpu
        if kept is None or kept[0] != seeds:
            with ThreadPoolExecutor(os.cpu_count()) as executor:
                drawn = list(executor.map(worlds.__getitem__, seeds))
            kept = worlds.on_gpu = (seeds, Instances(drawn))
    found: Instances = kept[1]
    return found


def play_on_gpu(
    plan: Plan, seeds: list[int], worlds: Worlds, stop: threading.Event, rounds_of: Callable[[int], object]
) -> Iterator[Run]:
    """Play the runs of a plan on a GPU, as many at a time as its memory holds; yield them in the order of their seeds.

    `rounds_of` gives the checkpoints of a horizon.
    """
    from swerve.simulate import gpu, spread

    first = worlds[seeds[0]]
    each = spread.bytes_of(plan, first)
    need_gpu('device="cuda"')
    room = _own.room() if hasattr(_own, "room") else int(SHARE * gpu.room())
    most = max(1, room // each)
    for begun in range(0, len(seeds), most):
        if stop.is_set():
            return
        instances = instances_of(tuple(seeds[begun : begun + most]), worlds)
        batch = spread.Batch(plan, instances, rounds_of(instances.horizon))  # type: ignore[arg-type]
        with gpu.playing():
            batch.play()
            results = batch.results()
        yield from results
