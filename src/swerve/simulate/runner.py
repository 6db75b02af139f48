"""Run a policy in an environment, many times, on several threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swerve.core.contract import reads_context, select, test_length
from swerve.core.errors import SwerveError, whole
from swerve.core.fleet import Fleet
from swerve.core.spec import Spec, walk
from swerve.core.tables import Table
from swerve.environments.browsing import browse
from swerve.environments.drawing import FEW, packed
from swerve.environments.worlds import World, context
from swerve.simulate import loop, pages
from swerve.simulate.results import Plan, Results, Run, entry_of, read_run, write_run
from swerve.simulate.worlds import Worlds

#: Rounds between two checks of the clock and of Ctrl-C.
BREATH = 250_000


class Tick(NamedTuple):
    """Progress of a run: rounds played since the last tick, rounds played in total, and the regret so far."""

    seed: int
    rounds: int
    done: int
    regret: float


Progress = Callable[[Tick], None]


class Interrupted(Exception):  # noqa: N818 - an interruption is not an error
    """The runs were interrupted; `results` holds the finished ones."""

    def __init__(self, results: Results) -> None:
        super().__init__(f"interrupted after {len(results.runs)} finished runs")
        self.results = results


def checkpoints(horizon: int, points: int = 100, spacing: str = "linear") -> NDArray[np.int64]:
    """Return the rounds at which regret is recorded: linear or logarithmic spacing; the last is the horizon.

    >>> checkpoints(1000, 4).tolist(), checkpoints(1000, 4, "log").tolist()
    ([250, 500, 750, 1000], [1, 10, 100, 1000])
    """
    if points < 1:
        raise SwerveError(f"points = {points} is not allowed; points must be ≥ 1")
    if spacing == "linear":
        at = np.linspace(0, horizon, min(points, horizon) + 1)[1:]
    elif spacing == "log":
        at = np.geomspace(1, horizon, points) if points > 1 else np.array([horizon])
    else:
        raise SwerveError(f"spacing = {spacing!r} is not allowed; spacing must be 'linear' or 'log'")
    return np.unique(np.rint(at).astype(np.int64))


class Session:
    """A run in progress: a fleet in a drawn instance, the current round, and the counters."""

    def __init__(
        self, policy: Spec, instance: World, pooling: str | int | tuple[int, ...] = "shared", *, compiled: bool = True
    ) -> None:
        self.policy, self.instance = policy, instance
        self.fleet = Fleet(
            policy, queries=instance.queries, arms=instance.arms, features=instance.features, pooling=pooling, seed=instance.seed,
            compiled_setup=compiled and instance.queries > FEW,
        )  # fmt: skip
        self.cursors = instance.cursors.copy()
        self.paged = browse.knows(instance.spec)
        self.tallies = np.zeros(instance.queries, pages.TALLY if self.paged else loop.TALLY)
        self.notes = np.zeros(instance.queries, pages.NOTE if self.paged else loop.NOTE)
        self.recovered = np.full(len(instance.segments) if self.paged else 0, -1, np.int64)
        self.x = np.zeros(instance.features)
        self.see = bool(reads_context(policy))
        self.done = 0
        self._env_params = packed(instance.spec)
        entry = entry_of(instance.spec)
        self._play = entry.bind(policy, instance.spec) if compiled else entry.plain
        # the arguments that differ between the two loops: the arms on offer, or scratch space for the given order, grades and page
        slots = getattr(instance.spec, "slots", 0)
        scratch = np.zeros(instance.arms, np.int64), np.zeros(instance.arms, np.uint8), np.zeros(slots, np.int64)
        self._offered = scratch if self.paged else (self.fleet.available,)
        self._counters = (self.tallies, self.notes, self.recovered) if self.paged else (self.tallies, self.notes)

    def play(self, until: int) -> None:
        """Play on, up to and including round `until`."""
        fleet, instance = self.fleet, self.instance
        reached = self._play(
            fleet.params, fleet.table, fleet.pools, fleet.groups, fleet.writer, self._env_params, instance.scene, instance.segments,
            self.cursors, instance.schedule, self.done, until, self.see, self.x, *self._offered, *self._counters,
        )  # fmt: skip
        if reached < until:
            where = f"round {reached + 1}, query {instance.schedule[reached]}"
            raise SwerveError(f"{where}: x = {self.x.tolist()} is not allowed; it lies outside the domain of {self.policy!r}")
        self.done = until

    @property
    def state(self) -> dict[str, bytes]:
        """Return everything that a run's future depends on, and its counters, as bytes."""
        parts = {
            "table": self.fleet.table,
            "pools": self.fleet.pools,
            "cursors": self.cursors,
            "tallies": self.tallies,
            "notes": self.notes,
            "recovered": self.recovered,
        }
        return {name: part.tobytes() for name, part in parts.items()}

    @property
    def counts(self) -> dict[str, float]:
        """Return the counters by name, with the regret also by cause."""
        return counts_of(self.tallies, self.notes, self.recovered, self.instance, self.done)

    @property
    def regret(self) -> float:
        """Return the regret so far."""
        return total(self.tallies["regret"])


def total(column: NDArray[np.float64]) -> float:
    """Return the sum of a column, one number for each query, added in the order of the queries (`sum` would add in another one)."""
    return float(np.cumsum(column)[-1])


