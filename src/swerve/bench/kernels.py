"""The kernels' benchmark: the cost of a round, a call, a prediction, a start and a row, beside plain C and other libraries."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from swerve.bandits import EXP3S, KLUCB, UCB1, Testable, Thompson
from swerve.bench import hulls, peers
from swerve.bench.reference import ARMS, Reference, python_loop
from swerve.bench.rows import Row, against_bar, row
from swerve.bench.timing import Contender, Pairs, interleave
from swerve.classifiers import Rectangle
from swerve.core.errors import SwerveError
from swerve.core.fleet import Fleet
from swerve.core.spec import Spec
from swerve.core.tables import row_dtype
from swerve.environments import Traffic, workload
from swerve.environments.worlds import world
from swerve.policies import BWC, Oracle, Swerve
from swerve.policies.swerve.listed import Listed
from swerve.simulate import Session

PER_QUERY = 30_000  # rounds of a query in the paper's experiments
QUERIES_PER_CALL = 1_000  # of the batch API: as many as a busy caller collects
PYTHON_SHARE = 20  # the loop in Python is slow and plays one round in this many
BATCH_SHARE = BANDIT_SHARE = 4  # calls from Python and other bandits play a quarter of the rounds, to bound the time
FEATURES, STATE_ARMS = 8, 8  # of the rows whose bytes are measured: the smallest capacity, a usual number of signals
HULL_REPEATS = 7  # turns of the others per turn of the hull, which has many batches
PAGE_QUERIES, PAGE_SHARE = 10, 3  # of the workloads with pages, which play a third of the rounds
NANO, MICRO = 1e9, 1e6  # per second
Progress = Callable[[str], None]

PAPERS, WITH_HULL, OURS = "BWC(Testable(UCB1()), Rectangle())", "BWC(Testable(UCB1()), Hull())", "Swerve()"

#: Run by a new process: start-up and one decision.
FIRST_DECISION = """
from swerve import BWC, Fleet, Hull, Rectangle, Swerve, Testable, UCB1
Fleet({policy}, queries=1, arms=5, features=8).select(0, x=[0.25] * 8)
"""


class Effort(NamedTuple):
    """The amount of measurement: rounds and pairs per timed call, and the number of turns."""

    repeats: int = 21  # turns; odd, so that the median is one of them
    rounds: int = 900_000
    pairs: int = 20_000
    batches: int = 20  # of hull questions
    batch: int = 60  # questions per batch
    starts: int = 5  # new processes with compiled code
    colds: int = 3  # new processes without compiled code
    queries: int = 100  # of the workloads that Swerve plays
    candidates: tuple[int, ...] = (10, 64)  # of the workloads with pages


FULL = Effort()
QUICK = Effort(repeats=7, rounds=300_000, pairs=5_000, batches=9, batch=30, starts=3, colds=1, queries=10)


def run_kernels(quick: bool = False, progress: Progress | None = None, effort: Effort | None = None) -> list[Row]:
    """Measure everything once, in turns with its reference, and return the rows. `progress` receives the name of each step."""
    effort = effort or (QUICK if quick else FULL)
    say = progress or (lambda text: None)
    with tempfile.TemporaryDirectory(prefix="swerve-bench-", ignore_cleanup_errors=True) as folder:
        reference = Reference(Path(folder))
        return [
            *loop_rows(reference, effort, say),
            *bandit_rows(effort, say),
            *swerve_rows(effort, say),
            *page_rows(effort, say),
            *api_rows(effort, say),
            *state_rows(),
            *start_rows(Path(folder), effort, say),
            *hull_rows(effort, say),
        ]


def paper_policy() -> BWC:
    """Return BWC over UCB1 with a rectangle, the paper's policy."""
    return BWC(Testable(UCB1()), Rectangle())


def one_query(rounds: int) -> Traffic:
    """Return the problem of the C loop: one query, five results, no shifts, no contexts."""
    return Traffic(queries=1, impressions=rounds, results=ARMS, features=0, shifting_share=0.0)


