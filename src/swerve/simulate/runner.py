"""Run a policy in an environment, many times, on several threads, on a GPU or on a cluster."""

from __future__ import annotations

import functools
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
from swerve.core.spec import Spec, walk
from swerve.environments.worlds import World, context
from swerve.simulate.cluster import play_on_ray
from swerve.simulate.devices import CPU, CUDA, check_device, play_on_gpu
from swerve.simulate.results import Plan, Results, Run, read_run, write_run
from swerve.simulate.sessions import Session, facts_of, total
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
    return Run(instance.seed, rounds, regret, clicks, session.counts, facts_of(instance))


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
    device: str = CPU,
) -> Results:
    """Play `policy` in `runs` instances of `environment`, drawn with the seeds `seed`, `seed + 1`, ….

    The same seed gives the same bytes on any number of threads, and the same clicks, contexts and events for every policy. With
    `out`, each run is written to a Parquet file in that folder when it ends, and runs whose files exist are read instead of played.
    `progress` is called with a `Tick` now and then, from the threads that play. Setting `stop` ends them soon, like Ctrl-C:
    `Interrupted` carries the finished runs. Calls for several policies share `worlds`, so that each instance is drawn once.
    `device` is "cpu", "cuda" for a GPU, or "ray" or "ray:ADDRESS" for a cluster; all give the same bytes.

    >>> from swerve import Traffic, UCB1
    >>> results = simulate(UCB1(), Traffic(queries=2, impressions=2000), runs=2, points=4)
    >>> results.rounds.tolist(), len(results.regret)
    ([500, 1000, 1500, 2000], 2)
    """
    groups = pooling if isinstance(pooling, str | int) else tuple(int(group) for group in pooling)
    plan = Plan(policy, environment, groups, points, spacing)
    check(plan, runs, threads)
    check_device(device)
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
    if device != CPU and waiting:
        try:
            rounds_of = functools.partial(checkpoints, points=points, spacing=spacing)
            on_gpu = device == CUDA
            for played in (
                play_on_gpu(plan, waiting, drawn, halt, rounds_of) if on_gpu else play_on_ray(plan, waiting, device, halt)
            ):
                finished[played.seed] = played
                if folder is not None:
                    write_run(folder, plan, played)
                if progress is not None:
                    last = int(played.rounds[-1])
                    progress(Tick(played.seed, last, last, float(played.regret[-1])))
        except KeyboardInterrupt:
            raise Interrupted(Results(plan, [finished[number] for number in sorted(finished)])) from None
        waiting = []
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