def counts_of(tallies: Table, notes: Table, recovered: NDArray[np.int64], instance: World, rounds: int) -> dict[str, float]:
    """Return the counters of a run by name, with the regret also by cause."""
    counts: dict[str, float] = {}
    for name in tallies.dtype.names or ():
        if name == "clicks":
            counts |= {"clicks": total(tallies[name]), "rounds": rounds}
        elif name != "by_cause" and not name.startswith("gap"):
            column = tallies[name]
            counts[name] = total(column) if column.dtype.kind == "f" else int(column.sum())
    counts |= {f"regret_{name}": total(tallies["by_cause"][:, number]) for number, name in enumerate(loop.CAUSES)}
    if "churn" in counts:
        counts |= pages.page_counts(int(counts["churn"]), rounds, notes, recovered, instance.segments["event"])
    return counts


def play_run(plan: Plan, instance: World, tick: Progress | None = None, stop: threading.Event | None = None) -> Run | None:
    """Play one run on a drawn instance; return None when `stop` was set before it ended."""
    session = Session(plan.policy, instance, plan.pooling)
    rounds = checkpoints(len(instance.schedule), plan.points, plan.spacing)
    regret, clicks = np.zeros(len(rounds)), np.zeros(len(rounds))
    for number, mark in enumerate(rounds):
        while session.done < mark:
            if stop is not None and stop.is_set():
                return None
            before = session.done
            session.play(min(int(mark), before + BREATH))
            if tick is not None:
                tick(Tick(instance.seed, session.done - before, session.done, session.regret))
        regret[number], clicks[number] = session.regret, total(session.tallies["clicks"])
    facts = {"k": instance.k, "shift": instance.shift, "gap": instance.gap}
    return Run(instance.seed, rounds, regret, clicks, session.counts, facts)


def simulate(
    policy: Spec,
    environment: Spec,
    *,
    runs: int = 10,
    seed: int = 0,
    pooling: str | int | Sequence[int] = "shared",
    points: int = 100,
    spacing: str = "linear",
    threads: int | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    worlds: Worlds | None = None,
) -> Results:
    """Play `policy` in `runs` instances of `environment`, drawn with the seeds `seed`, `seed + 1`, ….

    The same seed gives the same bytes on any number of threads, and the same clicks, contexts and events for every policy. With
    `out`, each run is written to a Parquet file in that folder when it ends, and runs whose files exist are read instead of played.
    `progress` is called with a `Tick` now and then, from the threads that play. Setting `stop` ends them soon, like Ctrl-C:
    `Interrupted` carries the finished runs. Calls for several policies share `worlds`, so that each instance is drawn once.

    >>> from swerve import Traffic, UCB1
    >>> results = simulate(UCB1(), Traffic(queries=2, impressions=2000), runs=2, points=4)
    >>> results.rounds.tolist(), len(results.regret)
    ([500, 1000, 1500, 2000], 2)
    """
    groups = pooling if isinstance(pooling, str | int) else tuple(int(group) for group in pooling)
    plan = Plan(policy, environment, groups, points, spacing)
    check(plan, runs, threads)
    seed = whole("seed", seed)
    folder = None if out is None else Path(out)
    finished: dict[int, Run] = {}
    seeds = list(range(seed, seed + runs))
    for number in seeds:
        if folder is not None and (stored := read_run(folder, plan, number)) is not None:
            finished[number] = stored
            if progress is not None:
                last = int(stored.rounds[-1])
                progress(Tick(number, last, last, float(stored.regret[-1])))
    halt = stop or threading.Event()
    drawn = worlds if worlds is not None else Worlds(environment)

    def one(number: int) -> Run | None:
        try:
            run = play_run(plan, drawn[number], progress, halt)
            if run is not None and folder is not None:
                write_run(folder, plan, run)
        except BaseException:
            halt.set()  # set here: until the caller catches the error, this thread would already begin the next run
            raise
        return run

    waiting = [number for number in seeds if number not in finished]
    workers = max(1, min(threads or os.cpu_count() or 1, len(waiting) or 1))
    with ThreadPoolExecutor(workers) as executor:
        futures: dict[Future[Run | None], int] = {executor.submit(one, number): number for number in waiting}
        try:
            pending = set(futures)
            while pending:
                ready, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in ready:
                    run = future.result()
                    if run is not None:
                        finished[futures[future]] = run
        except BaseException as reason:
            halt.set()
            executor.shutdown(cancel_futures=True)
            for future, number in futures.items():  # some may have finished in the meantime
                if not future.cancelled() and future.exception() is None and (run := future.result()) is not None:
                    finished[number] = run
            if isinstance(reason, KeyboardInterrupt):
                raise Interrupted(Results(plan, [finished[n] for n in sorted(finished)])) from None
            raise
    if halt.is_set():
        raise Interrupted(Results(plan, [finished[number] for number in sorted(finished)]))
    return Results(plan, [finished[number] for number in seeds])


def check(plan: Plan, runs: int, threads: int | None) -> None:
    """Refuse invalid arguments before anything is compiled."""
    if not isinstance(plan.policy, Spec) or not select.knows(plan.policy):
        raise SwerveError(f"policy = {plan.policy!r} is not allowed; a policy must be able to select, such as UCB1()")
    whole("runs", runs, 1)
    whole("points", plan.points, 1)
    if threads is not None:
        whole("threads", threads, 1)
    if not isinstance(plan.environment, Spec) or not context.knows(plan.environment):
        raise SwerveError(f"environment = {plan.environment!r} is not allowed; it must have contexts, such as Traffic()")
    if reads_context(plan.policy) and getattr(plan.environment, "features", 1) < 1:
        raise SwerveError(f"features = 0 is not allowed; {plan.policy!r} reads contexts, and they need at least one feature")
    lengths = [test_length(part) for part in walk(plan.policy) if test_length.knows(part)]
    horizon = getattr(plan.environment, "rounds_per_query", None)
    if lengths and horizon is not None and horizon < max(lengths):
        raise SwerveError(
            f"L = {max(lengths)} is not allowed; a test must be no longer than the {horizon} rounds of the busiest query"
        )
