"""The drawn instances of an environment, shared by the policies that play in them."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from swerve.core.spec import Spec
from swerve.environments.worlds import World, world

#: Bytes of instances that are kept. Beyond that the one that was not used for longest is dropped, and drawn again when asked for.
ROOM = 1 << 30


class Worlds:
    """The instances of an environment by seed, each drawn when it is first asked for. Threads may share it.

    >>> from swerve import Traffic
    >>> worlds = Worlds(Traffic(queries=2, impressions=200))
    >>> worlds[7] is worlds[7], worlds[7].seed
    (True, 7)
    """

    def __init__(self, environment: Spec, room: int = ROOM) -> None:
        self.environment, self.room = environment, room
        self.on_gpu: tuple[tuple[int, ...], Any] | None = None  # seeds, and their instances in a GPU's memory
        self.uploading = threading.Lock()
        self._kept: OrderedDict[int, World] = OrderedDict()
        self._size = 0
        self._drawing: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()

    def __getitem__(self, seed: int) -> World:
        with self._lock:
            turn = self._drawing.setdefault(seed, threading.Lock())
        with turn:  # a second thread that asks for the same seed waits for the first one
            with self._lock:
                if seed in self._kept:
                    self._kept.move_to_end(seed)
                    return self._kept[seed]
            drawn: World = world(self.environment, seed)
            with self._lock:
                self._kept[seed] = drawn
                self._size += size_of(drawn)
                while self._size > self.room and len(self._kept) > 1:
                    self._size -= size_of(self._kept.popitem(last=False)[1])
            return drawn


class SharedWorlds:
    """The instances of several environments for jobs at the same time. Those of an environment go when its last job is done."""

    def __init__(self, jobs: Iterable[Spec]) -> None:
        self._left, self._kept, self._lock = Counter(jobs), dict[Spec, Worlds](), threading.Lock()

    @contextlib.contextmanager
    def of(self, environment: Spec) -> Iterator[Worlds]:
        """Give a job its instances inside the block."""
        with self._lock:
            worlds = self._kept.setdefault(environment, Worlds(environment))
        try:
            yield worlds
        finally:
            with self._lock:
                self._left[environment] -= 1
                if self._left[environment] <= 0:
                    self._kept.pop(environment, None)


def size_of(drawn: World) -> int:
    """Return the bytes of an instance's tables."""
    return drawn.schedule.nbytes + drawn.segments.nbytes + drawn.cursors.nbytes + drawn.owner.nbytes
