"""Drawn instances of one environment in a GPU's memory: what all policies share that play in them."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.core.engine import Entry
from swerve.core.hashing import words
from swerve.core.tables import Table
from swerve.environments.browsing import browse
from swerve.environments.worlds import World
from swerve.simulate import gpu

#: The name of the schedules in the GPU's memory; orders of rounds are named by their parts.
SCHEDULE = "schedule"
#: So many queries have numbers of one byte.
BYTES = 256
NO_ROUNDS = np.zeros(0, np.int32)

#: Held while instances of one environment are looked at: schedules of many environments would fill the memory.
_looking = threading.Lock()

Fill = Callable[[int, World], None]


@Entry
def by_part(schedule, part, places, out):
    """Write the rounds of each part one after the other into `out`; `places` has the place of each part's first round."""
    for t in range(len(schedule)):
        own = part[schedule[t]]
        out[places[own]] = t
        places[own] += 1


@functools.cache
def drawers() -> ThreadPoolExecutor:
    """Return the threads that draw instances. They stay, because each has a queue of the GPU."""
    return ThreadPoolExecutor(os.cpu_count())


def in_order(schedule: NDArray[np.int32]) -> bool:
    """Return whether queries are played one after the other. Shuffled ones are found out at once."""
    few = schedule[:BYTES]
    return bool((few[1:] >= few[:-1]).all()) and bool((schedule[1:] >= schedule[:-1]).all())


def counts_by(part: NDArray[np.int64], drawn: World) -> NDArray[np.int64]:
    """Return the rounds of each part of the queries."""
    return np.bincount(part, weights=drawn.rounds, minlength=int(part.max()) + 1).astype(np.int64)


class Instances:
    """Drawn instances of one environment in a GPU's memory. `draw` draws one of them, by its number.

    Schedules are larger than all the rest. They are looked at one by one, and not kept on this side. `need` is what will be asked
    for first, `SCHEDULE` or the parts of `orders`: it is made in the first look.
    """

    def __init__(self, draw: Callable[[int], World], runs: int, need: str | NDArray[np.int64] | None = None) -> None:
        head = draw(0)
        self.draw, self.runs, self.queries, self.horizon = draw, runs, head.queries, len(head.schedule)
        self.spec, self.arms, self.features, self.paged = head.spec, head.arms, head.features, browse.knows(head.spec)
        self.on_gpu: dict[str, Any] = {}
        self.uploading = threading.RLock()  # policies that play at once upload each array once
        self.sequential = in_order(head.schedule)
        self.worlds, sequential = [head] * runs, [True] * runs
        fill = self._made(need)

        def keep(run: int, drawn: World) -> None:
            sequential[run] = in_order(drawn.schedule)
            self.worlds[run] = dataclasses.replace(drawn, schedule=NO_ROUNDS)
            if fill is not None:
                fill(run, drawn)

        self._look(keep)
        self.sequential = all(sequential)
        self.bounds = np.cumsum([0, *[len(drawn.segments) for drawn in self.worlds]])

    def _look(self, each: Fill) -> None:
        """Draw every instance and give it to a function, several at a time."""
        with _looking:
            list(drawers().map(lambda run: each(run, self.draw(run)), range(self.runs)))

    def _made(self, need: str | NDArray[np.int64] | None) -> Fill | None:
        """Make an array for what is needed; return the function that fills in an instance. None: no array is needed."""
        if need is None:
            return None
        if isinstance(need, str):
            small: Any = np.uint8 if self.queries <= BYTES else np.int32
            schedule = self.on_gpu[need] = gpu.empty(self.runs * self.horizon, small)
            gpu.wait()  # other threads fill it in
            return lambda run, drawn: gpu.put(schedule, run * self.horizon, drawn.schedule.astype(small))
        if need.max() == 0 or (self.sequential and bool((np.diff(need) >= 0).all())):
            return None
        order = self.on_gpu[name_of(need)] = gpu.empty(self.runs * self.horizon, np.int32)
        gpu.wait()
        sort = by_part.bind()

        def fill(run: int, drawn: World) -> None:
            count, rounds = counts_by(need, drawn), np.zeros(self.horizon, np.int32)
            sort(drawn.schedule, need, np.cumsum(count) - count, rounds)
            gpu.put(order, run * self.horizon, rounds)

        return fill

    def _found(self, need: str | NDArray[np.int64]) -> Any:
        """Return the array for what is needed, or None if it needs none."""
        name = name_of(need)
        with self.uploading:
            if name not in self.on_gpu and (fill := self._made(need)) is not None:
                self._look(fill)
            return self.on_gpu.get(name)

    def schedule(self) -> Any:
        """Return the query of every round of every instance."""
        return self._found(SCHEDULE)

    def forget_schedule(self) -> None:
        """Free the memory of the schedules once they were played."""
        with self.uploading:
            self.on_gpu.pop(SCHEDULE, None)

    def orders(self, part: NDArray[np.int64]) -> tuple[Any, Any, Any]:
        """Return the rounds of all runs by part, the place of each part's first round, and how many rounds it has.

        With one part, or with queries that are played one after the other as parts, the rounds are in order already, and the first
        array has one item.
        """
        order = self._found(part)
        count = np.array([counts_by(part, drawn) for drawn in self.worlds])
        first = np.cumsum(count, axis=1) - count
        if order is None:
            rounds = self.shared("in order", lambda: np.zeros(1, np.int32))
        else:
            rounds, first = order, first + np.arange(self.runs)[:, None] * self.horizon
        return rounds, gpu.on_device(first.ravel()), gpu.on_device(count.ravel())

    def shared(self, name: str, make: Callable[[], Table]) -> Any:
        """Return an array in the GPU's memory, made when it is first asked for."""
        with self.uploading:
            if name not in self.on_gpu:
                self.on_gpu[name] = gpu.on_device(make())
            return self.on_gpu[name]

    def joined(self, name: str) -> Any:
        """Return the tables of all instances, one after the other."""
        return self.shared(name, lambda: np.concatenate([getattr(drawn, name) for drawn in self.worlds]))

    def words(self) -> Any:
        """Return the words of the policies' random streams."""
        return self.shared("words", lambda: np.concatenate([words(drawn.seed, "policy", self.queries) for drawn in self.worlds]))


def name_of(need: str | NDArray[np.int64]) -> str:
    """Return the name of what is needed in the GPU's memory."""
    return need if isinstance(need, str) else f"order {need.tobytes().hex()}"