def traffic(rounds: int, features: int) -> Traffic:
    """Return the paper's workload with this many features, shortened by having fewer queries of full length."""
    return Traffic(queries=max(1, rounds // PER_QUERY), impressions=rounds, results=ARMS, features=features)


def simulated(name: str, policy: Spec, environment: Spec, see: bool | None = None) -> Contender:
    """Return a contender that plays a whole run in the simulation's compiled loop; drawing the problem and making tables is set-up.

    `see` says whether contexts are drawn; by default they are drawn for policies that read them.
    """
    drawn = world(environment, 0)
    rounds = len(drawn.schedule)

    def prepare() -> Callable[[], object]:
        session = Session(policy, drawn)
        if see is not None:
            session.see = see

        def run() -> object:
            session.play(rounds)
            return session.tallies

        return run

    return Contender(name, rounds, prepare)


def batched(name: str, calls: int) -> Contender:
    """Return a contender that calls `select_many` and `update_many` for a thousand queries at a time, half of them clicked."""
    rows, values = np.arange(QUERIES_PER_CALL), np.arange(QUERIES_PER_CALL) % 2 * 1.0

    def prepare() -> Callable[[], object]:
        fleet = Fleet(UCB1(), queries=QUERIES_PER_CALL, arms=ARMS)
        select, update = fleet.select_many, fleet.update_many

        def run() -> None:
            for _ in range(calls):
                update(rows, select(rows), values)

        return run

    return Contender(name, calls * QUERIES_PER_CALL, prepare)


def stepped(name: str, pairs: int) -> Contender:
    """Return a contender for the fused call: the reward of the previous decision, and the next decision."""

    def prepare() -> Callable[[], object]:
        fleet = Fleet(UCB1(), queries=1, arms=ARMS)
        step, first = fleet.step, fleet.select(0)

        def run() -> None:
            decision = first
            for _ in range(pairs):
                decision = step(0, decision, 1.0)

        return run

    return Contender(name, pairs, prepare)


def separate(name: str, pairs: int) -> Contender:
    """Return a contender that makes a decision and rewards it in two calls."""

    def prepare() -> Callable[[], object]:
        fleet = Fleet(UCB1(), queries=1, arms=ARMS)
        select, reward = fleet.select, fleet.reward

        def run() -> None:
            for _ in range(pairs):
                reward(0, select(0), 1.0)

        return run

    return Contender(name, pairs, prepare)


def counted(say: Progress, what: str, total: int) -> Callable[[int], None]:
    """Return a tick for `interleave` that reports progress."""
    say(f"{what} 0/{total}")
    return lambda done: say(f"{what} {done}/{total}")


def nanoseconds(name: str, pairs: Pairs, unit: str, reference: str) -> Row:
    """Return a row of the loops' part."""
    return row(name, pairs.value * NANO, unit, reference, pairs.ratio)


def loop_rows(reference: Reference, effort: Effort, say: Progress) -> list[Row]:
    """Measure rounds in compiled loops, each beside the naive C loop."""
    stationary = one_query(effort.rounds)
    chances = world(stationary, 0).chances[0].tolist()
    slow = max(1, effort.rounds // PYTHON_SHARE)  # rounds for the loop in Python

    def c(name: str, run: Callable[..., object]) -> Contender:
        return Contender(name, effort.rounds, lambda: lambda: run(effort.rounds, chances))

    naive = c("naive-c-loop", reference.naive)
    contenders = [
        simulated("ucb1-loop", UCB1(), stationary),
        simulated("bwc-traffic-d10", paper_policy(), traffic(effort.rounds, 10)),
        simulated("bwc-traffic-d40", paper_policy(), traffic(effort.rounds, 40)),
        simulated("ora-traffic-d10", Oracle(UCB1()), traffic(effort.rounds, 10)),
        batched("batch-api", max(1, effort.rounds // (BATCH_SHARE * QUERIES_PER_CALL))),
        c("c-cached-loop", reference.cached),
        Contender("python-loop", slow, lambda: lambda: python_loop(slow, chances)),
    ]
    measured = interleave(naive, contenders, effort.repeats, tick=counted(say, "loops beside C", effort.repeats))
    rows = [
        nanoseconds(name, pairs, "ns/pair" if name == "batch-api" else "ns/round", "naive C") for name, pairs in measured.items()
    ]
    yardstick = statistics.median([second for pairs in measured.values() for second in pairs.reference])
    return [*rows, row("naive-c-loop", yardstick * NANO, "ns/round", "naive C", 1.0)]


def bandit_rows(effort: Effort, say: Progress) -> list[Row]:
    """Measure other bandits in the same loop, each beside UCB1."""
    stationary = one_query(max(1, effort.rounds // BANDIT_SHARE))
    contenders = [
        simulated("ts-loop", Thompson(), stationary),
        simulated("klucb-loop", KLUCB(), stationary),
        simulated("exp3s-loop", EXP3S.tuned(ARMS, PER_QUERY), stationary),
    ]
    tick = counted(say, "bandits beside UCB1", effort.repeats)
    measured = interleave(simulated("ucb1", UCB1(), stationary), contenders, effort.repeats, tick=tick)
    return [nanoseconds(name, pairs, "ns/round", "UCB1 loop") for name, pairs in measured.items()]


def swerve_rows(effort: Effort, say: Progress) -> list[Row]:
    """Measure Swerve in the same loop, beside Thompson sampling on the same instance.

    The fair reference draws contexts too, although Thompson sampling does not read them: they belong to the traffic, not to the
    policy.
    """
    rows = []
    for name, load, fraction, see, reference in (
        ("swerve-clear", "clear", 0.1, True, "TS loop with contexts"),
        ("swerve-clear-noisy", "clear-noisy", 0.5, True, "TS loop with contexts"),
        ("swerve-clear-no-contexts", "clear", 0.1, False, "TS loop without contexts"),
    ):
        environment = workload(load, fraction, queries=effort.queries, impressions=effort.queries * PER_QUERY)
        yardstick, own = simulated("ts", Thompson(), environment, see), simulated(name, Swerve(), environment)
        tick = counted(say, f"{name} beside Thompson sampling", effort.repeats)
        rows.append(nanoseconds(name, interleave(yardstick, [own], effort.repeats, tick=tick)[name], "ns/round", reference))
    return rows


def page_rows(effort: Effort, say: Progress) -> list[Row]:
    """Measure a page of ten slots beside a page of one slot, the simulated reading of the page included."""
    rows, rounds = [], effort.rounds // PAGE_SHARE
    for candidates in effort.candidates:
        one, ten = (
            workload(f"page-clear(slots={slots}, candidates={candidates})", 0.5, queries=PAGE_QUERIES, impressions=rounds)
            for slots in (1, 10)
        )
        name = f"page-10-of-{candidates}"
        yardstick, own = simulated("one slot", Listed(), one, True), simulated(name, Listed(), ten, True)
        tick = counted(say, f"{name} beside one slot", effort.repeats)
        rows.append(nanoseconds(name, interleave(yardstick, [own], effort.repeats, tick=tick)[name], "ns/round", "one slot"))
    return rows


def api_rows(effort: Effort, say: Progress) -> list[Row]:
    """Measure calls from Python, in pairs of a decision and its reward per second, each beside the fastest installed peer."""
    there = peers.installed(effort.pairs)
    best = peers.fastest(there)
    ours = [stepped("step-api", effort.pairs), separate("step-api-separate", effort.pairs)]
    yardstick = ours[0] if best is None else there[best]
    contenders = [*ours, *(contender for name, contender in there.items() if name != best)]
    measured = interleave(yardstick, contenders, effort.repeats, tick=counted(say, "calls beside peers", effort.repeats))
    title = "fastest peer (none installed)" if best is None else f"fastest peer ({peers.PEERS[best].title})"
    note = "install the extra 'bench' to compare" if best is None else ""
    rows = [
        row(name, 1.0 / pairs.value, "pairs/s", title, None if best is None else 1.0 / pairs.ratio, note)
        for name, pairs in measured.items()
    ]
    if best is not None:
        slices = [second for pairs in measured.values() for second in pairs.reference]
        rows.append(row(best, 1.0 / statistics.median(slices), "pairs/s", title, 1.0))
    missing = [name for name in peers.PEERS if name not in there]
    return rows + [row(name, None, "pairs/s", title, None, f"{peers.PEERS[name].title} is not installed") for name in missing]


def state_rows() -> list[Row]:
    """Measure the bytes of one query's state."""
    return [
        against_bar("state-ucb1", row_dtype(UCB1(), STATE_ARMS, 0).itemsize, "B", "8 arms"),
        against_bar("state-bwc", row_dtype(paper_policy(), STATE_ARMS, FEATURES).itemsize, "B", "8 arms, 8 features"),
        against_bar("state-swerve", row_dtype(Swerve(), STATE_ARMS, FEATURES).itemsize, "B", "8 arms, 8 features"),
    ]


def first_decision(cache: Path, policy: str = PAPERS) -> float:
    """Return the seconds that a new process takes from start to exit, with one decision."""
    source = Path(__file__).parents[2]  # measure this package, installed or not
    path = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "SWERVE_CACHE_DIR": str(cache), "PYTHONPATH": path}
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", FIRST_DECISION.format(policy=policy)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    spent = time.perf_counter() - begun
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SwerveError(f"a new process failed before its first decision: {reason}")
    return spent


def start_rows(folder: Path, effort: Effort, say: Progress) -> list[Row]:
    """Measure new processes: first without compiled code, then with the code that the first have compiled."""
    say("a start without compiled code")
    cold = [first_decision(folder / f"cache-{number}") for number in range(effort.colds)]
    say("a start without compiled code, hull")
    hull = first_decision(folder / "cache-hull", WITH_HULL)
    say("a start without compiled code, Swerve")
    ours = first_decision(folder / "cache-swerve", OURS)
    say("starts with compiled code")
    warm = [first_decision(folder / "cache-0") for _ in range(effort.starts)]
    ours_warm = [first_decision(folder / "cache-swerve", OURS) for _ in range(effort.starts)]
    start, start_ours = statistics.median(warm), statistics.median(ours_warm)
    return [
        against_bar("start-cached", start, "s", "new process, import, first decision of BWC"),
        against_bar("cold-compile", statistics.median(cold), "s", "start-cached without compiled code"),
        row("cold-compile-hull", hull, "s", "cold-compile", hull / statistics.median(cold), "cold-compile with Hull, once"),
        row("start-cached-swerve", start_ours, "s", "start-cached", start_ours / start, "start-cached with Swerve"),
        row("cold-compile-swerve", ours, "s", "cold-compile", ours / statistics.median(cold), "cold-compile with Swerve, once"),
    ]


def hull_rows(effort: Effort, say: Progress) -> list[Row]:
    """Measure a hull prediction in compiled code, beside `nnls` on the same points and contexts."""
    unit, title = "µs/prediction", "SciPy nnls"
    try:
        tick = counted(say, "hull beside nnls", effort.batches)
        pairs, agree = hulls.measure(effort.batches, effort.batch, max(1, effort.repeats // HULL_REPEATS), tick)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "scipy":
            raise
        note = "SciPy is not installed; install the extra 'bench'"
        return [row(name, None, unit, title, None, note) for name in ("hull-predict-d10-n300", "hull-nnls-d10-n300")]
    note = "" if all(agree) else f"{agree.count(False)} of {len(agree)} predictions are wrong"
    return [
        row("hull-predict-d10-n300", pairs.value * MICRO, unit, title, pairs.ratio, note),
        row("hull-nnls-d10-n300", pairs.reference_value * MICRO, unit, title, 1.0),
    ]
