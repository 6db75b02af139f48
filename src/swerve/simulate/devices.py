"""Where runs are played: on the processor's cores, or on a GPU."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from swerve.core.errors import SwerveError
from swerve.simulate.results import Plan, Run
from swerve.simulate.worlds import Worlds, size_of

if TYPE_CHECKING:
    from swerve.simulate.spread import Instances

CPU, CUDA = DEVICES = ("cpu", "cuda")
#: The share of the GPU's free memory that the runs of one batch may take.
SHARE = 0.5


def need_gpu(asked: str) -> None:
    """Refuse what was asked for if there is no GPU, or no compiler for one."""
    needs = f"{asked} needs a GPU of NVIDIA with its driver, and Swerve with its extra `gpu`"
    if importlib.util.find_spec("numba_cuda") is None:
        raise SwerveError(f"{needs}; the package numba-cuda is missing")
    from swerve.simulate import gpu

    reason = gpu.missing()
    if reason is not None:
        raise SwerveError(f"{needs}; here: {reason}")


def instances_of(seeds: tuple[int, ...], worlds: Worlds) -> Instances:
    """Return the instances of these seeds in the GPU's memory, those of the last call if they are the same."""
    from swerve.simulate.spread import Instances

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
    each = 3 * size_of(first) + spread.bytes_of(plan, first)
    most = max(1, int(SHARE * gpu.room() / each))
    for begun in range(0, len(seeds), most):
        if stop.is_set():
            return
        instances = instances_of(tuple(seeds[begun : begun + most]), worlds)
        batch = spread.Batch(plan, instances, rounds_of(instances.horizon))  # type: ignore[arg-type]
        batch.play()
        yield from batch.results()
