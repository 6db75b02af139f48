"""Where runs are played: on the processor's cores, or on a GPU."""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from swerve.core.errors import SwerveError
from swerve.simulate.results import Plan, Run
from swerve.simulate.worlds import Worlds

if TYPE_CHECKING:
    from swerve.simulate.spread import Instances

Played = TypeVar("Played")

CPU, CUDA = DEVICES = ("cpu", "cuda")
#: The share of the GPU's free memory that the runs of all batches may take that are played at the same time.
SHARE = 0.8
#: Batches that are played on a GPU at the same time: as many as fill it with this many threads. One with few threads waits for the
#: memory most of the time.
MOST_AT_ONCE, LEAST_AT_ONCE, FILLED = 40, 4, 1 << 18

_own = threading.local()


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
    """Do jobs that play on a device: one after the other on the processor, which each of them fills, and at once on a GPU.

    `tasks` is how many threads of a GPU each of them keeps busy. An error in one of them sets `stop`, so that the others end soon.
    """
    if device == CPU or not has_queues():
        return [job() for job in jobs]
    from swerve.simulate import gpu

    workers = max(1, min(max(FILLED // max(1, tasks), LEAST_AT_ONCE), MOST_AT_ONCE, len(jobs)))
    room = functools.cache(lambda: int(SHARE * gpu.room() / workers))

    def begin() -> None:
        _own.room = room

    with ThreadPoolExecutor(workers + 1, initializer=begin) as executor:
        executor.submit(gpu.missing)  # starts the GPU while the others draw instances
        waiting = [executor.submit(job) for job in jobs]
        try:
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
