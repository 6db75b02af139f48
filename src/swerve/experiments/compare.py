"""Paired comparisons of policies on workloads and environments: ratios, differences and ranks.

A cell is a workload at a fraction of shifting queries, or a workload or environment without a fraction (None). Every policy plays
the same seeds in a cell, and a seed gives the same clicks, contexts and events to all of them. Differences are taken run by run, so
that the spread between instances, which is most of the spread between runs, cancels. Intervals are Student's, at 95 %.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swerve.core.errors import SwerveError, shown, whole
from swerve.core.spec import Spec, field_types
from swerve.environments import WORKLOADS, environment, takes_fraction, workload, world
from swerve.environments.workloads import base_name
from swerve.experiments.compare_pages import (
    GIVEN,
    ORACLE,
    PAGE_ORACLE,
    click_figures,
    oracle_of,
    page_figures,
    page_totals,
    page_tuning,
)
from swerve.experiments.comparison import Cell, Comparison, Row, Stopped
from swerve.experiments.intervals import Values, interval, ratio_of
from swerve.policies import policy
from swerve.simulate import Interrupted, SharedWorlds, Tick, simulate
from swerve.simulate.devices import CPU, Job, at_once

FRACTIONS = (0.0, 0.1, 0.5)  # nothing shifts, the paper's fraction, half of the queries
RUNS = 20  # per cell: enough for intervals that decide most cells
FIRST_SEED = 100  # apart from the seeds 0 to 9, on which the parameters of the policies were chosen

#: The bars for one default setting of a policy: the largest allowed ratio to the oracle, by workload and fraction.
BARS: dict[tuple[str, float], float] = {
    (name, fraction): bar
    for name, bars in {
        "clear": (1.05, 1.0, 0.95),
        "clear-noisy": (1.15, 1.25, 1.5),
        "mixed": (1.05, 1.1, 1.4),
        "mixed-noisy": (1.15, 2.5, 2.8),
        "low": (1.05, 1.1, 1.3),
        "uniform": (1.05, 1.1, 1.3),
        "clear-extreme": (1.26, 1.2, 1.14),  # a fifth more than clear
    }.items()
    for fraction, bar in zip(FRACTIONS, bars, strict=True)
}
#: Policies without contexts, to which the judged policy must not lose if anything shifts: no paired interval above 0.
RIVALS = ("glr-ts", "cusum-klucb", "ts")

Cells = dict[Cell, Spec]


def sized(problem: Spec, queries: int | None, impressions: int | None) -> Spec:
    """Return a problem, resized. Fewer queries alone keep their full length; a problem without such a field keeps its size."""
    if queries is not None and impressions is None:
        whole_size, count = getattr(problem, "impressions", None), getattr(problem, "queries", None)
        if whole_size is not None and count is not None:
            impressions = max(queries, round(whole_size * queries / count))
    changes = {"queries": queries, "impressions": impressions}
    known = field_types(type(problem))
    changes = {field: value for field, value in changes.items() if value is not None and field in known}
    return dataclasses.replace(problem, **changes) if changes else problem  # type: ignore[type-var]


def cells_of(
    workloads: Sequence[str],
    fractions: Sequence[float],
    queries: int | None = None,
    impressions: int | None = None,
    environments: Sequence[str] = (),
) -> Cells:
    """Return the environment of every cell, in the order of play; raise if one of them is invalid."""
    for kind, given in (("workloads", [*workloads, *environments]), ("fractions", fractions)):
        if not given:
            raise SwerveError(f"{kind} = {given!r} is not allowed; there must be at least one")
    for fraction in fractions:
        if not 0.0 <= fraction <= 1.0:
            raise SwerveError(f"fraction = {shown(fraction)} is not allowed; fraction must be in [0, 1]")
    out: Cells = {}
    for name in workloads:
        for part in map(float, fractions) if takes_fraction(name) else (None,):
            out[name, part] = workload(name, part)
    for name in environments:
        if base_name(name) in WORKLOADS and takes_fraction(name):
            raise SwerveError(f"environment = {name!r} is not allowed; a workload has that name: write the name of the class")
        out[name, None] = environment(name)
    return {key: sized(problem, queries, impressions) for key, problem in out.items()}


def players(policies: Sequence[str], oracle: str = ORACLE) -> list[str]:
    """Return the players: the policies, each once, and the oracle, which ratios need."""
    if not policies:
        raise SwerveError("policies = [] is not allowed; there must be at least one")
    for text in policies:
        policy(text)  # an unknown name raises before anything is played
    return list(dict.fromkeys([*policies, oracle]))


def chosen(policies: Sequence[str], against: str | None) -> str:
    """Return the policy whose differences are taken: the first unless `against` names another."""
    if against is not None and against not in (*policies, ORACLE, PAGE_ORACLE, GIVEN):
        raise SwerveError(f"against = {against!r} is not allowed; it must be one of the policies: {', '.join(policies)}")
    return against or policies[0]


def total_rounds(cells: Cells, policies: Sequence[str], runs: int, seed: int = FIRST_SEED) -> int:
    """Return the number of rounds that a comparison plays, for a progress bar."""

    def rounds(problem: Spec) -> int:
        return int(getattr(problem, "impressions", 0)) or len(world(problem, seed).schedule)

    return runs * sum(len(players(policies, oracle_of(problem))) * rounds(problem) for problem in cells.values())


def compare(
    policies: Sequence[str],
    workloads: Sequence[str],
    fractions: Sequence[float] = FRACTIONS,
    *,
    runs: int = RUNS,
    seed: int = FIRST_SEED,
    environments: Sequence[str] = (),
    against: str | None = None,
    queries: int | None = None,
    impressions: int | None = None,
    threads: int | None = None,
    device: str = CPU,
    out: str | Path | None = None,
    progress: Callable[[Tick], None] | None = None,
) -> Comparison:
    """Play every policy in every cell on the seeds `seed`, `seed + 1`, …; the oracle always plays, because ratios refer to it.

    `environments` are played beside the workloads, in one cell each, as they are written. `against` names the policy whose
    differences are taken (default: the first). `queries` and `impressions` make all of them smaller. With `out`, finished runs are
    stored in that folder and reused by the next call. Ctrl-C raises `Stopped` with the finished cells. On a GPU or a
    cluster cells are played at the same time, and `seconds` of a row overlap with those of others.

    >>> found = compare(["ts", "ucb1"], ["clear"], [0.5], runs=2, queries=2, impressions=4000, threads=1)
    >>> [(row.policy, row.runs, row.seed) for row in found.rows]
    [('ts', 2, 100), ('ucb1', 2, 100)]
    """
    whole("runs", runs, 1)
    asked = tuple(dict.fromkeys(policies))
    players(asked)
    subject = chosen(asked, against)
    found = Comparison(asked, subject, runs, seed, [], {})
    try:
        cells = cells_of(workloads, fractions, queries, impressions, environments)
        tunings = {key: tuning(problem, seed) for key, problem in cells.items()}
        stop = threading.Event()
        for block in [[key] for key in cells] if device == CPU else [list(cells)]:  # a cell at a time, or all
            jobs = [(key, text) for key in block for text in dict.fromkeys([*players(asked, oracle_of(cells[key])), subject])]
            shared = SharedWorlds(cells[key] for key, _ in jobs)

            def play(key: Cell, text: str, shared: SharedWorlds, device: str) -> tuple[Any, ...]:
                start, problem = time.perf_counter(), cells[key]
                with shared.of(problem) as worlds:
                    results = simulate(
                        policy(text, **tunings[key]), problem, runs=runs, seed=seed, threads=threads, device=device, out=out,
                        progress=progress, stop=stop, worlds=worlds,
                    )  # fmt: skip
                figures, clicks = page_figures(problem, results), page_totals(problem, results)
                return results.regret, time.perf_counter() - start, figures, clicks, (results.rounds, results.curves)

            todo = [Job(partial(play, key, text, shared), policy(text, **tunings[key]), cells[key], runs) for key, text in jobs]
            played = dict(zip(jobs, at_once(todo, device, stop), strict=True))
            for name, fraction in block:
                own = {text: done for (key, text), done in played.items() if key == (name, fraction)}
                regrets, seconds = {text: done[0] for text, done in own.items()}, {text: done[1] for text, done in own.items()}
                found.regrets.update({(name, fraction, text): values for text, values in regrets.items()})
                found.curves.update({(name, fraction, text): done[4] for text, done in own.items()})
                problem = cells[name, fraction]
                for row in rows_of(name, fraction, asked, subject, seed, regrets, seconds, oracle_of(problem)):
                    gained = click_figures(problem, own[row.policy][3], None if row.policy == subject else own[subject][3])
                    found.rows.append(dataclasses.replace(row, **own[row.policy][2], **gained))
    except (Interrupted, KeyboardInterrupt):
        raise Stopped(found) from None
    return found


def tuning(problem: Spec, seed: int) -> dict[str, Any]:
    """Return the parameters that policies are tuned to. Draws the first instance of every cell, so that errors surface early."""
    first = world(problem, seed)
    return {"arms": first.arms, "horizon": int(first.rounds.max()), **page_tuning(problem)}


def rows_of(
    name: str,
    fraction: float | None,
    asked: Sequence[str],
    against: str,
    seed: int,
    regrets: dict[str, Values],
    seconds: dict[str, float],
    oracle: str = ORACLE,
) -> list[Row]:
    """Return the rows of one cell, from every player's regrets in the order of the seeds."""
    out = []
    for text in asked:
        own = regrets[text]
        ratio, ratio_low, ratio_high = ratio_of(own, regrets[oracle])
        difference, low, high = (None, None, None) if text == against else interval(regrets[against] - own)
        rank = 1 + sum(float(regrets[other].mean()) < float(own.mean()) for other in asked)
        spread = float(own.std(ddof=1)) if len(own) > 1 else None
        out.append(
            Row(
                name, fraction, text, float(own.mean()), spread, len(own), seed, ratio, ratio_low, ratio_high,
                against, difference, low, high, rank, seconds.get(text, 0.0), oracle,
            )
        )  # fmt: skip
    return out


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the policy `against` reaches its bar in a cell (None: no bar), and the rivals to which it certainly loses."""

    workload: str
    fraction: float | None
    ratio: float | None
    bar: float | None
    above: tuple[str, ...]

    @property
    def within(self) -> bool:
        """Whether the ratio is small enough."""
        return self.bar is None or (self.ratio is not None and self.ratio <= self.bar)

    @property
    def holds(self) -> bool:
        """Whether both conditions hold."""
        return self.within and not self.above


def verdicts(comparison: Comparison) -> list[Verdict]:
    """Return the verdict of each cell for the policy `against`. If nothing shifts, losing to a rival is allowed.

    Workloads with pages have bars of their own (`swerve.experiments.compare_pages`).
    """
    subject = comparison.against
    missing = [name for name in (subject, *RIVALS) if name not in comparison.policies]
    if missing:
        raise SwerveError(f"the bars also need the policies {', '.join(missing)}")
    if comparison.runs < 2:
        raise SwerveError(f"runs = {comparison.runs} is not allowed; the bars need intervals, which need at least 2 runs")
    out = []
    for name, fraction in comparison.cells:
        if comparison.row(name, fraction, subject).paged:
            continue
        rivals = [comparison.row(name, fraction, rival) for rival in RIVALS if rival != subject]
        above = tuple(row.policy for row in rivals if fraction != 0.0 and row.decided > 0)
        ratio = comparison.row(name, fraction, subject).ratio
        bar = None if fraction is None else BARS.get((name, fraction))
        out.append(Verdict(name, fraction, ratio, bar, above))
    return out
