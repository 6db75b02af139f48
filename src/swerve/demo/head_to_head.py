"""Policies on the same shifting traffic, side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from swerve.core.spec import Spec
from swerve.simulate import Results, Tick, simulate


@dataclass
class Standing:
    """Where one policy stands while the runs go on."""

    name: str
    total: int
    done: int = 0
    regret: dict[int, float] = field(default_factory=dict)
    results: Results | None = None
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        """Mean regret so far, over the runs that have begun."""
        return sum(self.regret.values()) / len(self.regret) if self.regret else 0.0

    def hear(self, tick: Tick) -> None:
        """Take in news from a run."""
        self.done += tick.rounds
        self.regret[tick.seed] = tick.regret


def head_to_head(
    policies: dict[str, Spec], environment: Spec, *, rounds: int, runs: int, seed: int, look: Callable[[list[Standing]], None]
) -> list[Standing]:
    """Run the policies at the same time, one thread each; `look` sees all standings ten times a second."""
    standings = [Standing(name, rounds * runs) for name in policies]
    guard, halt = threading.Lock(), threading.Event()

    def one(standing: Standing) -> None:
        def hear(tick: Tick) -> None:
            with guard:
                standing.hear(tick)

        start = time.perf_counter()
        standing.results = simulate(policies[standing.name], environment, runs=runs, seed=seed, threads=1, progress=hear, stop=halt)
        standing.seconds = time.perf_counter() - start

    with ThreadPoolExecutor(len(standings)) as executor:
        futures = [executor.submit(one, standing) for standing in standings]
        try:
            while not all(future.done() for future in futures):
                look(standings)
                halt.wait(0.1)
        except BaseException:
            halt.set()
            raise
        look(standings)
        for future in futures:
            future.result()
    return standings
