"""Paired comparisons of policies on workloads and environments: ratios, differences and ranks.

A cell is a workload at a fraction of shifting queries, or a workload or environment without a fraction (None). Every policy plays
the same seeds in a cell, and a seed gives the same clicks, contexts and events to all of them. Differences are taken run by run, so
that the spread between instances, which is most of the spread between runs, cancels. Intervals are Student's, at 95 %.
"""

from __future__ import annotations

import dataclasses
import math
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
from swerve.experiments.intervals import Values, interval, ratio_of
from swerve.policies import policy
from swerve.simulate import Interrupted, Tick, Worlds, simulate
from swerve.simulate.devices import CPU, at_once

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

Cell = tuple[str, float | None]
Cells = dict[Cell, Spec]


@dataclasses.dataclass(frozen=True)
class Row:
    """One policy in one cell. Figures that a single run cannot give (`sd`, intervals) are None.

    `ratio` is the policy's mean regret ÷ the oracle's. `difference` is the mean regret of the policy `against` − its own: negative
    if the policy `against` does better, None in that policy's own row. `rank` counts from 1, the least regret; equal means share
    a rank.

    The last figures are those of pages, None for other workloads: `harm` is the value lost to the given order in the first 200
    impressions of a query, in % of the given order's, as the mean and the 90th percentile over the queries; `recovered` is the
    median number of impressions until a page is at 95 % of the best again after an event (None: most never are), `churn` the
    number of slots that change from page to page, `top_regret` the attractiveness lost on the top slot alone. Each is the mean over
    the runs, `recovered` the median. `clicks` are the clicks on all slots in a run, and `gained` is their number − that of the
    policy `against`, run by run; None in that policy's own row. `searches` are those with at least one click.
    """

    workload: str
    fraction: float | None
    policy: str
    mean: float
    sd: float | None
    runs: int
    seed: int
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    against: str
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    rank: int
    seconds: float
    oracle: str = ORACLE
    harm: float | None = None
    harm_p90: float | None = None
    recovered: float | None = None
    churn: float | None = None
    top_regret: float | None = None
    clicks: float | None = None
    gained: float | None = None
    gained_low: float | None = None
    gained_high: float | None = None
    searches: float | None = None
    searches_gained: float | None = None
    searches_gained_low: float | None = None
    searches_gained_high: float | None = None

    @property
    def paged(self) -> bool:
        """Whether the figures of pages are there."""
        return self.harm is not None

    @property
    def decided(self) -> int:
        """−1 if the whole interval of the difference lies below 0, 1 if it lies above, otherwise 0."""
        if self.difference_low is not None and self.difference_low > 0.0:
            return 1
        return -1 if self.difference_high is not None and self.difference_high < 0.0 else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Standing:
    """A policy over all cells. `better` and `worse` count the cells in which the policy `against` is certainly so."""

    policy: str
    ratio: float | None  # geometric mean: a ratio of 2 and one of 1/2 balance
    worst: float | None
    where: str
    rank: float
    better: int
    worse: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of a comparison. `regrets` holds every run's final regret, the oracle's too, for further analyses."""

    policies: tuple[str, ...]
    against: str
    runs: int
    seed: int
    rows: list[Row]
    regrets: dict[tuple[str, float | None, str], Values]

    @property
    def cells(self) -> list[Cell]:
        """The workload and fraction of every cell, in the order of play."""
        return list(dict.fromkeys((row.workload, row.fraction) for row in self.rows))

    def row(self, name: str, fraction: float | None, text: str) -> Row:
        """Return the row of a policy in a cell."""
        for row in self.rows:
            if (row.workload, row.fraction, row.policy) == (name, fraction, text):
                return row
        raise SwerveError(f"{text} did not play {named(name, fraction, ' at ')}")

    def standings(self) -> list[Standing]:
        """Return each policy's standing over all cells, the best mean rank first."""
        out = []
        for name in self.policies:
            own = [row for row in self.rows if row.policy == name]
            rated = [(row.ratio, row) for row in own if row.ratio is not None and row.ratio > 0.0]
            worst, at = max(rated, key=lambda pair: pair[0]) if rated else (None, None)
            mean = math.exp(sum(math.log(ratio) for ratio, _ in rated) / len(rated)) if rated else None
            where = "" if at is None else named(at.workload, at.fraction)
            rank = sum(row.rank for row in own) / len(own) if own else math.nan
            better, worse = (sum(row.decided == sign for row in own) for sign in (-1, 1))
            out.append(Standing(name, mean, worst, where, rank, better, worse))
        return sorted(out, key=lambda standing: standing.rank)


def named(name: str, fraction: float | None, between: str = " ") -> str:
    """Return a cell's name."""
    return name if fraction is None else f"{name}{between}{fraction:g}"


class Stopped(Exception):  # noqa: N818 - an event, not an error
    """The user stopped a comparison; `comparison` holds the cells that every policy had finished."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(f"stopped after {len(comparison.cells)} finished cells")
        self.comparison = comparison


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
    stored in that folder and reused by the next call. Ctrl-C raises `Stopped` with the finished cells. On a GPU cells are played at
    the same time, and `seconds` of a row overlap with those of others.

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
        stop, tasks = threading.Event(), runs * max(int(getattr(problem, "queries", 1)) for problem in cells.values())
        for block in [[key] for key in cells] if device == CPU else [list(cells)]:  # a cell at a time, or all
            shared: dict[Cell, Worlds] = {}
            jobs = [(key, text) for key in block for text in dict.fromkeys([*players(asked, oracle_of(cells[key])), subject])]

            def play(number: int, jobs: list[tuple[Cell, str]] = jobs, shared: dict[Cell, Worlds] = shared) -> tuple[Any, ...]:
                key, text = jobs[number]
                start, problem = time.perf_counter(), cells[key]
                worlds = shared.setdefault(key, Worlds(problem))
                results = simulate(
                    policy(text, **tunings[key]), problem, runs=runs, seed=seed, threads=threads, device=device, out=out,
                    progress=progress, stop=stop, worlds=worlds,
                )  # fmt: skip
                if number + 1 == len(jobs) or jobs[number + 1][0] != key:
                    shared.pop(key, None)  # players that still play in these instances have them
                figures, clicks = page_figures(problem, results), page_totals(problem, results)
                return results.regret, time.perf_counter() - start, figures, clicks

            played = dict(
                zip(jobs, at_once([partial(play, number) for number in range(len(jobs))], device, stop, tasks), strict=True)
            )
            for name, fraction in block:
                own = {text: done for (key, text), done in played.items() if key == (name, fraction)}
                regrets, seconds = {text: done[0] for text, done in own.items()}, {text: done[1] for text, done in own.items()}
                found.regrets.update({(name, fraction, text): values for text, values in regrets.items()})
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
