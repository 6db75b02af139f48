"""Compilation for a service: code that is not on disk is compiled in child processes, one per core at a time.

A compiler leaves hundreds of megabytes behind in its process, and compiles one function at a time. The children write their code to
disk and the service loads it; a mark file beside the code tells the next start that it is complete.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from numba.core.registry import cpu_target

from swerve.core.cache import cache_root
from swerve.core.engine import Entry
from swerve.core.siphash import hash_text
from swerve.service.config.load import Config, as_table, resolve
from swerve.service.config.settings import settings_of
from swerve.service.config.toml import Document
from swerve.serving import bulk, calls, playing
from swerve.serving.entry_kernels import write_ranked
from swerve.serving.people_kernels import click, page_of_pair
from swerve.serving.play_kernels import play_many
from swerve.serving.ranker import GROUPS, Ranker
from swerve.serving.rows import Shelf
from swerve.store.layouts import describe

log = logging.getLogger("swerve.service")

#: Budget in bytes of a ranker that is only compiled for.
SCRATCH = 1 << 20
#: Query key of that ranker, which stores no query.
NO_KEY = bytes(32)
#: Bytes of the hash in the name of a mark.
MARK = 8
#: The group of code that plays the log, many entries in a call. A start after a crash needs it for a long log.
PLAY = "play"
#: It is compiled once a start would have to play half as many entries as it plays one by one; seconds between two looks at that.
LEARN_AT, LOOK = playing.MOST_STEPS // 2, 5.0
#: What begins the name of the mark of all other code: for one worker, and for several, which exchange what they learn.
WARM, SEVERAL = "warm", "several"
#: Code that rankings and feedback of all policies need, besides that of batches.
ONCE = (write_ranked, hash_text, page_of_pair, click)
#: Seconds between two looks for code that another worker compiles.
LOOK_SECONDS = 0.1
#: Niceness of children that compile larger capacities: they must not slow down the smallest, with which the service becomes ready.
NICE = 10


def mark_of(ranker: Ranker, shelf: Shelf, what: str = WARM) -> Path | None:
    """Return the path of the mark that all code for a capacity is on disk; None when there is no cache folder. `what` begins its
    name: there is another one for the code that plays the log.

    Code is for one processor, and a folder may come from another machine: the mark names the processor as Numba's cache does.
    """
    root = cache_root()
    if root is None:
        return None
    settings = ranker.settings
    commons = ranker.rivals if shelf.rival and ranker.rivals is not None else ranker.commons
    if what == WARM and ranker.exchange.on:
        what = SEVERAL
    types = f"{describe(shelf.dtype)} {describe(commons.dtype)} {ranker.features} {len(settings.numbers)}"
    digest = play_many.digest(shelf.policy, settings.senses) if what == PLAY else bulk.digest() + "".join(map(Entry.digest, ONCE))
    types += f" {digest} {cpu_target.target_context.codegen().magic_tuple()}"
    name = hashlib.blake2b(types.encode(), digest_size=MARK).hexdigest()
    return root / f"{calls.rank_many.digest(shelf.policy, settings.senses)}-{shelf.arms}" / f"{what}-{name}"


class Warming:
    """Compiles, or loads, all kernels of a ranker, the smallest capacity first.

    It calls the kernels of a ranker of its own: rankers of a process share compiled code, and the serving one stays untouched.
    """

    def __init__(self, config: Config, ranker: Ranker, *, several: bool = False, elsewhere: bool = False) -> None:
        self.several, self.elsewhere = several, elsewhere  # whether another worker compiles: its code is waited for
        self.ranker = Ranker(ranker.settings._replace(budget=SCRATCH), NO_KEY)
        if several:
            self.ranker.exchange.begin(0.0)
        tables = as_table(config)
        self.tables = {"policy": tables["policy"], "signals": tables["signals"], "experiment": tables["experiment"]}
        self._jobs: deque[tuple[int, tuple[str, ...]]] = deque()  # capacities and groups of code that no child compiles yet
        self._children: list[tuple[int, subprocess.Popen[bytes]]] = []
        self._stop = threading.Event()

    @property
    def _stopped(self) -> bool:
        return self._stop.is_set()

    def run(self, ready: Callable[[int], None] = lambda arms: None) -> None:
        """Return when every capacity is compiled; `ready` is called with each capacity when it is."""
        shelves = self.ranker.rows.shelves
        tables = {shelf.arms: [one for one in self.ranker.rows.tables if one.arms == shelf.arms] for shelf in shelves}
        marks = {arms: [mark_of(self.ranker, one) for one in same] for arms, same in tables.items()}
        cold = [arms for arms, found in marks.items() if any(mark is not None and not mark.exists() for mark in found)]
        if cold and not self.elsewhere:
            log.info("compiling for the first time", extra={"capacities": cold})
            self._jobs.extend((cold[0], (part,)) for part in GROUPS)  # several children, because the service waits for them
            self._jobs.extend((arms, GROUPS) for arms in cold[1:])
        for shelf in shelves:
            if self.elsewhere:
                self._await(marks[shelf.arms])
            elif shelf.arms in cold:
                self._wait_for(shelf.arms, nice=NICE if shelf.arms != cold[0] else 0)
            if self._stopped:
                return
            bulk.compile_for(self.ranker)
            for table, mark in zip(tables[shelf.arms], marks[shelf.arms], strict=True):
                self.ranker.compile(table)
                if mark is not None and mark.parent.is_dir():
                    mark.touch()
            ready(shelf.arms)

    def learn_to_play(self, behind: Callable[[], int]) -> None:
        """Compile what plays the log, as soon as a start would have to play many entries: `behind` returns how many."""
        while behind() < LEARN_AT:
            if self._stop.wait(LOOK):
                return
        for shelf in self.ranker.rows.shelves if not self.elsewhere else ():
            self._learn_to_play(shelf)

    def _await(self, marks: Iterable[Path | None]) -> None:
        """Wait until another worker has compiled a capacity."""
        while not self._stopped and any(mark is not None and not mark.exists() for mark in marks):
            time.sleep(LOOK_SECONDS)

    def _learn_to_play(self, shelf: Shelf) -> None:
        """Let a child compile what plays the log on rows of a capacity, where that is not on disk."""
        mark = mark_of(self.ranker, shelf, PLAY)
        if mark is None or mark.exists() or self._stopped:
            return
        child = self._child(shelf.arms, (PLAY,), NICE)
        self._children.append((shelf.arms, child))
        _, said = child.communicate()
        if child.returncode == 0 and mark.parent.is_dir():
            mark.touch()
        elif not self._stopped:
            log.warning("a compiling process failed: %s", said.decode(errors="replace").strip().rpartition("\n")[2])

    def stop(self) -> None:
        """Kill the children."""
        self._stop.set()
        for _, child in list(self._children):
            child.kill()

    def _wait_for(self, arms: int, nice: int) -> None:
        """Wait until children have compiled a capacity, and keep every core busy with this capacity or the next ones."""
        while True:
            running = sum(child.poll() is None for _, child in self._children)
            while self._jobs and running < (os.cpu_count() or 1) and not self._stopped:
                wanted, groups = self._jobs.popleft()
                self._children.append((wanted, self._child(wanted, groups, nice if wanted == arms else NICE)))
                running += 1
            mine = [child for wanted, child in self._children if wanted == arms]
            if not mine:
                return
            child = mine[-1]  # the one with the least work: the next job then has its core
            _, said = child.communicate()
            if child.returncode and not self._stopped:  # this process then compiles the missing code
                log.warning("a compiling process failed: %s", said.decode(errors="replace").strip().rpartition("\n")[2])
            self._children.remove((arms, child))

    def _child(self, arms: int, groups: tuple[str, ...], nice: int) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([sys.executable, "-m", "swerve.service.warm"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdin is not None
        asked = {"config": self.tables, "arms": arms, "groups": groups, "nice": nice, "several": self.several}
        child.stdin.write(json.dumps(asked).encode())
        child.stdin.close()
        child.stdin = None
        return child


class Preloading:
    """Loads the code of several workers into this process, for those that are forks of it, as far as it is on disk."""

    def __init__(self, config: Config) -> None:
        self.ranker = Ranker(settings_of(config)._replace(budget=SCRATCH), NO_KEY)
        self.ranker.exchange.begin(0.0)
        self.left = [WARM, PLAY]

    def run(self) -> None:
        """Load what has come to disk since the last call."""
        tables = self.ranker.rows.tables
        for what in list(self.left):
            marks = [mark_of(self.ranker, shelf, what) for shelf in tables]
            if not all(mark is not None and mark.exists() for mark in marks):
                continue
            self.left.remove(what)
            if what == WARM:
                bulk.compile_for(self.ranker)
                for shelf in tables:
                    self.ranker.compile(shelf)
            else:
                for arms in dict.fromkeys(shelf.arms for shelf in tables):
                    playing.compile_for(self.ranker, arms)


def main() -> None:
    """Compile groups of the code of one capacity of the configuration on standard input."""
    asked = json.load(sys.stdin)
    os.nice(asked["nice"])
    settings = settings_of(resolve(Document("", asked["config"], {})))._replace(budget=SCRATCH)
    ranker = Ranker(settings, NO_KEY)
    if asked["several"]:
        ranker.exchange.begin(0.0)
    if PLAY in asked["groups"]:
        return playing.compile_for(ranker, asked["arms"])
    if GROUPS[-1] in asked["groups"]:  # the group with less work
        bulk.compile_for(ranker)
    for shelf in ranker.rows.tables:
        if shelf.arms == asked["arms"]:
            ranker.compile(shelf, asked["groups"])


if __name__ == "__main__":
    main()
