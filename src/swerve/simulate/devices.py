"""Where runs are played: on the processor's cores, or on a GPU."""

from __future__ import annotations

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
SHARE = 0.5
#: Batches that are played on a GPU at the same time: as many as fill it with this many threads. One with few threads waits for the
#: memory most of the time.
MOST_AT_ONCE, LEAST_AT_ONCE, FILLED = 40, 4, 1 << 17

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


def gpu_is_simulated() -> bool:
    """Return whether a simulator takes the place of a GPU."""
    from swerve.simulate import gpu

    return gpu.SIMULATED


def at_once(jobs: Sequence[Callable[[], Played]], device: str, stop: threading.Event, tasks: int) -> list[Played]:
    """Do jobs that play on a device: one after the other on the processor, which each of them fills, and at once on a GPU.

    `tasks` is how many threads of a GPU each of them keeps busy. An error in one of them sets `stop`, so that the others end soon.
    """
    if device == CPU or gpu_is_simulated():
        return [job() for job in jobs]
    workers = max(1, min(max(FILLED // max(1, tasks), LEAST_AT_ONCE), MOST_AT_ONCE, len(jobs)))

    def share() -> None:
        _own.share = SHARE / workers

    with ThreadPoolExecutor(workers, initializer=share) as executor:
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
    most = max(1, int(getattr(_own, "share", SHARE) * gpu.room() / each))
    for begun in range(0, len(seeds), most):
        if stop.is_set():
            return
        instances = instances_of(tuple(seeds[begun : begun + most]), worlds)
        batch = spread.Batch(plan, instances, rounds_of(instances.horizon))  # type: ignore[arg-type]
        batch.play()
        yield from batch.results()
