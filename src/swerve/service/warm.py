"""Compiling for a service: what is not on disk yet in processes of their own, as many at once as there are cores.

A compiler leaves hundreds of megabytes behind in its process, and compiles one thing at a time. Its children leave code on disk,
which the service then loads; a mark beside it says so to the next start.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from swerve.core.cache import cache_root
from swerve.service.config.load import Config, as_table, resolve
from swerve.service.config.settings import settings_of
from swerve.service.config.toml import Document
from swerve.serving import kernels
from swerve.serving.ranker import Ranker
from swerve.serving.rows import Shelf
from swerve.store.layouts import describe

log = logging.getLogger("swerve.service")


def mark_of(ranker: Ranker, shelf: Shelf) -> Path | None:
    """The file that says that all code for a capacity is on disk; None when none is kept."""
    root = cache_root()
    if root is None:
        return None
    settings = ranker.settings
    types = f"{describe(shelf.dtype)} {describe(ranker.pools.dtype)} {ranker.features} {len(settings.numbers)}"
    name = hashlib.blake2b(types.encode(), digest_size=8).hexdigest()
    return root / f"{kernels.rank_many.digest(settings.policy, settings.senses)}-{shelf.arms}" / f"warm-{name}"


class Warming:
    """Compiles, or loads, all that a ranker calls."""

    def __init__(self, config: Config, ranker: Ranker) -> None:
        self.ranker = ranker
        tables = as_table(config)
        self.tables = {"policy": tables["policy"], "signals": tables["signals"]}
        self._children: list[subprocess.Popen[bytes]] = []
        self._stopped = False

    def run(self) -> None:
        """Return when every capacity can be served."""
        shelves = self.ranker.rows.shelves
        marks = {shelf.arms: mark_of(self.ranker, shelf) for shelf in shelves}
        cold = [arms for arms, mark in marks.items() if mark is not None and not mark.exists()]
        if cold:
            log.info("compiling for the first time", extra={"capacities": cold})
            self._in_children(cold)
        for shelf in shelves:
            if self._stopped:
                return
            self.ranker.compile(shelf)
            mark = marks[shelf.arms]
            if mark is not None and mark.parent.is_dir():
                mark.touch()

    def stop(self) -> None:
        """End the children: nobody waits for them any more."""
        self._stopped = True
        for child in self._children:
            child.kill()

    def _in_children(self, cold: list[int]) -> None:
        todo = sorted(cold, reverse=True)  # the largest takes longest
        while todo and not self._stopped:
            batch, todo = todo[: os.cpu_count() or 1], todo[os.cpu_count() or 1 :]
            for arms in batch:
                command = [sys.executable, "-m", "swerve.service.warm"]
                child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
                assert child.stdin is not None
                child.stdin.write(json.dumps({"config": self.tables, "arms": arms}).encode())
                child.stdin.close()
                child.stdin = None
                self._children.append(child)
            for child in self._children:
                _, said = child.communicate()
                if child.returncode and not self._stopped:  # then this process compiles what is missing
                    log.warning("a compiling process failed: %s", said.decode(errors="replace").strip().rpartition("\n")[2])
            self._children = []


def main() -> None:
    """Compile one capacity of a configuration that comes on standard input."""
    asked = json.load(sys.stdin)
    settings = settings_of(resolve(Document("", asked["config"], {})))._replace(budget=1 << 20)
    ranker = Ranker(settings, bytes(32))
    for shelf in ranker.rows.shelves:
        if shelf.arms == asked["arms"]:
            ranker.compile(shelf)


if __name__ == "__main__":
    main()
